"""Automatic differentiation: `backward`, `grad`, custom functions, grad modes, `gradcheck`."""

from __future__ import annotations

import os as _os
from typing import Any

from lucid_gpu.autograd import graph
from lucid_gpu.autograd import tensor_hooks as tensor_hooks
from lucid_gpu.autograd.anomaly_mode import detect_anomaly, set_detect_anomaly
from lucid_gpu.autograd.backward import backward
from lucid_gpu.autograd.function import Function, FunctionCtx, once_differentiable
from lucid_gpu.autograd.grad import grad
from lucid_gpu.autograd.gradcheck import GradcheckError, gradcheck, gradgradcheck
from lucid_gpu.compat.module_names import imported as _imported
from lucid_gpu.ops.saved_values import SavedTensor
from lucid_gpu.tape.modes import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    no_grad,
    set_grad_enabled,
)

_FROM = {
    "DeviceType": "lucid_gpu.profiler.events",
    "Variable": "lucid_gpu.autograd.variable",
    "_is_checkpoint_valid": "lucid_gpu.autograd.grad_mode",
    "_profiler_enabled": "lucid_gpu.profiler.ranges",
    "kineto_available": "lucid_gpu.profiler",
    "is_multithreading_enabled": "lucid_gpu.autograd.grad_mode",
    "set_multithreading_enabled": "lucid_gpu.autograd.grad_mode",
}
_MODULES = ("forward_ad", "functional", "grad_mode", "profiler", "profiler_util")
__path__ = [*__path__, _os.path.join(_os.path.dirname(__path__[0]), "torch_names", "autograd")]


def __getattr__(name: str) -> Any:
    return _imported(globals(), name, _FROM, _MODULES)


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
    "is_multithreading_enabled",
    "kineto_available",
    "no_grad",
    "once_differentiable",
    "profiler",
    "set_detect_anomaly",
    "set_grad_enabled",
    "set_multithreading_enabled",
]
