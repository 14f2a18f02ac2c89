"""Sums, means and extrema, under NumPy's names."""

from __future__ import annotations

from builtins import max as builtin_max
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy._globals import _NoValue as NOT_GIVEN

from lucid_gpu import dtypes as dt
from lucid_gpu.dtypes import element_type
from lucid_gpu.numpy import shapes
from lucid_gpu.numpy.naming import named
from lucid_gpu.numpy.operands import as_tensor, inexact
from lucid_gpu.numpy.refusals import takes_out, write_into
from lucid_gpu.ops.reductions import amax as _largest
from lucid_gpu.ops.reductions import amin as _smallest
from lucid_gpu.tensor import Tensor

__all__ = ["all", "amax", "amin", "any", "average", "max", "mean", "min", "prod", "ptp", "std"]
__all__ += ["sum", "var"]


def axes_of(a: Tensor, axis: Any) -> tuple[int, ...]:
    """The axes reduced over, counted from the front; all for None."""
    if axis is None or a.ndim == 0 and type(axis) is int and axis in (0, -1):
        return tuple(range(a.ndim))  # NumPy reduces one number along its axis 0
    return shapes.axes_of(axis, a.ndim)


def kept(keepdims: Any) -> bool:
    """What ``keepdims`` says, NumPy's default among it."""
    return keepdims is not NOT_GIVEN and bool(keepdims)


def _masked(a: Tensor, where: Any, neutral: Any) -> Tensor:
    """``a`` with the neutral element wherever the mask is false."""
    if where is NOT_GIVEN or where is True:
        return a
    return a.where(as_tensor(where, a).to(dt.bool), neutral)


def in_summed_type(a: Tensor, dtype: Any) -> Tensor:
    """In the type NumPy sums in: that asked for, else int64 for smaller whole numbers."""
    if dtype is not None:
        return a.to(element_type(dtype))
    return a.to(dt.int64) if a.dtype.category < 2 else a


def _begun(result: Tensor, initial: Any, neutral: int, join: Callable[..., Tensor]) -> Tensor:
    """The result with the element that it starts from, where that is another than the neutral."""
    if initial is NOT_GIVEN or initial is None or type(initial) is int and initial == neutral:
        return result
    return join(result, as_tensor(initial, result).to(result.dtype))


@takes_out
def sum(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: Any = NOT_GIVEN,
    initial: Any = NOT_GIVEN,
    where: Any = NOT_GIVEN,
) -> Tensor:
    """`numpy.sum`."""
    a = _masked(in_summed_type(as_tensor(a), dtype), where, 0)
    axes = axes_of(a, axis)
    total = (a.sum(axes, kept(keepdims)) if axes else a.clone()).to(a.dtype)
    return _begun(total, initial, 0, Tensor.__add__)


@takes_out
def prod(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: Any = NOT_GIVEN,
    initial: Any = NOT_GIVEN,
    where: Any = NOT_GIVEN,
) -> Tensor:
    """`numpy.prod`."""
    a = _masked(in_summed_type(as_tensor(a), dtype), where, 1)
    product, axes = a, axes_of(a, axis)
    for one in axes:
        product = product.prod(one, True)
    product = _shed(product, axes, keepdims).to(a.dtype)
    return _begun(product, initial, 1, Tensor.__mul__)


def _shed(result: Tensor, axes: tuple[int, ...], keepdims: Any) -> Tensor:
    """Without the axes of length one that a reduction kept, unless they are wanted."""
    return result if kept(keepdims) or not axes else result.squeeze(axes)


def _extremum(largest: bool) -> Callable[..., Any]:
    reduce = _largest if largest else _smallest
    name, join = ("max", Tensor.maximum) if largest else ("min", Tensor.minimum)

    @takes_out
    def extremum(
        a: Any,
        axis: Any = None,
        out: Any = None,
        keepdims: Any = NOT_GIVEN,
        initial: Any = NOT_GIVEN,
        where: Any = NOT_GIVEN,
    ) -> Tensor:
        a = as_tensor(a)
        axes = axes_of(a, axis)
        begun = None if initial is NOT_GIVEN else as_tensor(initial, a).to(a.dtype)
        if where is not NOT_GIVEN and where is not True:
            if begun is None:
                raise ValueError(
                    f"reduction operation '{join.__name__}' does not have an identity, so to use a "
                    "where mask one has to specify 'initial'"
                )
            a = _masked(a, where, begun)
        if any_empty(a, axes):
            if begun is None:
                raise ValueError(
                    f"zero-size array to reduction operation {join.__name__} which has no identity"
                )
            shape = [1 if i in axes else n for i, n in enumerate(a.shape)]
            return _shed(begun.expand(shape), axes, keepdims)
        reduced = reduce(a, axes, kept(keepdims)) if axes else a.clone()
        return reduced if begun is None else join(reduced, begun)

    return named(extremum, name, "`numpy.{}`; elements that are equal share the gradient.")


def any_empty(a: Tensor, axes: tuple[int, ...]) -> bool:
    """Whether one of the axes has no element."""
    return 0 in [a.shape[i] for i in axes]


max = amax = _extremum(True)
min = amin = _extremum(False)


def ptp(a: Any, axis: Any = None, out: Any = None, keepdims: Any = NOT_GIVEN) -> Any:
    """`numpy.ptp`: the largest less the smallest element."""
    return np.subtract(max(a, axis, None, keepdims), min(a, axis, None, keepdims), out=out)


@takes_out
def mean(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: Any = NOT_GIVEN,
    *,
    where: Any = NOT_GIVEN,
) -> Tensor:
    """`numpy.mean`; of whole numbers in float64."""
    a = as_tensor(a)
    a = inexact(a) if dtype is None else a.to(element_type(dtype))
    axes = axes_of(a, axis)
    if where is NOT_GIVEN or where is True:
        return a.mean(axes, kept(keepdims)) if axes else a.clone()
    mask = as_tensor(where, a).to(dt.bool).expand(a.shape)
    count = _total(mask.to(a.dtype), axes, keepdims)
    return _total(a.where(mask, 0.0), axes, keepdims) / count


@takes_out
def var(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    ddof: float = 0,
    keepdims: Any = NOT_GIVEN,
    *,
    where: Any = NOT_GIVEN,
    mean: Any = NOT_GIVEN,
    correction: Any = NOT_GIVEN,
) -> Tensor:
    """`numpy.var`: divided by the number of elements, where PyTorch's takes one less."""
    a = as_tensor(a)
    a = inexact(a) if dtype is None else a.to(element_type(dtype))
    axes = axes_of(a, axis)
    ddof = ddof if correction is NOT_GIVEN else correction
    whole = where is NOT_GIVEN or where is True
    if not whole:
        mask = as_tensor(where, a).to(dt.bool).expand(a.shape)
        a = a.where(mask, 0.0)
    middle = _mean(a, axes, None, None, True, where=where) if mean is NOT_GIVEN else mean
    apart = squared_size(a - middle)
    if whole:
        count: Any = np.prod([a.shape[i] for i in axes], dtype=int) - ddof
        total = _total(apart, axes, keepdims)
        return total / float(count) if count > 0 else total / 0.0
    count = _total(mask.to(apart.dtype), axes, keepdims) - ddof
    return _total(apart.where(mask, 0.0), axes, keepdims) / count.clamp(min=0)


_mean = mean


def squared_size(a: Tensor) -> Tensor:
    """Squares of absolute values, which have all derivatives at zero too."""
    return a.square() if a.dtype.category < 3 else (a * a.conj_physical()).real


def _total(a: Tensor, axes: tuple[int, ...], keepdims: Any) -> Tensor:
    return a.sum(axes, kept(keepdims)) if axes else a


def std(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    ddof: float = 0,
    keepdims: Any = NOT_GIVEN,
    *,
    where: Any = NOT_GIVEN,
    mean: Any = NOT_GIVEN,
    correction: Any = NOT_GIVEN,
) -> Any:
    """`numpy.std`: the root of `numpy.var`."""
    spread = var(
        a, axis, dtype, None, ddof, keepdims, where=where, mean=mean, correction=correction
    )
    # a root has no slope at 0, where all elements are alike: none is passed on, as in PyTorch
    deviation = spread.where(spread != 0, 1.0).sqrt().where(spread != 0, spread)
    return deviation if out is None else write_into(out, deviation, "numpy.std")


def average(
    a: Any,
    axis: Any = None,
    weights: Any = None,
    returned: bool = False,
    *,
    keepdims: Any = NOT_GIVEN,
) -> Any:
    """`numpy.average`."""
    a = inexact(as_tensor(a, weights if isinstance(weights, Tensor) else None))
    if weights is not None:
        weights = as_tensor(weights, a)
        d = element_type(np.result_type(a.dtype.numpy, weights.dtype.numpy))
        a, weights = a.to(d), weights.to(d)
    axes = axes_of(a, axis)
    if weights is None:
        averaged = mean(a, axis, keepdims=keepdims)
        count = a.numel() / builtin_max(averaged.numel(), 1)
        return (averaged, averaged * 0 + count) if returned else averaged
    shares = weights
    if shares.shape != a.shape:
        if axis is None:
            raise TypeError("Axis must be specified when shapes of a and weights differ.")
        if tuple(shares.shape) != tuple(a.shape[i] for i in axes):
            raise ValueError(
                "Shape of weights must be consistent with shape of a along specified axis."
            )
        shares = shares.permute(tuple(np.argsort(axes).tolist()))
        shares = shares.reshape([n if i in axes else 1 for i, n in enumerate(a.shape)])
    total = _total(shares.expand(a.shape), axes, keepdims)
    if bool((total == 0).any()):
        raise ZeroDivisionError("Weights sum to zero, can't be normalized")
    averaged = _total(a * shares, axes, keepdims) / total
    return (averaged, total) if returned else averaged


def all(
    a: Any,
    axis: Any = None,
    out: Any = None,
    keepdims: Any = NOT_GIVEN,
    *,
    where: Any = NOT_GIVEN,
) -> Any:
    """`numpy.all`."""
    return _truth(a, axis, out, keepdims, where, True)


def any(
    a: Any,
    axis: Any = None,
    out: Any = None,
    keepdims: Any = NOT_GIVEN,
    *,
    where: Any = NOT_GIVEN,
) -> Any:
    """`numpy.any`."""
    return _truth(a, axis, out, keepdims, where, False)


def _truth(a: Any, axis: Any, out: Any, keepdims: Any, where: Any, whole: bool) -> Any:
    a = _masked(as_tensor(a).to(dt.bool), where, whole)
    axes = axes_of(a, axis)
    truth = (a.all if whole else a.any)(axes, kept(keepdims)) if axes else a
    return truth if out is None else write_into(out, truth, "numpy.all" if whole else "numpy.any")
