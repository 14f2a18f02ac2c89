"""Automatic differentiation: `backward`, `grad`, custom functions, grad modes, `gradcheck`."""

from __future__ import annotations

import importlib
from typing import Any

from lucid_gpu.autograd import graph
from lucid_gpu.autograd.anomaly import detect_anomaly, set_detect_anomaly
from lucid_gpu.autograd.backward import backward, grad
from lucid_gpu.autograd.function import Function, FunctionCtx, once_differentiable
from lucid_gpu.autograd.gradcheck import GradcheckError, gradcheck, gradgradcheck
from lucid_gpu.ops.saved_values import SavedTensor
from lucid_gpu.tape.modes import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    no_grad,
    set_grad_enabled,
)


def __getattr__(name: str) -> Any:
    if name == "Variable":
        return importlib.import_module("lucid_gpu.autograd.variable").Variable
    if name in ("forward_ad", "functional", "grad_mode", "profiler"):
        return importlib.import_module(f"lucid_gpu.autograd.{name}")
    if name in ("_is_checkpoint_valid", "set_multithreading_enabled"):
        return getattr(importlib.import_module("lucid_gpu.autograd.grad_mode"), name)
    raise AttributeError(f"module 'lucid_gpu.autograd' has no attribute {name!r}")


__all__ = [
    "Function",
    "FunctionCtx",
    "GradcheckError",
    "SavedTensor",
    "Variable",
    "backward",
    "detect_anomaly",
    "enable_grad",
    "functional",
    "grad",
    "gradcheck",
    "gradgradcheck",
    "graph",
    "inference_mode",
    "is_grad_enabled",
    "no_grad",
    "once_differentiable",
    "profiler",
    "set_detect_anomaly",
    "set_grad_enabled",
]
