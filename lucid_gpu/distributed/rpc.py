"""`torch.distributed.rpc` for packages that import it: remote calls are not available."""

from __future__ import annotations

__all__ = ["is_available"]


def is_available() -> bool:
    """Whether functions can be called on other ranks: they cannot; collectives move tensors."""
    return False
