"""The primitives of indexing: what a parsed index names is read, placed in zeros, or replaced.

The index is one that `ops.index_parsing.parse` gives, or arrays that are in bounds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from lucid_gpu import dtypes as dt
from lucid_gpu.core.engine import gathering
from lucid_gpu.devices import backend, xp_of
from lucid_gpu.devices.copies import strided, where_cut
from lucid_gpu.devices.pool import pool
from lucid_gpu.kernels.index_add import add_at, flat_places
from lucid_gpu.ops.index_parsing import Distinct, masks_as_positions, may_repeat, parts_of, together
from lucid_gpu.ops.memory_formats import empty_in, kept_order, lying
from lucid_gpu.ops.record import full_tangents, record
from lucid_gpu.ops.reductions import constant_number, expand_lazily
from lucid_gpu.ops.shape import base_array, view_of
from lucid_gpu.tape.door import op
from lucid_gpu.tape.levels import open_levels
from lucid_gpu.tape.modes import state
from lucid_gpu.tape.rules import Batch, Call, batching, jvp
from lucid_gpu.tensor import Tensor, from_array

FEW_PLACES = 1 << 12


# --- reading --------------------------------------------------------------------------------------


def read(kind: str, input: Tensor, index: Any) -> Tensor:
    """What stands at positions that have been checked, as a copy."""
    array = input.array
    if not isinstance(array, np.ndarray):
        index = masks_as_positions(index)
    return _recorded(kind, input, index, _selected(array, index))


def _recorded(kind: str, input: Tensor, index: Any, array: Any) -> Tensor:
    d, shape = input._expr.program.dtype, input._expr.shape
    result: Tensor = record(kind, array, (input,), _getitem_vjp, dtype=d, index=index, shape=shape)
    return result


@op
def slice_view(input: Tensor, index: tuple[Any, ...], name: str) -> Tensor:
    """A view by a basic index."""
    whole = base_array(input)
    array = whole[index]
    if not array.size:
        array = where_cut(array, whole, index)
    elif isinstance(array, np.generic):  # a single element: no view yet
        array = whole[index + (...,)]
    step = slice_view, (index, name)
    shape = input._expr.shape
    attributes: Any = {
        "index": index,
        "shape": shape,
        "reads_alone": True,
        "look_around": gathering,
    }
    return view_of(input, name, array, _getitem_vjp, step, **attributes)


@batching(slice_view)
def _slice_view_batched(level: Batch, f: Any, x: Tensor, index: Any, name: str) -> Any:
    return level.wrap(f(level.value(x), (slice(None), *index), name))


def _getitem_vjp(node: Any, g: Tensor) -> Any:
    gathered = node.__dict__.pop("gathered", None)
    if gathered:
        values = [g, *[cotangent for _, cotangent in gathered]]
        indices = [node.index, *[other.index for other, _ in gathered]]
        return (place_each(values, indices, node.shape),)
    return (zeros_with_values(g, node.index, node.shape),)


@jvp(_getitem_vjp)
def _getitem_jvp(call: Call) -> Any:
    taken = getitem_parsed(call.tangent(), call.attributes["index"])
    return [taken.reshape(tuple(call.results[0].shape))]


@op
def getitem_parsed(g: Tensor, index: Any) -> Tensor:
    """A copy of what a parsed index selects."""
    array = xp_of(g).ascontiguousarray(_selected_copy(g.array, index))
    return _recorded("IndexBackward0", g, index, array.reshape(selected_shape(g, index)))


@batching(getitem_parsed)
def _getitem_parsed_batched(level: Batch, f: Any, g: Tensor, index: Any) -> Any:
    if not together(parts_of(index)):
        return NotImplemented
    return level.wrap(f(level.value(g), (slice(None), *parts_of(index))))


# --- gather, scatter and index ops ----------------------------------------------------------------


def _selected_copy(array: Any, index: Any) -> Any:
    """`_selected`, in memory of its own: a view would share the cotangent's unseen."""
    selected = _selected(array, index)
    return selected if selected.base is None else selected.copy()


def _selected(array: Any, index: Any) -> Any:
    """``array[index]``, in bounds; elements and whole slices NumPy's `take` copies sooner."""
    dense = isinstance(array, np.ndarray) and array.flags.c_contiguous and array.size
    if not dense or type(index) not in (tuple, Distinct) or not index:
        return array[index]
    if _names_elements(array, index):
        return array.reshape(-1).take(flat_places(index, array.shape, np), mode="wrap")
    *whole, rows = index
    for part in whole:
        if type(part) is not slice or part != slice(None):
            return array[index]
    if not isinstance(rows, np.ndarray) or rows.dtype.kind != "i":
        return array[index]
    axis = len(whole)
    out = pool.empty((*array.shape[:axis], *rows.shape, *array.shape[axis + 1 :]), array.dtype)
    return array.take(rows, axis, out, mode="wrap")


def _names_elements(array: Any, index: Any) -> bool:
    """Whether an index is an array of numbers for each of several dimensions, not a few places."""
    if type(index) not in (tuple, Distinct) or not 1 < len(index) == array.ndim:
        return False
    most = 0
    for part in index:
        if not isinstance(part, np.ndarray) or part.dtype.kind != "i":
            return False
        most = max(most, part.size)
    return most >= FEW_PLACES


# --- placing --------------------------------------------------------------------------------------


@op
def zeros_with_values(values: Tensor, index: Any, shape: tuple[int, ...]) -> Tensor:
    """Zeros of ``shape`` with ``values`` added at ``index``; repeated positions accumulate."""
    program = values._expr.program
    d, where = program.dtype, program.device
    array = backend(where).empty(shape, d, where)
    array.fill(0)
    if may_repeat(index):
        add_at(array, parts_of(index), values.array, where)
    else:
        number = constant_number(values)
        if not isinstance(array, np.ndarray) and any(hasattr(p, "dtype") for p in parts_of(index)):
            number = None  # CuPy would copy it from the host
        _assign(array, index, values.array if number is None else number)
    result: Tensor = record(
        "PlaceBackward0", array, (values,), _zeros_with_values_vjp, dtype=d, index=index
    )
    return result


@batching(zeros_with_values)
def _zeros_with_values_batched(level: Batch, f: Any, values: Tensor, index: Any, shape: Any) -> Any:
    if not together(parts_of(index)):
        return NotImplemented
    return level.wrap(f(level.value(values), (slice(None), *parts_of(index)), (level.size, *shape)))


def place_each(
    values: Sequence[Tensor], indices: Sequence[tuple[Any, ...]], shape: tuple[int, ...]
) -> Tensor:
    """The sum of what `zeros_with_values` gives for basic indices, in one array."""
    first = values[0]
    array = backend(first.device).empty(shape, first.dtype, first.device)
    array.fill(0)
    add = xp_of(first).add
    for value, index in zip(values, indices, strict=True):
        part = array[index]
        if isinstance(part, np.generic):  # a single element
            part = array[index + (...,)]
        add(part, value.array, part)
    result: Tensor = record(
        "PlaceBackward0", array, values, _place_each_vjp, dtype=first.dtype, indices=indices
    )
    return result


def _place_each_vjp(node: Any, g: Tensor) -> Any:
    return tuple(
        [
            getitem_parsed(g, index) if needed else None
            for index, needed in zip(node.indices, node.needs_input_grad, strict=True)
        ]
    )


def _zeros_with_values_vjp(node: Any, g: Tensor) -> Any:
    return (getitem_parsed(g, node.index),)


@jvp(_zeros_with_values_vjp)
def _zeros_with_values_jvp(call: Call) -> Any:
    where = tuple(call.results[0].shape)
    return [zeros_with_values(call.tangent(), call.attributes["index"], where)]


# --- replacing ------------------------------------------------------------------------------------


@op
@lying("input")
def with_values(input: Tensor, index: Any, value: Tensor) -> Tensor:
    """A copy of the input with ``value`` at ``index``."""
    source = input.array
    array = empty_in(kept_order(input), source.shape, input)
    array[...] = source
    _assign(array, index, value.array)
    if value._expr.program.needs_grad or open_levels:
        value = spread_to(value, selected_shape(input, index))
    result: Tensor = record(
        "IndexPutBackward0",
        array,
        (input, value),
        _with_values_vjp,
        dtype=input._expr.program.dtype,
        index=index,
    )
    return result


@batching(with_values)
def _with_values_batched(level: Batch, f: Any, x: Tensor, index: Any, value: Tensor) -> Any:
    if not together(parts_of(index)):
        return NotImplemented
    spread = spread_to(value, selected_shape(x, index))
    return level.wrap(f(level.full(x), (slice(None), *parts_of(index)), level.full(spread)))


def _with_values_vjp(node: Any, g: Tensor) -> Any:
    rest, taken = node.needs_input_grad
    zero = spread_to(g.new_zeros(()), ())
    g_rest = None
    if rest:
        g_rest = with_values(g, node.index, expand_lazily(zero, selected_shape(g, node.index)))
    g_value = getitem_parsed(g, node.index) if taken else None
    if taken and state.linearizing and may_repeat(node.index):
        g_value = g_value * _last_written(g, node.index)
    return g_rest, g_value


def _last_written(like: Tensor, index: Any) -> Tensor:
    """Where values stay, and not where a later one is written to the same place.

    As in PyTorch, gradients pass to all of them; the derivative that is their transpose must not.
    """
    shape = selected_shape(like, index)
    numbers = from_array(xp_of(like).arange(math.prod(shape)), dt.int64, like.device).reshape(shape)
    zeros = from_array(xp_of(like).zeros(tuple(like.shape), "int64"), dt.int64, like.device)
    return getitem_parsed(with_values(zeros, index, numbers), index) == numbers


@jvp(_with_values_vjp)
def _with_values_jvp(call: Call) -> Any:
    rest, values = full_tangents(call)
    return [with_values(rest, call.attributes["index"], values)]


def spread_to(value: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A value as a shape has it, without leading dimensions that this lacks."""
    own = tuple(value.shape)
    if len(own) > len(shape):
        value = value.reshape(own[len(own) - len(shape) :])
    return expand_lazily(value, shape)


def _assign(array: Any, index: Any, values: Any) -> None:
    """``array[index] = values``, in bounds; the array is row-major."""
    if isinstance(array, np.ndarray) and _names_elements(array, index):
        array.reshape(-1)[flat_places(index, array.shape, np)] = values
    else:
        array[index] = values


def selected_shape(input: Tensor, index: Any) -> tuple[int, ...]:
    """The shape of what a parsed index selects."""
    if all(getattr(p, "dtype", np.bool_) != np.bool_ for p in index):  # positions, all first
        shapes = [p.shape for p in index]
        return (*np.broadcast_shapes(*shapes), *tuple(input.shape)[len(index) :])
    shape = input._expr.shape
    probe = strided(_BYTE, shape, (0,) * len(shape))
    selected: tuple[int, ...] = probe[tuple([_outline(input, p) for p in index])].shape
    return selected


def _outline(input: Tensor, part: Any) -> Any:
    """A part of an index that selects as many elements: only for masks the GPU is waited for."""
    if not hasattr(part, "dtype"):
        return part
    if part.dtype == np.bool_:
        return backend(input.device).to_numpy(part)
    return strided(_BYTE, part.shape, (0,) * part.ndim)


_BYTE = np.zeros((), np.int8)


def index_tensor(input: Tensor, array: Any) -> Tensor:
    """Positions as a tensor of int64, on the input's device."""
    return from_array(array.astype(np.int64, order="C"), dt.int64, input._expr.program.device)
