"""Copies whose elements lie in a wanted order: ``memory_format=``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lucid_gpu.devices import backend
from lucid_gpu.devices.copies import write
from lucid_gpu.fusion import layout
from lucid_gpu.fusion.layout import order_of, result_strides
from lucid_gpu.ops.mirrors import in_memory
from lucid_gpu.ops.record import record
from lucid_gpu.storage import memory_format, preserve_format
from lucid_gpu.tape.rules import Call, jvp
from lucid_gpu.tensor import Tensor, _laid_out


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
    array = input.array
    return layout.lies_in(array.shape, array.strides, wanted.order, input.dtype.itemsize)


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
        return input.clone() if wanted is preserve_format else in_order(input, None)
    if input.ndim != len(order):
        raise RuntimeError(f"required rank {len(order)} tensor to use {wanted.name} format")
    return in_order(input, order)


def in_order(input: Tensor, order: Sequence[int] | None) -> Tensor:
    """A copy whose dimensions lie in an order, outermost first; None for row-major."""
    array, where = input.array, input.device
    if order is None:
        copy = backend(where).empty(array.shape, input.dtype, where)
    else:
        places = sorted(range(len(order)), key=order.__getitem__)
        lying = [array.shape[d] for d in order]
        copy = backend(where).empty(lying, input.dtype, where).transpose(places)
    write(copy, array)
    result: Tensor = record("CloneBackward0", copy, (input,), same_vjp, dtype=input.dtype)
    return result._keep_order()


def kept_order(input: Tensor) -> tuple[int, ...] | None:
    """The order in which a copy lies that preserves the strides, or, with gaps, their order."""
    input = in_memory(input)
    program = input._expr.program
    if not program.is_load or program.free or program.root.value[1] is None:
        return program.order
    shape, item = program.shape, program.dtype.itemsize
    strides = tuple([step // item for step in program.root.value[1]])
    return order_of(shape, result_strides(shape, [(shape, strides)]))


def like(made: Tensor, input: Tensor, wanted: memory_format | None) -> Tensor:
    """A new tensor laid out as ``*_like`` functions do: as the input, unless a format is wanted."""
    if wanted is not None:
        require_format("like", wanted)
        if wanted is not preserve_format:
            return in_format(made, wanted)
    order = kept_order(input)
    return made if order is None else _laid_out(made, order)


def same_vjp(node: Any, g: Tensor) -> tuple[Tensor]:
    """The gradient of a copy."""
    return (g,)


@jvp(same_vjp)
def _same_jvp(call: Call) -> Any:
    return [call.tangent().alias()]
