"""HIPS autograd as one module, NumPy's functions and gradients, as in `lucid_gpu.numpy`."""

from autograd import elementwise_grad, grad, value_and_grad
from autograd.numpy import *  # noqa: F403

__all__ = ["elementwise_grad", "grad", "value_and_grad"]
