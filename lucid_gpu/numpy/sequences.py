"""Integrals and slopes along an axis, numbers in a row, under NumPy's names."""

from __future__ import annotations

from typing import Any

import numpy as np

from lucid_gpu import dtypes as dt
from lucid_gpu.devices import resolve
from lucid_gpu.dtypes import element_type
from lucid_gpu.numpy import reductions
from lucid_gpu.numpy.operands import alike, as_tensor, as_tensors, first_tensor, inexact
from lucid_gpu.numpy.reductions import axes_of
from lucid_gpu.numpy.refusals import takes_out
from lucid_gpu.numpy.selection import diff
from lucid_gpu.numpy.shapes import axis_of, moveaxis
from lucid_gpu.ops.elementwise import FUNCTIONS as OPS
from lucid_gpu.tensor import Tensor

__all__ = ["around", "geomspace", "gradient", "linspace", "logspace", "round", "trapezoid"]


def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Any:
    """`numpy.trapezoid`."""
    y = inexact(as_tensor(y))
    axis = axis_of(axis, y.ndim)
    if x is None:
        step: Any = dx
    else:
        x = as_tensor(x, y)
        along = [-1 if k == axis else 1 for k in range(y.ndim)]
        step = diff(x.reshape(along) if x.ndim == 1 else x, axis=axis)
    n = y.shape[axis]
    count = max(n - 1, 0)
    middle = y.narrow(axis, n - count, count) + y.narrow(axis, 0, count)
    return reductions.sum(middle * step / 2.0, axis)


def gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any:
    """`numpy.gradient`: central differences, one-sided ones at the edges."""
    f = inexact(as_tensor(f))
    axes = axes_of(f, axis)
    if len(varargs) not in (0, 1, len(axes)):
        raise TypeError("invalid number of arguments")
    if edge_order not in (1, 2):
        raise ValueError("'edge_order' greater than 2 not supported")
    each = varargs or (1.0,)
    spaces = each * len(axes) if len(each) == 1 else each
    slopes = tuple([_slopes(f, h, k, edge_order) for k, h in zip(axes, spaces, strict=True)])
    return slopes[0] if len(axes) == 1 else slopes


def _slopes(f: Tensor, spacing: Any, axis: int, edge_order: int) -> Tensor:
    n = f.shape[axis]
    if n < edge_order + 1:
        raise ValueError(
            "Shape of array too small to calculate a numerical gradient, at least (edge_order + 1) "
            "elements are required."
        )
    coordinates: Any = as_tensor(spacing, f)
    coordinates = coordinates * as_tensor(np.arange(n), f) if coordinates.ndim == 0 else coordinates
    if tuple(coordinates.shape) != (n,):
        raise ValueError("when 1d, distances must match the length of the corresponding dimension")
    step = diff(coordinates).reshape([-1 if k == axis else 1 for k in range(f.ndim)])

    def part(t: Tensor, start: int, count: int) -> Tensor:
        return t.narrow(axis, start, count)

    rise = diff(f, axis=axis) / step
    before, after = part(step, 0, n - 2), part(step, 1, n - 2)
    inside = (part(rise, 0, n - 2) * after + part(rise, 1, n - 2) * before) / (before + after)
    first, last = part(rise, 0, 1), part(rise, n - 2, 1)
    if edge_order == 2:  # the parabola's slope
        bend = (part(rise, 1, 1) - first) / (part(step, 0, 1) + part(step, 1, 1))
        first = first - bend * part(step, 0, 1)
        bend = (last - part(rise, n - 3, 1)) / (part(step, n - 2, 1) + part(step, n - 3, 1))
        last = last + bend * part(step, n - 2, 1)
    slopes: Any = np.concatenate([first, inside, last], axis)
    if slopes.dtype.is_complex and not f.dtype.is_complex:
        slopes = slopes.real
    return slopes.to(f.dtype)  # NumPy stores them in an array of f's type


def linspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: Any = None,
    axis: int = 0,
    *,
    device: Any = None,
) -> Any:
    """`numpy.linspace`, between tensors."""
    start, stop = alike(*[inexact(t) for t in as_tensors((start, stop))])
    start, stop = start + stop * 0, stop + start * 0
    parts = num - 1 if endpoint else num
    step = (stop - start) / parts if parts > 0 else start * float("nan")
    share = as_tensor(np.arange(num) / max(parts, 1), start).to(start.dtype)
    share = share.reshape((-1,) + (1,) * start.ndim)
    samples = moveaxis(start * (1 - share) + stop * share, 0, axis)
    samples = samples if dtype is None else samples.to(element_type(dtype))
    samples = samples if device is None else samples.to(resolve(device))
    return (samples, step) if retstep else samples


def logspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    base: Any = 10.0,
    dtype: Any = None,
    axis: int = 0,
) -> Any:
    """`numpy.logspace`, between tensors."""
    like = first_tensor((start, stop, base))
    exponents = linspace(as_tensor(start, like), as_tensor(stop, like), num, endpoint, axis=axis)
    samples = base**exponents
    return samples if dtype is None else samples.to(element_type(dtype))


def geomspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, dtype: Any = None, axis: int = 0
) -> Any:
    """`numpy.geomspace`, between tensors of one sign."""
    start, stop = alike(*[inexact(t) for t in as_tensors((start, stop))])
    sign = start.sign().detach()
    exponents = linspace((start * sign).log(), (stop * sign).log(), num, endpoint)
    samples = moveaxis(exponents.exp() * sign, 0, axis)
    return samples if dtype is None else samples.to(element_type(dtype))


@takes_out
def round(a: Any, decimals: int = 0, out: Any = None) -> Tensor:
    """`numpy.round`: halves to even."""
    a = as_tensor(a)
    if a.dtype.category == 3:
        return np.round(a.real, decimals) + 1j * np.round(a.imag, decimals)
    if a.dtype.category < 2 and decimals >= 0:
        return a.to(dt.float16) if a.dtype == dt.bool else a.clone()
    if a.dtype.category < 2:
        rounded: Tensor = OPS["round"](a.to(dt.float64), decimals=decimals)
        return rounded.to(a.dtype)
    nearest: Tensor = OPS["round"](a, decimals=decimals)
    return nearest


around = round
