"""JAX as one module, NumPy's functions and gradients, as in `lucid_gpu.numpy`."""

from collections.abc import Callable
from typing import Any

from jax import grad, lax, value_and_grad
from jax.experimental.ode import odeint as _odeint
from jax.numpy import *  # noqa: F403
from jax.numpy import asarray as placed
from jax.numpy import linalg

__all__ = ["elementwise_grad", "grad", "linalg", "odeint", "placed", "repeated", "value_and_grad"]


def elementwise_grad(function: Callable[..., Any], argnum: int = 0) -> Callable[..., Any]:
    return grad(lambda *arguments: function(*arguments).sum(), argnum)


def repeated(once: Callable[[Any], Any], u: Any, steps: int) -> Any:
    """A loop that XLA compiles once: of a hundred unrolled steps it makes minutes of work."""
    return lax.fori_loop(0, steps, lambda _, u: once(u), u)


def odeint(f: Callable[..., Any], y0: Any, t: Any, args: tuple[Any, ...], **settings: Any) -> Any:
    return _odeint(f, y0, t, *args, **settings)
