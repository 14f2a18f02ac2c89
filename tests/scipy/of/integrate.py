"""Calls of `scipy.integrate`."""

from __future__ import annotations

from typing import Any

import lucid_gpu.numpy as np
from tests.ops.samples import fixed, row, t

EXACT: dict[str, Any] = {"rtol": 1e-11, "atol": 1e-11}
DISCRETE: dict[str, Any] = {"first_step": 0.2, "max_step": 0.2, "atol": 1.0, "adjoint": "discrete"}
NO_STEPS = "the steps differ from example to example: refused with a sentence"


def fall(x: Any, rate: Any, size: Any) -> Any:
    return size * np.exp(-rate * x)


def swing(time: Any, y: Any, rate: Any, force: Any) -> Any:
    return np.stack([y[1] + 0.1 * time, -force * np.sin(y[0]) - rate * y[1]])


def grow(y: Any, time: Any, rate: Any) -> Any:
    return rate * y * (1 - y)


def states(result: Any) -> Any:
    return result.y


GIVEN = ((0.0, 0.4), t(2))
ARGS = (t(), t(of="positive"))
ROWS = [
    row("integrate.trapezoid", t(3, 4)),
    row("integrate.trapezoid", t(3, 4), fixed([0.0, 0.5, 2.0, 3.0]), axis=1),
    row("integrate.cumulative_trapezoid", t(4, 2), t(4, of="normal"), axis=0, initial=0),
    row("integrate.cumulative_trapezoid", t(3, 4), dx=0.5),
    row("integrate.simpson", t(3, 5), dx=0.5),
    row("integrate.simpson", t(3, 6), fixed([0.0, 0.5, 2.0, 3.0, 3.5, 5.0])),
    row("integrate.simpson", t(2, 3), axis=0),
    row("integrate.cumulative_simpson", t(3, 5), x=fixed([0.0, 0.5, 2.0, 3.0, 3.5])),
    row("integrate.cumulative_simpson", t(6, 2), axis=0, initial=2.0),
    row("integrate.quad", fall, t(), t(of="positive"), args=(t(of="positive"), t())).compare(
        lambda result: result[0]
    ),
    row("integrate.quad", fall, 0.0, float("inf"), args=(t(of="positive"), t())).compare(
        lambda result: result[0]
    ),
    row("integrate.odeint", grow, t(1), [0.0, 0.2], args=(t(of="positive"),), **EXACT),
    row("integrate.solve_ivp", swing, *GIVEN, "DOP853", [0.2], args=ARGS, **EXACT).compare(states),
    row("integrate.solve_ivp", swing, *GIVEN, "RK23", args=ARGS, t_eval=[0.1, 0.3], **DISCRETE)
    .compare(states)
    .but(vmap=NO_STEPS),
]
