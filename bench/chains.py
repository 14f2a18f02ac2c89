"""The chain of `bench.cases` for peers whose gradients are results of functions.

Each takes the compiler and the arrays ``x``, ``r``, ``g``, and returns a step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def in_jax(compiled: Callable[..., Any], *arrays: np.ndarray) -> Callable[[], tuple[Any, ...]]:
    import jax

    def chain(x: Any, r: Any) -> Any:
        gelu = 0.5 * x * (1 + jax.numpy.tanh(0.79788456 * (x + 0.044715 * x * x * x)))
        return gelu * r + jax.nn.sigmoid(r) * x

    def pulled_back(x: Any, r: Any, g: Any) -> tuple[Any, ...]:
        out, pull = jax.vjp(chain, x, r)
        return out, *pull(g)

    run, inputs = compiled(pulled_back), [jax.numpy.asarray(array) for array in arrays]
    return lambda: run(*inputs)


def in_tinygrad(compiled: Callable[..., Any], *arrays: np.ndarray) -> Callable[[], tuple[Any, ...]]:
    from tinygrad import Tensor

    def pulled_back(x: Any, r: Any, g: Any) -> Any:
        gelu = 0.5 * x * (1 + (0.79788456 * (x + 0.044715 * x * x * x)).tanh())
        out = gelu * r + r.sigmoid() * x
        return out.realize(*(found := out.gradient(x, r, gradient=g))), *found

    run, inputs = compiled(pulled_back), [Tensor(array).realize() for array in arrays]
    return lambda: tuple([result.numpy() for result in run(*inputs)])


CHAINS = {"jax": in_jax, "tinygrad": in_tinygrad}
