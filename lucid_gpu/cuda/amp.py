"""The older names of mixed precision on GPUs: `lucid_gpu.amp` with ``"cuda"`` said already."""

from __future__ import annotations

import functools
import os
import warnings
from typing import Any

from lucid_gpu import amp
from lucid_gpu.dtypes import dtype, float16

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]

__path__ = [  # `cuda.amp.grad_scaler`
    os.path.join(os.path.dirname(os.path.dirname(__file__)), "torch_names", "cuda", "amp")
]


def deprecated(name: str, instead: str) -> None:
    """Warn the user, who called our caller, of an older name."""
    warnings.warn(
        f"`lucid_gpu.{name}` is deprecated. Please use `lucid_gpu.amp.{instead}` instead.",
        FutureWarning,
        stacklevel=3,
    )


class autocast(amp.autocast):
    """``amp.autocast("cuda", ...)``."""

    def __init__(
        self, enabled: bool = True, dtype: dtype = float16, cache_enabled: bool = True
    ) -> None:
        deprecated("cuda.amp.autocast(args...)", "autocast('cuda', args...)")
        super().__init__("cuda", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)


class OlderGradScaler(amp.GradScaler):
    """``amp.GradScaler`` of a device that the name says already."""

    _device_type: str

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        kind = self._device_type
        deprecated(f"{kind}.amp.GradScaler(args...)", f"GradScaler('{kind}', args...)")
        super().__init__(kind, init_scale, growth_factor, backoff_factor, growth_interval, enabled)


class GradScaler(OlderGradScaler):
    """``amp.GradScaler("cuda", ...)``."""

    _device_type = "cuda"


def custom_fwd(fwd: Any = None, *, cast_inputs: dtype | None = None) -> Any:
    """``amp.custom_fwd(..., device_type="cuda")``."""
    deprecated("cuda.amp.custom_fwd(args...)", "custom_fwd(args..., device_type='cuda')")
    return functools.partial(amp.custom_fwd, device_type="cuda")(fwd, cast_inputs=cast_inputs)


def custom_bwd(bwd: Any = None) -> Any:
    """``amp.custom_bwd(..., device_type="cuda")``."""
    deprecated("cuda.amp.custom_bwd(args...)", "custom_bwd(args..., device_type='cuda')")
    return amp.custom_bwd(bwd, device_type="cuda")
