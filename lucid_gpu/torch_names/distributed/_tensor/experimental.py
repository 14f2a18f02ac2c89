"""`torch.distributed._tensor.experimental`: tensors beside tensors on a mesh."""

from __future__ import annotations

from typing import NoReturn

__all__ = ["implicit_replication"]


def implicit_replication() -> NoReturn:
    """Refuse with a RuntimeError that names what to write instead."""
    raise RuntimeError(
        "lucid_gpu.distributed._tensor.experimental.implicit_replication: write "
        "distribute_tensor(x, mesh, [Replicate()])"
    )
