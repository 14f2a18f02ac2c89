"""`torch.utils._device`: default devices of blocks, as packages call PyTorch's file."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from lucid_gpu.device import CPU, default_devices, device

__all__ = ["DeviceContext", "device_decorator", "set_device"]


class DeviceContext:
    """A block whose new tensors are on a device unless another is passed.

    Parameters
    ----------
    device : device, str or int
    """

    def __init__(self, device: Any) -> None:
        self.device = _as_device(device)

    def __enter__(self) -> None:
        self.device.__enter__()

    def __exit__(self, *error: Any) -> None:
        self.device.__exit__(*error)


def __getattr__(name: str) -> Any:
    if name == "CURRENT_DEVICE":
        return None if default_devices[-1] is CPU else default_devices[-1]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def device_decorator(device: Any, func: Callable[..., Any]) -> Callable[..., Any]:
    """The function, run in a block of a device."""

    @functools.wraps(func)
    def inside(*args: Any, **kwargs: Any) -> Any:
        with DeviceContext(device):
            return func(*args, **kwargs)

    return inside


def set_device(device: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator of functions that run in a block of a device."""
    return functools.partial(device_decorator, _as_device(device))


_as_device = device
