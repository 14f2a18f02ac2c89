"""What `layer_norm` computes by CUDA C, by NumPy: block by block, sums as products with ones.

BLAS adds up the rows of a block several times as fast as `numpy.add.reduce` does.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from lucid_gpu.devices.pool import pool
from lucid_gpu.devices.scratch import memory_of_thread
from lucid_gpu.dtypes import from_numpy_dtype
from lucid_gpu.kernels import layer_norm_by_calls as by_calls
from lucid_gpu.kernels.layer_norm import Statistics, Wanted
from lucid_gpu.kernels.row_blocks import each_of_rows

__all__ = ["gradients", "normalised"]

LONG = 2048  # columns from which rounding counts: `numpy.add.reduce` adds in pairs


def normalised(x: Any, weight: Any, bias: Any, eps: float, rms: bool) -> tuple[Any, Statistics]:
    """Rows, shape (rows, columns), normalised; weight and bias may be None."""
    if by_calls.applies(x, *[a for a in (weight, bias) if a is not None]):
        return by_calls.normalised(x, weight, bias, eps, rms)
    d = from_numpy_dtype(x.dtype).compute
    rows, columns = x.shape
    y = pool.empty(x.shape, x.dtype)
    mean = None if rms else np.empty((rows, 1), d.numpy)
    rstd = np.empty((rows, 1), d.numpy)
    weight, bias = _as_type(d.numpy, weight, bias)
    share = _share(columns, d.numpy)

    def work(block: slice) -> None:
        n = y[block]
        if y.dtype != d.numpy:
            (n,) = memory_of_thread.views([d], n.shape)
        if mean is None:
            n[...] = x[block]
        else:
            wide = x[block].astype(d.numpy, copy=False)
            if columns > LONG:
                np.add.reduce(wide, 1, out=mean[block], keepdims=True)
                mean[block] /= columns
            else:
                np.matmul(wide, share, mean[block, 0])
            np.subtract(wide, mean[block], n)
        scale = rstd[block]
        np.vecdot(n, n, out=scale[:, 0])
        scale /= columns
        scale += eps
        np.sqrt(scale, scale)
        np.divide(1, scale, scale)
        n *= scale
        if weight is not None:
            n *= weight
        if bias is not None:
            n += bias
        if y.dtype != d.numpy:
            y[block] = n

    each_of_rows(rows, columns, work)
    return y, Statistics(mean, rstd)


def gradients(
    x: Any, g: Any, weight: Any, known: Statistics, wanted: Wanted, earlier: Any = None
) -> tuple[Any, Any, Any]:
    """The gradients of rows, weight and bias, those that are wanted.

    ``earlier`` is what a gradient of the rows is added to.
    """
    if by_calls.applies(x, g, *[a for a in (weight, *known, earlier) if a is not None]):
        return by_calls.gradients(x, g, weight, known, wanted, earlier)
    mean, rstd = known
    d = from_numpy_dtype(rstd.dtype)
    rows, columns = x.shape
    dx = pool.empty(x.shape, x.dtype) if wanted.x else None
    (weight,) = _as_type(d.numpy, weight)
    share = _share(columns, d.numpy)

    def work(block: slice) -> tuple[Any, Any]:
        centred, h = memory_of_thread.views([d, d], (block.stop - block.start, columns))
        wide, scale = g[block].astype(d.numpy, copy=False), rstd[block]
        if mean is None:
            centred[...] = x[block]
        else:
            np.subtract(x[block], mean[block], centred)
        dbias = np.matmul(np.ones(len(wide), d.numpy), wide) if wanted.bias else None
        dweight = None
        if wanted.weight:
            dweight = np.matmul(scale[:, 0], np.multiply(wide, centred, h))
        if dx is not None:
            if weight is not None:
                wide = np.multiply(wide, weight, h)
            along = np.vecdot(wide, centred)[:, None]
            along *= scale
            along *= scale
            along /= columns
            centred *= along
            if mean is not None:
                centred += np.matmul(wide, share)[:, None]
            np.subtract(wide, centred, centred)
            np.multiply(centred, scale, dx[block], casting="unsafe")
            if earlier is not None:
                np.add(earlier[block], dx[block], dx[block])
        return dweight, dbias

    sums = zip(*each_of_rows(rows, columns, work)) if rows else iter([(), ()])
    dweight, dbias = [
        _added(parts, columns, d.numpy).astype(x.dtype, copy=False) if wish else None
        for parts, wish in zip(sums, wanted[1:])
    ]
    return dx, dweight, dbias


def _added(parts: Sequence[Any], columns: int, kind: Any) -> Any:
    """What the blocks found, in their order."""
    return parts[0] if len(parts) == 1 else np.asarray(sum(parts, np.zeros(columns, kind)))


@functools.lru_cache(maxsize=16)
def _share(columns: int, kind: Any) -> Any:
    return np.full(columns, 1 / columns, kind)


def _as_type(kind: Any, *arrays: Any) -> list[Any]:
    return [None if a is None else a.astype(kind, copy=False) for a in arrays]
