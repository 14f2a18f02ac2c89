"""Elements found, taken, put in order; the different ones among them."""

from __future__ import annotations

from typing import Any, NamedTuple

from lucid_gpu import dtypes as dt
from lucid_gpu.array_api.types import promoted
from lucid_gpu.numpy import selection
from lucid_gpu.numpy.shapes import axis_of
from lucid_gpu.ops import registry, selections, sorting
from lucid_gpu.ops.creation import arange
from lucid_gpu.ops.scatter import scatter
from lucid_gpu.ops.shape import cat
from lucid_gpu.tensor import Tensor

__all__ = ["argmax", "argmin", "argsort", "nonzero", "searchsorted", "sort", "take"]
__all__ += ["take_along_axis", "unique_all", "unique_counts", "unique_inverse"]
__all__ += ["unique_values", "where"]


# --- by value ------------------------------------------------------------------------------------


def argmax(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Where the first of the largest elements is."""
    return _arg_extremum(x, "argmax", axis, keepdims)


def argmin(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Where the first of the smallest elements is."""
    return _arg_extremum(x, "argmin", axis, keepdims)


def _arg_extremum(x: Tensor, name: str, axis: int | None, keepdims: bool) -> Tensor:
    if axis is None:
        index: Tensor = getattr(x.reshape(-1), name)(0)
        return index.reshape((1,) * x.ndim) if keepdims else index
    along: Tensor = getattr(x, name)(axis_of(axis, x.ndim), keepdims)
    return along


def nonzero(x: Tensor, /) -> tuple[Tensor, ...]:
    """Where elements are not zero: a tensor of positions for each axis.

    ValueError for 0-d arrays.
    """
    if x.ndim == 0:
        raise ValueError("nonzero takes an array of at least one dimension, got a number")
    indices: tuple[Tensor, ...] = selections.nonzero(x, as_tuple=True)
    return indices


def where(condition: Tensor, x1: Any = None, x2: Any = None, /) -> Any:
    """Elements of ``x1`` where the condition holds, else of ``x2``.

    Without both it is `nonzero`, as scikit-learn calls it.
    """
    if x1 is None and x2 is None:
        return nonzero(condition)
    x1, x2 = promoted(x1, x2)
    selected: Tensor = selection.where(condition, x1, x2)
    return selected


def searchsorted(
    x1: Tensor, x2: Tensor, /, *, side: str = "left", sorter: Tensor | None = None
) -> Tensor:
    """Where elements of ``x2`` fit into ``x1``, which is in order or put so by ``sorter``.

    ValueError where ``side`` is neither "left" nor "right".
    """
    if side not in ("left", "right"):
        raise ValueError(f"side must be 'left' or 'right', got {side!r}")
    x1, x2 = promoted(x1, x2)
    if x1.dtype == dt.bool:  # as scikit-learn has them, where PyTorch's refuses them
        x1, x2 = x1.to(dt.uint8), x2.to(dt.uint8)
    ordered = x1 if sorter is None else x1[sorter]
    find = registry.load("order", "searchsorted")
    positions: Tensor = find(ordered.detach(), x2.detach(), right=side == "right")
    return positions


# --- by position ---------------------------------------------------------------------------------


def take(x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Tensor:
    """Elements at positions along an axis.

    ValueError where ``axis`` is left out and ``x`` is no vector.
    """
    if axis is None and x.ndim != 1:
        raise ValueError(f"take of an array of {x.ndim} dimensions needs axis=")
    taken: Tensor = selection.take(x, indices, axis)
    return taken


def take_along_axis(x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Tensor:
    """The elements that positions name within each row along an axis."""
    return selection.take_along_axis(x, indices, axis)


# --- by order ------------------------------------------------------------------------------------


def sort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """In order along an axis; of the same shape."""
    ordered: Tensor = sorting.sort(x, axis, descending)[0]
    return ordered


def argsort(
    x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True
) -> Tensor:
    """The positions that put elements in order; equal ones keep theirs."""
    return sorting.argsort(x, axis, descending)


# --- different elements --------------------------------------------------------------------------


class UniqueAll(NamedTuple):
    """What `unique_all` gives."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """What `unique_counts` gives."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """What `unique_inverse` gives."""

    values: Tensor
    inverse_indices: Tensor


def unique_all(x: Tensor, /) -> UniqueAll:
    """The different elements in order, where each first is, where all are among them, how many.

    Every NaN is one of its own.
    """
    flat = x.reshape(-1)
    order = _order(flat.detach())
    ordered = flat[order]
    fresh = ordered[1:] != ordered[:-1]
    first = cat([fresh.new_ones(min(1, flat.shape[0])), fresh])
    starts = selections.nonzero(first).reshape(-1)
    group = first.to(dt.int64).cumsum(0) - 1
    inverse = scatter(group, 0, order, group).reshape(x.shape)
    ends = cat([starts[1:], arange(flat.shape[0], flat.shape[0] + 1, device=x.device)])
    counts = ends[: starts.shape[0]] - starts
    return UniqueAll(ordered[starts], order[starts], inverse, counts)


def _order(flat: Tensor) -> Tensor:
    """The positions that put a vector in order; complex numbers by real, then imaginary part."""
    if flat.dtype.category < 3:
        return sorting.argsort(flat, 0)
    by_second = sorting.argsort(flat.imag, 0)
    return by_second[sorting.argsort(flat.real[by_second], 0)]


def unique_counts(x: Tensor, /) -> UniqueCounts:
    """The different elements in order, and how many there are of each."""
    uniques = unique_all(x)
    return UniqueCounts(uniques.values, uniques.counts)


def unique_inverse(x: Tensor, /) -> UniqueInverse:
    """The different elements in order, and where among them each element is."""
    uniques = unique_all(x)
    return UniqueInverse(uniques.values, uniques.inverse_indices)


def unique_values(x: Tensor, /) -> Tensor:
    """The different elements in order."""
    return unique_all(x).values
