"""Methods that arrays have and PyTorch's tensors have not, for programs written for arrays."""

from __future__ import annotations

from typing import Any

from lucid_gpu.dtypes import as_dtype
from lucid_gpu.tensor import Tensor


def astype(self: Tensor, dtype: Any, copy: bool = True) -> Tensor:
    """In another element type; a copy, unless ``copy=False`` and it has that type already."""
    found = self.to(as_dtype(dtype))
    return found.clone() if copy and found is self else found


def copy(self: Tensor, order: str = "C") -> Tensor:
    """A copy, as `clone` gives it."""
    return self.clone()


def conjugate(self: Tensor) -> Tensor:
    """The complex conjugate; a real tensor itself."""
    return self.conj()


METHODS = (astype, copy, conjugate)
FUNCTIONS = ()
