"""Running sums and products, and reductions past NaN, under NumPy's names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lucid_gpu.numpy import reductions
from lucid_gpu.numpy.naming import named
from lucid_gpu.numpy.operands import as_tensor, inexact
from lucid_gpu.numpy.reductions import NOT_GIVEN
from lucid_gpu.numpy.refusals import takes_out
from lucid_gpu.numpy.shapes import axis_of
from lucid_gpu.ops.cumsum import cumsum as _cumsum
from lucid_gpu.ops.cumulative import cumprod as _cumprod
from lucid_gpu.tensor import Tensor

__all__ = ["cumprod", "cumsum", "cumulative_prod", "cumulative_sum", "nancumprod", "nancumsum"]
__all__ += ["nanmax", "nanmean", "nanmin", "nanprod", "nanstd", "nansum", "nanvar"]


def _running(name: str, method: Callable[[Tensor, int], Tensor], neutral: int) -> tuple[Any, Any]:
    """``cumsum`` or ``cumprod``, and the same where NaN counts as nothing."""

    @takes_out
    def function(a: Any, axis: int | None = None, dtype: Any = None, out: Any = None) -> Tensor:
        a = reductions.in_summed_type(as_tensor(a), dtype)
        a = a.reshape(1) if a.ndim == 0 else a
        a, axis = (a.reshape(-1), 0) if axis is None else (a, axis_of(axis, a.ndim))
        return method(a, axis).to(a.dtype)

    @takes_out
    def without_nan(a: Any, axis: int | None = None, dtype: Any = None, out: Any = None) -> Any:
        return function(_filled(as_tensor(a), neutral), axis, dtype)

    return named(function, name), named(without_nan, f"nan{name}")


def _filled(a: Tensor, number: Any) -> Tensor:
    """With a number in the place of NaN."""
    return a if a.dtype.category < 2 else a.where(~a.isnan(), number)


cumsum, nancumsum = _running("cumsum", _cumsum, 0)
cumprod, nancumprod = _running("cumprod", _cumprod, 1)


def _cumulative(name: str, run: Callable[..., Any], neutral: int) -> Callable[..., Any]:
    @takes_out
    def function(
        x: Any,
        /,
        *,
        axis: int | None = None,
        dtype: Any = None,
        out: Any = None,
        include_initial: bool = False,
    ) -> Any:
        x = as_tensor(x)
        if axis is None:
            if x.ndim > 1:
                raise ValueError(f"{name} of more than one dimension requires axis=")
            x, axis = x.reshape(-1), 0
        accumulated = run(x, axis, dtype)
        if not include_initial:
            return accumulated
        axis = axis_of(axis, x.ndim)
        first = accumulated.new_full(
            [1 if k == axis else n for k, n in enumerate(x.shape)], neutral
        )
        return np.concatenate([first, accumulated], axis)

    return named(function, name)


cumulative_sum = _cumulative("cumulative_sum", cumsum, 0)
cumulative_prod = _cumulative("cumulative_prod", cumprod, 1)


def _without_nan(name: str, reduce: Callable[..., Any], neutral: Any) -> Callable[..., Any]:
    """A reduction of the elements that are numbers."""

    def function(a: Any, axis: Any = None, *args: Any, **kwargs: Any) -> Any:
        return reduce(_filled(as_tensor(a), neutral), axis, *args, **kwargs)

    return named(function, name)


nansum = _without_nan("nansum", reductions.sum, 0)
nanprod = _without_nan("nanprod", reductions.prod, 1)


def _extremum_without_nan(
    name: str, reduce: Callable[..., Any], neutral: float
) -> Callable[..., Any]:
    def function(
        a: Any, axis: Any = None, out: Any = None, keepdims: Any = NOT_GIVEN, **kwargs: Any
    ) -> Any:
        a = as_tensor(a)
        reduced = reduce(_filled(a, neutral), axis, None, keepdims, **kwargs)
        if a.dtype.category == 2:  # NaN where there is nothing else
            lost = reductions.all(a.isnan(), axis, None, keepdims)
            if "initial" not in kwargs:
                reduced = reduced.where(~lost, float("nan"))
        return reduced if out is None else np.add(reduced, 0, out=out)

    return named(function, name)


nanmax = _extremum_without_nan("nanmax", reductions.max, -np.inf)
nanmin = _extremum_without_nan("nanmin", reductions.min, np.inf)


def _moment_without_nan(name: str, reduce: Callable[..., Any]) -> Callable[..., Any]:
    def function(a: Any, axis: Any = None, *args: Any, where: Any = True, **kwargs: Any) -> Any:
        a = inexact(as_tensor(a))
        mask = ~a.isnan() if where is True else ~a.isnan() & as_tensor(where, a)
        return reduce(a, axis, *args, where=mask, **kwargs)

    return named(function, name)


nanmean = _moment_without_nan("nanmean", reductions.mean)
nanvar = _moment_without_nan("nanvar", reductions.var)
nanstd = _moment_without_nan("nanstd", reductions.std)
