"""`torch._functorch.apis`: what `lucid_gpu.func` shows of its transformations."""

from __future__ import annotations

from lucid_gpu.func import grad, grad_and_value, vmap

__all__ = ["grad", "grad_and_value", "vmap"]
