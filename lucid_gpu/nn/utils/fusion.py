"""Batch normalization in evaluation as part of the layer before it."""

from __future__ import annotations

import copy
from typing import Any

from lucid_gpu.nn.parameter import Parameter
from lucid_gpu.ops.creation import ones_like, zeros_like
from lucid_gpu.tensor import Tensor

__all__ = [
    "fuse_conv_bn_eval",
    "fuse_conv_bn_weights",
    "fuse_linear_bn_eval",
    "fuse_linear_bn_weights",
]


def fuse_conv_bn_weights(
    conv_w: Tensor,
    conv_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
    transpose: bool = False,
) -> tuple[Parameter, Parameter]:
    """Weight and bias of a convolution that does what it and a batch norm do in evaluation.

    Parameters
    ----------
    conv_w, conv_b : Tensor, shapes (out, in, *window), (out,)
        With ``transpose`` (in, out, *window).
    bn_rm, bn_rv : Tensor, shape (out,)
        The running mean and variance.
    bn_eps : float
    bn_w, bn_b : Tensor, shape (out,)
        None for ones and zeros, as ``conv_b``.
    transpose : bool
        Of a transposed convolution.
    """
    bias = zeros_like(bn_rm) if conv_b is None else conv_b
    weight = ones_like(bn_rm) if bn_w is None else bn_w
    shift = zeros_like(bn_rm) if bn_b is None else bn_b
    scale = weight * (bn_rv + bn_eps).rsqrt()
    shape = [1] * conv_w.ndim
    shape[1 if transpose else 0] = -1
    fused = (conv_w * scale.reshape(shape)).to(conv_w.dtype)
    moved = ((bias - bn_rm) * scale + shift).to(conv_w.dtype if conv_b is None else conv_b.dtype)
    return (
        Parameter(fused.detach(), conv_w.requires_grad),
        Parameter(moved.detach(), bias.requires_grad),
    )


def fuse_linear_bn_weights(
    linear_w: Tensor,
    linear_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
) -> tuple[Parameter, Parameter]:
    """As `fuse_conv_bn_weights`, of a linear layer: ``linear_w`` has shape (out, in)."""
    return fuse_conv_bn_weights(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b)


def _fused(layer: Any, bn: Any, transpose: bool) -> Any:
    if layer.training or bn.training:
        raise AssertionError("Fusion only for eval!")
    fused = copy.deepcopy(layer)
    norm = bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias
    weight, bias = fuse_conv_bn_weights(layer.weight, layer.bias, *norm, transpose)
    fused.weight, fused.bias = weight, bias
    return fused


def fuse_conv_bn_eval(conv: Any, bn: Any, transpose: bool = False) -> Any:
    """Merge a convolution and a batch norm into one convolution, for evaluation.

    AssertionError while one of them is in training.
    """
    return _fused(conv, bn, transpose)


def fuse_linear_bn_eval(linear: Any, bn: Any) -> Any:
    """One linear layer that does what a linear layer and a batch norm do in evaluation.

    AssertionError while one of them is in training.
    """
    return _fused(linear, bn, False)
