"""Integrals and equations with known derivatives, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.scipy import integrate

pytest.importorskip("scipy", reason="lucid_gpu.scipy computes by SciPy")


def leaf(values: Any, kind: Any = lucid_gpu.float64) -> Any:
    return lucid_gpu.tensor(values, dtype=kind, requires_grad=True)


def decay(t: Any, y: Any, rate: Any) -> Any:
    return [-rate * y[0], y[1] * 0]


@pytest.mark.parametrize(
    ("t_eval", "span"),
    [(None, (0, 2)), ([1.0], (0, 2)), ([2.0, 0.5], (3, 0)), ([0.0, 1.0], (0, 1))],
)
@pytest.mark.parametrize("adjoint", ["continuous", "discrete"])
def test_decay_is_that_of_the_formula(t_eval: Any, span: Any, adjoint: str) -> None:
    rate, y0 = leaf(0.5), leaf([2.0, 1.0])
    found = integrate.solve_ivp(
        decay, span, y0, t_eval=t_eval, args=(rate,), rtol=1e-9, atol=1e-9, adjoint=adjoint
    )
    time = found.t - span[0]
    np.testing.assert_allclose(found.y[0].detach().numpy(), 2 * np.exp(-0.5 * time), rtol=1e-6)
    found.y[0].sum().backward()
    assert rate.grad.item() == pytest.approx((-2 * time * np.exp(-0.5 * time)).sum(), rel=1e-6)
    assert y0.grad[0].item() == pytest.approx(np.exp(-0.5 * time).sum(), rel=1e-6)
    assert y0.grad[1].item() == 0


def test_gradients_of_a_batch_and_jacobians_are_a_loop() -> None:
    """Inside of an op nothing is batched, whatever vmaps are open around it."""

    def end(rate: Any) -> Any:
        y0 = lucid_gpu.tensor([2.0, 1.0], dtype=rate.dtype)
        settings: dict[str, Any] = {"t_eval": [0.5], "rtol": 1e-9, "atol": 1e-9}
        return integrate.solve_ivp(decay, (0, 1), y0, args=(rate,), **settings).y[0, 0]

    rates = lucid_gpu.tensor([0.5, 1.5], dtype=lucid_gpu.float64)
    expected = -np.exp(-0.5 * rates.numpy())
    slopes = lucid_gpu.vmap(lucid_gpu.func.grad(end))(rates)
    np.testing.assert_allclose(slopes.numpy(), expected, rtol=1e-6)
    bends = lucid_gpu.func.hessian(end)(rates[0])
    assert bends.item() == pytest.approx(0.5 * math.exp(-0.25), rel=1e-6)


def test_the_discrete_adjoint_sees_what_the_function_closes_over() -> None:
    rate, y0 = leaf(0.5), leaf([2.0])
    found = integrate.solve_ivp(
        lambda t, y: -rate * y, (0, 1), y0, t_eval=[1.0], rtol=1e-9, atol=1e-9, adjoint="discrete"
    )
    found.y.sum().backward()
    assert rate.grad.item() == pytest.approx(-2 * math.exp(-0.5), rel=1e-6)


def test_a_solver_for_stiff_equations_goes_both_ways() -> None:
    rate, y0 = leaf(50.0), leaf([1.0])
    slope: Callable[..., Any] = lambda t, y, r: -r * (y - t.cos())  # noqa: E731
    settings: dict[str, Any] = {"t_eval": [0.5], "args": (rate,), "rtol": 1e-9, "atol": 1e-10}
    integrate.solve_ivp(slope, (0, 0.5), y0, "BDF", **settings).y.sum().backward()
    r, t = 50.0, 0.5  # y = (r^2 cos t + r sin t + e^-rt)/(r^2 + 1)
    top = r * r * math.cos(t) + r * math.sin(t) + math.exp(-r * t)
    along = 2 * r * math.cos(t) + math.sin(t) - t * math.exp(-r * t)
    expected = along / (r * r + 1) - 2 * r * top / (r * r + 1) ** 2
    assert rate.grad.item() == pytest.approx(expected, rel=1e-4)


def test_infinite_and_reversed_limits() -> None:
    rate = leaf(2.0)
    area = integrate.quad(lambda x, r: (-r * x * x).exp(), -math.inf, math.inf, (rate,))[0]
    (slope,) = lucid_gpu.autograd.grad(area, rate)
    assert slope.item() == pytest.approx(-math.sqrt(math.pi) / 2 * 2**-1.5)
    b = leaf(1.0)
    area, error = integrate.quad(lambda x, r: r * x, 3, b, (rate,))
    assert error < 1e-10 and area.item() == pytest.approx(-8.0)
    by_rate, by_limit = lucid_gpu.autograd.grad(area, (rate, b))
    assert (by_rate.item(), by_limit.item()) == (pytest.approx(-4.0), pytest.approx(2.0))


P, Y = leaf(0.5), leaf([1.0, 2.0])
REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "closed over": (
        lambda: integrate.solve_ivp(lambda t, y: -P * y, (0, 1), Y, t_eval=[1.0]),
        RuntimeError,
        r"reads a tensor that has a derivative .* pass it by args=",
    ),
    "closed over by quad": (
        lambda: integrate.quad(lambda x, r: P * x, 0, 1, args=(Y[0],)),
        RuntimeError,
        r"integrate.quad: the function reads a tensor .* args=",
    ),
    "events": (
        lambda: integrate.solve_ivp(decay, (0, 1), Y, args=(P,), events=[max]),
        TypeError,
        "events has no derivative here",
    ),
    "adjoint": (
        lambda: integrate.solve_ivp(decay, (0, 1), Y, args=(P,), adjoint="both"),
        ValueError,
        "adjoint must be 'continuous' or 'discrete', got 'both'",
    ),
    "discrete and implicit": (
        lambda: integrate.solve_ivp(decay, (0, 1), Y, "Radau", args=(P,), adjoint="discrete"),
        ValueError,
        "'RK45' and 'RK23', got 'Radau'",
    ),
    "complex": (
        lambda: integrate.solve_ivp(decay, (0, 1), Y * 1j, args=(P,)),
        TypeError,
        "takes real numbers",
    ),
    "shape": (
        lambda: integrate.solve_ivp(lambda t, y: y[0], (0, 1), Y),
        ValueError,
        r"slopes of shape \(2,\), as the state; it returned .* of shape \(\)",
    ),
    "blows up": (
        lambda: integrate.solve_ivp(lambda t, y: y * y, (0, 2), Y, t_eval=[2.0]),
        RuntimeError,
        "Required step size is less than spacing",
    ),
    "times": (
        lambda: integrate.odeint(lambda y, t: -y, Y, Y),
        TypeError,
        "no derivative by times",
    ),
    "vmap": (
        lambda: lucid_gpu.vmap(lambda y: integrate.solve_ivp(lambda t, y: -y, (0, 1), y).y)(
            Y[None]
        ),
        RuntimeError,
        "under vmap takes t_eval",
    ),
    "vector": (lambda: integrate.quad(lambda x, y: x * y, 0, 1, (Y,)), ValueError, "a number"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_say_what_to_write(case: str) -> None:
    call, kind, message = REFUSED[case]
    with pytest.raises(kind, match=message):
        call()
