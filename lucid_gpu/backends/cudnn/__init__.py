"""``backends.cudnn``: whether, and how, convolutions on a GPU go through cuDNN.

They do where the packages nvidia-cudnn-frontend and libcudnn are installed (the extras ``cudnn12``
and ``cudnn13``), for float16, bfloat16 and float32; elsewhere they are matrix products by cuBLAS.

Attributes
----------
enabled : bool
benchmark : bool
    Try the first `benchmark_limit` engines of each new shape, and keep the fastest.
deterministic : bool
    Take only engines that give the same bits every time. True unless a program allows others,
    where PyTorch's is False.
allow_tf32 : bool
    Let float32 be rounded to TF32, where ``backends.cuda.matmul.allow_tf32`` says so too.

Examples
--------
>>> import lucid_gpu
>>> with lucid_gpu.backends.cudnn.flags(enabled=False):
...     lucid_gpu.backends.cudnn.enabled
False
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any

from lucid_gpu.devices.cudnn import in_use, library, settings

__all__ = ["flags", "is_acceptable", "is_available", "set_flags", "version"]

if TYPE_CHECKING:
    enabled: bool
    benchmark: bool
    benchmark_limit: int
    deterministic: bool
    allow_tf32: bool


def is_available() -> bool:
    """Whether the packages of cuDNN are installed."""
    return library() is not None


def version() -> int | None:
    """The version of cuDNN, 92800 for 9.28.0; None where it is missing."""
    cudnn = library()
    return None if cudnn is None else int(cudnn.backend_version())


def is_acceptable(tensor: Any) -> bool:
    """Whether convolutions of a tensor go through cuDNN."""
    return tensor.device.type == "cuda" and in_use(tensor.dtype.name)


def set_flags(
    _enabled: bool | None = None,
    _benchmark: bool | None = None,
    _benchmark_limit: int | None = None,
    _deterministic: bool | None = None,
    _allow_tf32: bool | None = None,
) -> tuple[Any, ...]:
    """Change the settings that are given; all earlier ones come back."""
    values = _enabled, _benchmark, _benchmark_limit, _deterministic, _allow_tf32
    earlier = tuple(getattr(settings, name) for name in _ORDER)
    for name, value in zip(_ORDER, values, strict=True):
        if value is not None:
            setattr(settings, name, value)
    return earlier


@contextlib.contextmanager
def flags(
    enabled: bool = False,
    benchmark: bool = False,
    benchmark_limit: int = 10,
    deterministic: bool = True,
    allow_tf32: bool = True,
) -> Iterator[None]:
    """Other settings for a block: all of them, by default without cuDNN."""
    earlier = set_flags(enabled, benchmark, benchmark_limit, deterministic, allow_tf32)
    try:
        yield
    finally:
        set_flags(*earlier)


def _setting(name: str) -> property:
    return property(
        lambda module: getattr(settings, name),
        lambda module, value: setattr(settings, name, value),
    )


_ORDER = ("enabled", "benchmark", "benchmark_limit", "deterministic", "allow_tf32")
_properties = {name: _setting(name) for name in _ORDER}
sys.modules[__name__].__class__ = type("_Settings", (ModuleType,), _properties)
