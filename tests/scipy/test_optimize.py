"""Solutions with known derivatives, within bounds and under losses, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.scipy import optimize
from lucid_gpu.scipy.optimize import LOSSES

pytest.importorskip("scipy", reason="lucid_gpu.scipy computes by SciPy")


def leaf(values: Any) -> Any:
    return lucid_gpu.tensor(values, dtype=lucid_gpu.float64, requires_grad=True)


ONES = lucid_gpu.ones(2, dtype=lucid_gpu.float64)
A = leaf([2.0, 3.0])
ONE_STEP = {"maxiter": 1}


@pytest.mark.parametrize(
    "method", [None, "CG", "Newton-CG", "trust-exact", "trust-krylov", "SLSQP"]
)
def test_methods_are_given_the_slopes_they_take(method: Any) -> None:
    found = optimize.minimize(lambda x, a: ((x**3 - a) ** 2).sum(), ONES, (A,), method, tol=1e-9)
    (slope,) = lucid_gpu.autograd.grad(found.x.sum(), A)
    roots = A.detach().numpy() ** (1 / 3)
    np.testing.assert_allclose(found.x.detach().numpy(), roots, rtol=1e-5)
    np.testing.assert_allclose(slope.numpy(), 1 / (3 * roots**2), rtol=1e-5)


@pytest.mark.parametrize("solver", ["minimize", "least_squares"])
def test_unknowns_at_a_bound_stay(solver: str) -> None:
    """(x - 2)^2 + (y - 3)^2 + (x - y)^2 / 2 with y <= 1: x = (2 * 2 + y) / 3 at y = 1."""
    bounds = [(None, None), (0, 1)] if solver == "minimize" else ([-np.inf, 0], [np.inf, 1])

    def parts(x: Any, a: Any) -> Any:
        return lucid_gpu.stack([x[0] - a[0], x[1] - a[1], (x[0] - x[1]) / 2**0.5])

    function = parts if solver == "least_squares" else lambda x, a: (parts(x, a) ** 2).sum()
    found = getattr(optimize, solver)(function, ONES * 0.5, args=(A,), bounds=bounds)
    np.testing.assert_allclose(found.x.detach().numpy(), [5 / 3, 1], rtol=1e-5)
    slopes = [lucid_gpu.autograd.grad(x, A, retain_graph=True)[0] for x in found.x]
    np.testing.assert_allclose(
        lucid_gpu.stack(slopes).numpy(), [[2 / 3, 0.0], [0.0, 0.0]], atol=1e-6
    )


@pytest.mark.parametrize("loss", LOSSES)
def test_losses_are_scipys(loss: str) -> None:
    """The cost at the minimum, and its slope by the data, beside differences."""
    data, x = np.array([0.3, 2.0, -0.4, 0.1]), np.arange(4.0)

    def solve(data: Any) -> Any:
        def apart(p: Any, y: Any) -> Any:
            return p[0] + p[1] * lucid_gpu.tensor(x) - y

        tight: dict[str, Any] = {"ftol": 1e-14, "xtol": 1e-14, "gtol": 1e-14}
        return optimize.least_squares(apart, ONES, loss=loss, f_scale=0.5, args=(data,), **tight)

    y = leaf(data)
    found = solve(y)
    point, settings = found.x.detach().numpy(), dict[str, Any](loss=loss, f_scale=0.5)
    theirs = optimize.least_squares(lambda p: p[0] + p[1] * x - data, np.ones(2), **settings)
    assert found.cost == pytest.approx(theirs.cost) and theirs.x == pytest.approx(point, abs=1e-4)
    (slope,) = lucid_gpu.autograd.grad(found.x[1], y)
    ends = [solve(lucid_gpu.tensor(data + [0, 0, h, 0])).x[1].item() for h in (1e-3, -1e-3)]
    assert slope[2].item() == pytest.approx((ends[0] - ends[1]) / 2e-3, rel=1e-3)


def test_what_a_function_closes_over_has_a_gradient() -> None:
    x = optimize.fsolve(lambda x: [x[0] ** 2 - A[0], x[1] * x[0] - A[1]], ONES)
    (slope,) = lucid_gpu.autograd.grad(x[0], A)
    np.testing.assert_allclose(slope.numpy(), [1 / (2 * 2**0.5), 0], atol=1e-9)


def test_covariances_are_scipys() -> None:
    x, sigma = np.arange(5.0), np.array([1.0, 2.0, 1.0, 0.5, 1.0])
    data = np.array([1.0, 0.7, 0.3, 0.25, 0.1])
    theirs = optimize.curve_fit(lambda x, a, b: a * np.exp(-b * x), x, data, sigma=sigma)
    points, values = (lucid_gpu.tensor(v) for v in (x, data))
    ours = optimize.curve_fit(lambda x, a, b: a * (-b * x).exp(), points, values, sigma=sigma)
    for mine, wanted in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine.numpy(), wanted, rtol=1e-5)


REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "singular": (
        lambda: optimize.minimize(lambda x, a: ((x[0] + x[1] - a) ** 2).sum(), ONES, (A[0],)),
        RuntimeError,
        "the Jacobian .of a minimum, the Hessian. is singular: its condition number",
    ),
    "far": (
        lambda: optimize.minimize(lambda x, a: ((x - a) ** 4).sum(), ONES, (A,), options=ONE_STEP),
        RuntimeError,
        "that far from it: the residual .of a minimum, the gradient. is .* smaller tolerances",
    ),
    "no root": (
        lambda: optimize.root(lambda x, a: x**2 + a, ONES, (A,)),
        RuntimeError,
        "optimize.root: there is no derivative of the solution",
    ),
    "shape": (
        lambda: optimize.root(lambda x, a: a[0] - x[:1], ONES, (A,)),
        ValueError,
        "as many numbers as x has, 2, got 1",
    ),
    "loss": (
        lambda: optimize.least_squares(lambda x, a: x - a, ONES, loss="l1", args=(A,)),
        ValueError,
        "loss must be one of linear, soft_l1, .* got 'l1'",
    ),
    "complex": (lambda: optimize.root(lambda x, a: x, ONES, (A * 1j,)), TypeError, "real numbers"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_say_what_came(case: str) -> None:
    call, kind, message = REFUSED[case]
    with pytest.raises(kind, match=message):
        call()


def test_without_a_derivative_the_result_is_scipys_as_it_is() -> None:
    found = optimize.minimize(lambda x: ((x - 3) ** 4).sum(), ONES, options=ONE_STEP)
    assert not found.success and found.nit == 1 and not found.x.requires_grad
