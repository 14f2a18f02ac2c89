"""`torch._custom_ops`: where PyTorch had `torch.library.get_ctx` first."""

from __future__ import annotations

from .library import get_ctx

__all__ = ["get_ctx"]
