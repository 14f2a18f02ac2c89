"""`scipy.ndimage` with derivatives.

Splines are gathered coefficients times basis functions of the coordinates, filters are windows of
an input that its `mode` extends: both are written in functions of tensors, so that they have every
derivative on each device. An input of whole numbers is float64, and so is the result.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from lucid_gpu import dtypes as dt
from lucid_gpu.devices import backend, device_of, scipy
from lucid_gpu.numpy.operands import as_tensors
from lucid_gpu.ops.creation import arange, tensor
from lucid_gpu.ops.elementwise import where
from lucid_gpu.ops.shape import stack
from lucid_gpu.scipy.rows import composed, floats, linear, others
from lucid_gpu.tensor import Tensor

__all__ = ["affine_transform", "convolve", "convolve1d", "correlate", "correlate1d"]
__all__ += ["gaussian_filter", "gaussian_filter1d", "gaussian_gradient_magnitude"]
__all__ += ["gaussian_laplace", "laplace", "map_coordinates", "maximum_filter", "median_filter"]
__all__ += ["minimum_filter", "percentile_filter", "prewitt", "rank_filter", "rotate", "shift"]
__all__ += ["sobel", "spline_filter", "spline_filter1d", "uniform_filter", "uniform_filter1d"]
__all__ += ["zoom"]

MODES = ["reflect", "grid-mirror", "constant", "grid-constant", "nearest", "mirror"]
MODES += ["grid-wrap", "wrap"]


def _operands(name: str, *values: Any) -> list[Tensor]:
    """Return `values` as tensors, each of a floating point type of its own."""
    return [floats(f"ndimage.{name}", {"": t})[0] for t in as_tensors(values)]


def _fixed(**settings: Any) -> None:
    """Raise for tensors among what has no derivative."""
    for name, value in settings.items():
        if any(isinstance(v, Tensor) for v in (value if isinstance(value, Sequence) else [value])):
            raise TypeError(
                f"{name} must be numbers, for scipy.ndimage has no derivative by it here; got a "
                f"tensor: write {name}={name}.tolist()"
            )


def _each(value: Any, count: int) -> list[Any]:
    """Return a setting for each of `count` axes."""
    if isinstance(value, str) or not isinstance(value, (Sequence, np.ndarray)):
        return [value] * count
    if len(value) != count:
        raise ValueError(f"expected one setting or {count}, one an axis; got {len(value)}")
    return list(value)


def _axes(axes: Any, ndim: int) -> list[int]:
    given = range(ndim) if axes is None else [axes] if isinstance(axes, int) else axes
    return [range(ndim)[a] for a in given]


def _known(mode: str) -> None:
    if mode not in MODES:
        raise ValueError(f"mode must be one of {', '.join(MODES)}; got {mode!r}")


def _folded(i: Tensor, n: int, mode: str) -> Tensor:
    """Return the elements below `n` that stand at the whole numbers `i` beyond the edges."""
    if mode == "grid-wrap":
        return i % n
    if mode in ("reflect", "grid-mirror"):
        i = i % (2 * n)
        return i.minimum(2 * n - 1 - i)
    if mode == "mirror":
        i = i % max(2 * n - 2, 1)
        return i.minimum(max(2 * n - 2, 1) - i)
    return i.clamp(0, n - 1)


def _extended(input: Tensor, axis: int, before: int, after: int, mode: str, cval: float) -> Tensor:
    """Return `input` with so many elements more before and after it along `axis`."""
    _known(mode)
    n = input.shape[axis]
    at = arange(-before, n + after, device=input.device)
    found = input.index_select(axis, _folded(at, n, "grid-wrap" if mode == "wrap" else mode))
    if mode not in ("constant", "grid-constant"):
        return found
    inside = (at >= 0) & (at < n)
    return where(inside.reshape(-1, *[1] * (input.ndim - axis - 1)), found, cval)


# -- splines -----------------------------------------------------------------------------------


def _filtered(a: Any, order: int, axis: int, mode: str) -> Any:
    library = scipy.function(device_of(a).type, "ndimage.spline_filter1d")
    return library(a, order=order, axis=axis, output=a.dtype, mode=mode)


def _filtered_back(a: Any, order: int, axis: int, mode: str) -> Any:
    """Compute the adjoint of `_filtered`, whose sampling matrix B is symmetric or W B is.

    W B is for an axis mirrored at its ends, with the diagonal W = 1/2, 1, ... 1, 1/2. The filter of
    an axis that begins with its edge twice is B's inverse up to powers of poles: short ones are
    transposed.
    """
    n, place = a.shape[axis], (slice(None),) * (axis % a.ndim)
    if mode == "grid-wrap":
        return _filtered(a, order, axis, mode)
    if mode in ("reflect", "grid-mirror", "nearest"):
        if n > 64:
            return _filtered(a, order, axis, mode)
        xp = backend(device_of(a)).xp
        matrix = _filtered(xp.eye(n, dtype=a.dtype), order, 0, mode)
        return xp.moveaxis(xp.tensordot(a, matrix, (axis, 0)), -1, axis)
    a, ends = a.copy(), (*place, [0, -1])
    a[ends] *= 2
    a = _filtered(a, order, axis, mode)
    a[ends] /= 2
    return a


_spline = linear("ndimage.spline_filter1d", _filtered, _filtered_back)


@composed("ndimage")
def spline_filter1d(input: Any, order: int = 3, axis: int = -1, *, mode: str = "mirror") -> Any:
    """Return the coefficients of the spline of `order` through `input` along `axis`."""
    (input,) = _operands("spline_filter1d", input)
    return _spline(input, order, range(input.ndim)[axis], mode)


@composed("ndimage")
def spline_filter(input: Any, order: int = 3, *, mode: str = "mirror") -> Any:
    """Return the coefficients of the spline of `order` through `input` along all axes."""
    for axis in range(input.ndim):
        input = spline_filter1d(input, order, axis, mode=mode)
    return input


def _basis(u: Tensor, order: int) -> Tensor:
    """Return the B-splines of `order` on equal knots, at `u` of a knot interval, in a new axis 0.

    The recurrence of Cox and de Boor: ``k M_k(x) = x M_{k-1}(x) + (k + 1 - x) M_{k-1}(x - 1)``.
    """
    parts = [u.new_ones(u.shape)]
    for k in range(1, order + 1):
        padded = [0.0, *parts, 0.0]
        parts = [((u + m) * padded[m + 1] + (k + 1 - u - m) * padded[m]) / k for m in range(k + 1)]
    return stack(parts[::-1])


def _turned(x: Tensor, n: int) -> Tensor:
    """Return `x` by mode "wrap" in 0 to ``n - 1``, both of which stay."""
    period, y = max(n - 1, 1), x.detach()
    turns = where(y < 0, -1 - (-y / period).floor(), (y > n - 1) * (y / period).floor())
    return x - period * turns


def _sampled(
    input: Tensor, coordinates: Any, order: int, mode: str, cval: float, prefilter: bool
) -> Tensor:
    """Return the spline through `input` at `coordinates`, a tensor for each of its last axes.

    They broadcast; earlier axes of `input` are those of a stack.
    """
    _known(mode)
    if not 0 <= order <= 5:
        raise RuntimeError(f"the order of a spline must be from 0 to 5; got {order}")
    d, pad, dtype = len(coordinates), 0, input.dtype
    if mode in ("nearest", "grid-constant") and prefilter and order > 1:
        pad = 12  # as SciPy: no pole's power reaches so far
    for axis in range(input.ndim - d, input.ndim):
        input = _extended(input, axis, pad, pad, mode, cval) if pad else input
        if prefilter and order > 1:
            input = spline_filter1d(input, order, axis, mode=mode)
    beyond = "mirror" if mode in ("constant", "wrap") else mode
    index: Any = 0
    inside: Any = True
    weights = []
    for axis, (x, n) in enumerate(zip(coordinates, input.shape[-d:], strict=True)):
        if mode == "constant":
            inside = inside & (x >= 0) & (x <= n - 1)
        x = _turned(x, n) if mode == "wrap" else x + pad
        if order == 0 and mode != "grid-constant":
            x = _folded(x, n, beyond)  # before rounding, as SciPy
        first = (x.detach() + (0 if order % 2 else 0.5)).floor()
        weights.append(_basis(x - first + (0 if order % 2 else 0.5), order))
        taps = arange(order + 1, device=x.device).reshape(-1, *[1] * x.ndim) - order // 2
        taps = (taps + first.long()).reshape(*[1] * axis, -1, *[1] * (d - axis - 1), *x.shape)
        if mode == "grid-constant":
            inside = inside & (taps >= 0) & (taps < n)
        index = index * n + _folded(taps, n, beyond)
    found = input.flatten(-d)[..., index]
    if mode == "grid-constant":
        found = where(inside, found, cval)
    for weight in weights[::-1]:
        found = (found * weight).sum(found.ndim - weight.ndim)
    return (where(inside, found, cval) if mode == "constant" else found).to(dtype)


def _grid(shape: Any, like: Tensor) -> list[Tensor]:
    """Return whole numbers along each axis of `shape`, in float64; they broadcast."""
    given: Any = {"device": like.device, "dtype": dt.float64}
    d = len(shape)
    return [
        arange(n, **given).reshape(*[1] * a, -1, *[1] * (d - a - 1)) for a, n in enumerate(shape)
    ]


@composed("ndimage", "coordinates off the spline's knots for orders 0 and 1", "input coordinates")
def map_coordinates(
    input: Any,
    coordinates: Any,
    *,
    order: int = 3,
    mode: str = "constant",
    cval: float = 0.0,
    prefilter: bool = True,
) -> Any:
    """Return the spline through `input` at `coordinates`, of shape ``(input.ndim, ...)``."""
    input, coordinates = _operands("map_coordinates", input, coordinates)
    if len(coordinates) != input.ndim:
        raise RuntimeError(
            f"coordinates must have {input.ndim} in axis 0, one an axis of input; got "
            f"{len(coordinates)}"
        )
    return _sampled(input, coordinates.unbind(0), order, mode, cval, prefilter)


@composed("ndimage", "as map_coordinates", "input matrix offset")
def affine_transform(
    input: Any,
    matrix: Any,
    offset: Any = 0.0,
    output_shape: Any = None,
    *,
    order: int = 3,
    mode: str = "constant",
    cval: float = 0.0,
    prefilter: bool = True,
) -> Any:
    """Return the spline through `input` at ``matrix @ index + offset`` for each index.

    Parameters
    ----------
    matrix : array or tensor
        Of shape ``(d, d)``; ``(d,)`` for a diagonal; ``(d, d + 1)`` or ``(d + 1, d + 1)`` with the
        offset as the last column.
    """
    input, matrix, offset = _operands("affine_transform", input, matrix, offset)
    d = input.ndim
    if matrix.shape in ((d, d + 1), (d + 1, d + 1)):
        matrix, offset = matrix[:d, :d], matrix[:d, d]
    if matrix.shape not in ((d,), (d, d)):
        raise RuntimeError(
            f"matrix must be of shape ({d},), ({d}, {d}), ({d}, {d + 1}) or ({d + 1}, {d + 1}); "
            f"got {tuple(matrix.shape)}"
        )
    grid, offset = _grid(output_shape or input.shape, input), offset.expand(d)
    if matrix.ndim == 1:
        coordinates = [m * g + o for m, g, o in zip(matrix, grid, offset)]
    else:
        rows = zip(matrix, offset)  # in SciPy's order, for a rounding decides at the edges
        coordinates = [sum((m * g for m, g in zip(r, grid)), o) for r, o in rows]
    return _sampled(input, coordinates, order, mode, cval, prefilter)


@composed("ndimage", "as map_coordinates", "input shift")
def shift(
    input: Any,
    shift: Any,
    *,
    order: int = 3,
    mode: str = "constant",
    cval: float = 0.0,
    prefilter: bool = True,
) -> Any:
    """Return the spline through `input` moved by `shift`, a number or one an axis."""
    input, shift = _operands("shift", input, shift)
    moved = zip(_grid(input.shape, input), shift.expand(input.ndim))
    return _sampled(input, [g - s for g, s in moved], order, mode, cval, prefilter)


@composed("ndimage")
def zoom(
    input: Any,
    zoom: Any,
    *,
    order: int = 3,
    mode: str = "constant",
    cval: float = 0.0,
    prefilter: bool = True,
    grid_mode: bool = False,
) -> Any:
    """Return the spline through `input` on ``round(zoom * n)`` elements of each axis."""
    _fixed(zoom=zoom)
    (input,) = _operands("zoom", input)
    shape = [round(n * z) for n, z in zip(input.shape, _each(zoom, input.ndim))]
    half, coordinates = 0.5 if grid_mode else 0.0, []
    for g, n, m in zip(_grid(shape, input), input.shape, shape):
        step = n / m if grid_mode and m else (n - 1) / (m - 1) if m > 1 else 1.0
        coordinates.append((g + half) * step - half)
    return _sampled(input, coordinates, order, mode, cval, prefilter)


@composed("ndimage", "as map_coordinates", "input angle")
def rotate(
    input: Any,
    angle: Any,
    axes: tuple[int, int] = (1, 0),
    reshape: bool = True,
    *,
    order: int = 3,
    mode: str = "constant",
    cval: float = 0.0,
    prefilter: bool = True,
) -> Any:
    """Return `input` turned by `angle` degrees in the plane of `axes`.

    By `reshape` the result has room for all corners.
    """
    input, angle = _operands("rotate", input, angle)
    plane = sorted(_axes(axes, input.ndim))
    if len(set(plane)) != 2:
        raise ValueError(f"axes must be two different ones; got {axes}")
    turns = (angle.detach() / 90).round()  # so that right angles are exact, as SciPy's
    rest, turns = (angle - 90 * turns) * (math.pi / 180), turns.long()
    x, y = tensor([[1.0, 0, -1, 0], [0.0, 1, 0, -1]], dtype=angle.dtype, device=angle.device)
    c = rest.cos() * x[turns % 4] - rest.sin() * y[turns % 4]
    s = rest.sin() * x[turns % 4] + rest.cos() * y[turns % 4]
    h, w = (input.shape[a] for a in plane)
    shape = [h, w]
    if reshape:
        far_c, far_s = abs(float(c)), abs(float(s))
        shape = [int(far_c * h + far_s * w + 0.5), int(far_s * h + far_c * w + 0.5)]
    down, right = (g - (n - 1) / 2 for g, n in zip(_grid(shape, input), shape))
    coordinates = [c * down + s * right + (h - 1) / 2, c * right - s * down + (w - 1) / 2]

    planes = input.movedim(plane, (-2, -1))
    turned = _sampled(planes, coordinates, order, mode, cval, prefilter)
    return turned.movedim((-2, -1), plane)


# -- filters -----------------------------------------------------------------------------------


def _windows(input: Tensor, axis: int, size: int, origin: int, mode: str, cval: float) -> Tensor:
    """Return the windows of `size` elements along `axis`, in a new last axis."""
    before = size // 2 + origin
    if not 0 <= before < size:
        raise ValueError(f"a window of {size} with origin {origin} does not hold its own element")
    return _extended(input, axis, before, size - 1 - before, mode, cval).unfold(axis, size, 1)


@composed("ndimage", by="input weights")
def correlate1d(
    input: Any,
    weights: Any,
    axis: int = -1,
    *,
    mode: str = "reflect",
    cval: float = 0.0,
    origin: int = 0,
) -> Any:
    """Return the sums of `weights` times `input` around each element along `axis`."""
    input, weights = _operands("correlate1d", input, weights)
    axis = range(input.ndim)[axis]
    return _windows(input, axis, len(weights), origin, mode, cval) @ weights.to(input.dtype)


@composed("ndimage", by="input weights")
def convolve1d(
    input: Any,
    weights: Any,
    axis: int = -1,
    *,
    mode: str = "reflect",
    cval: float = 0.0,
    origin: int = 0,
) -> Any:
    """Return `input` convolved with `weights` along `axis`."""
    input, weights = _operands("convolve1d", input, weights)
    origin = -origin - (len(weights) % 2 == 0)
    return correlate1d(input, weights.flip(0), axis, mode=mode, cval=cval, origin=origin)


def _all_windows(input: Tensor, shape: Any, origin: Any, mode: Any, cval: float) -> Tensor:
    """Return windows of `shape` around each element, flat in a new last axis."""
    d, windows = input.ndim, input
    if len(shape) != d:
        raise RuntimeError(f"a window must have {d} axes, as input has; got {len(shape)}")
    settings = zip(shape, _each(origin, d), _each(mode, d))
    for axis, (n, o, m) in enumerate(settings):
        windows = _windows(windows, axis, n, o, m, cval)
    return windows.flatten(d)


@composed("ndimage", by="input weights")
def correlate(
    input: Any, weights: Any, *, mode: str = "reflect", cval: float = 0.0, origin: Any = 0
) -> Any:
    """Return the sums of `weights` times `input` around each element."""
    input, weights = _operands("correlate", input, weights)
    windows = _all_windows(input, weights.shape, origin, mode, cval)
    return windows @ weights.reshape(-1).to(input.dtype)


@composed("ndimage", by="input weights")
def convolve(
    input: Any, weights: Any, *, mode: str = "reflect", cval: float = 0.0, origin: Any = 0
) -> Any:
    """Return `input` convolved with `weights`."""
    input, weights = _operands("convolve", input, weights)
    origins = zip(_each(origin, weights.ndim), weights.shape)
    origin = [-o - (n % 2 == 0) for o, n in origins]
    flipped = weights.flip(*range(weights.ndim))
    return correlate(input, flipped, mode=mode, cval=cval, origin=origin)


@composed("ndimage")
def uniform_filter1d(
    input: Any,
    size: int,
    axis: int = -1,
    *,
    mode: str = "reflect",
    cval: float = 0.0,
    origin: int = 0,
) -> Any:
    """Return the mean of the `size` elements around each along `axis`."""
    _fixed(size=size)
    weights = np.full(size, 1 / size)
    return correlate1d(input, weights, axis, mode=mode, cval=cval, origin=origin)


@composed("ndimage")
def uniform_filter(
    input: Any,
    size: Any = 3,
    *,
    mode: Any = "reflect",
    cval: float = 0.0,
    origin: Any = 0,
    axes: Any = None,
) -> Any:
    """Return the mean of the window of `size` around each element."""
    axes = _axes(axes, input.ndim)
    settings = [_each(v, len(axes)) for v in (size, mode, origin)]
    for axis, n, m, o in zip(axes, *settings):
        input = uniform_filter1d(input, n, axis, mode=m, cval=cval, origin=o)
    return input


@composed("ndimage", refused="a tensor as sigma: the size of the window depends on it")
def gaussian_filter1d(
    input: Any,
    sigma: float,
    axis: int = -1,
    order: int = 0,
    *,
    mode: str = "reflect",
    cval: float = 0.0,
    truncate: float = 4.0,
    radius: int | None = None,
) -> Any:
    """Return `input` convolved with a Gaussian, or its derivative of `order`, along `axis`."""
    _fixed(sigma=sigma)
    r = int(truncate * float(sigma) + 0.5) if radius is None else radius
    impulse = np.zeros(2 * r + 1)
    impulse[r] = 1
    library = scipy.function("cpu", "ndimage.gaussian_filter1d")
    weights = library(impulse, sigma, order=order, mode="constant", radius=r)
    return convolve1d(input, weights, axis, mode=mode, cval=cval)


@composed("ndimage", refused="a tensor as sigma: the size of the window depends on it")
def gaussian_filter(
    input: Any,
    sigma: Any,
    order: Any = 0,
    *,
    mode: Any = "reflect",
    cval: float = 0.0,
    truncate: float = 4.0,
    radius: Any = None,
    axes: Any = None,
) -> Any:
    """Return `input` convolved with a Gaussian, or its derivative of `order`, along `axes`."""
    axes = _axes(axes, input.ndim)
    settings = [_each(v, len(axes)) for v in (sigma, order, mode, radius)]
    for axis, s, o, m, r in zip(axes, *settings):
        if isinstance(s, Tensor) or s > 1e-15:
            given = {"mode": m, "cval": cval, "truncate": truncate, "radius": r}
            input = gaussian_filter1d(input, s, axis, o, **given)
    return input


def _edges(input: Any, axis: int, across: list[float], mode: Any, cval: float) -> Any:
    axis, modes = range(input.ndim)[axis], _each(mode, input.ndim)
    for a in sorted(range(input.ndim), key=lambda a: a != axis):  # SciPy's order, seen with cval
        weights = [-1.0, 0.0, 1.0] if a == axis else across
        input = correlate1d(input, weights, a, mode=modes[a], cval=cval)
    return input


@composed("ndimage")
def sobel(input: Any, axis: int = -1, *, mode: Any = "reflect", cval: float = 0.0) -> Any:
    """Return Sobel's derivative along `axis`."""
    return _edges(input, axis, [1.0, 2.0, 1.0], mode, cval)


@composed("ndimage")
def prewitt(input: Any, axis: int = -1, *, mode: Any = "reflect", cval: float = 0.0) -> Any:
    """Return Prewitt's derivative along `axis`."""
    return _edges(input, axis, [1.0, 1.0, 1.0], mode, cval)


@composed("ndimage")
def laplace(input: Any, *, mode: Any = "reflect", cval: float = 0.0) -> Any:
    """Return the sum of second differences along all axes."""
    modes = enumerate(_each(mode, input.ndim))
    return sum(correlate1d(input, [1.0, -2.0, 1.0], a, mode=m, cval=cval) for a, m in modes)


def _by_axis(input: Any, sigma: Any, order: int, mode: Any, cval: float) -> list[Any]:
    """Return a Gaussian's derivative of `order` along each axis."""
    orders = order * np.eye(input.ndim, dtype=int)
    return [gaussian_filter(input, sigma, o.tolist(), mode=mode, cval=cval) for o in orders]


@composed("ndimage")
def gaussian_laplace(input: Any, sigma: Any, *, mode: Any = "reflect", cval: float = 0.0) -> Any:
    """Return the Laplacian by second derivatives of a Gaussian."""
    return sum(_by_axis(input, sigma, 2, mode, cval))


@composed("ndimage", "where the gradient is not zero")
def gaussian_gradient_magnitude(
    input: Any, sigma: Any, *, mode: Any = "reflect", cval: float = 0.0
) -> Any:
    """Return the length of the gradient by derivatives of a Gaussian."""
    return sum(part**2 for part in _by_axis(input, sigma, 1, mode, cval)) ** 0.5


@composed("ndimage", "where the elements of a window differ")
def rank_filter(
    input: Any,
    rank: int,
    size: Any = None,
    footprint: Any = None,
    *,
    mode: Any = "reflect",
    cval: float = 0.0,
    origin: Any = 0,
) -> Any:
    """Return the element of `rank` of the sorted window around each element."""
    return _selected(input, lambda n: rank, size, footprint, mode, cval, origin)


def _selected(
    input: Tensor, rank: Any, size: Any, footprint: Any, mode: Any, cval: float, origin: Any
) -> Tensor:
    """Return the element of ``rank(n)`` of the `n` of each window, whose slope is 1."""
    _fixed(footprint=footprint, size=size)
    if footprint is None:
        if size is None:
            raise RuntimeError("a filter needs size or footprint; got neither")
        footprint = np.ones(_each(size, input.ndim))
    footprint = np.asarray(footprint, bool)
    windows = _all_windows(input, footprint.shape, origin, mode, cval)
    chosen = tensor(np.flatnonzero(footprint), device=input.device)
    return windows.index_select(-1, chosen).sort(-1)[0].select(-1, rank(len(chosen)))


def _percentile(percentile: float, n: int) -> int:
    return min(int(n * (percentile % 100 if percentile < 0 else percentile) / 100), n - 1)


@composed("ndimage", "where the elements of a window differ")
def percentile_filter(
    input: Any,
    percentile: float,
    size: Any = None,
    footprint: Any = None,
    *,
    mode: Any = "reflect",
    cval: float = 0.0,
    origin: Any = 0,
) -> Any:
    """Return the element at `percentile` of the sorted window around each element."""
    rank = functools.partial(_percentile, percentile)
    return _selected(input, rank, size, footprint, mode, cval, origin)


def _rank_at(percentile: float, meaning: str) -> Any:
    def function(
        input: Any,
        size: Any = None,
        footprint: Any = None,
        *,
        mode: Any = "reflect",
        cval: float = 0.0,
        origin: Any = 0,
    ) -> Any:
        rank = functools.partial(_percentile, percentile)
        return _selected(input, rank, size, footprint, mode, cval, origin)

    function.__name__ = function.__qualname__ = f"{meaning}_filter"
    function.__doc__ = f"Return the {meaning} of the window around each element."
    return composed("ndimage", "where the elements of a window differ")(function)


maximum_filter: Any = _rank_at(100, "maximum")
minimum_filter: Any = _rank_at(0, "minimum")
median_filter: Any = _rank_at(50, "median")

__getattr__ = others("ndimage", globals())
