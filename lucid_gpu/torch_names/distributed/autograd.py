"""`torch.distributed.autograd` for packages that import it: gradients through remote calls."""

from __future__ import annotations

from typing import Any, NoReturn

__all__ = ["backward", "context", "get_gradients", "is_available"]


def is_available() -> bool:
    """Whether functions can be called on other ranks: they cannot."""
    return False


def _refuse(*args: Any, **kwargs: Any) -> NoReturn:
    """Refuse with a NotImplementedError."""
    raise NotImplementedError(
        "lucid_gpu.distributed.autograd: there are no remote calls; collectives move tensors "
        "between ranks, and DistributedDataParallel their gradients (docs/distributed.md)"
    )


backward = context = get_gradients = _refuse
