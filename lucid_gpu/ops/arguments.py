"""What may be passed for a tensor: a tensor, and on the device where the others are."""

from __future__ import annotations

from typing import Any

from lucid_gpu.fusion.expression import one_device
from lucid_gpu.tensor import Tensor


def require_tensor(op: str, role: str, position: int, given: Any) -> None:
    """Refuse what is no tensor in PyTorch's words."""
    if not isinstance(given, Tensor):
        raise TypeError(
            f"{op}(): argument '{role}' (position {position}) must be Tensor, not "
            f"{type(given).__name__}"
        )


def require_one_device(op: str, first: Tensor, *others: Tensor | None) -> None:
    """Refuse tensors on several devices in PyTorch's words; None is no tensor."""
    where = first.device
    for other in others:
        if other is not None and other.device is not where:
            one_device(op, [t._expr.program for t in (first, *others) if t is not None])
