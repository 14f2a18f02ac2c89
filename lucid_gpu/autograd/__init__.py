"""Automatic differentiation: `backward`, `grad`, custom functions, grad modes, `gradcheck`."""

from __future__ import annotations

from typing import Any

from lucid_gpu.autograd.backward import backward, grad
from lucid_gpu.autograd.function import Function, FunctionCtx, once_differentiable
from lucid_gpu.tape.modes import enable_grad, is_grad_enabled, no_grad, set_grad_enabled

__all__ = [
    "Function",
    "FunctionCtx",
    "GradcheckError",
    "backward",
    "enable_grad",
    "grad",
    "gradcheck",
    "gradgradcheck",
    "is_grad_enabled",
    "no_grad",
    "once_differentiable",
    "set_grad_enabled",
]


def __getattr__(name: str) -> Any:
    if name in ("GradcheckError", "gradcheck", "gradgradcheck"):  # seldom wanted: on demand
        import importlib

        return getattr(importlib.import_module("lucid_gpu.autograd.gradcheck"), name)
    raise AttributeError(f"module 'lucid_gpu.autograd' has no attribute {name!r}")
