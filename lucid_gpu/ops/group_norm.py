"""Normalization within a sample: over groups of channels, single channels, neighbors, a dimension.

Groups are rows of `layer_norm`; what scales and shifts channels fuses with what follows.
"""

from __future__ import annotations

from math import prod
from typing import Any

from lucid_gpu.ops import reductions
from lucid_gpu.ops.arguments import (
    as_float,
    in_float32,
    into,
    require_one_device,
    require_parameter_types,
    require_tensor,
)
from lucid_gpu.ops.batch_norm import _per_channel, batch_norm, require_channels
from lucid_gpu.ops.elementwise import _clamp_min, cast
from lucid_gpu.ops.layer_norm import _normalized_groups
from lucid_gpu.ops.laying import lay
from lucid_gpu.ops.memory_formats import channels_order, led_in, lying, row_major_order
from lucid_gpu.ops.padding import pad
from lucid_gpu.ops.pooling import avg_pool2d
from lucid_gpu.ops.record import keeps, unsaved
from lucid_gpu.ops.shape import owned
from lucid_gpu.tape.door import op
from lucid_gpu.tape.modes import no_grad
from lucid_gpu.tensor import Tensor

__all__ = ["group_norm", "instance_norm", "local_response_norm", "normalize"]


@op(autocast={"cuda": "float32"})
@owned
def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalize each sample's groups of channels, then scale and shift each channel.

    Wu and He, "Group Normalization" (2018).

    Parameters
    ----------
    input : Tensor, shape (n, c, *)
    num_groups : int
        A divisor of c.
    weight, bias : Tensor, shape (c,), optional
    eps : float

    Returns
    -------
    Tensor, of input's shape and dtype; 16-bit floats are computed in float32

    Raises
    ------
    RuntimeError
        For a ``num_groups`` that does not divide c, and parameters of another shape.
    ValueError
        For groups of one element.
    """
    require_tensor("group_norm", "input", 1, input)
    require_one_device("group_norm", input, weight, bias)
    shape, d = input._expr.shape, input._expr.program.dtype
    if len(shape) < 2:
        raise RuntimeError(
            f"Expected at least 2 dimensions for input tensor but received {len(shape)}"
        )
    if type(eps) is not float:
        eps = as_float("group_norm", "eps", 5, eps)
    groups, elements = shape[0] * num_groups, prod(shape)
    if elements and elements // num_groups == 1:
        raise ValueError(
            f"Expected more than 1 value per channel when training, got input size {list(shape)}"
        )
    if shape[1] % num_groups:
        raise RuntimeError(
            "Expected number of channels in input to be divisible by num_groups, but got input of "
            f"shape {list(shape)} and num_groups={num_groups}"
        )
    for role, t in (("weight", weight), ("bias", bias)):
        if t is not None and t._expr.shape != shape[1:2]:
            raise RuntimeError(
                f"Expected {role} to be a vector of size equal to the number of channels in input, "
                f"but got {role} of shape {list(t.shape)} and input of shape {list(shape)}"
            )
    for t in (weight, bias):
        if t is not None and t._expr.program.dtype is not d:
            require_parameter_types(d, (t.dtype,))
    wide = input if d.compute is d or d.category != 2 else input.to(d.compute)
    normal = wide
    if elements:
        order = channels_order(input)
        normal = lay(_normalized_groups(led_in(wide, order), groups, eps), order)
    result = _scaled(normal, weight, bias)
    result = cast(result, d)
    return result if wide is input else keeps(result, input)


def _scaled(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    if weight is not None:
        x = x * _per_channel(weight, x)
    return x if bias is None else x + _per_channel(bias, x)


@op
@lying(rule=row_major_order)
def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalize each channel of each sample.

    Ulyanov et al., "Instance Normalization" (2016).

    Parameters
    ----------
    input : Tensor, shape (n, c, *)
    running_mean, running_var : Tensor, shape (c,), optional
        Follow the means over the samples, as in `batch_norm`; without ``use_input_stats`` they
        normalize.
    weight, bias : Tensor, shape (c,), optional
    use_input_stats : bool
    momentum, eps : float

    Returns
    -------
    Tensor, of input's shape and dtype

    Raises
    ------
    ValueError
        For a single element per channel.
    RuntimeError
        Without running figures where they are to normalize.
    """
    require_tensor("instance_norm", "input", 1, input)
    if type(eps) is not float:
        eps = as_float("instance_norm", "eps", 8, eps)
    if not use_input_stats:
        if running_mean is None or running_var is None:
            raise RuntimeError(
                "Expected running_mean and running_var to be defined when use_input_stats is false"
            )
        return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    window = tuple(range(2, input.ndim))
    if input.ndim < 3 or prod(input.shape[2:]) == 1:
        raise ValueError(
            f"Expected more than 1 spatial element when training, got input size {input.shape}"
        )
    require_channels(input.shape[1], running_mean=running_mean, running_var=running_var)
    followers = [t.dtype for t in (running_mean, running_var) if t is not None]
    require_parameter_types(input.dtype, followers)
    scale = None if weight is None else unsaved(weight)  # PyTorch repeats it
    if eps == 0 and input.numel():
        result = _by_deviation(input, window, scale, bias)
    else:
        rows = input.contiguous()  # also its gradient lies row by row
        result = group_norm(rows, max(input.shape[1], 1), scale, bias, eps)
    if not input.numel():  # nothing has no figures, and moves none
        return result
    with no_grad():
        for running, figure in ((running_mean, reductions.mean), (running_var, reductions.var)):
            if running is not None:
                now = figure(input.detach().to(running.dtype), window).mean(0)
                running.mul_(1 - momentum).add_(now * momentum)
    return result


def _by_deviation(
    input: Tensor, window: tuple[int, ...], weight: Tensor | None, bias: Tensor | None
) -> Tensor:
    """`instance_norm` without an ``eps``: of a channel without deviation it makes zeros."""
    ones = [1] * len(window)
    wide = input.float() if input.dtype.itemsize < 4 else input
    centered = wide - wide.mean(window, True)
    variance = centered.square().mean(window, True)
    constant = variance == 0
    result = centered * variance.masked_fill(constant, 1.0).rsqrt().masked_fill(constant, 0.0)
    result = result if weight is None else result * weight.reshape(-1, *ones)
    return (result if bias is None else result + bias.reshape(-1, *ones)).to(input.dtype)


@op
@in_float32
def local_response_norm(
    input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Tensor:
    """``x / (k + alpha * mean(x^2))^beta``, the mean over ``size`` neighboring channels.

    Krizhevsky et al., "ImageNet Classification with Deep Convolutional Neural Networks" (2012).

    Parameters
    ----------
    input : Tensor, shape (n, c, *)
        Of at least 3 dimensions, else ValueError.
    size : int
        Channels beyond the first and last count as zero.
    alpha, beta, k : float
    """
    require_tensor("local_response_norm", "input", 1, input)
    if input.ndim < 3:
        raise ValueError(
            f"Expected 3D or higher dimensionality                          input (got {input.ndim}"
            " dimensions)"
        )
    if not input.numel():
        return input
    squares = input.square().reshape(input.shape[0], 1, input.shape[1], -1)
    around = pad(squares, (0, 0, size // 2, (size - 1) // 2))
    means = avg_pool2d(around, (size, 1), stride=1).reshape(input.shape)
    return input / (means * alpha + k) ** beta


@in_float32
def cross_map_norm(input: Tensor, size: int, alpha: float, beta: float, k: float) -> Tensor:
    """`local_response_norm` with the windows of PyTorch's CrossMapLRN2d; it takes 4 dimensions."""
    if input.ndim != 4:
        raise ValueError(f"CrossMapLRN2d: Expected input to be 4D, got {input.ndim}D instead.")
    channels, reach = input.shape[1], int((size - 1) / 2 + 1)
    rows = [[float(c < reach) for c in range(channels)]]
    for c in range(1, channels):
        rows.append(rows[-1][:])
        if c < channels - reach + 1:
            rows[c][c + reach - 1] += 1.0
        if c > reach:  # not from `reach` on: the first channel stays in every window
            rows[c][c - reach] -= 1.0
    windows = input.new_tensor(rows)
    sums = (windows @ input.square().flatten(2)).reshape(input.shape)
    return input / (sums * (alpha / size) + k) ** beta


@op(autocast={"cuda": "float32"})
def normalize(
    input: Tensor, p: float = 2.0, dim: Any = 1, eps: float = 1e-12, out: Tensor | None = None
) -> Tensor:
    """``x / max(norm(x, p), eps)``, the norm over ``dim``.

    Parameters
    ----------
    input : Tensor, any shape
    p : float
    dim : int or tuple of int
    eps : float
    out : Tensor, optional
    """
    require_tensor("normalize", "input", 1, input)
    d = input._expr.program.dtype
    # norms of 16-bit floats may be out of their range
    wide = input if d.compute is d else input.to(d.compute)
    result = wide / _clamp_min(reductions._norm(wide, p, dim, True), eps)
    result = result if d.compute is d else result.to(d)
    return result if out is None else into(result, out, "normalize")
