"""`scipy.interpolate` with derivatives by values, by their points and by where they are asked for.

A function that is called with data gives an `Interpolant`, which is called with points as SciPy's
objects are. Splines that go through data are found by a dense system of equations.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from lucid_gpu import linalg
from lucid_gpu.devices import backend_of_array, device_of, scipy
from lucid_gpu.func.trees import flatten
from lucid_gpu.numpy.operands import as_tensor
from lucid_gpu.ops.creation import arange, eye
from lucid_gpu.ops.elementwise import where
from lucid_gpu.ops.order import searchsorted
from lucid_gpu.ops.shape import cat, stack
from lucid_gpu.scipy.rows import ROWS, Row, floats, others
from lucid_gpu.tensor import Tensor

__all__ = ["Akima1DInterpolator", "BSpline", "CubicHermiteSpline", "CubicSpline", "PPoly"]
__all__ += ["PchipInterpolator", "RegularGridInterpolator", "interp1d", "make_interp_spline"]

NAN = float("nan")


def _tensors(*values: Any) -> list[Tensor]:
    return [leaf for leaf in flatten(values)[0] if isinstance(leaf, Tensor)]


class Interpolant:
    """A function through data, called as SciPy's object of the same name.

    Of data without tensors it is SciPy's object: it has its attributes, and points without tensors
    go to it.
    """

    def __init__(self, name: str, build: Callable[..., Any], args: Any, kwargs: Any) -> None:
        self._name, self._build = name, functools.partial(build, *args, **kwargs)
        self._plain = None
        if _tensors(args, kwargs):
            self._ours: Any = self._build()
        else:
            leaves = flatten((args, kwargs))[0]
            kinds = {device_of(a).type for a in leaves if backend_of_array(a) is not None}
            self._plain = scipy.function(max(kinds, default="cpu"), name)(*args, **kwargs)

    def __call__(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        if self._plain is None:
            return self._ours(x, *args, **kwargs)
        if not _tensors(x):
            return self._plain(x, *args, **kwargs)
        return self._build()(x, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or self._plain is None:
            raise AttributeError(
                f"a scipy.{self._name} of tensors has no attribute {name!r}: it is called with "
                "points; derivatives are nu=1, and those of lucid_gpu"
            )
        return getattr(self._plain, name)


def _interpolant(by: str = "x y", domain: str = "", refused: str = "") -> Callable[..., Any]:
    """Enter what gives a function of points under its own name in ``scipy.interpolate``."""

    def enter(build: Callable[..., Any]) -> Callable[..., Interpolant]:
        name = f"interpolate.{build.__name__}"
        ROWS[name] = Row(name, "ops", by, domain, refused)

        @functools.wraps(build)
        def made(*args: Any, **kwargs: Any) -> Interpolant:
            return Interpolant(name, build, args, kwargs)

        return made

    return enter


def _interval(knots: Tensor, x: Tensor, first: int, last: int) -> Tensor:
    """Return the intervals of `knots` that hold `x`, of those from `first` to `last`."""
    found = searchsorted(knots.detach().contiguous(), x.detach().contiguous(), right=True)
    return (found - 1).clamp(first, last)


def _bounded(x: Tensor, a: Tensor, b: Tensor, extrapolate: Any) -> tuple[Tensor, Any]:
    """Return `x` brought into a period, and where values are NaN, by SciPy's `extrapolate`."""
    if extrapolate == "periodic":
        return a + (x - a) % (b - a), None
    return x, None if extrapolate else (x < a) | (x > b)


def _placed(found: Tensor, outside: Any, x: Tensor, axis: int) -> Tensor:
    """Return values with NaN outside and the points' axes where the data's axis was."""
    if outside is not None:
        trailing = [1] * (found.ndim - x.ndim)
        found = where(outside.reshape(*x.shape, *trailing), NAN, found)
    return found.movedim(tuple(range(x.ndim)), tuple(range(axis, axis + x.ndim)))


def _spline(t: Tensor, c: Tensor, k: int, x: Tensor, nu: int = 0) -> Tensor:
    """Return a derivative of the spline of degree `k`, knots `t` and coefficients `c` at `x`.

    The recurrence of Cox and de Boor, as algorithm A2.2 of Piegl and Tiller, The NURBS Book.
    """
    n = len(t) - k - 1
    c = c[:n]
    for _ in range(nu):
        if k == 0:
            return c.new_zeros((*x.shape, *c.shape[1:]))
        gap = t[k + 1 : n + k] - t[1:n]
        rate = where(gap > 0, k / where(gap > 0, gap, 1.0), 0.0)
        c = (c[1:] - c[:-1]) * rate.reshape(-1, *[1] * (c.ndim - 1))
        t, k, n = t[1:-1], k - 1, n - 1
    i = _interval(t, x, k, n - 1)
    parts: list[Any] = [x.new_ones(x.shape)]
    for j in range(1, k + 1):
        saved: Any = 0.0
        for r in range(j):
            low, high = t[i + 1 - j + r], t[i + r + 1]
            part = parts[r] / (high - low)
            parts[r] = saved + (high - x) * part
            saved = (x - low) * part
        parts.append(saved)
    taps = i + arange(-k, 1, device=i.device).reshape(-1, *[1] * x.ndim)
    weights = stack(parts).reshape(k + 1, *x.shape, *[1] * (c.ndim - 1))
    return (weights * c[taps]).sum(0)


def _at_points(
    name: str, data: Any, axis: int, default: Any, value: Callable[..., Tensor], ends: Any
) -> Callable[..., Tensor]:
    """Return the function of points of ``value(data..., x, nu)``, by SciPy's `extrapolate`."""

    def called(x: Any, nu: int = 0, extrapolate: Any = None) -> Tensor:
        *known, x = _alike(name, *data, x)
        a, b = ends(known)
        x, outside = _bounded(x, a, b, default if extrapolate is None else extrapolate)
        return _placed(value(*known, x, nu), outside, x, axis)

    return called


def _alike(name: str, *data: Any) -> list[Tensor]:
    """Return data as tensors of one type."""
    given = data if _tensors(data) else map(as_tensor, data)
    return floats(f"interpolate.{name}", {str(i): v for i, v in enumerate(given)})


def _data(name: str, axis: int, x: Any, *data: Any) -> list[Tensor]:
    """Return `x` and what was measured there as tensors of one type, `axis` first.

    Raises
    ------
    ValueError
        For lengths that differ.
    """
    x, *rows = _alike(name, x, *data)
    rows = [y.movedim(axis, 0) for y in rows]
    if x.ndim != 1 or {len(y) for y in rows} != {len(x)}:
        raise ValueError(
            f"interpolate.{name}: along axis {axis} the data is as long as x, which has one "
            f"dimension; got x of shape {list(x.shape)} and {[list(y.shape) for y in rows]}"
        )
    return [x, *rows]


@_interpolant("t c", "off the knots for k < 2")
def BSpline(t: Any, c: Any, k: int, extrapolate: Any = True, axis: int = 0) -> Any:
    """Return the spline of degree `k` with knots `t` and coefficients `c` along `axis`."""
    t, c = _alike("BSpline", t, c)
    return _of_spline("BSpline", t, c.movedim(axis, 0), k, axis % c.ndim, extrapolate)


def _of_spline(name: str, t: Any, c: Any, k: int, axis: int, extrapolate: Any) -> Any:
    def value(t: Tensor, c: Tensor, x: Tensor, nu: int) -> Tensor:
        return _spline(t, c, k, x, nu)

    return _at_points(
        name, (t, c), axis, extrapolate, value, lambda d: (d[0][k], d[0][len(d[0]) - k - 1])
    )


def _conditions(side: Any) -> list[tuple[int, Any]] | None:
    """Return the derivatives given at an end, as orders and values; None for not-a-knot."""
    words = {"not-a-knot": None, "natural": [(2, 0.0)], "clamped": [(1, 0.0)]}
    if side is None or isinstance(side, str) and side in words:
        return words[side or "not-a-knot"]
    if isinstance(side, str):
        raise ValueError(f"bc_type must be one of {', '.join(words)}, periodic; got {side!r}")
    return [side] if isinstance(side[0], int) else list(side)


def _through(x: Tensor, y: Tensor, k: int, bc: Any, t: Any = None) -> tuple[Tensor, Tensor]:
    """Return knots and coefficients of the spline of degree `k` through `y` at `x`."""
    periodic = isinstance(bc, str) and bc == "periodic"
    sides = [bc, bc] if bc is None or isinstance(bc, str) else list(bc)
    left, right = [[], []] if periodic else [_conditions(side) for side in sides]
    if t is None:
        free = left is None and right is None
        middle = (x[1:] + x[:-1]) / 2 if free and k % 2 == 0 else x
        cut = k // 2 if k % 2 == 0 else (k + 1) // 2
        low, high = (cut if side is None else 1 for side in (left, right))
        inner = middle[low : len(middle) - high]
        t = cat([x[:1].expand(k + 1), inner, x[-1:].expand(k + 1)])
        if k == 0:
            t = cat([x, x[-1:]])
    unit = eye(len(t) - k - 1, dtype=x.dtype, device=x.device)
    rows, values = [_spline(t, unit, k, x)], [y]
    ends = [(x[:1], pair) for pair in left or []] + [(x[-1:], pair) for pair in right or []]
    for end, (order, value) in ends:
        rows.append(_spline(t, unit, k, end, order))
        values.append(as_tensor(value, y).to(y.dtype).expand(y.shape[1:])[None])
    for order in range(1, k) if periodic else ():
        a, b = (_spline(t, unit, k, end, order) for end in (x[:1], x[-1:]))
        rows.append(a - b)
        values.append(y.new_zeros(y[:1].shape))
    matrix, given = cat(rows), cat(values)
    if matrix.shape[0] != matrix.shape[1]:
        raise ValueError(
            f"{matrix.shape[1]} coefficients need as many conditions; bc_type and the data give "
            f"{matrix.shape[0]}"
        )
    return t, linalg.solve(matrix, given.reshape(len(given), -1)).reshape(given.shape)


@_interpolant("x y")
def make_interp_spline(
    x: Any, y: Any, k: int = 3, t: Any = None, bc_type: Any = None, axis: int = 0
) -> Any:
    """Return the spline of degree `k` through `y` at the rising `x`."""
    x, y = _data("make_interp_spline", axis, x, y)
    t = None if t is None else as_tensor(t, x).to(x.dtype)
    t, c = _through(x, y, k, bc_type, t)
    default = "periodic" if isinstance(bc_type, str) and bc_type == "periodic" else True
    return _of_spline("make_interp_spline", t, c, k, axis % y.ndim, default)


@_interpolant("x y")
def CubicSpline(
    x: Any, y: Any, axis: int = 0, bc_type: Any = "not-a-knot", extrapolate: Any = None
) -> Any:
    """Return the cubic spline through `y` at the rising `x`, twice differentiable."""
    x, y = _data("CubicSpline", axis, x, y)
    k = min(3, len(x) - 1) if isinstance(bc_type, str) and bc_type == "not-a-knot" else 3
    t, c = _through(x, y, k, bc_type)
    if extrapolate is None:
        extrapolate = "periodic" if isinstance(bc_type, str) and bc_type == "periodic" else True
    return _of_spline("CubicSpline", t, c, k, axis % y.ndim, extrapolate)


def _pieces(c: Tensor, x: Tensor, at: Tensor, nu: int) -> Tensor:
    """Return a derivative of polynomials with coefficients `c`, highest first, on intervals."""
    i = _interval(x, at, 0, len(x) - 2)
    s = (at - x[i]).reshape(*at.shape, *[1] * (c.ndim - 2))
    degree = len(c) - 1
    found = c.new_zeros((*at.shape, *c.shape[2:]))
    for j in range(degree - nu + 1):
        found = found * s + c[j][i] * math.perm(degree - j, nu)
    return found


@_interpolant("c x")
def PPoly(c: Any, x: Any, extrapolate: Any = None, axis: int = 0) -> Any:
    """Return polynomials of ``x - x[i]`` with coefficients ``c[:, i]``, highest first."""
    c, x = _alike("PPoly", c, x)
    place = axis % (c.ndim - 1)
    c = c.movedim((place, place + 1), (0, 1))
    return _of_pieces("PPoly", c, x, place, True if extrapolate is None else extrapolate)


def _of_pieces(name: str, c: Any, x: Any, axis: int, extrapolate: Any) -> Any:
    return _at_points(name, (c, x), axis, extrapolate, _pieces, lambda d: (d[1][0], d[1][-1]))


def _hermite(name: str, x: Any, y: Any, slopes: Any, axis: int, extrapolate: Any) -> Any:
    """Return the cubic pieces through `y` with slopes; the data's axis is the first."""
    h = (x[1:] - x[:-1]).reshape(-1, *[1] * (y.ndim - 1))
    rise = (y[1:] - y[:-1]) / h
    bend = (slopes[:-1] + slopes[1:] - 2 * rise) / h
    c = stack([bend / h, (rise - slopes[:-1]) / h - bend, slopes[:-1], y[:-1]])
    return _of_pieces(name, c, x, axis, True if extrapolate is None else extrapolate)


@_interpolant("x y dydx")
def CubicHermiteSpline(x: Any, y: Any, dydx: Any, axis: int = 0, extrapolate: Any = None) -> Any:
    """Return the cubic pieces through `y` at the rising `x` with the slopes `dydx`."""
    x, y, dydx = _data("CubicHermiteSpline", axis, x, y, dydx)
    return _hermite("CubicHermiteSpline", x, y, dydx, axis % y.ndim, extrapolate)


def _pchip_end(h: Tensor, k: Tensor, m: Tensor, n: Tensor) -> Tensor:
    d = ((2 * h + k) * m - h * n) / (h + k)
    steep = (m.sign() != n.sign()) & (d.abs() > 3 * m.abs())
    return where(d.sign() != m.sign(), 0.0, where(steep, 3 * m, d))


@_interpolant("x y", "where no three values in a row are on a level")
def PchipInterpolator(x: Any, y: Any, axis: int = 0, extrapolate: Any = None) -> Any:
    """Return the cubic pieces through `y` that rise and fall as `y` does (Fritsch and Butland)."""
    x, y = _data("PchipInterpolator", axis, x, y)
    place = axis % y.ndim
    h = (x[1:] - x[:-1]).reshape(-1, *[1] * (y.ndim - 1))
    m = (y[1:] - y[:-1]) / h
    slopes = cat([m, m])
    if len(x) > 2:
        a, b, p, q = h[:-1], h[1:], m[:-1], m[1:]
        same = p * q > 0
        p, q = where(same, p, 1.0), where(same, q, 1.0)
        mean = 3 * (a + b) / ((2 * b + a) / p + (b + 2 * a) / q)
        first = _pchip_end(h[0], h[1], m[0], m[1])
        last = _pchip_end(h[-1], h[-2], m[-1], m[-2])
        slopes = cat([first[None], where(same, mean, 0.0), last[None]])
    return _hermite("PchipInterpolator", x, y, slopes, place, extrapolate)


@_interpolant("x y", "where neighboring slopes differ", "makima (method)")
def Akima1DInterpolator(x: Any, y: Any, axis: int = 0) -> Any:
    """Return the cubic pieces through `y` of Akima, J. ACM 17 (1970) 589."""
    x, y = _data("Akima1DInterpolator", axis, x, y)
    place = axis % y.ndim
    m = (y[1:] - y[:-1]) / (x[1:] - x[:-1]).reshape(-1, *[1] * (y.ndim - 1))
    low = 2 * m[:1] - m[1:2]
    high = 2 * m[-1:] - m[-2:-1]
    m = cat([2 * low - m[:1], low, m, high, 2 * high - m[-1:]])
    change = (m[1:] - m[:-1]).abs()
    a, b = change[2:], change[:-2]
    turns = a + b > 1e-9 * (a + b).detach().max()
    total = where(turns, a + b, 1.0)
    weighted = (a * m[1:-2] + b * m[2:-1]) / total
    slopes = where(turns, weighted, (m[3:] + m[:-3]) / 2)
    return _hermite("Akima1DInterpolator", x, y, slopes, place, False)


STEPS = {"nearest": False, "nearest-up": True, "previous": True, "zero": True, "next": False}
DEGREES = {"linear": 1, "slinear": 1, "quadratic": 2, "cubic": 3}


@_interpolant("x y", "off the points for the kinds that are not smooth there")
def interp1d(
    x: Any,
    y: Any,
    kind: Any = "linear",
    axis: int = -1,
    copy: bool = True,
    bounds_error: bool | None = None,
    fill_value: Any = NAN,
    assume_sorted: bool = False,
) -> Any:
    """Return the function through `y` at `x`: steps, a polygon or a spline by `kind`."""
    x, y = _data("interp1d", axis, x, y)
    place = axis % y.ndim
    if not assume_sorted:
        order = x.detach().argsort()
        x, y = x[order], y[order]
    k = DEGREES.get(kind, kind)
    if kind not in STEPS and not isinstance(k, int):
        raise NotImplementedError(
            f"kind must be a degree or one of {', '.join((*STEPS, *DEGREES))}; got {kind!r}"
        )
    t, c = (x, y) if kind in STEPS else _through(x, y, k, None)
    beyond = isinstance(fill_value, str) and fill_value == "extrapolate"
    strict = not beyond and (bounds_error is None or bounds_error)

    def called(at: Any) -> Tensor:
        knots, known, points, new = _alike("interp1d", t, c, x, at)
        low, high = new < points[0], new > points[-1]
        if strict and bool((low | high).any()):
            raise ValueError(
                "a point lies outside of x; write fill_value='extrapolate' or bounds_error=False"
            )
        found = _stepped(knots, known, new, kind) if kind in STEPS else None
        found = _spline(knots, known, k, new) if found is None else found
        if not beyond:
            pair = fill_value if isinstance(fill_value, tuple) else (fill_value, fill_value)
            for out, value in zip((low, high), pair):
                out = out.reshape(*new.shape, *[1] * (found.ndim - new.ndim))
                found = where(out, value, found)
        return _placed(found, None, new, place)

    return called


def _stepped(x: Tensor, y: Tensor, at: Tensor, kind: str) -> Tensor:
    edges = (x[1:] + x[:-1]) / 2 if kind.startswith("nearest") else x
    i = searchsorted(edges.detach(), at.detach().contiguous(), right=STEPS[kind])
    return y[(i - int(kind in ("previous", "zero"))).clamp(0, len(x) - 1)]


@_interpolant("points values", "off the grid's planes", "methods other than linear and nearest")
def RegularGridInterpolator(
    points: Any,
    values: Any,
    method: str = "linear",
    bounds_error: bool = True,
    fill_value: Any = NAN,
) -> Any:
    """Return the function through `values` on the grid of `points`, rising numbers an axis."""
    if method not in ("linear", "nearest"):
        raise ValueError(
            f"method must be linear or nearest here; got {method!r}: for splines interpolate axis "
            "by axis with make_interp_spline"
        )
    d = len(points)

    def called(xi: Any) -> Tensor:
        *grid, known, at = _alike("RegularGridInterpolator", *points, values, xi)
        outside: Any = False
        found = at.new_zeros(())
        corners: list[tuple[Any, tuple[Any, ...]]] = [(1.0, ())]
        for p, x in zip(grid, at.unbind(-1)):
            i = _interval(p, x, 0, len(p) - 2)
            share = (x - p[i]) / (p[i + 1] - p[i])
            outside = outside | (x < p[0]) | (x > p[-1])
            if method == "nearest":
                corners = [(w, (*c, i + (share > 0.5))) for w, c in corners]
            else:
                both = ((i, 1 - share), (i + 1, share))
                corners = [(w * s, (*c, j)) for w, c in corners for j, s in both]
        if bounds_error and bool(outside.any()):
            raise ValueError("a point lies outside of the grid; write bounds_error=False")
        trailing = [1] * (known.ndim - d)
        for weight, place in corners:
            if isinstance(weight, Tensor):
                weight = weight.reshape(*weight.shape, *trailing)
            found = found + weight * known[place]
        if fill_value is None:
            return found
        return where(outside.reshape(*outside.shape, *trailing), fill_value, found)

    return called


__getattr__ = others("interpolate", globals())
