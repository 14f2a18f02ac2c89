"""`torch._compile`: how PyTorch marks functions that its compiler leaves out; there is none."""

from __future__ import annotations

from lucid_gpu.compiler import disable as _disable_dynamo

__all__ = ["_disable_dynamo"]
