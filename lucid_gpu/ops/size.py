"""``x.size``: the number of elements, as NumPy says it, and called, the shape, as PyTorch does."""

from __future__ import annotations

from types import MethodType
from typing import Any

from lucid_gpu.ops.reductions import normalize_dim
from lucid_gpu.ops.registry import attach
from lucid_gpu.storage import Size
from lucid_gpu.tape.overrides import handling, has_handler, overridable
from lucid_gpu.tensor import Tensor


@overridable
def size(self: Tensor, dim: int | None = None) -> Any:
    """The shape, or one extent of it."""
    return self.size(dim)


class Count(int):
    """The number of a tensor's elements, which is forgotten."""

    shape: Size

    def __call__(self, dim: int | None = None) -> Any:
        """The shape, or one extent of it."""
        shape = self.shape
        return shape if dim is None else shape[normalize_dim(dim, len(shape))]

    def __reduce__(self) -> Any:
        return int, (int(self),)


class _Size:
    """The attribute: a method of the class, a `Count` of a tensor."""

    def __get__(self, tensor: Tensor | None, owner: type[Tensor]) -> Any:
        if tensor is None:
            return size
        if handling and has_handler((tensor,)):
            return MethodType(size, tensor)
        count = Count(tensor.numel())
        count.shape = tensor.shape
        return count


attach(Tensor, size=_Size())
