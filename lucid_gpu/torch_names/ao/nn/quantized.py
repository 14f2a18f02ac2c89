"""`torch.ao.nn.quantized`: what `torch.nn.quantized` holds."""

from __future__ import annotations

from lucid_gpu.torch_names.nn.quantized import BatchNorm2d

__all__ = ["BatchNorm2d"]
