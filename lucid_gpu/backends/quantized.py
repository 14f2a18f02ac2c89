"""``backends.quantized``: libraries of quantized ops, of which there are none."""

from __future__ import annotations

__all__ = ["engine", "supported_engines"]

engine = "none"
supported_engines = ["none"]
