"""Calls of `scipy.optimize`."""

from __future__ import annotations

from typing import Any

import lucid_gpu.numpy as np
from tests.ops.samples import fixed, row, t

DIFFERENCES = "SciPy alone takes differences for slopes, and stops elsewhere; test_optimize.py"


def equations(x: Any, a: Any, b: Any) -> Any:
    return np.stack([x[0] + b * x[1] ** 3 - a[0], x[1] + 0.1 * np.sin(x[0]) - a[1]])


def cubic(x: Any, a: Any) -> Any:
    return x**3 + x - a


def bowl(x: Any, a: Any, b: Any) -> Any:
    return np.sum((x - a) ** 2) + b * np.sum(x**4) + x[0] * x[1]


def cosine(x: Any, a: Any) -> Any:
    return np.cos(x * a)


def misfits(x: Any, a: Any) -> Any:
    return np.stack([a[0] * x[0] - a[1], x[0] + a[2] * x[1], x[1] - a[1] ** 2])


def line(x: Any, slope: Any, height: Any) -> Any:
    return slope * x + np.sinh(height)


def solution(result: Any) -> Any:
    return result.x


ONES = fixed([1.0, 1.0])
ROWS = [
    row("optimize.root", equations, ONES, args=(t(2), t(of="unit"))).compare(solution),
    row("optimize.root", equations, ONES, args=(t(2), 0.2), method="krylov", tol=1e-9)
    .compare(solution)
    .but(values=DIFFERENCES),
    row("optimize.fsolve", equations, ONES, args=(t(2), 0.2)).but(values=DIFFERENCES),
    row("optimize.fixed_point", cosine, fixed([0.7, 0.7]), args=(t(2, of=(0.5, 0.9)),)),
    row("optimize.brentq", cubic, -5.0, 5.0, args=(t(),)),
    row("optimize.newton", cubic, 0.5, args=(t(),)),
    row("optimize.root_scalar", cubic, args=(t(),), bracket=(-5.0, 5.0)).compare(
        lambda result: result.root
    ),
    row("optimize.minimize", bowl, ONES, args=(t(2), t(of="unit")))
    .compare(solution)
    .but(values=DIFFERENCES),
    row("optimize.minimize", bowl, ONES, args=(t(2), 0.1), method="trust-exact", tol=1e-9)
    .compare(solution)
    .but(values=DIFFERENCES, arrays="SciPy wants slopes there"),
    row("optimize.least_squares", misfits, ONES, args=(t(3, of="unit"),))
    .compare(solution)
    .but(values=DIFFERENCES),
    row(
        "optimize.curve_fit", line, t(4, of="distinct"), t(4), sigma=fixed([1.0, 2.0, 1.0, 0.5])
    ).but(values=DIFFERENCES),
    row("optimize.curve_fit", line, fixed([0.0, 1.0, 2.0]), t(3)).but(values=DIFFERENCES),
]
