"""How results and gradients lie in memory, said of tensors whose elements have not moved yet."""

from __future__ import annotations

from typing import Any

from lucid_gpu.fusion import layout
from lucid_gpu.fusion.expression import Expr
from lucid_gpu.fusion.program import changed_load
from lucid_gpu.ops.mirrors import is_batched
from lucid_gpu.tensor import Tensor, _laid_out


def lay(result: Tensor, order: tuple[int, ...] | None) -> Tensor:
    """A result, which nobody has seen yet, in an order in memory; None is row-major.

    Its elements move when its strides are looked at, or a view is taken, if they do not lie so.
    What comes back stands for the result; mostly it is the same tensor.
    """
    if is_batched(result) or result._is_sparse:
        return result
    program, storage = result._expr.program, result._storage
    if is_plain(program) if order is None else program.order == order and not program.is_load:
        return result
    array = result._cell().array
    dense = layout.lies_in(array.shape, array.strides, order or range(array.ndim), array.itemsize)
    if storage is not None and (result._base is not None or storage.others(result)):
        if dense or result._wrapper is not None:  # a copy would have no tangent
            return result
        return _laid_out(result, order or tuple(range(array.ndim)))
    lay_as(result, False if dense else (True if order is None else order))
    return result


def is_plain(program: Any) -> bool:
    """Whether a value lies in row-major order, or will."""
    if program.order is not None:
        return False
    return not program.is_load or program.free or program.root.value[1] is None


def lay_as(tensor: Tensor, free: bool | tuple[int, ...]) -> None:
    """Say of a realized tensor whether its order in memory is PyTorch's: see `Program.free`."""
    old = tensor._load()
    loads = changed_load(old.program, strides=_strides_in_memory(old), free=free)
    tensor._expr = Expr(loads, old.leaves, None)


def _strides_in_memory(value: Expr) -> tuple[int, ...] | None:
    array = value.leaves[0].array
    return None if array.flags.c_contiguous else array.strides
