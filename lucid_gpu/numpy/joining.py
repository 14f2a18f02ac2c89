"""Tensors joined and cut, under NumPy's names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lucid_gpu.dtypes import element_type
from lucid_gpu.numpy.naming import named
from lucid_gpu.numpy.operands import as_tensor, as_tensors
from lucid_gpu.numpy.refusals import takes_out
from lucid_gpu.numpy.shapes import atleast_1d, atleast_2d, atleast_3d, axis_of, moveaxis
from lucid_gpu.ops.shape import cat
from lucid_gpu.tensor import Tensor

__all__ = ["append", "array_split", "block", "column_stack", "concat", "concatenate", "delete"]
__all__ += ["dsplit", "dstack", "hsplit", "hstack", "insert", "split", "stack", "unstack"]
__all__ += ["vsplit", "vstack"]


# --- several together ----------------------------------------------------------------------------


def _promoted(tensors: Sequence[Any], dtype: Any, casting: Any) -> list[Tensor]:
    """All in one type: that asked for, or the one NumPy gives to all together.

    Raises
    ------
    TypeError
        If the rule ``casting`` does not allow it.
    """
    operands = as_tensors(tensors)
    if dtype is None and len({t.dtype for t in operands}) < 2:
        return operands
    d = element_type(np.result_type(*[t.dtype.numpy for t in operands]) if dtype is None else dtype)
    for t in operands:
        if not np.can_cast(t.dtype.numpy, d.numpy, casting):
            raise TypeError(
                f"Cannot cast array data from {t.dtype.numpy!r} to {d.numpy!r} according to the "
                f"rule {casting!r}"
            )
    return [t.to(d) for t in operands]


@takes_out
def concatenate(
    arrays: Sequence[Any],
    /,
    axis: int | None = 0,
    out: Any = None,
    *,
    dtype: Any = None,
    casting: str = "same_kind",
) -> Tensor:
    """`numpy.concatenate`."""
    parts = _promoted(_parts(arrays), dtype, casting)
    if axis is None:
        return cat([p.reshape(-1) for p in parts])
    if any(p.ndim == 0 for p in parts):
        raise ValueError("zero-dimensional arrays cannot be concatenated")
    ranks = {p.ndim for p in parts}
    if len(ranks) > 1:
        raise ValueError(
            "all the input array dimensions except for the concatenation axis must match exactly, "
            f"but the arrays have {' and '.join(map(str, sorted(ranks)))} dimensions"
        )
    axis = axis_of(axis, parts[0].ndim)
    rest = {tuple(p.shape)[:axis] + tuple(p.shape)[axis + 1 :] for p in parts}
    if len(rest) > 1:
        raise ValueError(
            "all the input array dimensions except for the concatenation axis must match exactly, "
            f"but the shapes are {', '.join(str(tuple(p.shape)) for p in parts)}"
        )
    return cat(parts, axis)


concat = concatenate


def _parts(arrays: Any) -> list[Any]:
    """What is to be joined: a sequence, or a tensor's rows."""
    parts = list(arrays)
    if not parts:
        raise ValueError("need at least one array to concatenate")
    return parts


@takes_out
def stack(
    arrays: Sequence[Any],
    axis: int = 0,
    out: Any = None,
    *,
    dtype: Any = None,
    casting: str = "same_kind",
) -> Tensor:
    """`numpy.stack`."""
    parts = _promoted(_parts(arrays), dtype, casting)
    if len({tuple(p.shape) for p in parts}) > 1:
        raise ValueError("all input arrays must have the same shape")
    axis = axis_of(axis, parts[0].ndim + 1)
    return cat([p.unsqueeze(axis) for p in parts], axis)


def hstack(tup: Sequence[Any], *, dtype: Any = None, casting: str = "same_kind") -> Any:
    """`numpy.hstack`."""
    parts = [atleast_1d(p) for p in as_tensors(tup)]
    return concatenate(parts, 0 if parts[0].ndim == 1 else 1, dtype=dtype, casting=casting)


def vstack(tup: Sequence[Any], *, dtype: Any = None, casting: str = "same_kind") -> Any:
    """`numpy.vstack`."""
    parts = [atleast_2d(p) for p in as_tensors(tup)]
    return concatenate(parts, 0, dtype=dtype, casting=casting)


def dstack(tup: Sequence[Any]) -> Any:
    """`numpy.dstack`."""
    return concatenate([atleast_3d(p) for p in as_tensors(tup)], 2)


def column_stack(tup: Sequence[Any]) -> Any:
    """`numpy.column_stack`."""
    return concatenate([p if p.ndim > 1 else p.reshape(-1, 1) for p in as_tensors(tup)], 1)


def append(arr: Any, values: Any, axis: int | None = None) -> Any:
    """`numpy.append`."""
    return concatenate(as_tensors((arr, values)), axis)


def block(arrays: Any) -> Tensor:
    """`numpy.block`."""
    depth = _depth(arrays)
    rank = max(depth, *[t.ndim for t in as_tensors(_leaves(arrays))])
    return _block(arrays, depth, rank)


def _depth(arrays: Any) -> int:
    return 1 + _depth(arrays[0]) if isinstance(arrays, list) else 0


def _leaves(arrays: Any) -> list[Any]:
    return [leaf for a in arrays for leaf in _leaves(a)] if isinstance(arrays, list) else [arrays]


def _block(arrays: Any, depth: int, rank: int) -> Tensor:
    if depth == 0:
        a = as_tensor(arrays)
        return a.reshape((1,) * (rank - a.ndim) + tuple(a.shape))
    joined: Tensor = concatenate([_block(a, depth - 1, rank) for a in arrays], -depth)
    return joined


# --- one cut -------------------------------------------------------------------------------------


def array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Tensor]:
    """`numpy.array_split`."""
    ary = as_tensor(ary)
    axis = axis_of(axis, ary.ndim)
    n = ary.shape[axis]
    if np.ndim(indices_or_sections):
        at = [slice(None, n).indices(n)[1] if i is None else int(i) for i in indices_or_sections]
        bounds = [0, *at, n]
    else:
        parts = int(indices_or_sections)
        if parts <= 0:
            raise ValueError("number sections must be larger than 0.")
        each, more = divmod(n, parts)
        bounds = [k * each + min(k, more) for k in range(parts + 1)]
    spans = [range(n)[low:high] for low, high in zip(bounds, bounds[1:], strict=False)]
    return [ary.narrow(axis, span.start, len(span)) for span in spans]


def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Tensor]:
    """`numpy.split`."""
    ary = as_tensor(ary)
    if (
        not np.ndim(indices_or_sections)
        and ary.shape[axis_of(axis, ary.ndim)] % indices_or_sections
    ):
        raise ValueError("array split does not result in an equal division")
    return array_split(ary, indices_or_sections, axis)


def _split_along(name: str, axis: int, rank: int) -> Callable[[Any, Any], list[Tensor]]:
    def function(ary: Any, indices_or_sections: Any) -> list[Tensor]:
        ary = as_tensor(ary)
        if ary.ndim < rank:
            raise ValueError(f"{name} only works on arrays of {rank} or more dimensions")
        return split(ary, indices_or_sections, 0 if ary.ndim == 1 else axis)

    return named(function, name)


hsplit = _split_along("hsplit", 1, 1)
vsplit = _split_along("vsplit", 0, 2)
dsplit = _split_along("dsplit", 2, 3)


def unstack(x: Any, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """`numpy.unstack`."""
    return tuple(moveaxis(x, axis, 0))


def delete(arr: Any, obj: Any, axis: int | None = None) -> Tensor:
    """`numpy.delete`."""
    arr = as_tensor(arr).reshape(-1) if axis is None else as_tensor(arr)
    axis = axis_of(axis or 0, arr.ndim)
    kept = np.delete(np.arange(arr.shape[axis]), obj)
    return arr.index_select(axis, as_tensor(kept, arr))


def insert(arr: Any, obj: Any, values: Any, axis: int | None = None) -> Tensor:
    """`numpy.insert`."""
    arr, values = as_tensors((arr, values))
    arr = arr.reshape(-1) if axis is None else arr
    axis = axis_of(axis or 0, arr.ndim)
    n = arr.shape[axis]
    positions = np.arange(n)[obj] if isinstance(obj, slice) else np.asarray(obj)
    if positions.ndim == 0 and 0 < values.ndim < arr.ndim:
        values = values.unsqueeze(axis)
    one_position = positions.ndim == 0 and values.ndim == arr.ndim
    count = values.shape[axis] if one_position else positions.size
    # where old and new elements come to stand, as NumPy says of their numbers
    order = np.insert(np.arange(n), positions, n + np.arange(count))
    shape = [count if k == axis else size for k, size in enumerate(arr.shape)]
    joined = concatenate([arr, values.to(arr.dtype).expand(shape)], axis)
    return joined.index_select(axis, as_tensor(order, arr))
