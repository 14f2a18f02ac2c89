"""Sums, means and extrema, running ones among them, and differences."""

from __future__ import annotations

import builtins
from typing import Any

from lucid_gpu.array_api.elementwise import writable
from lucid_gpu.array_api.types import promoted
from lucid_gpu.numpy import reductions, running, selection
from lucid_gpu.tensor import Tensor

__all__ = ["all", "any", "count_nonzero", "cumulative_prod", "cumulative_sum", "diff", "max"]
__all__ += ["mean", "min", "prod", "std", "sum", "var"]

Axis = int | tuple[int, ...] | None


def sum(
    x: Tensor, /, *, axis: Axis = None, dtype: Any = None, keepdims: builtins.bool = False
) -> Tensor:
    """The sum; of truth values and small integers in int64."""
    found: Tensor = reductions.sum(x, axis, dtype, keepdims=keepdims)
    return found


def prod(
    x: Tensor, /, *, axis: Axis = None, dtype: Any = None, keepdims: builtins.bool = False
) -> Tensor:
    """The product; of truth values and small integers in int64."""
    found: Tensor = reductions.prod(x, axis, dtype, keepdims=keepdims)
    return found


def mean(x: Tensor, /, *, axis: Axis = None, keepdims: builtins.bool = False) -> Tensor:
    """The mean."""
    found: Tensor = reductions.mean(x, axis, keepdims=keepdims)
    return found


def var(
    x: Tensor, /, *, axis: Axis = None, correction: float = 0.0, keepdims: builtins.bool = False
) -> Tensor:
    """The variance, divided by the number of elements less ``correction``."""
    found: Tensor = reductions.var(x, axis, ddof=correction, keepdims=keepdims)
    return found


def std(
    x: Tensor, /, *, axis: Axis = None, correction: float = 0.0, keepdims: builtins.bool = False
) -> Tensor:
    """The root of `var`."""
    spread = var(x, axis=axis, correction=correction, keepdims=keepdims)
    found: Tensor = writable(spread.sqrt())
    return found


def max(x: Tensor, /, *, axis: Axis = None, keepdims: builtins.bool = False) -> Tensor:
    """The largest element; those that are equal share the gradient."""
    found: Tensor = reductions.max(x, axis, keepdims=keepdims)
    return found


def min(x: Tensor, /, *, axis: Axis = None, keepdims: builtins.bool = False) -> Tensor:
    """The smallest element; those that are equal share the gradient."""
    found: Tensor = reductions.min(x, axis, keepdims=keepdims)
    return found


def all(x: Tensor, /, *, axis: Axis = None, keepdims: builtins.bool = False) -> Tensor:
    """Whether every element is true."""
    found: Tensor = reductions.all(x, axis, keepdims=keepdims)
    return found


def any(x: Tensor, /, *, axis: Axis = None, keepdims: builtins.bool = False) -> Tensor:
    """Whether an element is true."""
    found: Tensor = reductions.any(x, axis, keepdims=keepdims)
    return found


def count_nonzero(x: Tensor, /, *, axis: Axis = None, keepdims: builtins.bool = False) -> Tensor:
    """How many elements are not zero."""
    return sum(x != 0, axis=axis, keepdims=keepdims)


def cumulative_sum(
    x: Tensor,
    /,
    *,
    axis: int | None = None,
    dtype: Any = None,
    include_initial: builtins.bool = False,
) -> Tensor:
    """Running sums; of truth values and small integers in int64."""
    options: Any = {"axis": axis, "dtype": dtype, "include_initial": include_initial}
    found: Tensor = running.cumulative_sum(x, **options)
    return found


def cumulative_prod(
    x: Tensor,
    /,
    *,
    axis: int | None = None,
    dtype: Any = None,
    include_initial: builtins.bool = False,
) -> Tensor:
    """Running products; of truth values and small integers in int64."""
    options: Any = {"axis": axis, "dtype": dtype, "include_initial": include_initial}
    found: Tensor = running.cumulative_prod(x, **options)
    return found


def diff(
    x: Tensor,
    /,
    n: int = 1,  # by position in scikit-learn, as NumPy takes it
    *,
    axis: int = -1,
    prepend: Tensor | None = None,
    append: Tensor | None = None,
) -> Tensor:
    """What neighbours differ by, ``n`` times."""
    x, *edges = promoted(x, *[e for e in (prepend, append) if e is not None])
    before = None if prepend is None else edges.pop(0)
    return selection.diff(x, n, axis, before, edges.pop() if edges else None)
