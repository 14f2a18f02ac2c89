"""Order statistics and covariances, under NumPy's names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lucid_gpu.dtypes import element_type
from lucid_gpu.numpy import reductions
from lucid_gpu.numpy.arranging import diagonal
from lucid_gpu.numpy.naming import named
from lucid_gpu.numpy.operands import as_tensor, inexact
from lucid_gpu.numpy.reductions import NOT_GIVEN, axes_of, kept
from lucid_gpu.numpy.refusals import takes_out
from lucid_gpu.numpy.shapes import moveaxis
from lucid_gpu.ops.shape import cat
from lucid_gpu.tensor import Tensor

__all__ = ["corrcoef", "cov", "median", "nanmedian", "nanpercentile", "nanquantile"]
__all__ += ["percentile", "quantile", "trace"]


# --- by order ------------------------------------------------------------------------------------


_WAYS = {"linear", "lower", "higher", "midpoint", "nearest"}


def _quantile(name: str, scale: float, skip_nan: bool) -> Callable[..., Any]:
    title = name.removeprefix("nan").capitalize()

    @takes_out
    def function(
        a: Any,
        q: Any,
        axis: Any = None,
        out: Any = None,
        overwrite_input: bool = False,
        method: str = "linear",
        keepdims: bool = False,
        *,
        weights: Any = None,
        interpolation: Any = None,
    ) -> Tensor:
        if weights is not None or interpolation is not None or method not in _WAYS:
            raise TypeError(
                f"numpy.{name} of tensors takes method {', '.join(sorted(_WAYS))}, and neither "
                "weights nor interpolation"
            )
        a = inexact(as_tensor(a))
        if a.dtype.category == 3:
            raise TypeError("a must be an array of real numbers")
        dtype, a = a.dtype, a if a.dtype.itemsize > 2 else a.float()
        q = as_tensor(q, a).to(a.dtype).detach() / scale
        if bool(((q < 0) | (q > 1)).any()):
            raise ValueError(f"{title}s must be in the range [0, {scale:g}]")
        axes = axes_of(a, axis)
        rows = moveaxis(a, axes, range(a.ndim - len(axes), a.ndim)) if axes else a
        outer = tuple(rows.shape[: a.ndim - len(axes)])
        rows = rows.reshape((*outer, int(np.prod([a.shape[k] for k in axes], dtype=int))))
        if not rows.shape[-1]:  # of nothing
            rows = rows.new_full((*outer, 1), np.nan)
        take = rows.nanquantile if skip_nan else rows.quantile
        if rows.numel():
            quantiles = take(q.reshape(-1), -1, interpolation=method)
        else:
            quantiles = rows.new_zeros((q.numel(), *outer))
        if keepdims:
            quantiles = quantiles.reshape(
                (-1, *[1 if k in axes else n for k, n in enumerate(a.shape)])
            )
        return quantiles.reshape((*q.shape, *quantiles.shape[1:])).to(dtype)

    return named(function, name)


quantile, nanquantile = _quantile("quantile", 1, False), _quantile("nanquantile", 1, True)
percentile, nanpercentile = (
    _quantile("percentile", 100, False),
    _quantile("nanpercentile", 100, True),
)


def median(
    a: Any,
    axis: Any = None,
    out: Any = None,
    overwrite_input: bool = False,
    keepdims: bool = False,
) -> Any:
    """`numpy.median`: the mean of the two in the middle, where PyTorch's is the lower one."""
    return quantile(a, 0.5, axis, out, keepdims=keepdims)


def nanmedian(
    a: Any,
    axis: Any = None,
    out: Any = None,
    overwrite_input: bool = False,
    keepdims: Any = NOT_GIVEN,
) -> Any:
    """`numpy.nanmedian`."""
    return nanquantile(a, 0.5, axis, out, keepdims=kept(keepdims))


# --- of variables --------------------------------------------------------------------------------


def cov(
    m: Any,
    y: Any = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: int | None = None,
    fweights: Any = None,
    aweights: Any = None,
    *,
    dtype: Any = None,
) -> Tensor:
    """`numpy.cov`."""
    x = inexact(as_tensor(m))
    if x.ndim > 2 or y is not None and as_tensor(y, x).ndim > 2:
        raise ValueError("m has more than 2 dimensions")
    x = x.reshape(1, -1) if x.ndim < 2 else x if rowvar else x.T
    if y is not None:
        other = inexact(as_tensor(y, x))
        other = other.reshape(1, -1) if other.ndim < 2 else other if rowvar else other.T
        x = cat([x, other])
    x = x.to(element_type(np.result_type(x.dtype.numpy, float) if dtype is None else dtype))
    less = (0 if bias else 1) if ddof is None else ddof
    weights = (("fweights", fweights), ("aweights", aweights))
    options = {name: as_tensor(w, x) for name, w in weights if w is not None}
    covariance: Tensor = x.cov(correction=less, **options)
    return covariance.reshape(()) if covariance.numel() == 1 else covariance


def corrcoef(x: Any, y: Any = None, rowvar: bool = True, *, dtype: Any = None) -> Any:
    """`numpy.corrcoef`."""
    c = cov(x, y, rowvar, dtype=dtype)
    if c.ndim == 0:
        return c / c
    spread = c.diagonal().real.sqrt() if c.dtype.category == 3 else c.diagonal().sqrt()
    c = c / spread.unsqueeze(-1) / spread
    if c.dtype.category == 3:
        return np.clip(c.real, -1, 1) + 1j * np.clip(c.imag, -1, 1)
    return np.clip(c, -1, 1)


def trace(
    a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: Any = None
) -> Any:
    """`numpy.trace`."""
    a = as_tensor(a)
    return reductions.sum(diagonal(a, offset, axis1, axis2), -1, dtype, out)
