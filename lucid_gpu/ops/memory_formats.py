"""Copies whose elements lie in a wanted order: ``memory_format=``."""

from __future__ import annotations

from typing import Any

from lucid_gpu.devices import xp_of
from lucid_gpu.ops.record import record
from lucid_gpu.storage import memory_format
from lucid_gpu.tensor import Tensor


def require_format(op: str, value: Any) -> None:
    """Refuse anything but a memory format."""
    if not isinstance(value, memory_format):
        raise TypeError(
            f"{op}(): argument 'memory_format' must be lucid_gpu.memory_format, not "
            f"{type(value).__name__}"
        )


def lies_in(input: Tensor, wanted: memory_format) -> bool:
    """Whether the elements stand in an order without gaps; extents of 1 stand anywhere."""
    if wanted.order is None:
        return bool(input.is_contiguous())
    if input.ndim != len(wanted.order):
        return False
    array, expected = input.array, input.dtype.itemsize
    for d in reversed(wanted.order):
        if array.shape[d] != 1 and array.strides[d] != expected:
            return False
        expected *= array.shape[d]
    return True


def in_format(input: Tensor, wanted: memory_format) -> Tensor:
    """The tensor itself where it lies in an order, else a copy that does."""
    require_format("contiguous", wanted)
    if wanted.order is None:
        return input.contiguous()
    return input if lies_in(input, wanted) else copied(input, wanted)


def copied(input: Tensor, wanted: memory_format) -> Tensor:
    """A copy in an order."""
    require_format("clone", wanted)
    order = wanted.order
    if order is None:
        return input.clone()
    if input.ndim != len(order):
        raise RuntimeError(f"required rank {len(order)} tensor to use {wanted.name} format")
    places = sorted(range(len(order)), key=order.__getitem__)
    shape = input.shape
    array = xp_of(input).empty([shape[d] for d in order], input.array.dtype).transpose(places)
    array[...] = input.array
    result: Tensor = record("CloneBackward0", array, (input,), _same_vjp, dtype=input.dtype)
    result._memory()  # the order is the user's: nobody may lay it out anew
    return result


def _same_vjp(node: Any, g: Tensor) -> tuple[Tensor]:
    return (g,)
