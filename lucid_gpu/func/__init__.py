"""Transformations of functions, under `torch.func`'s names: derivatives and batches."""

from __future__ import annotations

from lucid_gpu.func.forward import jacfwd, jvp, linearize
from lucid_gpu.func.functional_call import (
    functional_call,
    replace_all_batch_norm_modules_,
    stack_module_state,
)
from lucid_gpu.func.transforms import (
    functionalize,
    grad,
    grad_and_value,
    hessian,
    jacrev,
    value_and_grad,
    vjp,
)
from lucid_gpu.func.vmap import vmap

__all__ = [
    "functional_call",
    "functionalize",
    "grad",
    "grad_and_value",
    "hessian",
    "jacfwd",
    "jacrev",
    "jvp",
    "linearize",
    "replace_all_batch_norm_modules_",
    "stack_module_state",
    "value_and_grad",
    "vjp",
    "vmap",
]
