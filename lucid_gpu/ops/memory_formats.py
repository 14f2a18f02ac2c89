"""Copies whose elements lie in a wanted order: ``memory_format=``."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from lucid_gpu.core import layout
from lucid_gpu.core.layout import order_of, result_strides
from lucid_gpu.core.program import changed_load
from lucid_gpu.core.value import load_as
from lucid_gpu.core.value import order_of as order_of_value
from lucid_gpu.devices import backend
from lucid_gpu.devices.copies import inverse, write
from lucid_gpu.fusion.typing_rules import broadcast_shapes
from lucid_gpu.ops.laying import is_plain, lay
from lucid_gpu.ops.mirrors import in_memory, is_batched
from lucid_gpu.ops.record import leads_back, record
from lucid_gpu.storage import memory_format, preserve_format
from lucid_gpu.tape.modes import is_grad_enabled
from lucid_gpu.tape.rules import Call, jvp
from lucid_gpu.tensor import Tensor, _laid_out

F = TypeVar("F", bound=Callable[..., Any])


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
    return layout.lies_in(tuple(input.shape), strides_of(input), wanted.order)


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
    array = input.array
    copy = empty_in(order, array.shape, input)
    write(copy, array)
    d = input._expr.program.dtype
    result: Tensor = record("CloneBackward0", copy, (input,), same_vjp, dtype=d, chosen=True)
    return result


def kept_order(input: Tensor) -> tuple[int, ...] | None:
    """The order in which a copy lies that preserves the strides, or, with gaps, their order."""
    if input._storage is not None:
        input = in_memory(input)
    value = input._expr
    program = value.program
    if not program.is_load or program.free or not program.strided:
        return order_of_value(value) if program.laid else None
    return _order_kept(value.shape, value.leaves[0].array.strides, program.dtype.itemsize)


@functools.lru_cache(1 << 12)
def _order_kept(
    shape: tuple[int, ...], strides: tuple[int, ...], item: int
) -> tuple[int, ...] | None:
    steps = tuple([step // item for step in strides])
    return order_of(shape, result_strides(shape, [(shape, steps)]))


def channels_order(*inputs: Tensor) -> tuple[int, ...] | None:
    """The order of images whose channels lie last, where one of several tensors lies so.

    Strides tell as PyTorch has them tell: where they are ambiguous, channels lie first.
    """
    for input in inputs:
        order = _CHANNELS_LAST.get(len(input._expr.shape))
        if order is not None:
            value = input._expr if input._storage is None else in_memory(input)._expr
            program = value.program
            if program.is_load and program.strided and not program.free:
                if channels_lie_last(value.shape, value.leaves[0].array.strides, order):
                    return order
            elif program.laid and order_of_value(value) == order:
                return order
    return None


def dense_channels_order(input: Tensor) -> tuple[int, ...] | None:
    """As `channels_order`, but where extents of 1 leave it open, channels lie last unless the
    elements are in row-major order too.
    """
    order = _CHANNELS_LAST.get(input.ndim) if 1 in input.shape else None
    if order is None:
        return channels_order(input)
    value = in_memory(input)._expr
    program = value.program
    if not program.is_load or program.free or not program.strided:
        return channels_order(input)
    strides, item = value.leaves[0].array.strides, program.dtype.itemsize
    return order if layout.lies_in(value.shape, strides, order, item) else channels_order(input)


_CHANNELS_LAST = {4: (0, 2, 3, 1), 5: (0, 2, 3, 4, 1)}


def channels_lie_last(
    shape: Sequence[int], strides: Sequence[int], order: Sequence[int] = (0, 2, 3, 1)
) -> bool:
    """Whether strides are those of images whose channels lie last, as PyTorch decides it."""
    least = 0
    if strides[1] == 0:
        return False
    for dim in reversed(order):
        if shape[dim] == 0 or strides[dim] < least or (dim == 0 and least == strides[1]):
            return False
        least = strides[dim] * shape[dim]
    return True


def signals_order(*inputs: Tensor) -> tuple[int, ...] | None:
    """`channels_order` of signals (n, c, w), taken as images of one row, or of images."""
    first = inputs[0]
    if len(first._expr.shape) != 3:
        return channels_order(*inputs)
    outer, channel, step = strides_of(first)
    length = first.shape[2]
    images = (first.shape[0], first.shape[1], 1, length)
    return (0, 2, 1) if channels_lie_last(images, (outer, channel, length * step, step)) else None


def row_major_order(*inputs: Tensor) -> None:
    """Row-major, whatever the inputs are."""


def joint_order(*inputs: Tensor) -> tuple[int, ...] | None:
    """The order of a result that is computed element by element from tensors of any shapes."""
    if all(is_plain(t._expr) for t in inputs):
        return None
    operands = [(t._expr.shape, strides_of(t)) for t in inputs]
    shape = broadcast_shapes([own for own, _ in operands])
    return order_of(shape, result_strides(shape, operands))


def strides_of(input: Tensor) -> tuple[int, ...]:
    """The strides, in elements, that a tensor has or will have."""
    value = in_memory(input)._expr
    program, shape = value.program, value.shape
    if not program.is_load or program.free or not program.strided:
        order = order_of_value(value) if program.laid else None
        return layout.row_major(shape) if order is None else layout.in_order(shape, order)
    return tuple([step // program.dtype.itemsize for step in value.leaves[0].array.strides])


def led_in(input: Tensor, order: tuple[int, ...] | None) -> Tensor:
    """The input of a composition, row by row, whose gradient lies in an order; see `leads_back`."""
    if order is None or not (input.requires_grad and is_grad_enabled()):
        return input
    return leads_back(in_order(input, None), order)


def lying(
    *names: str, rule: Callable[..., Any] = kept_order, back: bool = False
) -> Callable[[F], F]:
    """Declare how the results of a function lie in memory.

    Parameters
    ----------
    *names : str
        Of the parameters whose layout decides.
    rule : callable
        Of these tensors: gives the order of the dimensions, None for row-major. By default it is
        the order of the one that is named.
    back : bool
        Whether the gradients of the op that gave the result lie so too.
    """

    def declare(function: F) -> F:
        known = list(inspect.signature(function).parameters)
        places = [(name, known.index(name)) for name in names]

        @functools.wraps(function)
        def laid(*args: Any, **kwargs: Any) -> Any:
            result = function(*args, **kwargs)
            tensors = []
            for name, i in places:
                t = args[i] if i < len(args) else kwargs.get(name)
                if isinstance(t, Tensor):
                    if t._is_sparse or (t._wrapper is not None and is_batched(t)):
                        return result
                    tensors.append(t)
            order = rule(*tensors)
            if order is None and type(result) is Tensor and is_plain(result._expr):
                return result
            if isinstance(result, tuple):
                parts = [_lay_beside(tensors, part, order) for part in result]
                return tuple(parts) if type(result) is tuple else type(result)(*parts)
            result = _lay_beside(tensors, result, order)
            return leads_back(result, order) if back else result

        return cast(F, laid)

    return declare


def _lay_beside(inputs: Sequence[Tensor], result: Tensor, order: tuple[int, ...] | None) -> Tensor:
    """`lay`, but for an input that came back, and for a view of one."""
    base = result._base
    for t in inputs:
        if t is result or (base is not None and (base is t or base is t._base)):
            return result
    return lay(result, order)


def columns(function: F) -> F:
    """Declare that matrices in the results lie column by column, as LAPACK gives them."""

    @functools.wraps(function)
    def laid(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if not isinstance(result, tuple):
            return _in_columns(result)
        ranks = [len(part._expr.shape) for part in result]
        rank = max(ranks)  # of matrices; there may be vectors beside them
        parts = [part if n < rank else _in_columns(part) for part, n in zip(result, ranks)]
        return tuple(parts) if type(result) is tuple else type(result)(*parts)

    return cast(F, laid)


def _in_columns(result: Tensor) -> Tensor:
    return result if len(result._expr.shape) < 2 else lay(result, columns_order(result))


def columns_order(matrices: Tensor) -> tuple[int, ...]:
    """The order of matrices of this rank that lie column by column."""
    rank = len(matrices._expr.shape)
    return (*range(rank - 2), rank - 1, rank - 2)


def moved(tensor: Tensor, array: Any) -> None:
    """Give a realized tensor an array of the same values; who saved the old one hears of writes."""
    old = tensor._cell()
    strided = not array.flags.c_contiguous
    cell = old.moved(array)
    load_as(tensor, changed_load(tensor._expr.program, strided=strided, free=False), cell)
    if tensor._storage is not None:
        tensor._storage.add_cell(cell)


def empty_in(order: Sequence[int] | None, shape: Sequence[int], input: Tensor) -> Any:
    """An array of a shape and a tensor's type, to be filled, whose dimensions lie in an order."""
    program = input._expr.program
    d, where = program.dtype, program.device
    if order is None:
        return backend(where).empty(shape, d, where)
    memory = backend(where).empty([shape[i] for i in order], d, where)
    return memory.transpose(inverse(tuple(order)))


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
    return [call.tangent().clone()]  # which is written apart from that of the input, a view perhaps
