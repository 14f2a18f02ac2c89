"""Filters of convolutions in another order in memory; their values stay."""

from __future__ import annotations

from typing import Any, TypeVar

from lucid_gpu.nn.modules.conv import Conv2d, Conv3d, ConvTranspose2d, ConvTranspose3d
from lucid_gpu.nn.modules.module import Module

__all__ = ["convert_conv2d_weight_memory_format", "convert_conv3d_weight_memory_format"]

_M = TypeVar("_M", bound=Module)


def _converted(module: _M, kinds: Any, memory_format: Any) -> _M:
    for each in module.modules():
        if isinstance(each, kinds):
            weight = each.weight.detach().clone()
            each.weight.data = weight.contiguous(memory_format=memory_format)
    return module


def convert_conv2d_weight_memory_format(module: _M, memory_format: Any) -> _M:
    """Lay out the filters of convolutions of images, transposed ones too; returns the module.

    RuntimeError for a format that filters of their shape cannot have.
    """
    return _converted(module, (Conv2d, ConvTranspose2d), memory_format)


def convert_conv3d_weight_memory_format(module: _M, memory_format: Any) -> _M:
    """Lay out the filters of convolutions of volumes, transposed ones too; returns the module.

    RuntimeError for a format that filters of their shape cannot have.
    """
    return _converted(module, (Conv3d, ConvTranspose3d), memory_format)
