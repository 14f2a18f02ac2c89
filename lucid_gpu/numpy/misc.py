"""Trees of arrays as one vector, fixed points and three optimizers: HIPS autograd's `misc`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from lucid_gpu.func.trees import flatten as leaves_and_structure
from lucid_gpu.func.trees import unflatten as put_together
from lucid_gpu.numpy.calls import plain
from lucid_gpu.numpy.directional import make_vjp
from lucid_gpu.numpy.extend import defvjp, primitive
from lucid_gpu.numpy.joining import concatenate
from lucid_gpu.numpy.operands import first_tensor
from lucid_gpu.tensor import Tensor

__all__ = ["adam", "fixed_point", "flatten", "rmsprop", "sgd"]


def flatten(value: Any) -> tuple[Any, Callable[[Any], Any]]:
    """Return the elements of a tree of arrays as a vector, and the function that goes back.

    Parameters
    ----------
    value : tree of arrays, tensors and numbers
        Dictionaries keep their order.

    Returns
    -------
    vector : array or Tensor
        Of shape ``(number of elements,)``.
    unflatten : callable
        Of a vector of that shape; numbers come back as numbers without dimensions.

    Examples
    --------
    >>> import lucid_gpu.numpy as np
    >>> from lucid_gpu.numpy.misc import flatten
    >>> vector, unflatten = flatten({"w": np.ones((2, 2)), "b": 3.0})
    >>> vector
    array([1., 1., 1., 1., 3.])
    >>> unflatten(2 * vector)["b"]
    np.float64(6.0)
    """
    leaves, structure = leaves_and_structure(value)
    shapes = [tuple(np.shape(leaf)) for leaf in leaves]
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])

    def unflatten(vector: Any) -> Any:
        parts = [
            vector[end - int(np.prod(shape)) : end].reshape(shape)
            for end, shape in zip(ends, shapes, strict=True)
        ]
        whole = [p if isinstance(p, Tensor) or p.ndim else p[()] for p in parts]
        return put_together(whole, structure)

    rows = [np.reshape(leaf, -1) for leaf in leaves] or [np.zeros(0)]
    join = np.concatenate if first_tensor(rows) is None else concatenate
    return join(rows), unflatten


@primitive
def fixed_point(f: Any, a: Any, x0: Any, distance: Any, tol: Any) -> Any:
    """Return the fixed point x = f(a)(x), iterated from ``x0``, differentiable by ``a``.

    The gradient is that of the implicit function theorem, itself a fixed point: memory does not
    grow with the number of iterations, and ``f(a)`` must contract near the solution.

    Parameters
    ----------
    f : callable
        Of ``a``, a tree of arrays; gives a function of x.
    x0 : array or number
        The start, of x's shape.
    distance : callable
        Of two successive values of x, a number.
    tol : float
        The distance at which the iteration ends.

    Examples
    --------
    >>> import lucid_gpu.numpy as np
    >>> from lucid_gpu.numpy.misc import fixed_point
    >>> newton = lambda a: lambda x: 0.5 * (x + a / x)
    >>> root = lambda a: fixed_point(newton, a, 1.0, lambda x, y: abs(x - y), 1e-12)
    >>> float(round(np.grad(root)(4.0), 6))
    0.25
    """
    step = f(a)
    previous, x = x0, plain(step(x0))
    while distance(x, previous) > tol:
        previous, x = x, plain(step(x))
    return x


def _of_fixed_point(answer: Any, f: Any, a: Any, x0: Any, distance: Any, tol: Any) -> Any:
    def step(parameters: Any) -> Any:
        a, x, g = parameters
        pull, _ = make_vjp(f(a))(x)
        return lambda v: pull(v) + g

    def rule(g: Any) -> Any:
        whole = fixed_point(step, (a, answer, g), np.zeros(answer.shape), distance, tol)
        return make_vjp(lambda a: f(a)(answer))(a)[0](whole)

    return rule


defvjp(fixed_point, None, _of_fixed_point, None, None, None)


def _of_trees(optimize: Callable[..., Any]) -> Callable[..., Any]:
    """An optimizer of vectors, for trees."""

    @functools.wraps(optimize)
    def function(grad: Any, x0: Any, callback: Any = None, *args: Any, **kwargs: Any) -> Any:
        start, unflatten = flatten(x0)

        def slope(x: Any, i: int) -> Any:
            g = flatten(grad(unflatten(x), i))[0]
            if callback is not None:
                callback(unflatten(x), i, unflatten(g))
            return g

        return unflatten(optimize(slope, start, *args, **kwargs))

    return function


@_of_trees
def sgd(slope: Any, x: Any, num_iters: int = 200, step_size: float = 0.1, mass: float = 0.9) -> Any:
    """Return where descent with momentum ends: ``sgd(grad, x0, callback=None, ...)``.

    Parameters
    ----------
    slope : callable
        Of a tree like ``x`` and the number of the step; gives a gradient of that structure.
    x : tree of arrays
        The start.
    num_iters : int
        The number of steps.
    step_size, mass : float
        ``v = mass * v - (1 - mass) * gradient``, ``x = x + step_size * v``.

    Examples
    --------
    >>> import lucid_gpu.numpy as np
    >>> from lucid_gpu.numpy.misc import sgd
    >>> slope = np.grad(lambda p: (p["a"] - 3) ** 2)
    >>> float(round(sgd(lambda p, i: slope(p), {"a": 0.0})["a"], 3))
    3.0
    """
    velocity = np.zeros_like(x)
    for i in range(num_iters):
        velocity = mass * velocity - (1 - mass) * slope(x, i)
        x = x + step_size * velocity
    return x


@_of_trees
def rmsprop(
    slope: Any,
    x: Any,
    num_iters: int = 100,
    step_size: float = 0.1,
    gamma: float = 0.9,
    eps: float = 1e-8,
) -> Any:
    """Return where descent in units of the gradient's running size ends; used as `sgd` is.

    ``gamma`` is the share of the mean of squares that is kept, which begins at one; ``eps`` is
    added to its root (Tieleman and Hinton 2012). ``slope``, ``x``, ``num_iters`` and
    ``step_size`` are those of `sgd`.
    """
    mean = np.ones_like(x)
    for i in range(num_iters):
        g = slope(x, i)
        mean = gamma * mean + (1 - gamma) * g**2
        x = x - step_size * g / (np.sqrt(mean) + eps)
    return x


@_of_trees
def adam(
    slope: Any,
    x: Any,
    num_iters: int = 100,
    step_size: float = 0.001,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
) -> Any:
    """Return where Adam ends (Kingma and Ba 2015, algorithm 1); used as `sgd` is.

    ``b1`` and ``b2`` are the decays of the means of gradients and of their squares, ``eps`` is
    added to the root. ``slope``, ``x``, ``num_iters`` and ``step_size`` are those of `sgd`.
    """
    first, second = np.zeros_like(x), np.zeros_like(x)
    for i in range(num_iters):
        g = slope(x, i)
        first = b1 * first + (1 - b1) * g
        second = b2 * second + (1 - b2) * g**2
        size = np.sqrt(second / (1 - b2 ** (i + 1))) + eps
        x = x - step_size * (first / (1 - b1 ** (i + 1))) / size
    return x
