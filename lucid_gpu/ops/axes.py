"""Dimensions by their other names, and views that a tensor becomes in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucid_gpu.core.node import AccumulateGrad
from lucid_gpu.core.program import INFERENCE
from lucid_gpu.core.saved import counted
from lucid_gpu.core.value import give
from lucid_gpu.ops import shape
from lucid_gpu.ops.arguments import guarded, one_by_one
from lucid_gpu.ops.in_place import count_write, refuse_inference, refuse_recorded
from lucid_gpu.ops.reductions import sum_to_shape
from lucid_gpu.ops.registry import named
from lucid_gpu.tape.door import op
from lucid_gpu.tape.modes import FORWARD, state
from lucid_gpu.tensor import Tensor, _tensor, dense_order


@op
def swapaxes(input: Tensor, axis0: int, axis1: int) -> Tensor:
    """`transpose`, of two dimensions of the shape, under NumPy's name."""
    return shape.transpose(input, axis0, axis1)


@op
def swapdims(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """Alias of `transpose`: two dimensions of the shape exchanged."""
    return shape.transpose(input, dim0, dim1)


@op
def moveaxis(input: Tensor, source: Any, destination: Any) -> Tensor:
    """`movedim` under NumPy's name."""
    return shape.movedim(input, source, destination)


@op
def ravel(input: Tensor) -> Tensor:
    """All elements as a vector without gaps; a view where the tensor is row-major."""
    return shape.reshape(input.contiguous(), -1)


@op
def adjoint(input: Tensor) -> Tensor:
    """The last two dimensions, ``(..., m, n)``, exchanged and complex numbers conjugated.

    RuntimeError for vectors.
    """
    if input.ndim == 1:
        raise RuntimeError(
            "tensor.adjoint() is only supported on matrices or batches of matrices. Got 1-D tensor."
        )
    turned: Tensor = (shape.transpose(input, -2, -1) if input.ndim else input).conj()
    return turned


@op
def sum_to_size(self: Tensor, *size: Any) -> Tensor:
    """Summed over what was broadcast from ``size``, so that this is the result's shape.

    RuntimeError where ``size`` cannot be broadcast to the tensor's shape.
    """
    wanted = shape._sizes(size)
    own = tuple(self.shape)
    pairs = zip(reversed(own), reversed(wanted), strict=False)
    if len(wanted) > len(own) or any(m not in (1, n) for n, m in pairs):
        raise RuntimeError(f"size {{{list(wanted)}}} is not expandable to size {{{list(own)}}}.")
    if own == wanted and own:
        return self
    if self.dtype.category < 2:
        self = self.long()
    return sum_to_shape(self, wanted)


def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Whether two tensors have one shape."""
    return tuple(input.shape) == tuple(other.shape)


def becoming(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The in-place form of a view: the tensor takes the view's shape, its memory stays."""
    name = f"{function.__name__}_"

    def method(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return _become(self, lambda before: function(before, *args, **kwargs), function.__name__)

    return named(method, name, f"`{function.__name__}` in place: the memory stays as it is.")


def _become(tensor: Tensor, view_of: Callable[[Tensor], Tensor], name: str) -> Tensor:
    """Take shape, strides and history of the view that ``view_of`` makes of a stand-in."""
    wrapper = tensor._wrapper
    if wrapper is not None:
        level = wrapper.level
        if not level.batches:
            level.become(tensor, lambda own, make: _become(own, make, name), view_of)
            return tensor
        views = []

        def value_of_view(before: Tensor) -> Tensor:
            views.append(view_of(level.wrap(before)))
            value: Tensor = level.value(views[0])
            return value

        _become(level.value(tensor), value_of_view, name)
        give(tensor, views[0]._expr)
        return tensor
    if tensor._expr.program.marks & INFERENCE:
        refuse_inference()
    if state.grad:
        refuse_recorded(tensor, False, f"{name}_")
    if tensor._expr.program.free:  # views can be made again only of what they were made of
        shape.array_in_order(tensor)
        tensor._keep_order()
    storage = tensor._memory()
    if not tensor._expr.program.marks & INFERENCE and storage.mirror is None:
        tensor._own_memory()
        count_write(tensor, f"{name}_")
    else:
        storage.count(f"{name}_")
    before = _tensor(tensor._expr)
    before._storage, before._creation = storage, tensor._creation
    before._base, before._steps = tensor._base, tensor._steps
    storage.add(before)
    kept = tensor._edge() if not state.grad and state.mode is not FORWARD else (None, 0)
    view = view_of(before)
    give(tensor, view._expr)
    if kept[0] is not None:  # the history stays what it was
        tensor._cut()._attach(*kept)
        if type(kept[0]) is AccumulateGrad:
            kept[0].order = dense_order(tensor._expr)
            kept[0].shape = tuple(tensor.shape)
    if storage.mirror is not None:
        storage = tensor._storage = view._memory()
        storage.add(tensor)
    if tensor._base is not None:
        tensor._steps = view._steps
    turned = kept[0] is not None or tensor._base is None
    tensor._refuse_views(storage, turned)
    counted(tensor._expr, storage)
    return tensor


METHODS = (
    swapaxes, swapdims, moveaxis, ravel, adjoint, sum_to_size, is_same_size,
    *[becoming(f) for f in (guarded(shape.unsqueeze), guarded(one_by_one(shape.squeeze)), shape.t,
                            shape.transpose, swapaxes, swapdims)],
)  # fmt: skip
FUNCTIONS = (swapaxes, swapdims, moveaxis, ravel, adjoint, is_same_size)
