"""`torch.cpu.amp`: older names of mixed precision on the host, `lucid_gpu.amp` for ``"cpu"``."""

from __future__ import annotations

from lucid_gpu import amp
from lucid_gpu.cuda.amp import OlderGradScaler, deprecated
from lucid_gpu.dtypes import bfloat16, dtype

__all__ = ["GradScaler", "autocast"]


class autocast(amp.autocast):
    """``amp.autocast("cpu", ...)``."""

    def __init__(
        self, enabled: bool = True, dtype: dtype = bfloat16, cache_enabled: bool = True
    ) -> None:
        deprecated("cpu.amp.autocast(args...)", "autocast('cpu', args...)")
        super().__init__("cpu", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)


class GradScaler(OlderGradScaler):
    """``amp.GradScaler("cpu", ...)``."""

    _device_type = "cpu"
