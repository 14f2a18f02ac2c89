"""Running products, extrema and recurrences along a dimension, on arrays of NumPy and CuPy.

NumPy's ufuncs accumulate; CuPy's do for sums and products only. What has no such loop is done by
doubling: after step k each element holds the combination of the 2**k up to it (W. D. Hillis and
G. L. Steele, "Data parallel algorithms", 1986).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lucid_gpu.device import device
from lucid_gpu.devices import backend
from lucid_gpu.devices.copies import row_major
from lucid_gpu.devices.threads import run_quietly
from lucid_gpu.dtypes import dtype
from lucid_gpu.kernels.accumulate import accumulate

__all__ = ["accumulated", "cumprod", "logcumsumexp", "recurrence", "running_extremum"]

MANY = 64  # rows from which on slices, one after the other, cost NumPy less than doubling


def cumprod(x: Any, dim: int, to: dtype, where: device) -> Any:
    """Products of all elements up to each; 16-bit floats are multiplied in float32."""
    return run_quietly(_cumprod, x, dim, to, where)


def _cumprod(x: Any, dim: int, to: dtype, where: device) -> Any:
    wide = to.compute if to.category > 1 else to
    xp, x = backend(where).xp, x.astype(wide.numpy, copy=False)
    numpy = xp.__name__ == "numpy"
    products = accumulate(xp.multiply, x, dim) if numpy else xp.cumprod(x, dim, wide.numpy)
    return products.astype(to.numpy, copy=False)


def logcumsumexp(x: Any, dim: int, d: dtype, where: device) -> Any:
    """Logarithms of the running sums of ``exp(x)``; x is of type ``d``, a floating point one."""
    wide = x.astype(d.compute.numpy, copy=False)
    sums = run_quietly(accumulated, backend(where).xp, "logaddexp", wide, dim)
    return sums.astype(d.numpy, copy=False)


def running_extremum(x: Any, dim: int, name: str, d: dtype, where: device) -> Any:
    """Where the largest (``"maximum"``) or smallest of the elements up to each is, int64.

    The last of equals, as in PyTorch; NaN is larger and smaller than any number.
    """
    return run_quietly(_running_extremum, x, dim, name, d, where)


def _running_extremum(x: Any, dim: int, name: str, d: dtype, where: device) -> Any:
    xp = backend(where).xp
    if d.category > 1:
        x = x.astype(d.compute.numpy, copy=False)
    best = (x == accumulated(xp, name, x, dim)) | (x != x)
    shape = [1] * x.ndim
    shape[dim] = x.shape[dim]
    places = xp.where(best, xp.arange(x.shape[dim]).reshape(shape), 0)
    return accumulated(xp, "maximum", places, dim)


def accumulated(xp: Any, name: str, x: Any, dim: int) -> Any:
    """What the ufunc called ``name`` accumulates along a dimension, by NumPy or CuPy."""
    combine = getattr(xp, name)
    if xp.__name__ == "numpy":
        return accumulate(combine, x, dim)
    scan = x.copy()
    for early, late in _doubling(dim, x.shape[dim]):
        scan[late] = combine(scan[late], scan[early])
    return scan


def _doubling(dim: int, extent: int) -> Iterator[tuple[Any, Any]]:
    """Where elements are, and those 1, 2, 4, ... further on."""
    lead, step = (slice(None),) * dim, 1
    while step < extent:
        yield (*lead, slice(None, -step)), (*lead, slice(step, None))
        step *= 2


def recurrence(a: Any, b: Any, dim: int, d: dtype, where: device, reverse: bool = False) -> Any:
    """``h[i] = a[i] * h[i - 1] + b[i]`` along a dimension, from 0; ``reverse``: from its end.

    Parameters
    ----------
    a, b : arrays of one shape and type ``d``
    """
    return run_quietly(_recurrence, a, b, dim, d, where, reverse)


def _recurrence(a: Any, b: Any, dim: int, d: dtype, where: device, reverse: bool) -> Any:
    xp, wide = backend(where).xp, d.compute.numpy
    if reverse:
        a, b = xp.flip(a, dim), xp.flip(b, dim)
    h, factors, extent = b.astype(wide), a.astype(wide), a.shape[dim]
    if xp.__name__ == "numpy" and a.size >= MANY * extent:
        h, factors = xp.moveaxis(h, dim, 0), xp.moveaxis(factors, dim, 0)
        for i in range(1, extent):
            h[i] += factors[i] * h[i - 1]
        h = xp.moveaxis(h, 0, dim)
    else:
        for early, late in _doubling(dim, extent):
            h[late] += factors[late] * h[early]
            factors[late] = factors[late] * factors[early]
    return row_major(xp.flip(h, dim) if reverse else h).astype(d.numpy, copy=False)
