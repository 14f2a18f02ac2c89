"""`torch._C`: the few names of PyTorch's C++ module that packages call."""

from __future__ import annotations

from typing import Any

from lucid_gpu import Generator, Size, Tensor, device, dtype, layout, memory_format
from lucid_gpu.tape.modes import is_grad_enabled

__all__ = [
    "Generator",
    "Size",
    "_get_tracing_state",
    "_log_api_usage_once",
    "device",
    "dtype",
    "is_grad_enabled",
    "layout",
    "memory_format",
]

TensorBase = _TensorBase = Tensor


def _get_tracing_state() -> None:
    """What a tracer is doing: there is none."""


def _log_api_usage_once(event: str) -> None:
    """Do nothing: nobody counts."""


def _disabled_torch_function_impl(
    func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
) -> Any:
    """Call the function."""
    return func(*args, **(kwargs or {}))


class DisableTorchFunctionSubclass:
    """A ``with`` during which ops ask no ``__torch_function__``: they never do."""

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, *error: object) -> None:
        """Do nothing."""


DisableTorchFunction = DisableTorchFunctionSubclass


def _cuda_getDeviceCount() -> int:
    """How many GPUs there are."""
    from lucid_gpu.cuda import device_count

    return device_count()


def _jit_set_profiling_executor(enabled: bool) -> bool:
    """Set nothing."""
    return False


_jit_set_profiling_mode = _jit_set_profiling_executor


def _assert(condition: object, message: str) -> None:
    """Raise an AssertionError where a condition does not hold."""
    assert condition, message
