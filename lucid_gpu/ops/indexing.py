"""Reading and writing parts of tensors: slices as views, index tensors as copies."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from lucid_gpu import dtypes as dt
from lucid_gpu.devices import backend, xp_of
from lucid_gpu.devices.blocks import each_of_rows
from lucid_gpu.devices.device_errors import DeviceError
from lucid_gpu.devices.pool import pool
from lucid_gpu.fusion.typing_rules import broadcast_shapes
from lucid_gpu.kernels import bounds
from lucid_gpu.kernels.index_add import add_at, flat_places
from lucid_gpu.ops.arguments import (
    guarded,
    put_into,
    require_one_device,
    require_one_dtype,
    require_tensor,
    takes_out,
)
from lucid_gpu.ops.creation import arange
from lucid_gpu.ops.in_place import refers_to_itself, refuse_overlap, refuse_recorded, written
from lucid_gpu.ops.record import full_tangents, record, watch
from lucid_gpu.ops.reductions import (
    ValuesAndIndices,
    constant_number,
    expand_lazily,
    normalise_dim,
)
from lucid_gpu.ops.registry import attach
from lucid_gpu.ops.shape import base_array, movedim, view_of
from lucid_gpu.ops.user_warnings import warn_user
from lucid_gpu.tape.door import op
from lucid_gpu.tape.levels import innermost, open_levels
from lucid_gpu.tape.modes import state
from lucid_gpu.tape.rules import Batch, Call, batching, jvp
from lucid_gpu.tensor import Tensor, from_array


def _parse(
    input: Tensor, index: Any, wait: bool = False, low: int | None = None
) -> tuple[Any, bool]:
    """An index as NumPy takes it, and whether it is basic (a view).

    ``wait``: positions outside the tensor raise here on a GPU too; see `kernels.bounds.check`, also
    for ``low``.

    Raises
    ------
    IndexError
        For positions outside the tensor, too many indices, or what is no index.
    ValueError
        For slices with a negative step, which no view of a tensor has.
    """
    parts = list(index) if isinstance(index, tuple) or _stands_for_a_tuple(index) else [index]
    parts = _without_later_ellipses([_part(input, p) for p in parts])
    basic = not any(hasattr(p, "dtype") or isinstance(p, bool) for p in parts)
    used = sum(_consumes(p) for p in parts)
    rank = input.ndim
    if used > rank:
        raise IndexError(f"too many indices for tensor of dimension {rank}")
    dim, backwards = 0, {}
    for place, part in enumerate(parts):
        if part is Ellipsis:
            dim = rank - sum(_consumes(p) for p in parts[place + 1 :])
            continue
        if type(part) is int:
            extent = input.shape[dim]
            if not -extent <= part < extent:
                raise IndexError(
                    f"index {part} is out of bounds for dimension {dim} with size {extent}"
                )
        elif hasattr(part, "dtype"):
            _check_array(input, part, dim, wait, low)
        elif type(part) is slice and part.step is not None and part.step < 0:
            backwards[dim] = place
        dim += _consumes(part)
    if backwards:
        raise _Backwards(parts, backwards)
    if not basic:
        _check_they_broadcast(parts)
    return tuple(parts), basic


class _Backwards(ValueError):
    """An index with slices that go backwards: its parts, and the place of each by dimension."""

    def __init__(self, parts: list[Any], places: dict[int, int]) -> None:
        super().__init__("step must be greater than zero")
        self.parts, self.places = parts, places

    def turned(self, input: Tensor) -> tuple[Tensor, tuple[Any, ...]]:
        """The tensor with these dimensions flipped, and the index forwards."""
        for dim, place in self.places.items():
            n = input.shape[dim]
            span = range(n)[self.parts[place]][::-1]
            start = n - 1 - span[-1] if span else 0
            stop = n - span[0] if span else 0
            self.parts[place] = slice(start, stop, abs(span.step))
        where = input.device
        parts = [from_array(p, None, where) if hasattr(p, "dtype") else p for p in self.parts]
        return input.flip(tuple(self.places)), tuple(parts)


def _stands_for_a_tuple(index: Any) -> bool:
    """PyTorch takes a list that holds tensors, sequences, slices or None for a tuple."""
    if not isinstance(index, list) or len(index) >= 32:
        return False
    kinds = (Tensor, slice, list, tuple, range, np.ndarray)
    if not any(p is None or p is Ellipsis or isinstance(p, kinds) for p in index):
        return False
    warn_user(
        "Using a non-tuple sequence for multidimensional indexing is deprecated; use x[tuple(seq)] "
        "instead of x[seq], or x[lucid_gpu.tensor(seq)] for one index tensor.",
    )
    return True


def _without_later_ellipses(parts: list[Any]) -> list[Any]:
    """Only one can stand for anything; the others are let go at the end, where PyTorch allows."""
    if sum(p is Ellipsis for p in parts) > 1:
        first = next(i for i, p in enumerate(parts) if p is Ellipsis)
        while parts[-1] is Ellipsis and len(parts) - 1 > first:
            parts.pop()
    return parts


def _check_they_broadcast(parts: Sequence[Any]) -> None:
    shapes = [p.shape for p in parts if hasattr(p, "dtype") and p.dtype != np.bool_]
    if len(shapes) > 1 and shapes.count(shapes[0]) < len(shapes):
        try:
            np.broadcast_shapes(*shapes)
        except ValueError:
            raise IndexError(
                "shape mismatch: indexing tensors could not be broadcast together with shapes "
                + ", ".join([str(list(shape)) for shape in shapes])
            ) from None


def _ints_apart(parts: Sequence[Any]) -> bool:
    """Whether ints stand apart from index arrays: PyTorch selects by them before it looks."""
    places = [i for i, p in enumerate(parts) if isinstance(p, int) or hasattr(p, "dtype")]
    ints = any(type(p) is int for p in parts)
    return ints and places[-1] - places[0] >= len(places)


def _by_ints_first(input: Tensor, parts: Sequence[Any]) -> tuple[Tensor, tuple[Any, ...]]:
    """The view that an index's basic parts select, and the index of that for the rest."""
    rest: list[Any] = []
    basic: list[Any] = []
    for part in parts:
        if isinstance(part, bool):
            rest.append(part)
        elif hasattr(part, "dtype"):
            rest.append(from_array(part, dt.from_numpy_dtype(part.dtype), input.device))
            basic += [slice(None)] * _consumes(part)
        else:
            basic.append(part)
            if type(part) is not int:
                rest.append(part if part is Ellipsis else slice(None))
    return slice_view(input, tuple(basic), "SelectBackward0"), tuple(rest)


def _consumes(part: Any) -> int:
    if part is None or part is Ellipsis or isinstance(part, bool):
        return 0
    if hasattr(part, "dtype") and part.dtype == np.bool_:
        return int(part.ndim)
    return 1


def _part(input: Tensor, part: Any) -> Any:
    if part is None or part is Ellipsis or type(part) in (int, bool):
        return part
    if isinstance(part, slice):
        if part.step is not None and int(part.step) == 0:
            raise ValueError("step must be greater than zero")
        return slice(*[_position(v) for v in (part.start, part.stop, part.step)])
    if isinstance(part, Tensor):
        if part.dtype.category > 1:
            raise IndexError(
                "tensors used as indices must be long, int, byte or bool tensors, got "
                f"{part.dtype.name}"
            )
        if part.ndim == 0 and part.dtype.category == 1 and part.dtype is not dt.uint8:
            return int(part.item())
        if part.device != input.device:
            if part.device.type != "cpu":
                raise RuntimeError(
                    "indices should be either on cpu or on the same device as the indexed tensor "
                    f"({input.device}), but one is on {part.device}; move it with .to(...)"
                )
            part = part.to(input.device)
        array = part.detach().array
        if part.dtype is dt.uint8:
            warn_user(
                "indexing with dtype torch.uint8 is now deprecated, please use a dtype torch.bool "
                "instead."
            )
            return array.astype(bool)
        return array
    if isinstance(part, (list, tuple, range)):
        from lucid_gpu.ops.creation import tensor

        made = tensor(list(part), device=input.device)
        return _part(input, made.to(dt.int64) if made.numel() == 0 else made)
    if isinstance(part, np.ndarray):
        from lucid_gpu.ops.creation import tensor

        return _part(input, tensor(part, device=input.device))
    if hasattr(part, "__index__"):
        return part.__index__()
    raise IndexError(
        "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid "
        f"indices (got {type(part).__name__})"
    )


def _position(value: Any) -> int | None:
    if value is None or type(value) is int:
        return value
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(
            "slice indices must be integers or None or have an __index__ method, not "
            f"{type(value).__name__}"
        ) from None


def _check_array(
    input: Tensor, array: Any, dim: int, wait: bool = False, low: int | None = None
) -> None:
    if array.dtype == np.bool_:
        own = tuple(input.shape[dim : dim + array.ndim])
        if tuple(array.shape) != own:
            raise IndexError(
                f"The shape of the mask {list(array.shape)} at index 0 does not match the shape of "
                f"the indexed tensor {list(input.shape)} at index {dim}"
            )
        return
    bounds.check(array, input.shape[dim], dim, input.device, low, wait=wait)


def getitem(input: Tensor, index: Any) -> Tensor:
    """``input[index]``: a view for ints, slices, None and ...; a copy for index tensors.

    Slices with a negative step, which PyTorch refuses, give a copy too.
    """
    try:
        return _picked("IndexBackward0", input, index)
    except _Backwards as backwards:
        return _picked("IndexBackward0", *backwards.turned(input))


def _plain(input: Tensor, index: Any) -> bool:
    """Whether an index is ints that exist and slices that step by one: the most frequent ones."""
    parts = index if type(index) is tuple else (index,)
    shape = input._expr.program.shape
    if len(parts) > len(shape):
        return False
    for part, extent in zip(parts, shape, strict=False):
        if type(part) is int:
            if not -extent <= part < extent:
                return False
        elif (
            type(part) is not slice
            or part.step is not None
            or type(part.start) not in _BOUNDS
            or type(part.stop) not in _BOUNDS
        ):
            return False
    return True


_BOUNDS = frozenset((int, type(None)))


_LOWEST = {"IndexSelectBackward0": 0}  # elsewhere negative positions count from the end


@op
def _picked(kind: str, input: Tensor, index: Any) -> Tensor:
    if _plain(input, index):
        parsed, basic = index if type(index) is tuple else (index,), True
    else:
        parsed, basic = _parse(input, index, low=_LOWEST.get(kind))
    if basic:
        name = "SelectBackward0" if int in map(type, parsed) else "SliceBackward0"
        return slice_view(input, parsed, name)
    if _ints_apart(parsed):
        result: Tensor = _picked(kind, *_by_ints_first(input, parsed))
    else:
        result = _read(kind, input, parsed)
    watch(result, *_tensors_of(index))
    return result


def _tensors_of(index: Any) -> list[Tensor]:
    """The tensors that an index names positions with."""
    parts = index if isinstance(index, (tuple, list)) else (index,)
    return [part for part in parts if isinstance(part, Tensor)]


def _read(kind: str, input: Tensor, index: Any) -> Tensor:
    """What stands at positions that have been checked, as a copy."""
    array = base_array(input)
    if not isinstance(array, np.ndarray):
        index = _named(index)
    result: Tensor = record(
        kind,
        _selected(array, index),
        (input,),
        _getitem_vjp,
        dtype=input.dtype,
        index=index,
        shape=tuple(input.shape),
    )
    return result


@batching(_picked)
def _picked_batched(level: Batch, f: Any, kind: str, x: Tensor, index: Any) -> Any:
    parts = _parts(index)
    if any(_is_wrapped(p) for p in parts):
        return _picked_by_batched(level, f, kind, x, parts)
    parsed, basic = _parse(x, index)
    if basic or not _together(parsed):
        return NotImplemented
    return level.wrap(f(kind, level.value(x), (slice(None), *parts)))


def _is_wrapped(part: Any) -> bool:
    """Whether an index part is batched, here or further out."""
    return isinstance(part, Tensor) and part._wrapper is not None


def _picked_by_batched(level: Batch, f: Any, kind: str, x: Tensor, parts: Any) -> Any:
    """``x[..., i, j, ...]`` with a side-by-side run of index tensors, batched or not."""
    if any(_is_wrapped(p) and p.dtype.category == 0 for p in parts):
        raise _dynamic("index with a bool tensor")
    places = [i for i, p in enumerate(parts) if isinstance(p, Tensor)]
    lead = parts[: places[0]]
    run = parts[places[0] : places[-1] + 1]
    if not all(isinstance(p, Tensor) and p.dtype.category == 1 for p in run):
        return NotImplemented
    rest = parts[places[-1] + 1 :]
    if not all(isinstance(p, slice) or p is None for p in (*lead, *rest)):
        return NotImplemented
    rank = max(p.ndim for p in run)
    indices = tuple([level.aligned(p, rank) for p in run])
    p = len(lead)
    if not level.holds(x):
        found = f(kind, x, (*lead, *indices, *rest))
        return level.wrap(movedim(found, p, 0))
    examples = arange(level.size, device=x.device).reshape((-1, *[1] * rank))
    found = f(kind, level.value(x), (examples, *lead, *indices, *rest))
    if p:  # element-wise parts that stand apart come first
        inner = range(1, 1 + rank)
        found = movedim(found, tuple(inner), tuple([d + p for d in inner]))
    return level.wrap(found)


def _together(parts: Sequence[Any]) -> bool:
    """Whether the element-wise parts of an index stand side by side, so that results do too."""
    if not any(_is_advanced(p) for p in parts):
        return True
    if any(isinstance(p, bool) or (hasattr(p, "dtype") and not p.ndim) for p in parts):
        return False
    places = [i for i, p in enumerate(parts) if _is_advanced(p) or type(p) is int]
    return places == list(range(places[0], places[-1] + 1))


def _is_advanced(part: Any) -> bool:
    """Whether an index part selects elements one by one."""
    return isinstance(part, (list, range, tuple)) or hasattr(part, "dtype")


def _dynamic(what: str) -> RuntimeError:
    """The error of results whose shape depends on the example."""
    return RuntimeError(
        "vmap: We do not support batching operators that can output dynamic shape. Attempted to "
        f"vmap over {what}; use torch.where-like masking (x.where(mask, 0)) instead."
    )


def _named(index: Any) -> Any:
    """An index in which masks of a GPU are the positions they name: the host waits for their number
    once, not at each use.
    """
    parts = _parts(index)
    if not any(getattr(p, "dtype", None) == np.bool_ and p.ndim for p in parts):
        return index
    found: list[Any] = []
    for p in parts:
        if getattr(p, "dtype", None) == np.bool_ and p.ndim:
            found += p.nonzero()
        else:
            found.append(p)
    return tuple(found) if _may_repeat(index) else Distinct(found)


@op
def slice_view(input: Tensor, index: tuple[Any, ...], name: str) -> Tensor:
    """A view by a basic index."""
    array = base_array(input)[index]
    if isinstance(array, np.generic):  # a single element: no view yet
        array = base_array(input)[index + (...,)]
    step = slice_view, (index, name)
    shape = input._expr.program.shape
    attributes = {"index": index, "shape": shape, "reads_alone": True, "gathers": True}
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
    return (place(g, node.index, node.shape),)


@jvp(_getitem_vjp)
def _getitem_jvp(call: Call) -> Any:
    taken = getitem_parsed(call.tangent(), call.attributes["index"])
    return [taken.reshape(tuple(call.results[0].shape))]


@op
def place(values: Tensor, index: Any, shape: tuple[int, ...]) -> Tensor:
    """Zeros of ``shape`` with ``values`` added at ``index``; repeated positions accumulate."""
    where = backend(values.device)
    array = where.empty(shape, values.dtype, values.device)
    array.fill(0)
    if _may_repeat(index):
        add_at(array, _parts(index), values.array, values.device)
    else:
        number = constant_number(values)
        if not isinstance(array, np.ndarray) and any(hasattr(p, "dtype") for p in _parts(index)):
            number = None  # CuPy would copy it from the host
        _assign(array, index, values.array if number is None else number)
    result: Tensor = record(
        "PlaceBackward0", array, (values,), _place_vjp, dtype=values.dtype, index=index
    )
    return result


def place_each(
    values: Sequence[Tensor], indices: Sequence[tuple[Any, ...]], shape: tuple[int, ...]
) -> Tensor:
    """The sum of what `place` gives for basic indices, in one array."""
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
            _copied_part(g, index) if needed else None
            for index, needed in zip(node.indices, node.needs_input_grad, strict=True)
        ]
    )


class Distinct(tuple[Any, ...]):
    """An index that names no position twice."""


def _parts(index: Any) -> tuple[Any, ...]:
    return index if isinstance(index, tuple) else (index,)


def _may_repeat(index: Any) -> bool:
    if type(index) is Distinct:
        return False
    return any(hasattr(p, "dtype") and p.dtype != np.bool_ for p in _parts(index))


@op
def _place_vjp(node: Any, g: Tensor) -> Any:
    return (_copied_part(g, node.index),)


@jvp(_place_vjp)
def _place_jvp(call: Call) -> Any:
    where = tuple(call.results[0].shape)
    return [place(call.tangent(), call.attributes["index"], where)]


@batching(place)
def _place_batched(level: Batch, f: Any, values: Tensor, index: Any, shape: Any) -> Any:
    if not _together(_parts(index)):
        return NotImplemented
    return level.wrap(f(level.value(values), (slice(None), *_parts(index)), (level.size, *shape)))


def _copied_part(g: Tensor, index: Any) -> Tensor:
    array = _selected(g.array, index)
    if array.base is not None:  # a view would share the cotangent's memory unseen
        array = array.copy()
    result: Tensor = record(
        "IndexBackward0",
        array,
        (g,),
        _getitem_vjp,
        dtype=g.dtype,
        index=index,
        shape=tuple(g.shape),
    )
    return result


@op
def setitem(input: Tensor, index: Any, value: Any) -> None:
    """``input[index] = value``, in place and recorded."""
    try:
        parsed, basic = _parse(input, index, wait=True)
    except _Backwards:
        _set_backwards(input, index, value)
        return
    if not basic and _ints_apart(parsed):
        setitem(*_by_ints_first(input, parsed), value)
        return
    if not basic and isinstance(value, Tensor) and value.dtype is not input.dtype:
        _refuse_other_type(input, parsed, value)
    value = _as_value(input, value)
    if state.grad:
        refuse_recorded(input, value.requires_grad, "x[...] = value", basic)
    if not basic and value.ndim and input.device.type != "cpu":
        parsed = _named(parsed)
    value = _fitting(input, parsed, value)
    recorded = state.grad and (value.requires_grad or input.requires_grad)
    if recorded and basic and input._base is not None and refers_to_itself(input.array):
        part = slice_view(input, parsed, "SliceBackward0")
        part.copy_(_spread(value, tuple(part.shape)))
        return
    if recorded or (open_levels and innermost((input, value)) is not None):
        written_value = with_values(input, parsed, value)
        watch(written_value, *_tensors_of(index))
        input._write(written_value, "index_put_")
        return
    mask = None if basic or value.ndim or input.device.type == "cpu" else _only_mask(parsed)
    if mask is not None:
        wide = mask.reshape(mask.shape + (1,) * (input.ndim - mask.ndim))
        input.masked_fill_(from_array(wide, dt.bool, input.device), value)
        return
    source = value.array
    if basic:
        refuse_overlap(input.array[(*parsed, ...) if ... not in parsed else parsed], "copy_")
    input._writable("index_put_")[parsed] = source


@batching(setitem)
def _setitem_batched(level: Batch, f: Any, x: Tensor, index: Any, value: Any) -> Any:
    if not level.holds(x):
        level.write(x, value, "index_put_")
    return NotImplemented


def _only_mask(index: Any) -> Any:
    """The mask that an index consists of, or None."""
    first, *rest = _parts(index)
    if getattr(first, "dtype", None) != np.bool_ or not first.ndim:
        return None
    whole = all(p is Ellipsis or (type(p) is slice and p == slice(None)) for p in rest)
    return first if whole else None


def _set_backwards(input: Tensor, index: Any, value: Any) -> None:
    """``x[::-1] = value``, by positions; PyTorch refuses such slices."""
    from lucid_gpu.ops.grids import unravel_index

    shape = tuple(input.shape)
    numbers = from_array(xp_of(input).arange(input.numel()), dt.int64, input.device)
    setitem(input, unravel_index(numbers.reshape(shape)[index], shape), value)


def _as_value(input: Tensor, value: Any) -> Tensor:
    from lucid_gpu.ops.creation import full, tensor

    if isinstance(value, Tensor):
        if value.device != input.device and value.ndim:
            raise RuntimeError(
                f"expected the assigned tensor to be on {input.device}, the device of the tensor "
                f"it is assigned to, but it is on {value.device}"
            )
        return value.to(dtype=input.dtype, device=input.device)
    if isinstance(value, (bool, int, float, complex, np.number, np.bool_)):
        return full((), value, dtype=input.dtype, device=input.device)
    return tensor(value, dtype=input.dtype, device=input.device)


def _selected_shape(input: Tensor, index: Any) -> tuple[int, ...]:
    if all(getattr(p, "dtype", np.bool_) != np.bool_ for p in index):  # positions, all first
        shapes = [p.shape for p in index]
        return (*np.broadcast_shapes(*shapes), *tuple(input.shape)[len(index) :])
    probe = np.broadcast_to(np.zeros((), np.int8), tuple(input.shape))
    return tuple(np.shape(probe[tuple([_outline(input, p) for p in index])]))


def _outline(input: Tensor, part: Any) -> Any:
    """A part of an index that selects as many elements: only for masks the GPU is waited for."""
    if not hasattr(part, "dtype"):
        return part
    if part.dtype == np.bool_:
        return backend(input.device).to_numpy(part)
    return np.broadcast_to(np.zeros((), np.int8), part.shape)


def _fitting(input: Tensor, index: Any, value: Tensor) -> Tensor:
    """The value without needless leading ones, if it can be broadcast to what is selected."""
    if not value.ndim:
        return value
    shape = _selected_shape(input, index)
    own = tuple(value.shape)
    while len(own) > len(shape) and own[0] == 1:
        own = own[1:]
    pairs = zip(own[::-1], shape[::-1], strict=False)
    if len(own) > len(shape) or any(m not in (1, n) for m, n in pairs):
        raise RuntimeError(
            f"shape mismatch: value tensor of shape {list(value.shape)} cannot be broadcast to "
            f"indexing result of shape {list(shape)}"
        )
    return value if len(own) == value.ndim else value.reshape(own)


@op
def index_put(
    input: Tensor, indices: Sequence[Any], values: Tensor, accumulate: bool = False
) -> Tensor:
    """A copy of the input with ``values``, which broadcast, at ``indices``.

    Parameters
    ----------
    indices : sequence of Tensor or None
    accumulate : bool
        Add to what is there; repeated positions then add up. Otherwise one of them wins.

    Raises
    ------
    IndexError
        For too many indices, and one out of bounds.
    RuntimeError
        For values whose shape does not broadcast to that of what is indexed, or of another device.
    """
    if isinstance(values, Tensor):
        words = "Index put requires the source and destination dtypes match"
        require_one_dtype(words, input, values)
    given = tuple(slice(None) if i is None else i for i in indices)
    parsed, _ = _parse(input, given, wait=True)
    value = _as_value(input, values)
    value = _fitting(input, parsed, value)
    if not accumulate:
        result: Tensor = with_values(input, parsed, value)
        watch(result, *_tensors_of(given))
        return result
    spread = _spread(value, _selected_shape(input, parsed))
    added = place(spread, parsed, tuple(input.shape))
    watch(added, *_tensors_of(given))
    return input + added


_write_at = written(index_put)


def index_put_(
    self: Tensor, indices: Sequence[Any], values: Tensor, accumulate: bool = False
) -> Tensor:
    """`index_put`, in place.

    RuntimeError where several elements are one, as after `expand`, and the write is recorded.
    """
    if self._base is None or self._wrapper is not None or not refers_to_itself(self.array):
        return _write_at(self, indices, values, accumulate)
    if state.grad and (self.requires_grad or values.requires_grad):
        refuse_overlap(self.array, "index_put_")
    parsed, _ = _parse(self, tuple(slice(None) if i is None else i for i in indices), wait=True)
    value = _fitting(self, parsed, _as_value(self, values)).array
    array = self._writable("index_put_")
    if accumulate:
        xp_of(self).add.at(array, parsed, value)
    else:
        array[parsed] = value
    return self


def _refuse_other_type(input: Tensor, parsed: Any, value: Tensor) -> None:
    """Raise for a tensor of another type, unless it is one number for what a mask names."""
    if value.numel() != 1 or _only_mask(parsed) is None:
        raise RuntimeError(
            "Index put requires the source and destination dtypes match, got "
            f"{input.dtype.name} for the destination and {value.dtype.name} for the source; write "
            "value.to(x.dtype)."
        )


def _require_long(name: str, index: Tensor) -> None:
    if index.dtype is not dt.int64:
        raise RuntimeError(
            f"{name}: Expected a long tensor for index, but got {index.dtype.name}: index.long()"
        )


@op
@takes_out
def take(input: Tensor, index: Tensor) -> Tensor:
    """The elements at positions of the flattened tensor, in the index's shape.

    RuntimeError for an index of another type than int64.
    """
    require_one_device("take", input, index)
    _require_long("take()", index)
    return _picked("TakeBackward0", input.reshape(-1), index)


@op
def put(input: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """A copy of the input with elements of ``source`` at positions of the flattened tensor.

    ``index`` and ``source`` have as many elements.

    RuntimeError for an index of another type than int64.
    """
    _require_long("put_()", index)
    flat = index_put(input.reshape(-1), (index,), source.reshape(tuple(index.shape)), accumulate)
    return flat.reshape(tuple(input.shape))


@op
def with_values(input: Tensor, index: Any, value: Tensor) -> Tensor:
    """A copy of the input with ``value`` at ``index``."""
    source = input.array
    array = backend(input.device).empty(source.shape, input.dtype, input.device)
    array[...] = source
    _assign(array, index, value.array)
    shape = _selected_shape(input, index)
    spread = _spread(value, shape)
    result: Tensor = record(
        "IndexPutBackward0",
        array,
        (input, spread),
        _with_values_vjp,
        dtype=input.dtype,
        index=index,
    )
    return result


def _spread(value: Tensor, shape: tuple[int, ...]) -> Tensor:
    own = tuple(value.shape)
    if len(own) > len(shape):
        value = value.reshape(own[len(own) - len(shape) :])
    return expand_lazily(value, shape)


def _with_values_vjp(node: Any, g: Tensor) -> Any:
    rest, taken = node.needs_input_grad
    zero = _spread(g.new_zeros(()), ())
    g_rest = None
    if rest:
        g_rest = with_values(g, node.index, expand_lazily(zero, _selected_shape(g, node.index)))
    g_value = getitem_parsed(g, node.index) if taken else None
    return g_rest, g_value


@jvp(_with_values_vjp)
def _with_values_jvp(call: Call) -> Any:
    rest, values = full_tangents(call)
    return [with_values(rest, call.attributes["index"], values)]


@batching(with_values)
def _with_values_batched(level: Batch, f: Any, x: Tensor, index: Any, value: Tensor) -> Any:
    if not _together(_parts(index)):
        return NotImplemented
    spread = _spread(value, _selected_shape(x, index))
    return level.wrap(f(level.full(x), (slice(None), *_parts(index)), level.full(spread)))


@op
def getitem_parsed(g: Tensor, index: Any) -> Tensor:
    """A copy of what a parsed index selects."""
    array = _selected(g.array, index)
    if array.base is not None:  # a view, were it row-major too
        array = array.copy()
    array = xp_of(g).ascontiguousarray(array)
    shape = _selected_shape(g, index)
    result: Tensor = record(
        "IndexBackward0",
        array.reshape(shape),
        (g,),
        _getitem_vjp,
        dtype=g.dtype,
        index=index,
        shape=tuple(g.shape),
    )
    return result


@batching(getitem_parsed)
def _getitem_parsed_batched(level: Batch, f: Any, g: Tensor, index: Any) -> Any:
    if not _together(_parts(index)):
        return NotImplemented
    return level.wrap(f(level.value(g), (slice(None), *_parts(index))))


# --- gather, scatter and their kin ----------------------------------------------------------------


def along(index: Any, dim: int, xp: Any) -> tuple[Any, ...]:
    """The index tuple that walks ``index`` along one dimension."""
    rank = index.ndim
    grids = []
    for d in range(rank):
        shape = [1] * rank
        shape[d] = index.shape[d]
        grids.append(index if d == dim else xp.arange(index.shape[d]).reshape(shape))
    return tuple(grids)


def keys_of_slices(index: Any, dim: int, shape: tuple[int, ...]) -> Any:
    """The vector that an index was expanded from to name whole slices of a shape, or None."""
    rest = [d for d in range(len(shape)) if d != dim]
    if (
        not index.size
        or not rest
        or any(index.strides[d] or index.shape[d] != shape[d] for d in rest)
    ):
        return None
    return index[tuple([slice(None) if d == dim else 0 for d in range(len(shape))])]


@op
def gather(
    input: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False, out: Any = None
) -> Tensor:
    """``out[i][j] = input[index[i][j]][j]`` for ``dim == 0``, and so on; of the shape of ``index``.

    Parameters
    ----------
    index : Tensor of int64, of the input's rank, no larger than it in other dimensions

    Raises
    ------
    RuntimeError
        For an ``index`` of another type, rank or of larger size, and a position out of bounds;
        negative ones are.
    IndexError
        For a ``dim`` that there is not.
    """
    if out is not None:
        return put_into(gather(input, dim, index), out, "gather")
    return _gather(input, dim, index, low=0, fault=bounds.no_element)


def _gather(input: Tensor, dim: int, index: Tensor, **checks: Any) -> Tensor:
    require_tensor("gather", "index", 2, index)
    require_one_device("gather", input, index)
    dim = normalise_dim(dim, input.ndim)
    if not index.numel():  # of any rank and type, as in PyTorch
        return input.reshape(-1)[:0].reshape(index.shape)
    if index.dtype.category != 1:
        raise RuntimeError("gather(): Expected dtype int32/int64 for index")
    if input.ndim + index.ndim < 2:  # the other one may be a vector
        found = gathered("GatherBackward0", input.reshape(-1), dim, index.reshape(-1), **checks)
        return found.reshape(index.shape)
    if index.ndim != input.ndim:
        raise RuntimeError(
            "Index tensor must have the same number of dimensions as input tensor: got "
            f"{index.ndim} and {input.ndim}"
        )
    sizes = zip(index.shape, input.shape, strict=True)
    if index.numel() and any(n > m for d, (n, m) in enumerate(sizes) if d != dim):
        raise RuntimeError(
            f"Size does not match: expected index {list(index.shape)} to be no larger than self "
            f"{list(input.shape)} apart from dimension {dim}"
        )
    return gathered("GatherBackward0", input, dim, index, **checks)


FEW_PLACES = 1 << 12
SORTED = 1 << 11  # elements whose order is found as soon as the first few
_PERMUTES = ("SortBackward0", "TopkBackward0")  # they name no position twice


@op
def gathered(
    name: str,
    input: Tensor,
    dim: int,
    index: Tensor,
    keepdim: bool = True,
    low: int | None = None,
    fault: DeviceError = bounds.outside,
) -> Tensor:
    """`gather`, recorded under a name; without ``keepdim`` the dimension, of extent 1, goes.

    ``low`` and ``fault`` are those of `kernels.bounds.check`.
    """
    dim = normalise_dim(dim, input.ndim)
    if not input.ndim:
        return input.clone()
    where = index.array
    slices = keys_of_slices(where, dim, tuple(input.shape)) if keepdim else None
    named = where if slices is None else slices
    bounds.check(named, input.shape[dim], dim, input.device, low, fault)
    key: Any = (*[slice(None)] * dim, named)
    if slices is None:
        key = along(where, dim, xp_of(input))
        if not keepdim:
            key = tuple([part.squeeze(dim) for part in key])
    if where.shape[dim] == 1 or name in _PERMUTES:
        key = Distinct(key)
    result = _read(name, input, key)
    watch(result, index)
    return result


@batching(gathered)
def _gathered_batched(
    level: Batch, f: Any, name: str, x: Tensor, dim: int, index: Tensor, *args: Any, **named: Any
) -> Any:
    if not x.ndim:
        return NotImplemented
    place = normalise_dim(dim, x.ndim) + 1
    return level.wrap(f(name, level.full(x), place, level.full(index), *args, **named))


def _found_at(input: Tensor, dim: int, where: Tensor, keepdim: bool, name: str) -> Any:
    """The elements at one position along a dimension, and the positions."""
    values = gathered(name, input, dim, where, keepdim)
    return ValuesAndIndices(values, where if keepdim else where.squeeze(dim))


def _selected(array: Any, index: Any) -> Any:
    """``array[index]``, in bounds; elements and whole slices NumPy's `take` copies sooner."""
    dense = isinstance(array, np.ndarray) and array.flags.c_contiguous and array.size
    if not dense or type(index) not in (tuple, Distinct) or not index:
        return array[index]
    if _names_elements(array, index):
        return array.reshape(-1).take(flat_places(index, array.shape, np), mode="wrap")
    *whole, rows = index
    if not all(type(part) is slice and part == slice(None) for part in whole):
        return array[index]
    if not isinstance(rows, np.ndarray) or rows.dtype.kind != "i":
        return array[index]
    axis = len(whole)
    out = pool.empty((*array.shape[:axis], *rows.shape, *array.shape[axis + 1 :]), array.dtype)
    return array.take(rows, axis, out, mode="wrap")


def _assign(array: Any, index: Any, values: Any) -> None:
    """``array[index] = values``, in bounds; the array is row-major."""
    if isinstance(array, np.ndarray) and _names_elements(array, index):
        array.reshape(-1)[flat_places(index, array.shape, np)] = values
    else:
        array[index] = values


def _names_elements(array: Any, index: Any) -> bool:
    """Whether an index is an array of numbers for each of several dimensions, not a few places."""
    return (
        type(index) in (tuple, Distinct)
        and 1 < len(index) == array.ndim
        and all(isinstance(part, np.ndarray) and part.dtype.kind == "i" for part in index)
        and max([part.size for part in index]) >= FEW_PLACES
    )


@op
@takes_out
def take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """`gather`, where other dimensions broadcast; without ``dim``, of the flattened tensor.

    RuntimeError where ranks differ, and for indices of another type than int64; IndexError for a
    ``dim`` that there is not, and a position out
    of bounds.
    """
    require_tensor("take_along_dim", "indices", 2, indices)
    if indices.dtype is not dt.int64:
        raise RuntimeError(
            "torch.take_along_dim(): dtype of indices should be Long but got "
            f"{indices.dtype.name}: indices.long()"
        )
    if dim is None:
        return _gather(input.reshape(-1), 0, indices.reshape(-1))
    if input.ndim != indices.ndim:
        raise RuntimeError(
            "torch.take_along_dim(): input and indices should have the same number of dimensions, "
            f"but got {input.ndim} dimensions for input, and {indices.ndim} dimensions for indices"
        )
    dim = normalise_dim(dim, input.ndim)
    shapes = [(*t.shape[:dim], 1, *t.shape[dim + 1 :]) for t in (input, indices)]
    if input.ndim and shapes[0] != shapes[1]:
        wide = broadcast_shapes(shapes, "take_along_dim")
        input, indices = (
            t.expand((*wide[:dim], t.shape[dim], *wide[dim + 1 :])) for t in (input, indices)
        )
    return _gather(input, dim, indices)


@op
@takes_out
def scatter(
    input: Tensor, dim: int, index: Tensor, src: Any = None, *, value: Any = None,
    reduce: str | None = None,
) -> Tensor:  # fmt: skip
    """A copy of the input, of its shape, with ``src`` at ``index`` along a dimension.

    Parameters
    ----------
    index : Tensor of int32 or int64, of the input's rank
        No larger than ``src``, nor than the input apart from ``dim``.
    src : Tensor or number
        A number may also be called ``value``.
    reduce : {"add", "multiply"}, optional
        Join ``src`` to what is there, instead of putting it in its place.

    Raises
    ------
    RuntimeError
        For an ``index`` of another type, rank or of larger size, a position out of bounds (negative
        ones are), a ``src`` of another device, and another ``reduce``.
    IndexError
        For a ``dim`` that there is not.
    """
    require_tensor("scatter", "index", 2, index)
    src = value if src is None else src
    if not index.numel():
        normalise_dim(dim, input.ndim)
        return input.clone()
    if not input.ndim and index.ndim < 2:
        if isinstance(src, Tensor):
            src = src.reshape(-1)
        found = scatter(input.reshape(1), dim, index.reshape(-1), src, reduce=reduce)
        return found.reshape(())
    dim = normalise_dim(dim, input.ndim)
    where = index.array
    _check_scattered(input, dim, index, src)
    if isinstance(src, Tensor):
        require_one_dtype("scatter(): Expected self.dtype to be equal to src.dtype", input, src)
    value = _as_value(input, src)
    shape = tuple(index.shape)
    if reduce is not None:
        if reduce not in ("add", "multiply"):
            raise RuntimeError("reduce argument must be either add or multiply.")
        spread = value if value.ndim else expand_lazily(value, shape)
        joined: Tensor = input.scatter_reduce(
            dim, index, spread, "sum" if reduce == "add" else "prod"
        )
        return joined
    bounds.check(where, input.shape[dim], dim, input.device, 0, bounds.no_element, wait=True)
    if value.ndim and value.shape != index.shape:
        value = value[tuple([slice(0, n) for n in shape])]
    result: Tensor = with_values(
        input, along(where, dim, xp_of(input)), expand_lazily(value, shape)
    )
    watch(result, index)
    return result


@batching(scatter)
def scatter_batched(
    level: Batch, f: Any, x: Tensor, dim: int, index: Tensor, src: Any = None, **options: Any
) -> Any:
    """The rule of ops that write or add ``src`` at positions along a dimension."""
    src = options.pop("value", None) if src is None else src
    if not x.ndim or (isinstance(src, Tensor) and src.ndim != x.ndim):
        return NotImplemented
    source = level.full(src) if isinstance(src, Tensor) else src
    place = normalise_dim(dim, x.ndim) + 1
    return level.wrap(f(level.full(x), place, level.full(index), source, **options))


def _check_scattered(input: Tensor, dim: int, index: Tensor, src: Any) -> None:
    if index.dtype.name not in ("int32", "int64"):
        raise RuntimeError("scatter(): Expected dtype int32/int64 for index")
    require_one_device("scatter", input, index, src if isinstance(src, Tensor) else None)
    own, sizes = list(input.shape) or [1], list(index.shape) or [1]
    given = src.shape if isinstance(src, Tensor) and src.ndim else sizes
    if not index.numel():
        return
    if len(sizes) != len(own) or len(given) != len(own):
        raise RuntimeError(
            "Index tensor must have the same number of dimensions as self tensor and src: got "
            f"{len(sizes)}, {len(own)} and {len(given)}"
        )
    larger = any(n > m for d, (n, m) in enumerate(zip(sizes, own, strict=True)) if d != dim)
    if larger or any(n > m for n, m in zip(sizes, given, strict=True)):
        raise RuntimeError(
            f"Expected index {sizes} to be no larger than self {own} apart from dimension {dim} "
            f"and to be no larger size than src {list(given)}"
        )


@op
@takes_out
def index_select(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """The slices of a dimension named by a vector of positions.

    IndexError for an ``index`` of two dimensions or more, and a position that is negative or beyond
    the dimension; RuntimeError for an ``index`` of another type than int32 and int64.
    """
    require_tensor("index_select", "index", 2, index)
    require_one_device("index_select", input, index)
    dim = normalise_dim(dim, input.ndim)
    if index.ndim > 1:
        raise IndexError("index_select(): Index is supposed to be a vector")
    if not input.ndim:
        return input.clone()
    if index.dtype.name not in ("int32", "int64"):
        raise RuntimeError(
            f"index_select(): Expected dtype int32 or int64 for index, got {index.dtype.name}"
        )
    lead = (slice(None),) * dim
    return _picked("IndexSelectBackward0", input, (*lead, index.reshape(-1)))


@op
@takes_out
def masked_select(input: Tensor, mask: Tensor) -> Tensor:
    """The elements where the (broadcast) mask is true, as a vector.

    RuntimeError for a mask that is not bool, and shapes that do not broadcast.
    """
    if mask.dtype is not dt.bool:
        raise RuntimeError(
            f"masked_select: expected BoolTensor for mask, got {mask.dtype.name}; write mask != 0"
        )
    shape = broadcast_shapes((tuple(input.shape), tuple(mask.shape)), "masked_select")
    return _picked("MaskedSelectBackward0", input.expand(shape), mask.expand(shape))


@op
@takes_out
def nonzero(input: Tensor, *, as_tuple: bool = False) -> Any:
    """Indices of the elements that are not zero: a matrix, or a tuple of vectors."""
    xp = xp_of(input)
    array = input.detach().array
    found = xp.nonzero(array if input.ndim else array.reshape(1))
    if as_tuple:
        return tuple([_index_tensor(input, a) for a in found])
    return _index_tensor(input, xp.stack(found, axis=1)[:, : input.ndim])


@batching(nonzero, masked_select)
def _refused_batched(level: Batch, f: Any, *args: Any, **kwargs: Any) -> None:
    raise _dynamic(f.__name__)


def _index_tensor(input: Tensor, array: Any) -> Tensor:
    return from_array(array.astype("int64"), dt.int64, input.device)


@op
@takes_out
def sort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = True) -> Any:
    """Values in order along a dimension, and where they came from (int64); of the input's shape.

    Parameters
    ----------
    dim : int
    descending : bool
        The largest first.
    stable : bool
        Equal elements stay in order in any case.

    Returns
    -------
    values, indices
        NaN counts as larger than all numbers.

    Raises
    ------
    RuntimeError
        For complex tensors.
    IndexError
        For a ``dim`` that there is not.
    """
    where = argsort(input, dim, descending)
    return ValuesAndIndices(gathered("SortBackward0", input, dim, where), where)


@op
def argsort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """The positions, int64 and of the input's shape, that put a dimension in order.

    Parameters
    ----------
    dim : int
    descending : bool
        The largest first.
    stable : bool
        Equal elements stay in order in any case.

    Raises
    ------
    RuntimeError
        For complex tensors.
    IndexError
        For a ``dim`` that there is not.
    """
    if input.dtype.is_complex:
        raise RuntimeError("Sort does not support complex dtypes; sort its .abs() or .real")
    dim = normalise_dim(dim, input.ndim)
    xp, array, in_order = xp_of(input), input.detach().array, backend(input.device).argsort
    if not input.ndim:
        return _index_tensor(input, xp.zeros((), "int64"))
    if descending:  # stable in descending order too: sort backwards, read backwards
        n = array.shape[dim]
        order = n - 1 - xp.flip(in_order(xp.flip(array, dim), dim), dim)
    else:
        order = in_order(array, dim)
    return _index_tensor(input, order)


@batching(argsort)
def _argsort_batched(
    level: Batch, f: Any, x: Tensor, dim: int = -1, *args: Any, **options: Any
) -> Any:
    if not x.ndim:
        return NotImplemented
    return level.wrap(f(level.value(x), normalise_dim(dim, x.ndim) + 1, *args, **options))


@op
@takes_out
def topk(input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    """The ``k`` largest (or smallest) along a dimension, and where they are (int64).

    Both are of the input's shape, but for ``k`` in place of the dimension's extent.

    Parameters
    ----------
    k : int
    dim : int
    largest : bool
    sorted : bool
        They are put in order in any case.

    Raises
    ------
    TypeError
        For a ``k`` that is no integer.
    RuntimeError
        For one that is negative or above the dimension's size, and for bool.
    IndexError
        For a ``dim`` that there is not.
    """
    dim = normalise_dim(dim, input.ndim)
    if not hasattr(k, "__index__"):
        raise TypeError(f"topk(): argument 'k' (position 1) must be int, not {type(k).__name__}")
    if not 0 <= k <= (input.shape[dim] if input.ndim else 1):
        raise RuntimeError("selected index k out of range")
    if input.dtype is dt.bool:
        raise RuntimeError("topk does not support bool dtypes; convert it with .int()")
    if not input.ndim:
        return ValuesAndIndices(input.clone(), argsort(input, dim))
    found = _leading(input, k, dim, largest)
    where = argsort(input, dim, largest).narrow(dim, 0, k).contiguous() if found is None else found
    return ValuesAndIndices(gathered("TopkBackward0", input, dim, where), where)


def _leading(input: Tensor, k: int, dim: int, largest: bool) -> Tensor | None:
    """Where the k largest or smallest are, in order, without sorting the others.

    None where sorting is as good, on a GPU, and where there are NaNs.
    """
    array = input.detach().array
    n = array.shape[dim]
    if input.device.type != "cpu" or input.dtype.is_complex or not 0 < 4 * k <= n:
        return None
    if array.size < SORTED:
        return None
    rows = np.moveaxis(array, dim, -1)
    shape, rows = (*rows.shape[:-1], k), np.ascontiguousarray(rows).reshape(-1, n)
    if input.dtype.category == 2:
        rows = rows.astype(input.dtype.compute.numpy, copy=False)
    parts = each_of_rows(len(rows), n, lambda block: _leading_of_rows(rows[block], k, largest))
    if not parts or any(part is None for part in parts):
        return None
    where = np.concatenate(parts).reshape(shape)
    return _index_tensor(input, np.ascontiguousarray(np.moveaxis(where, -1, dim)))


def _leading_of_rows(rows: Any, k: int, largest: bool) -> Any:
    """The same for an array, in two passes over it.

    The k-th best of the best elements of some groups is no better than the k-th best of all, and
    few elements are as good as it. Equals keep their order.
    """
    count, n = rows.shape
    groups = min(max(8 * k, 32), n)
    cut = n // groups * groups
    best: Any = np.maximum if largest else np.minimum
    tops = best.reduce(rows[:, :cut].reshape(count, -1, groups), 1)
    place = groups - k if largest else k - 1
    edge = np.partition(tops, place, 1)[:, place : place + 1]
    among = rows >= edge if largest else rows <= edge
    if rows.dtype.kind == "f" and (np.isnan(tops).any() or np.isnan(rows[:, cut:]).any()):
        return None  # which come last when sorted
    found = np.flatnonzero(among)
    row = found // n
    values = rows.reshape(-1)[found]
    ends = np.searchsorted(row, np.arange(count + 1))
    if largest:  # as `argsort` in descending order: backwards
        order = len(found) - 1 - np.lexsort((values[::-1], -row[::-1]))
        order = order[::-1]
    else:
        order = np.lexsort((values, row))
    return found[order[ends[:-1, None] + np.arange(k)]] - np.arange(count)[:, None] * n


@op
@takes_out
def tril(input: Tensor, diagonal: int = 0) -> Tensor:
    """The lower triangle of a matrix, zeros above.

    RuntimeError for fewer than two dimensions.
    """
    return _triangle(input, "tril", diagonal)


@op
@takes_out
def triu(input: Tensor, diagonal: int = 0) -> Tensor:
    """The upper triangle of a matrix, zeros below.

    RuntimeError for fewer than two dimensions.
    """
    return _triangle(input, "triu", diagonal)


def _triangle(input: Tensor, name: str, diagonal: int) -> Tensor:
    if input.ndim < 2:
        raise RuntimeError(f"{name}: input tensor must have at least 2 dimensions")
    xp = xp_of(input)
    mask = getattr(xp, name)(xp.ones(tuple(input.shape[-2:]), bool), diagonal)
    from lucid_gpu.ops.elementwise import where

    zero = False if input.dtype is dt.bool else 0
    kept: Tensor = where(from_array(mask, dt.bool, input.device), input, zero)
    return kept


METHODS = (gather, take_along_dim, take, put, index_put, scatter, index_select,
           masked_select, nonzero, sort, argsort, topk, tril, triu)  # fmt: skip
attach(Tensor, *[guarded(op, method=True) for op in METHODS])  # axis= too
attach(Tensor, **{f"{op.__name__}_": written(op) for op in (put, scatter, tril, triu)})
attach(Tensor, index_put_=index_put_)
attach(Tensor, __getitem__=getitem, __setitem__=setitem, _found_at=_found_at)
