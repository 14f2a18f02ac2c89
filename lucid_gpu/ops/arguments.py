"""What may be passed for a tensor: a tensor."""

from __future__ import annotations

from typing import Any

from lucid_gpu.tensor import Tensor


def require_tensor(op: str, role: str, position: int, given: Any) -> None:
    """Refuse what is no tensor in PyTorch's words."""
    if not isinstance(given, Tensor):
        raise TypeError(
            f"{op}(): argument '{role}' (position {position}) must be Tensor, not "
            f"{type(given).__name__}"
        )
