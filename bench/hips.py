"""HIPS autograd as one module, NumPy's functions and gradients, as in `lucid_gpu.numpy`."""

from collections.abc import Callable
from typing import Any

from autograd import elementwise_grad, grad, value_and_grad
from autograd.builtins import tuple as boxed
from autograd.numpy import *  # noqa: F403
from autograd.scipy import integrate

__all__ = ["elementwise_grad", "grad", "odeint", "value_and_grad"]


def odeint(f: Callable[..., Any], y0: Any, t: Any, args: Any, **settings: Any) -> Any:
    return integrate.odeint(f, y0, t, boxed(args), **settings)
