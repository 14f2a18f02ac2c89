"""Of the inside of `torch.optim.optimizer`, what optimizers written after PyTorch's import."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from lucid_gpu import Tensor, float32, float64, get_default_dtype, set_grad_enabled
from lucid_gpu import is_grad_enabled as _is_grad_enabled
from lucid_gpu.ops.complex_views import view_as_real

from .utils._foreach_utils import (
    _get_foreach_kernels_supported_devices,
    _get_fused_kernels_supported_devices,
)

__all__ = ["ParamsT"]

ParamsT: TypeAlias = Iterable[Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, Tensor]]
_params_doc = _foreach_doc = _fused_doc = ""  # parts of docstrings
_capturable_doc = _differentiable_doc = _maximize_doc = ""


def _use_grad_for_differentiable(func: Callable[..., Any]) -> Callable[..., Any]:
    """A step that is recorded if the optimizer is ``differentiable``, and else is not."""

    @functools.wraps(func)
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        before = _is_grad_enabled()
        try:
            set_grad_enabled(self.defaults["differentiable"])
            return func(self, *args, **kwargs)
        finally:
            set_grad_enabled(before)

    return step


def _get_value(x: Any) -> Any:
    """A tensor of one element as a number."""
    return x.item() if isinstance(x, Tensor) else x


def _stack_if_compiling(x: Any) -> Any:
    return x


def _to_scalar(x: Any) -> Any:
    """A tensor of one element without dimensions."""
    return x.squeeze() if isinstance(x, Tensor) and x.dim() != 0 else x


def _disable_dynamo_if_unsupported(single_tensor_fn: Any = None) -> Callable[[Any], Any]:
    """A decorator that changes nothing."""
    return lambda func: func


def _default_to_fused_or_foreach(
    params: list[Tensor], differentiable: bool, use_fused: bool = False
) -> tuple[bool, bool]:
    """Whether PyTorch would choose its fused loop, and whether that over lists of tensors."""
    if differentiable:
        return False, False

    def suit(devices: list[str], of_floats: bool) -> bool:
        return all(
            p.device.type in devices and (p.is_floating_point() or not of_floats)
            for p in params
            if p is not None
        )

    fused = use_fused and suit(_get_fused_kernels_supported_devices(), True)
    return fused, not fused and suit(_get_foreach_kernels_supported_devices(), False)


def _device_dtype_check_for_fused(p: Tensor, cuda_unsupported: bool = False) -> None:
    """RuntimeError for a parameter that PyTorch's fused loops do not take."""
    devices = _get_fused_kernels_supported_devices()
    if cuda_unsupported:
        devices.remove("cuda")
    if p.device.type not in devices or not p.is_floating_point():
        raise RuntimeError(
            "`fused=True` requires all the params to be floating point Tensors of "
            f"supported devices: {devices} but {p.dtype} and {p.device.type}"
        )


def _view_as_real(params: list[Tensor], *state_and_grads: list[Tensor]) -> None:
    """Put views of real numbers where parameters are complex, and beside them, in place."""
    for i, p in enumerate(params):
        if p.is_complex():
            for tensors in (params, *state_and_grads):
                tensors[i] = view_as_real(tensors[i])


def _get_scalar_dtype(is_fused: bool | None = None) -> Any:
    """The type of the tensors that count steps."""
    return float64 if not is_fused and get_default_dtype() is float64 else float32


def _get_capturable_supported_devices(supports_xla: bool = True) -> list[str]:
    return ["cuda"]
