"""`torch.ao.nn`: `quantized`, `qat` and `intrinsic` for code that imports them."""

from __future__ import annotations

from . import intrinsic, qat, quantized

__all__ = ["intrinsic", "qat", "quantized"]
