"""Batch normalisation in evaluation as part of the layer before it."""

from __future__ import annotations

import copy
from typing import Any

from lucid_gpu.nn.parameter import Parameter
from lucid_gpu.ops.creation import ones_like, zeros_like

__all__ = ["fuse_conv_bn_eval", "fuse_linear_bn_eval"]


def _fused(layer: Any, bn: Any, channels: int) -> Any:
    if layer.training or bn.training:
        raise AssertionError("Fusion only for eval!")
    fused = copy.deepcopy(layer)
    weight = ones_like(bn.running_mean) if bn.weight is None else bn.weight
    shift = zeros_like(bn.running_mean) if bn.bias is None else bn.bias
    bias = zeros_like(bn.running_mean) if layer.bias is None else layer.bias
    scale = weight * (bn.running_var + bn.eps).rsqrt()
    shape = [1] * layer.weight.ndim
    shape[channels] = -1
    fused.weight = Parameter((layer.weight * scale.reshape(shape)).detach())
    fused.bias = Parameter(((bias - bn.running_mean) * scale + shift).detach())
    return fused


def fuse_conv_bn_eval(conv: Any, bn: Any, transpose: bool = False) -> Any:
    """One convolution that does what a convolution and a batch norm do in evaluation."""
    return _fused(conv, bn, 1 if transpose else 0)


def fuse_linear_bn_eval(linear: Any, bn: Any) -> Any:
    """One linear layer that does what a linear layer and a batch norm do in evaluation."""
    return _fused(linear, bn, 0)
