"""Batching rules of indexing, gather and scatter."""

from __future__ import annotations

from typing import Any

from lucid_gpu.func.batching import BatchLevel
from lucid_gpu.ops import (
    index_add,
    indexing,
    shape,
)
from lucid_gpu.ops.creation import arange
from lucid_gpu.ops.reductions import normalise_dim
from lucid_gpu.tape.rules import batching
from lucid_gpu.tensor import Tensor


def _is_advanced(part: Any) -> bool:
    """Whether an index part selects elements one by one."""
    return isinstance(part, (list, range, tuple)) or hasattr(part, "dtype")


def _together(parts: Any) -> bool:
    """Whether the element-wise parts of an index stand side by side, so that results do too."""
    if not any(_is_advanced(p) for p in parts):
        return True
    if any(isinstance(p, bool) or (hasattr(p, "dtype") and not p.ndim) for p in parts):
        return False
    places = [i for i, p in enumerate(parts) if _is_advanced(p) or type(p) is int]
    return places == list(range(places[0], places[-1] + 1))


def _parts(index: Any) -> tuple[Any, ...]:
    return index if isinstance(index, tuple) else (index,)


@batching(indexing.slice_view)
def _slice_view(level: BatchLevel, f: Any, x: Tensor, index: Any, name: str) -> Tensor:
    return level.wrap(f(level.value(x), (slice(None), *index), name))


@batching(indexing._picked)
def _picked(level: BatchLevel, f: Any, kind: str, x: Tensor, index: Any) -> Any:
    parts = _parts(index)
    if any(_is_wrapped(p) for p in parts):
        return _by_batched_index(level, f, kind, x, parts)
    parsed, basic = indexing._parse(x, index)
    if basic or not _together(parsed):
        return NotImplemented
    return level.wrap(f(kind, level.value(x), (slice(None), *parts)))


def _is_wrapped(part: Any) -> bool:
    """Whether an index part is batched, here or further out."""
    return isinstance(part, Tensor) and part._wrapper is not None


def _by_batched_index(level: BatchLevel, f: Any, kind: str, x: Tensor, parts: Any) -> Any:
    """``x[..., i, j, ...]`` with a side-by-side run of index tensors, batched or not."""
    if any(_is_wrapped(p) and p.dtype.category == 0 for p in parts):
        _refuse_shapes("index with a bool tensor")
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
        return level.wrap(shape.movedim(found, p, 0))
    examples = arange(level.size, device=x.device).reshape((-1, *[1] * rank))
    found = f(kind, level.value(x), (examples, *lead, *indices, *rest))
    if p:  # element-wise parts that stand apart come first
        inner = range(1, 1 + rank)
        found = shape.movedim(found, tuple(inner), tuple([d + p for d in inner]))
    return level.wrap(found)


def _refuse_shapes(what: str) -> None:
    raise RuntimeError(
        "vmap: We do not support batching operators that can output dynamic shape. Attempted to "
        f"vmap over {what}; use torch.where-like masking (x.where(mask, 0)) instead."
    )


@batching(indexing.nonzero, indexing.masked_select)
def _dynamic(level: BatchLevel, f: Any, *args: Any, **kwargs: Any) -> None:
    _refuse_shapes(f.__name__)


@batching(indexing.getitem_parsed)
def _getitem_parsed(level: BatchLevel, f: Any, g: Tensor, index: Any) -> Any:
    if not _together(_parts(index)):
        return NotImplemented
    return level.wrap(f(level.value(g), (slice(None), *_parts(index))))


@batching(indexing.place)
def _place(level: BatchLevel, f: Any, values: Tensor, index: Any, wanted: Any) -> Any:
    if not _together(_parts(index)):
        return NotImplemented
    return level.wrap(f(level.value(values), (slice(None), *_parts(index)), (level.size, *wanted)))


@batching(indexing.with_values)
def _with_values(level: BatchLevel, f: Any, x: Tensor, index: Any, value: Tensor) -> Any:
    if not _together(_parts(index)):
        return NotImplemented
    spread = indexing._spread(value, indexing._selected_shape(x, index))
    return level.wrap(f(level.full(x), (slice(None), *_parts(index)), level.full(spread)))


@batching(indexing.setitem)
def _setitem(level: BatchLevel, f: Any, x: Tensor, index: Any, value: Any) -> Any:
    if not level.holds(x):
        level.write(x, value, "index_put_")
    return NotImplemented


@batching(indexing.gathered)
def _gathered(
    level: BatchLevel,
    f: Any,
    name: str,
    x: Tensor,
    dim: int,
    index: Tensor,
    *args: Any,
    **named: Any,
) -> Any:
    if not x.ndim:
        return NotImplemented
    place = normalise_dim(dim, x.ndim) + 1
    return level.wrap(f(name, level.full(x), place, level.full(index), *args, **named))


@batching(indexing.scatter, index_add.scatter_add)
def _scatter(
    level: BatchLevel, f: Any, x: Tensor, dim: int, index: Tensor, src: Any = None, **options: Any
) -> Any:
    src = options.pop("value", None) if src is None else src
    if not x.ndim or (isinstance(src, Tensor) and src.ndim != x.ndim):
        return NotImplemented
    source = level.full(src) if isinstance(src, Tensor) else src
    place = normalise_dim(dim, x.ndim) + 1
    return level.wrap(f(level.full(x), place, level.full(index), source, **options))


@batching(index_add.index_add)
def _index_add(
    level: BatchLevel, f: Any, x: Tensor, dim: int, index: Tensor, source: Tensor, **options: Any
) -> Any:
    if level.holds(index) or not x.ndim:
        return NotImplemented
    place = normalise_dim(dim, x.ndim) + 1
    return level.wrap(f(level.full(x), place, index, level.full(source), **options))


@batching(indexing.argsort)
def _argsort(
    level: BatchLevel, f: Any, x: Tensor, dim: int = -1, *args: Any, **options: Any
) -> Any:
    if not x.ndim:
        return NotImplemented
    return level.wrap(f(level.value(x), normalise_dim(dim, x.ndim) + 1, *args, **options))
