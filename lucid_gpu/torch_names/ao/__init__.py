"""`torch.ao`: `quantization`, for code that imports it."""

from __future__ import annotations

from . import quantization

__all__ = ["quantization"]
