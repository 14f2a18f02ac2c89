"""`torch._tensor`: where `Tensor` lives in PyTorch."""

from __future__ import annotations

from lucid_gpu.tensor import Tensor

__all__ = ["Tensor"]
