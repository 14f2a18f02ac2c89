"""Calls of `scipy.interpolate`: functions through data, at points."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.ops.samples import fixed, row, t

X = fixed([0.0, 0.5, 1.5, 2.0, 3.0, 3.6])
KNOTS = fixed([0.0, 0, 0, 0.7, 1.5, 3, 3, 3])
RISING = fixed([0.0, 0.5, 0.9, 2.0, 2.2, 4.0])
AT = np.array([[0.2, 1.7], [2.9, 3.3]])
GRID = (fixed([0.0, 1.0, 2.5]), fixed([0.0, 0.6, 1.0]))
PLACES = np.array([[0.3, 0.2], [2.0, 0.7], [1.1, 0.9]])


def at(points: Any = AT, **settings: Any) -> Any:
    return lambda found: found(points, **settings)


ROWS = [
    row("interpolate.BSpline", KNOTS, t(5, 2), 2).compare(at()),
    row("interpolate.BSpline", KNOTS, t(2, 5), 2, axis=1).compare(at(nu=1)),
    row("interpolate.BSpline", KNOTS, t(5), 2, False).compare(at(0.9 * AT)),
    row("interpolate.make_interp_spline", X, t(6)).compare(at()),
    row("interpolate.make_interp_spline", X, t(6), 2).compare(at(nu=1)),
    row("interpolate.make_interp_spline", X, t(6), 1).compare(at()),
    row("interpolate.make_interp_spline", X, t(6), 5).compare(at()),
    row("interpolate.CubicSpline", X, t(6, 2)).compare(at()),
    row("interpolate.CubicSpline", X, t(6), bc_type="natural").compare(at(AT + 1)),
    row("interpolate.CubicSpline", X, t(6), bc_type=((1, 0.5), "not-a-knot")).compare(at(nu=2)),
    row("interpolate.CubicSpline", fixed([0.0, 0.5, 2.0]), t(3)).compare(at()),
    row("interpolate.PPoly", t(3, 5, 2), X).compare(at(nu=1)),
    row("interpolate.PPoly", t(3, 5), X, "periodic").compare(at(AT + 3)),
    row("interpolate.CubicHermiteSpline", X, t(6), t(6)).compare(at()),
    row("interpolate.PchipInterpolator", X, t(6)).compare(at()),
    row("interpolate.PchipInterpolator", X, RISING, extrapolate=False).compare(at()),
    row("interpolate.Akima1DInterpolator", X, t(6, 2)).compare(at()),
    row("interpolate.interp1d", X, t(2, 6)).compare(at()),
    row("interpolate.interp1d", X, t(6), "cubic", fill_value="extrapolate").compare(at(AT + 1)),
    *[
        row("interpolate.interp1d", X, t(6, 2), kind, 0, True, False, (7.0, 8.0)).compare(
            at(AT + 1)
        )
        for kind in ("nearest", "previous", "next", "quadratic")
    ],
    row("interpolate.RegularGridInterpolator", GRID, t(3, 3)).compare(at(PLACES)),
    row("interpolate.RegularGridInterpolator", GRID, t(3, 3, 2), "nearest").compare(at(PLACES)),
    row(
        "interpolate.RegularGridInterpolator", GRID, t(3, 3), bounds_error=False, fill_value=None
    ).compare(at(PLACES + 1)),
]
