"""``x[index]`` and ``x[index] = value``: slices as views, index tensors as copies.

`index_put`, `take` and `put` are the same with index tensors only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lucid_gpu import dtypes as dt
from lucid_gpu.core.layout import order_of, result_strides, walk_of
from lucid_gpu.devices import backend, backend_of_array, xp_of
from lucid_gpu.ops.arguments import guarded, require_one_device, require_one_dtype, takes_out
from lucid_gpu.ops.creation import _full, arange, tensor
from lucid_gpu.ops.in_place import (
    overlaps,
    refers_to_itself,
    refuse_overlap,
    refuse_recorded,
    warn_expanded,
    written,
)
from lucid_gpu.ops.index_parsing import (
    Backwards,
    consumes,
    ints_apart,
    masks_as_positions,
    only_mask,
    parse,
    parts_of,
    tensors_of,
    together,
)
from lucid_gpu.ops.index_primitives import (
    read,
    selected_shape,
    slice_view,
    spread_to,
    with_values,
    zeros_with_values,
)
from lucid_gpu.ops.laying import lay
from lucid_gpu.ops.memory_formats import lying, strides_of
from lucid_gpu.ops.mirrors import bits_of
from lucid_gpu.ops.number_ranges import refuse_unheld
from lucid_gpu.ops.record import keeping, watch
from lucid_gpu.ops.registry import attach
from lucid_gpu.ops.shape import movedim, own, owned
from lucid_gpu.tape.door import op
from lucid_gpu.tape.levels import innermost, open_levels
from lucid_gpu.tape.modes import state
from lucid_gpu.tape.native import core
from lucid_gpu.tape.overrides import declined
from lucid_gpu.tape.rules import Batch, batching
from lucid_gpu.tensor import Tensor, from_array


def getitem(input: Tensor, index: Any) -> Tensor:
    """``input[index]``: a view for ints, slices, None and ...; a copy for index tensors.

    Slices with a negative step, which PyTorch refuses, give a copy too.
    """
    if core is not None:
        view: Tensor | None = core.picked(input, index, slice_view)
        if view is not None:
            return view
    try:
        return picked("IndexBackward0", input, index)
    except Backwards as backwards:
        return picked("IndexBackward0", *backwards.turned(input))
    except (AttributeError, IndexError, TypeError):
        answer = declined("__getitem__", input, index)
        if answer is NotImplemented:
            raise
        return answer


def _plain(input: Tensor, index: Any) -> bool:
    """Whether an index is ints that exist and slices that step by one: the most frequent ones."""
    parts = index if type(index) is tuple else (index,)
    shape = input._expr.shape
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
def picked(kind: str, input: Tensor, index: Any) -> Tensor:
    """``input[index]``, recorded as ``kind`` where it is a copy."""
    if _plain(input, index):
        parsed, basic = index if type(index) is tuple else (index,), True
    else:
        parsed, basic = parse(input, index, low=_LOWEST.get(kind))
    if basic:
        name = "SelectBackward0" if int in map(type, parsed) else "SliceBackward0"
        return slice_view(input, parsed, name)
    if ints_apart(parsed):
        result: Tensor = picked(kind, *_by_ints_first(input, parsed))
    else:
        result = read(kind, input, parsed)
        if kind == "IndexBackward0" and input._expr.program.strided:
            result = lay(result, _order_of_selected(input, parsed, tuple(result.shape)))
    if result._expr.program.needs_grad:
        watch(result, *tensors_of(index))
    return result


def _without_ellipsis(parts: Sequence[Any], rank: int) -> Sequence[Any]:
    """The parts of an index with the slices that an ellipsis stands for."""
    at = next((i for i, part in enumerate(parts) if part is ...), None)
    if at is None:
        return parts
    masks = [p for p in parts if hasattr(p, "dtype") and p.dtype.kind == "b"]
    named = len(parts) - 1 - sum(p is None for p in parts) + sum(p.ndim - 1 for p in masks)
    return [*parts[:at], *[slice(None)] * (rank - named), *parts[at + 1 :]]


def _order_of_selected(
    input: Tensor, parts: Sequence[Any], shape: tuple[int, ...]
) -> tuple[int, ...] | None:
    """How PyTorch lays what an index with arrays selects: as the input walked, and the arrays."""
    steps, source = list(strides_of(input)), []
    parts = _without_ellipsis(parts, input.ndim)
    own: list[tuple[int, ...]] = []  # the shapes of the arrays
    first = last = 0
    for at, part in enumerate(parts):
        if isinstance(part, slice):
            source.append(steps.pop(0) * (part.step or 1))
        elif hasattr(part, "dtype") and part.ndim:
            first, last = (first if own else len(source)), at
            mask = part.dtype.kind == "b"
            own += [(0,)] * part.ndim if mask else [part.shape]
            del steps[: part.ndim if mask else 1]
        elif type(part) is int:
            del steps[0]
        else:
            return None
    rank = len(shape) - len(source) - len(steps)
    run = parts[last + 1 - sum(hasattr(p, "dtype") for p in parts) : last + 1]
    lead = first if all(hasattr(p, "dtype") for p in run) else 0
    source += steps
    walks = [(*source[:lead], *[0] * rank, *source[lead:])]
    names = shape[lead : lead + rank]
    for extents in own:
        there = names if extents == (0,) else extents
        walk = walk_of(names, there, None)
        walks.append((*[0] * lead, *walk, *[0] * (len(source) - lead)))
    return order_of(shape, result_strides(shape, [(shape, walk) for walk in walks]))


@batching(picked)
def _picked_batched(level: Batch, f: Any, kind: str, x: Tensor, index: Any) -> Any:
    parts = parts_of(index)
    if any(_is_wrapped(p) for p in parts):
        return _picked_by_batched(level, f, kind, x, parts)
    parsed, basic = parse(x, index)
    if basic or not together(parsed):
        return NotImplemented
    return level.wrap(f(kind, level.value(x), (slice(None), *parts)))


def _is_wrapped(part: Any) -> bool:
    """Whether an index part is batched, here or further out."""
    return isinstance(part, Tensor) and part._wrapper is not None


def _picked_by_batched(level: Batch, f: Any, kind: str, x: Tensor, parts: Any) -> Any:
    """``x[..., i, j, ...]`` with a side-by-side run of index tensors, batched or not."""
    if any(_is_wrapped(p) and p.dtype.category == 0 for p in parts):
        raise dynamic_shape("index with a bool tensor")
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
        elements = f(kind, x, (*lead, *indices, *rest))
        return level.wrap(movedim(elements, p, 0))
    examples = arange(level.size, device=x.device).reshape((-1, *[1] * rank))
    elements = f(kind, level.value(x), (examples, *lead, *indices, *rest))
    if p:  # element-wise parts that stand apart come first
        inner = range(1, 1 + rank)
        elements = movedim(elements, tuple(inner), tuple([d + p for d in inner]))
    return level.wrap(elements)


def dynamic_shape(what: str) -> RuntimeError:
    """The error of results whose shape depends on the example."""
    return RuntimeError(
        "vmap: We do not support batching operators that can output dynamic shape. Attempted to "
        f"vmap over {what}; use torch.where-like masking (x.where(mask, 0)) instead."
    )


def _by_ints_first(input: Tensor, parts: Sequence[Any]) -> tuple[Tensor, tuple[Any, ...]]:
    """The view that an index's basic parts select, and the index of that for the rest."""
    rest: list[Any] = []
    basic: list[Any] = []
    for part in parts:
        if isinstance(part, bool):
            rest.append(part)
        elif hasattr(part, "dtype"):
            rest.append(from_array(part, dt.from_numpy_dtype(part.dtype), input.device))
            basic += [slice(None)] * consumes(part)
        else:
            basic.append(part)
            if type(part) is not int:
                rest.append(part if part is Ellipsis else slice(None))
    return slice_view(input, tuple(basic), "SelectBackward0"), tuple(rest)


@op
def setitem(input: Tensor, index: Any, value: Any) -> None:
    """``input[index] = value``, in place and recorded."""
    if core is not None and core.assign(input, index, value):
        return
    try:
        parsed, basic = parse(input, index, wait=True)
    except Backwards:
        _set_backwards(input, index, value)
        return
    except (AttributeError, IndexError, TypeError):
        if declined("__setitem__", input, index, value) is NotImplemented:
            raise
        return
    if not basic and ints_apart(parsed):
        setitem(*_by_ints_first(input, parsed), value)
        return
    if not basic and isinstance(value, Tensor) and value.dtype is not input.dtype:
        _fitting(input, parsed, value)
        _refuse_other_type(input, parsed, value)
    try:
        value = as_value(input, value)
    except (RuntimeError, TypeError):
        if declined("__setitem__", input, index, value) is NotImplemented:
            raise
        return
    needs_grad = value._expr.program.needs_grad
    if state.grad:
        refuse_recorded(input, needs_grad, "x[...] = value", basic)
    if not basic and value.ndim and input.device.type != "cpu":
        parsed = masks_as_positions(parsed)
    value = _fitting(input, parsed, value)
    recorded = state.grad and (needs_grad or input._expr.program.needs_grad)
    shared = recorded and input._base is not None
    if shared and basic and (refers_to_itself(input.array) or overlaps(input.array)):
        part = slice_view(input, parsed, "SliceBackward0")
        part.copy_(spread_to(value, tuple(part.shape)))
        return
    if shared and not basic and refers_to_itself(input.array):
        selected, rest = _by_ints_first(input, parsed)
        if not refers_to_itself(selected.array):  # a number or slice picks one of the copies
            setitem(selected, rest, value)
            return
    if recorded or bits_of(input) or (open_levels and innermost((input, value)) is not None):
        written_value = with_values(input, parsed, value)
        if not basic:
            watch(written_value, *tensors_of(index))
        input._write(written_value, "index_put_")
        return
    mask = None if basic or value.ndim or input.device.type == "cpu" else only_mask(parsed)
    if mask is not None:
        wide = mask.reshape(mask.shape + (1,) * (input.ndim - mask.ndim))
        input.masked_fill_(from_array(wide, dt.bool, input.device), value)
        return
    source = value.array
    if basic:
        refuse_overlap(input.array[(*parsed, ...) if ... not in parsed else parsed], "copy_")
    elif input._base is not None and refers_to_itself(input.array):
        warn_expanded("index_put_")
    array = input._writable("index_put_")
    backend(input.device).call("index_put_", _put_at, array, parsed, source)


def _put_at(array: Any, index: Any, source: Any) -> None:
    own = backend_of_array(array)
    if own is not None and own.xp.may_share_memory(array, source):
        source = source.copy()  # CuPy writes what it still has to read, and so may NumPy
    array[index] = source


@batching(setitem)
def _setitem_batched(level: Batch, f: Any, x: Tensor, index: Any, value: Any) -> Any:
    level.take_in(x, value, "index_put_")
    return NotImplemented


def _set_backwards(input: Tensor, index: Any, value: Any) -> None:
    """``x[::-1] = value``, by positions; PyTorch refuses such slices."""
    from lucid_gpu.ops.grids import unravel_index

    shape = tuple(input.shape)
    numbers = from_array(xp_of(input).arange(input.numel()), dt.int64, input.device)
    setitem(input, unravel_index(numbers.reshape(shape)[index], shape), value)


def as_value(input: Tensor, value: Any) -> Tensor:
    """What is assigned, as a tensor of the input's type and device.

    RuntimeError for a tensor on another device, unless it has no dimensions.
    """
    program = input._expr.program
    d, where = program.dtype, program.device
    if isinstance(value, Tensor):
        own = value._expr.program
        if own.dtype is d and own.device is where:
            return value
        if own.device != where and value.ndim:
            raise RuntimeError(
                f"expected the assigned tensor to be on {where}, the device of the tensor "
                f"it is assigned to, but it is on {own.device}"
            )
        return value.to(dtype=d, device=where)
    if isinstance(value, (bool, int, float, complex, np.number, np.bool_)):
        return _full((), value, d, where, False, {})
    return tensor(value, dtype=d, device=where)


def _fitting(input: Tensor, index: Any, value: Tensor, assigned: bool = True) -> Tensor:
    """The value, if it can be broadcast to what is selected; an assigned one loses leading ones."""
    own = value._expr.shape
    if not own:
        return value
    shape = selected_shape(input, index)
    while assigned and len(own) > len(shape) and own[0] == 1:
        own = own[1:]
    pairs = zip(own[::-1], shape[::-1], strict=False)
    if len(own) > len(shape) or any(m not in (1, n) for m, n in pairs):
        raise RuntimeError(
            f"shape mismatch: value tensor of shape {list(value.shape)} cannot be broadcast to "
            f"indexing result of shape {list(shape)}"
        )
    return value if len(own) == len(value._expr.shape) else value.reshape(own)


@op(autocast={"cuda": "promote"})
@lying("input")
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
        For values whose shape does not broadcast to that of what is indexed, or of another device,
        and for indices without a tensor.
    """
    if isinstance(values, Tensor):
        words = "Index put requires the source and destination dtypes match"
        require_one_dtype(words, input, values)
    index = _positions(indices)
    parsed, _ = parse(input, index, wait=True)
    value = _fitting(input, parsed, as_value(input, values), assigned=False)
    if not accumulate:
        result: Tensor = with_values(input, parsed, value)
        watch(result, *tensors_of(index))
        return result
    spread = spread_to(value, selected_shape(input, parsed))
    added = zeros_with_values(spread, parsed, tuple(input.shape))
    watch(added, *tensors_of(index))
    return input + added


_write_at = written(index_put)


def index_put_(
    self: Tensor, indices: Sequence[Any], values: Tensor, accumulate: bool = False
) -> Tensor:
    """`index_put`, in place.

    RuntimeError if several elements are one, as after `expand`, and the write is recorded.
    """
    if self._base is None or self._wrapper is not None or not refers_to_itself(self.array):
        return _write_at(self, indices, values, accumulate)
    if state.grad and (self.requires_grad or values.requires_grad):
        refuse_overlap(self.array, "index_put_")
    parsed, _ = parse(self, _positions(indices), wait=True)
    value = _fitting(self, parsed, as_value(self, values), assigned=False).array
    warn_expanded("index_put_")
    array = self._writable("index_put_")
    if accumulate:
        xp_of(self).add.at(array, parsed, value)
    else:
        backend(self.device).call("index_put_", _put_at, array, parsed, value)
    return self


def _positions(indices: Sequence[Any]) -> tuple[Any, ...]:
    """What `index_put` is told, as an index: None stands for a whole dimension."""
    index = tuple(slice(None) if i is None else i for i in indices)
    if all(i is None for i in indices):
        raise RuntimeError(
            "index_put(): expected at least one tensor among the indices, got "
            f"{indices}; write x[...] = values, or x += values to accumulate"
        )
    return index


def _refuse_other_type(input: Tensor, parsed: Any, value: Tensor) -> None:
    """Raise for a tensor of another type, unless it is one number for what a mask names."""
    if value.numel() != 1 or only_mask(parsed) is None:
        raise RuntimeError(
            "Index put requires the source and destination dtypes match, got "
            f"{input.dtype.type_name} for the destination and {value.dtype.type_name} for the "
            "source; write value.to(x.dtype)."
        )
    refuse_unheld(value, input.dtype)


@op
@takes_out
@keeping("input")
def take(input: Tensor, index: Tensor) -> Tensor:
    """The elements at positions of the flattened tensor, in the index's shape.

    RuntimeError for an index of another type than int64.
    """
    require_one_device("take", input, index)
    require_long("take()", index)
    if index.ndim:
        return picked("TakeBackward0", input.reshape(-1), index)
    # as a vector: an index without dimensions is basic, and gives a view of the input
    return own(picked("TakeBackward0", input.reshape(-1), index.reshape(1)).reshape(()))


@op
@owned
@lying("input")
@keeping("source", apart=True)
def put(input: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """A copy of the input with elements of ``source`` at positions of the flattened tensor.

    ``index`` and ``source`` have as many elements.

    RuntimeError for an index of another type than int64.
    """
    require_long("put_()", index)
    flat = index_put(input.reshape(-1), (index,), source.reshape(tuple(index.shape)), accumulate)
    return flat.reshape(tuple(input.shape))


def require_long(name: str, index: Tensor) -> None:
    """Refuse an index of another type than int64; ``name`` begins the sentence."""
    if index.dtype is not dt.int64:
        raise RuntimeError(
            f"{name}: Expected a long tensor for index, but got {index.dtype.type_name}: "
            "index.long()"
        )


METHODS = (take, put, index_put)
attach(Tensor, *[guarded(op, method=True) for op in METHODS])  # axis= too
attach(Tensor, put_=written(put), index_put_=index_put_)
attach(Tensor, __getitem__=getitem, __setitem__=setitem)
