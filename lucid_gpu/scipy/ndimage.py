"""`scipy.ndimage` with derivatives."""

from __future__ import annotations

from lucid_gpu.scipy.rows import others

__all__: list[str] = []

__getattr__ = others("ndimage", globals())
