"""How results and gradients lie in memory, said of tensors whose elements have not moved yet."""

from __future__ import annotations

from lucid_gpu.core import layout
from lucid_gpu.core.program import changed_load
from lucid_gpu.core.value import Expr, load_as, order_of
from lucid_gpu.ops.mirrors import is_batched
from lucid_gpu.tensor import Tensor, _laid_out


def lay(result: Tensor, order: tuple[int, ...] | None) -> Tensor:
    """A result, which nobody has seen yet, in an order in memory; None is row-major.

    Its elements move when its strides are looked at, or a view is taken, if they do not lie so.
    What comes back stands for the result; mostly it is the same tensor.
    """
    if result._is_sparse or (result._wrapper is not None and is_batched(result)):
        return result
    value, storage = result._expr, result._storage
    pending = not value.program.is_load
    if is_plain(value) if order is None else pending and order_of(value) == order:
        return result
    array = result._cell().array
    dense = layout.lies_in(array.shape, array.strides, order or range(array.ndim), array.itemsize)
    if storage is not None and (result._base is not None or storage.others(result)):
        if dense or result._wrapper is not None:  # a copy would have no tangent
            return result
        return _laid_out(result, order or tuple(range(array.ndim)))
    lay_as(result, False if dense else (True if order is None else order))
    return result


def is_plain(value: Expr) -> bool:
    """Whether a value lies in row-major order, or will."""
    program = value.program
    if program.laid and order_of(value) is not None:
        return False
    return not program.is_load or bool(program.free) or not program.strided


def lay_as(tensor: Tensor, free: bool | tuple[int, ...]) -> None:
    """Say of a realized tensor whether its order in memory is PyTorch's: see `Program.free`."""
    old = tensor._load()
    strided = not old.leaves[0].array.flags.c_contiguous
    load_as(tensor, changed_load(old.program, strided=strided, free=free))
