"""What autocast does in a thread, kind of device by kind of device."""

from __future__ import annotations

import threading
import warnings
from typing import Any

from lucid_gpu.dtypes import bfloat16, dtype, float16, float32
from lucid_gpu.tape.door import type_name
from lucid_gpu.tape.modes import state as modes
from lucid_gpu.tensor import Tensor

__all__ = [
    "clear_autocast_cache",
    "get_autocast_cpu_dtype",
    "get_autocast_dtype",
    "get_autocast_gpu_dtype",
    "is_autocast_cache_enabled",
    "is_autocast_cpu_enabled",
    "is_autocast_enabled",
    "set_autocast_cache_enabled",
    "set_autocast_dtype",
    "state",
]

KINDS = ("cpu", "cuda")


class _State(threading.local):
    """One thread's settings.

    Attributes
    ----------
    enabled : dict of str to bool
    dtype : dict of str to dtype
        The 16-bit type of each kind of device.
    nesting : int
        How many `autocast` blocks are open.
    cached : dict or None
        Parameters in 16 bits, for as long as the outermost block is open.
    """

    def __init__(self) -> None:
        self.enabled = dict.fromkeys(KINDS, False)
        self.dtype: dict[str, dtype] = {"cpu": bfloat16, "cuda": float16}
        self.nesting = 0
        self.cache_enabled = True
        self.cached: dict[Any, tuple[Tensor, int, Tensor]] = {}


state = _State()


_OTHER_KINDS = frozenset(("hpu", "ipu", "maia", "mps", "mtia", "privateuseone", "xla", "xpu"))


def checked(device_type: str) -> str:
    """The kind of device, or PyTorch's error."""
    if device_type not in KINDS:
        raise RuntimeError(f"unknown device type for autocast in get_autocast_dtype: {device_type}")
    return device_type


def is_autocast_enabled(device_type: str = "cuda") -> bool:
    """Whether ops on such a device are cast now; on one that PyTorch alone knows they are not."""
    if device_type in _OTHER_KINDS:
        return False
    return state.enabled[checked(device_type)]


def get_autocast_dtype(device_type: str) -> dtype:
    """The type that ops on such a device compute in."""
    return state.dtype[checked(device_type)]


def set_autocast_dtype(device_type: str, dtype: dtype) -> None:
    """Say which type ops on such a device compute in."""
    state.dtype[checked(device_type)] = dtype


def get_autocast_gpu_dtype() -> dtype:
    """`get_autocast_dtype("cuda")` under its first name, with a warning."""
    _warn_of_first_name("get_autocast_gpu_dtype()", "get_autocast_dtype('cuda')")
    return get_autocast_dtype("cuda")


def get_autocast_cpu_dtype() -> dtype:
    """`get_autocast_dtype("cpu")` under its first name, with a warning."""
    _warn_of_first_name("get_autocast_cpu_dtype()", "get_autocast_dtype('cpu')")
    return get_autocast_dtype("cpu")


def is_autocast_cpu_enabled() -> bool:
    """`is_autocast_enabled("cpu")` under its first name, with a warning."""
    _warn_of_first_name("is_autocast_cpu_enabled()", "is_autocast_enabled('cpu')")
    return is_autocast_enabled("cpu")


def _warn_of_first_name(name: str, now: str) -> None:
    warnings.warn(
        f"torch.{name} is deprecated. Please use torch.{now} instead.",
        DeprecationWarning,
        stacklevel=3,
    )


def is_autocast_cache_enabled() -> bool:
    """Whether a parameter is cast once for a whole block."""
    return state.cache_enabled


def set_autocast_cache_enabled(enabled: bool) -> None:
    """Cast parameters once for a whole block, or for each op; TypeError for no bool."""
    if type(enabled) is not bool:
        raise TypeError(f"enabled must be a bool (got {type_name(enabled)})")
    state.cache_enabled = enabled


def clear_autocast_cache() -> None:
    """Forget the parameters that were cast."""
    state.cached.clear()


def cast(value: Any, to: dtype, device_type: str) -> Any:
    """Floating point tensors on such a device as another type, also inside lists and tuples.

    Those of float64 stay. A parameter is cast once, until it is written.
    """
    if isinstance(value, (list, tuple)):
        parts = [cast(v, to, device_type) for v in value]
        return parts if isinstance(value, list) else tuple(parts)
    if not eligible(value, device_type) or value.dtype is to:
        return value
    if not (
        state.cache_enabled
        and state.nesting
        and to is not float32
        and value.requires_grad
        and value.is_leaf
    ):
        return value.to(to)
    key = (id(value), to, modes.grad)
    entry = state.cached.get(key)
    if entry is None or entry[1] != value._version:
        entry = state.cached[key] = (value, value._version, value.to(to))
    return entry[2]


def eligible(value: Any, device_type: str) -> bool:
    """Whether autocast may cast a value."""
    return (
        isinstance(value, Tensor)
        and value.dtype.is_floating_point
        and value.dtype.itemsize <= 4
        and value.device.type == device_type
    )
