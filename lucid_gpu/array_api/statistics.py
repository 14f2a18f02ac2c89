"""Sums, means and extrema, running ones among them, and differences."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

from lucid_gpu.array_api.elementwise import writable
from lucid_gpu.array_api.types import promoted
from lucid_gpu.numpy import reductions, running, selection
from lucid_gpu.numpy.naming import named
from lucid_gpu.tensor import Tensor

__all__ = ["all", "any", "count_nonzero", "cumulative_prod", "cumulative_sum", "diff", "max"]
__all__ += ["mean", "min", "prod", "std", "sum", "var"]

Axis = int | tuple[int, ...] | None


def _over_axes(reduce: Callable[..., Any], doc: str) -> Callable[..., Tensor]:
    def function(x: Tensor, /, *, axis: Axis = None, keepdims: builtins.bool = False) -> Tensor:
        reduced: Tensor = reduce(x, axis, keepdims=keepdims)
        return reduced

    return named(function, reduce.__name__, doc)


def _in_a_type(reduce: Callable[..., Any], doc: str) -> Callable[..., Tensor]:
    def function(
        x: Tensor, /, *, axis: Axis = None, dtype: Any = None, keepdims: builtins.bool = False
    ) -> Tensor:
        reduced: Tensor = reduce(x, axis, dtype, keepdims=keepdims)
        return reduced

    return named(function, reduce.__name__, doc)


def _running(run: Callable[..., Any], doc: str) -> Callable[..., Tensor]:
    def function(
        x: Tensor,
        /,
        *,
        axis: int | None = None,
        dtype: Any = None,
        include_initial: builtins.bool = False,
    ) -> Tensor:
        accumulated: Tensor = run(x, axis=axis, dtype=dtype, include_initial=include_initial)
        return accumulated

    return named(function, run.__name__, doc)


# truth values and small integers are summed in int64
sum, prod = (
    _in_a_type(reductions.sum, "The sum, over axes, which the shape loses."),
    _in_a_type(reductions.prod, "The product, over axes, which the shape loses."),
)
mean = _over_axes(reductions.mean, "The mean, over axes, which the shape loses.")
max = _over_axes(reductions.max, "The largest element; those that are equal share the gradient.")
min = _over_axes(reductions.min, "The smallest element; those that are equal share the gradient.")
all = _over_axes(reductions.all, "Whether every element is true.")
any = _over_axes(reductions.any, "Whether an element is true.")
cumulative_sum = _running(running.cumulative_sum, "Running sums along an axis; of the same shape.")
cumulative_prod = _running(
    running.cumulative_prod, "Running products along an axis; of the same shape."
)


def var(
    x: Tensor, /, *, axis: Axis = None, correction: float = 0.0, keepdims: builtins.bool = False
) -> Tensor:
    """The variance, divided by the number of elements less ``correction``."""
    variance: Tensor = reductions.var(x, axis, ddof=correction, keepdims=keepdims)
    return variance


def std(
    x: Tensor, /, *, axis: Axis = None, correction: float = 0.0, keepdims: builtins.bool = False
) -> Tensor:
    """The root of `var`."""
    spread = var(x, axis=axis, correction=correction, keepdims=keepdims)
    deviation: Tensor = writable(spread.sqrt())
    return deviation


def count_nonzero(x: Tensor, /, *, axis: Axis = None, keepdims: builtins.bool = False) -> Tensor:
    """How many elements are not zero."""
    return sum(x != 0, axis=axis, keepdims=keepdims)


def diff(
    x: Tensor,
    /,
    n: int = 1,  # by position in scikit-learn, as NumPy takes it
    *,
    axis: int = -1,
    prepend: Tensor | None = None,
    append: Tensor | None = None,
) -> Tensor:
    """What neighbors along an axis differ by, ``n`` times; the axis loses ``n`` elements."""
    x, *edges = promoted(x, *[e for e in (prepend, append) if e is not None])
    before = None if prepend is None else edges.pop(0)
    return selection.diff(x, n, axis, before, edges.pop() if edges else None)
