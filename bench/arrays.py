"""Programs written in NumPy, one gradient a step: the examples' formulas beside HIPS autograd's.

They are built as other cases are. The module given is `lucid_gpu`, ``autograd``, ``jax`` or
``mygrad``; `numpy_of` finds the one that stands for NumPy with its gradients. Data are arguments of
what is compiled (by `jax.jit`): of constants a compiler would compute beforehand what it can.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy

from bench.graphs import in_graph

Step = Callable[[], tuple[Any, ...]]
Build = Callable[[Any, str, Any], Step]


def numpy_of(module: Any) -> Any:
    """NumPy with gradients, of a peer."""
    return importlib.import_module(NUMPY_OF[module.__name__])


NUMPY_OF = {
    "lucid_gpu": "lucid_gpu.numpy",
    "autograd": "bench.hips",
    "jax": "bench.in_jax",
    "mygrad": "bench.in_mygrad",
}


def placed(array: numpy.ndarray, device: str, module: Any, compiled: Any) -> Any:
    """The array, or a copy of it on a GPU: the library is all that decides.

    JAX has arrays of its own, and a graph reads tensors.
    """
    if compiled is in_graph:
        return module.tensor(array)
    if device == "cpu":
        return numpy_of(module).placed(array) if module.__name__ == "jax" else array
    import cupy

    return cupy.asarray(array)


def gaussian_process(points: int, features: int) -> Build:
    """The marginal likelihood of a Gaussian process and its gradient by the kernel's parameters."""

    def build(module: Any, device: str, compiled: Any) -> Step:
        np, rng = numpy_of(module), numpy.random.default_rng(0)
        x = placed(rng.standard_normal((points, features)), device, module, compiled)
        y = placed(rng.standard_normal(points), device, module, compiled)
        theta = placed(numpy.zeros(features + 3), device, module, compiled)
        unit = placed(numpy.eye(points), device, module, compiled)

        def misfit(theta: Any, x: Any, y: Any, unit: Any) -> Any:
            scaled = x / np.exp(theta[:features])
            size = np.sum(scaled**2, axis=1)
            apart = size[:, None] + size - 2 * scaled @ scaled.T
            smooth = np.exp(theta[features] - apart / 2)
            k = smooth + np.exp(theta[features + 1]) * (x @ x.T) + np.exp(theta[-1]) * unit
            lower = np.linalg.cholesky(k)
            white = np.linalg.solve(lower, y)
            return np.dot(white, white) / 2 + np.sum(np.log(np.diag(lower)))

        function = compiled(np.value_and_grad(misfit))
        return lambda: function(theta, x, y, unit)

    return build


def in_a_loop(once: Callable[[Any], Any], u: Any, steps: int) -> Any:
    for _ in range(steps):
        u = once(u)
    return u


def heat(size: int, steps: int) -> Build:
    """A misfit after explicit time steps of the heat equation, by the initial state."""

    def build(module: Any, device: str, compiled: Any) -> Step:
        np, rng = numpy_of(module), numpy.random.default_rng(0)
        repeated = np.repeated if module.__name__ == "jax" else in_a_loop
        root = placed(rng.standard_normal((size, size)), device, module, compiled)
        measured = placed(rng.standard_normal((size, size)), device, module, compiled)

        def once(u: Any) -> Any:
            around = np.roll(u, 1, 0) + np.roll(u, -1, 0) + np.roll(u, 1, 1) + np.roll(u, -1, 1)
            return u + 0.2 * (around - 4 * u)

        def misfit(root: Any, measured: Any) -> Any:
            u = repeated(once, root**2, steps)
            return np.mean((u - measured) ** 2)

        function = compiled(np.value_and_grad(misfit))
        return lambda: function(root, measured)

    return build


def quantum_dot(walkers: int) -> Build:
    """Local energies of walkers, by second derivatives, and the gradient of their mean."""

    def build(module: Any, device: str, compiled: Any) -> Step:
        np, rng = numpy_of(module), numpy.random.default_rng(0)
        r = placed(rng.standard_normal((walkers, 4)), device, module, compiled)
        p = placed(numpy.array([0.7, 0.3, 0.1]), device, module, compiled)

        def apart(r: Any) -> Any:
            return np.sqrt((r[:, 0] - r[:, 2]) ** 2 + (r[:, 1] - r[:, 3]) ** 2)

        def log_psi(p: Any, r: Any) -> Any:
            d = apart(r)
            return np.log(1 + p[1] * d + p[2] * d**2) - p[0] / 2 * np.sum(r**2, axis=1)

        slope = np.elementwise_grad(log_psi, 1)

        def second(p: Any, r: Any, k: int) -> Any:
            return np.elementwise_grad(lambda r: slope(p, r)[:, k])(r)[:, k]

        def estimate(p: Any, r: Any) -> tuple[Any, ...]:
            bend = sum([second(p, r, k) for k in range(4)])
            kinetic = -(bend + (slope(p, r) ** 2).sum(axis=1)) / 2
            energies = kinetic + (r**2).sum(axis=1) / 2 + 1 / apart(r)
            weights = 2 * (energies - energies.mean()) / walkers
            return energies, np.grad(lambda p: np.sum(weights * log_psi(p, r)))(p)

        function = compiled(estimate)
        return lambda: function(p, r)

    return build


def hares(years: int) -> Build:
    """A misfit of hares and lynxes, year by year, and its gradient by their equations' rates."""

    def build(module: Any, device: str, compiled: Any) -> Step:
        np = numpy_of(module)
        start = placed(numpy.array([34.0, 5.9]), device, module, compiled)
        rates = placed(numpy.array([0.55, 0.028, 0.8, 0.024]), device, module, compiled)
        times = placed(numpy.arange(float(years + 1)), device, module, compiled)
        odeint = solver_of(module)

        def change(y: Any, t: Any, p: Any) -> Any:
            return np.stack([(p[0] - p[1] * y[1]) * y[0], (p[3] * y[0] - p[2]) * y[1]])

        def misfit(rates: Any, start: Any, times: Any) -> Any:
            found = odeint(change, start, times, (rates,), rtol=1e-8, atol=1e-8)
            return np.mean((found - 20) ** 2)

        function = compiled(np.value_and_grad(misfit))
        return lambda: function(rates, start, times)

    return build


def solver_of(module: Any) -> Any:
    """`odeint` of a peer: SciPy's, with a gradient."""
    if module.__name__ == "lucid_gpu":
        return importlib.import_module("lucid_gpu.scipy.integrate").odeint
    return numpy_of(module).odeint
