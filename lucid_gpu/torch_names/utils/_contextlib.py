"""`torch.utils._contextlib`: what packages derive modes of their own from."""

from __future__ import annotations

from lucid_gpu.tape.modes import DecoratorContextManager as _DecoratorContextManager

__all__ = ["_DecoratorContextManager"]
