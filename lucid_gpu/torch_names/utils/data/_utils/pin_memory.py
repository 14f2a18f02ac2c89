"""`torch.utils.data._utils.pin_memory`: what batches of packages pin their parts with."""

from __future__ import annotations

from typing import Any

from lucid_gpu.utils.data import pinning

__all__ = ["pin_memory"]


def pin_memory(data: Any, device: Any = None) -> Any:
    """The same batch in page-locked memory; the device is always that of CUDA."""
    return pinning.pin_memory(data)
