"""SciPy's minimizers over tensors: minima, what params hold, what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.optim import minimize, scipy_minimize

optimize = pytest.importorskip("scipy.optimize", reason="SciPy is not installed")


def rosen(x: Any) -> Any:
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


METHODS = ("L-BFGS-B", "BFGS", "CG", "Newton-CG", "trust-ncg", "trust-krylov", "trust-exact",
           "dogleg", "trust-constr", "TNC", "SLSQP", "Nelder-Mead")  # fmt: skip


@pytest.mark.parametrize("method", METHODS)
def test_methods_find_the_minimum(method: str) -> None:
    x = lucid_gpu.zeros(3, dtype=lucid_gpu.float64, requires_grad=True)
    found = scipy_minimize(lambda: rosen(x), x, method, tol=1e-9)
    np.testing.assert_allclose(x.tolist(), [1] * 3, atol=3e-3)
    assert found.x.tolist() == x.tolist() and found.fun < 1e-5 and x.is_leaf and x.grad is None


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("method", ("L-BFGS-B", "BFGS", "Newton-CG", "trust-exact"))
def test_steps_are_scipys(method: str) -> None:
    start = np.array([-1.2, 1.0, 0.5])
    x = lucid_gpu.tensor(start, requires_grad=True)
    found = scipy_minimize(lambda: rosen(x), x, method)
    more = {} if method[0] in "LB" else {"hess": optimize.rosen_hess}
    expected = optimize.minimize(
        optimize.rosen, start, method=method, jac=optimize.rosen_der, **more
    )
    assert (found.nit, found.nfev) == (expected.nit, expected.nfev)
    np.testing.assert_allclose(found.x, expected.x, rtol=1e-6)


def test_trees_types_and_shapes(device: str) -> None:
    def made(*shape: Any, **options: Any) -> Any:
        return lucid_gpu.zeros(*shape, device=device, **options)

    tree = {
        "a": made(2, 3, dtype=lucid_gpu.float64, requires_grad=True),
        "b": [made((), requires_grad=True), (made(0, requires_grad=True),)],
        "fixed": made(2),
    }

    def loss(tree: Any) -> Any:
        goal = lucid_gpu.arange(6.0, device=device).reshape(2, 3)
        return ((tree["a"] - goal) ** 2).sum() + (tree["b"][0].double() - 2) ** 2 + 5

    for method in ("L-BFGS-B", "trust-ncg"):
        found = scipy_minimize(loss, tree, method)
        assert found.success and found.x.shape == (7,) and abs(found.fun - 5) < 1e-6
        np.testing.assert_allclose(tree["a"].flatten().tolist(), range(6), atol=1e-4)
        assert abs(tree["b"][0].item() - 2) < 1e-4 and tree["fixed"].tolist() == [0, 0]
    assert tree["a"].device.type == device and tree["b"][0].dtype is lucid_gpu.float32


def test_modules_and_parameters(device: str) -> None:
    x = lucid_gpu.linspace(-1, 1, 20, device=device).reshape(20, 1)
    y = 3 * x - 1
    for of in (lambda net: net, lambda net: net.parameters(), lambda net: list(net.parameters())):
        net = lucid_gpu.nn.Linear(1, 1).to(device)
        seen: list[Any] = []

        def note(result: Any, net: Any = net, seen: Any = seen) -> None:
            seen.append((result.fun, net.weight.item()))

        found = scipy_minimize(lambda net=net: ((net(x) - y) ** 2).mean(), of(net), callback=note)
        assert found.success and len(seen) == found.nit
        assert abs(seen[-1][1] - 3) < 1e-3 and seen[0][0] > seen[-1][0]
        assert abs(net.weight.item() - 3) < 1e-3 and abs(net.bias.item() + 1) < 1e-3


BOUNDS: dict[str, tuple[Any, list[list[float]]]] = {
    "all": ((0, 1), [[0, 1, 1], [1]]),
    "one a parameter": ([(0, 2), None], [[0, 1, 2], [3]]),
    "arrays": ([(np.array([-1, 0, 0]), 1.5), (None, 2)], [[-1, 1, 1.5], [2]]),
    "SciPy's": (optimize.Bounds(-0.5, 2.5), [[-0.5, 1, 2.5], [2.5]]),
}


@pytest.mark.parametrize("name", BOUNDS)
def test_bounds(name: str) -> None:
    bounds, expected = BOUNDS[name]
    goal = lucid_gpu.tensor([-2.0, 1, 3])
    p = [lucid_gpu.zeros(n, dtype=lucid_gpu.float64, requires_grad=True) for n in (3, 1)]
    scipy_minimize(
        lambda p: ((p[0] - goal) ** 2).sum() + (p[1] - 3).square().sum(), p, bounds=bounds
    )
    np.testing.assert_allclose([v for q in p for v in q.tolist()], sum(expected, []), atol=1e-5)


def test_what_is_raised_leaves_params(device: str) -> None:
    x = lucid_gpu.ones(2, device=device, requires_grad=True)
    y = x * 2
    refused: list[tuple[Any, Any, Any, str]] = [
        (lambda: x, x, ValueError, r"must return one real number, got shape \[2\]"),
        (lambda: x.sum().item(), x, TypeError, "must return a Tensor, got float"),
        (lambda: x.detach().sum(), x, ValueError, "does not depend on params"),
        (lambda: x.sum(), y, ValueError, "can't vary a non-leaf Tensor"),
        (lambda: x.sum(), x.detach(), ValueError, "none of params requires grad"),
        (lambda: x.sum(), [np.ones(2)], TypeError, "params must be tensors.*got ndarray"),
        (lambda: x.sum(), (x + 1j).detach(), TypeError, "params must be real"),
    ]
    for fn, params, kind, words in refused:
        with pytest.raises(kind, match=words):
            scipy_minimize(fn, params)
        assert x.tolist() == [1, 1]
    calls = []

    def breaks() -> Any:
        calls.append(1)
        if len(calls) > 2:
            raise KeyboardInterrupt
        return (x**2).sum()

    with pytest.raises(KeyboardInterrupt):
        scipy_minimize(breaks, x)
    assert x.tolist() == [1, 1] and x.requires_grad and x.is_leaf
    with pytest.raises(ValueError, match="Unknown solver"):
        scipy_minimize(lambda: x.sum(), x, "descend")


def test_a_callback_can_stop() -> None:
    x = lucid_gpu.zeros(3, dtype=lucid_gpu.float64, requires_grad=True)

    def stop(result: Any) -> None:
        raise StopIteration

    found = scipy_minimize(lambda: rosen(x), x, callback=stop)
    assert found.nit == 1 and x.tolist() == found.x.tolist()


def test_products_after_a_step_back() -> None:
    """A rejected step writes params between two products at the same point."""
    x = lucid_gpu.zeros(3, dtype=lucid_gpu.float64, requires_grad=True)
    loss = minimize.Loss(lambda: rosen(x), x, minimize.Vector([x]))
    v = np.ones(3)
    one = loss.hessian_product(np.zeros(3), v)
    loss.with_gradient(np.ones(3))
    assert np.array_equal(loss.hessian_product(np.zeros(3), v), one)
    np.testing.assert_allclose(loss.hessian(np.ones(3)), optimize.rosen_hess(np.ones(3)))
