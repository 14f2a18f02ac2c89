"""Normalization over the batch.

``y = (x - mean) * rstd * weight + bias`` is elementwise and stays pending: it fuses with what
follows. In training its node stands at that boundary, so a gradient that arrives pending is read by
one kernel for both of its sums over a channel, and by one more for the gradient of x: with
``x' = (x - mean) rstd`` and averages over a channel,

    gx = rstd weight (g - average(g) - x' average(g x'))

(Ioffe and Szegedy, "Batch Normalization", 2015).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from lucid_gpu import dtypes as dt
from lucid_gpu.core.program import WRAPPED
from lucid_gpu.devices.copies import duplicate
from lucid_gpu.kernels.batch_norm import statistics
from lucid_gpu.ops.arguments import require_one_device, require_parameter_types, require_tensor
from lucid_gpu.ops.elementwise import cast
from lucid_gpu.ops.in_place import writable
from lucid_gpu.ops.memory_formats import dense_channels_order, lying
from lucid_gpu.ops.normalization import moments
from lucid_gpu.ops.record import keeps, record
from lucid_gpu.tape.door import op
from lucid_gpu.tape.levels import innermost, open_levels
from lucid_gpu.tape.modes import is_grad_enabled, no_grad
from lucid_gpu.tape.rules import Batch, batching
from lucid_gpu.tensor import Tensor, from_array

__all__ = ["batch_norm"]


def require_channels(channels: int, **tensors: Tensor | None) -> None:
    """Refuse weights and running figures of another number of elements."""
    for name, t in tensors.items():
        if t is not None and math.prod(t._expr.shape) != channels:
            raise RuntimeError(f"{name} should contain {channels} elements not {t.numel()}")


@op
@lying("input", rule=dense_channels_order, back=True)
def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalize each channel over the batch, or by running figures when not training.

    Parameters
    ----------
    input : Tensor, shape (n, c) or (n, c, *)
    running_mean, running_var : Tensor, shape (c,), optional
        Changed in place in training: ``(1 - momentum) * running + momentum * batch``, with the
        unbiased variance.
    weight, bias : Tensor, shape (c,), optional
    training : bool
    momentum, eps : float

    Returns
    -------
    Tensor, of input's shape

    Raises
    ------
    RuntimeError
        For parameters of another size, and without running figures when not training.
    ValueError
        For a single value a channel in training; for ``eps`` below zero, and for zero in training.
    IndexError, NotImplementedError
        For an input of fewer than two dimensions, or of integers.
    """
    require_tensor("batch_norm", "input", 1, input)
    size, d = input._expr.shape, input._expr.program.dtype
    if len(size) < 2:
        raise IndexError(
            f"batch_norm takes an input of shape (n, c) or (n, c, *); got {list(size)}"
        )
    empty = 0 in size
    if not (empty or d.category == 2):
        raise dt.unimplemented("batch_norm", d)
    require_one_device("batch_norm", input, running_mean, running_var, weight, bias)
    if eps <= 0.0 and (training or eps < 0):
        least = "positive during training" if training else "non-negative"
        raise ValueError(f"batch_norm eps must be {least}, but got {eps}")
    channels = size[1]
    require_channels(
        channels, running_mean=running_mean, running_var=running_var, weight=weight, bias=bias
    )
    if empty and d.category != 2:
        return input.clone()
    for t in (running_mean, running_var, weight, bias):
        if t is not None and t._expr.program.dtype is not d:
            require_parameter_types(d, (t.dtype,))
    if training:
        if math.prod(size) // max(channels, 1) == 1:
            raise ValueError(
                "Expected more than 1 value per channel when training, got input size "
                f"{input.shape}"
            )
        tensors = [t for t in (input, running_mean, running_var, weight, bias) if t is not None]
        if not (empty or (open_levels and innermost(tensors) is not None)):
            return _trained(input, running_mean, running_var, weight, bias, momentum, eps)
        if empty:  # nothing has no figures, and moves none
            return _normalized(input, input.new_zeros(()), input.new_ones(()), weight, bias)
        mean, variance = moments(input, _all_but_channels(input))
        _follow((running_mean, running_var), (mean, variance), input, momentum)
    elif running_mean is None or running_var is None:
        which = "running_mean" if running_mean is None else "running_var"
        raise RuntimeError(f"{which} must be defined in evaluation mode")
    else:
        return _followed(input, running_mean, running_var, weight, bias, eps)
    return _normalized(input, mean, (variance + eps).rsqrt(), weight, bias)


@batching(batch_norm)
def _batch_norm_batched(level: Batch, f: Any, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    named = dict(zip(("running_mean", "running_var", "weight", "bias", "training"), args))
    named.update(kwargs)
    running = [named.get("running_mean"), named.get("running_var")]
    if named.get("training") and any(r is not None and not level.holds(r) for r in running):
        raise RuntimeError(
            "vmap: batch_norm would update running_mean and running_var, which are not vmapped "
            "over, in place with the figures of a batched tensor. Please use layer_norm, use "
            "BatchNorm with track_running_stats=False, or vmap over the running figures too."
        )
    return NotImplemented


def _all_but_channels(input: Tensor) -> tuple[int, ...]:
    return (0, *range(2, len(input._expr.shape)))


def _per_channel(t: Tensor, input: Tensor) -> Tensor:
    """The channels' numbers along the dimensions of the input."""
    return _shaped(t, (1, -1, *[1] * (len(input._expr.shape) - 2)))


def _shaped(t: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A view, or on the host where nothing is recorded a copy, which takes a third of its time."""
    program = t._expr.program
    if is_grad_enabled() or t._wrapper is not None or program.device.type != "cpu":
        return t.reshape(shape)
    return from_array(duplicate(t.array).reshape(shape), program.dtype, program.device)


def _normalized(
    x: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor | None, bias: Tensor | None
) -> Tensor:
    y = (x - mean) * rstd
    if weight is not None:
        y = y * _per_channel(weight, x)
    return cast(y if bias is None else y + _per_channel(bias, x), x.dtype)


def _followed(
    x: Tensor,
    mean: Tensor,
    variance: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
) -> Tensor:
    """By running figures: a factor and a summand for each channel, computed once."""
    wide = dt.promote_types(x.dtype, mean.dtype).compute
    factor = (cast(variance, wide) + eps).rsqrt()
    if weight is not None:
        factor = factor * weight
    summand = -mean * factor if bias is None else bias - mean * factor
    if not (open_levels and innermost([x, factor, summand]) is not None):
        assert factor.array is not None and summand.array is not None  # not for each element
    result = x * _per_channel(factor, x) + _per_channel(summand, x)
    return keeps(cast(result, x.dtype), x)


def _follow(
    running: Sequence[Tensor | None], figures: Sequence[Tensor], input: Tensor, momentum: float
) -> None:
    """Let running figures follow the batch's mean and variance."""
    count = input.numel() // input.shape[1]
    mean, variance = figures
    with no_grad():
        for old, now in zip(running, (mean, variance * (count / (count - 1))), strict=True):
            if old is not None:
                fresh = now.detach().reshape(-1).to(old.dtype)
                old.mul_(1 - momentum).add_(fresh * momentum)


def _trained(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    momentum: float,
    eps: float,
) -> Tensor:
    x, where = input.array, input.device
    running, wide = (running_mean, running_var), input.dtype.compute
    shape = (1, -1, *[1] * (x.ndim - 2))
    dense = [t for t in running if t is not None and t.is_contiguous()]
    buffers = dict(zip(map(id, dense), writable(dense, "batch_norm"), strict=True))
    written = [buffers.get(id(t)) for t in running]
    figures = statistics(x, where, written[0], written[1], momentum)
    with no_grad():
        mean, variance = [from_array(a.reshape(shape), wide, where) for a in figures]
        rstd = (variance + eps).rsqrt()
        y = _normalized(input, mean, rstd, weight, bias)
    rest = [t if a is None else None for t, a in zip(running, written, strict=True)]
    if rest[0] is not None or rest[1] is not None:
        _follow(rest, (mean, variance), input, momentum)
    inputs = [t for t in (input, weight, bias) if t is not None]
    result: Tensor = record(
        "NativeBatchNormBackward0", y, inputs, _trained_vjp, (input, weight),
        mean=mean, rstd=rstd, eps=eps, bias_type=None if bias is None else bias.dtype,
    )  # fmt: skip
    return result


def _trained_vjp(node: Any, g: Tensor) -> tuple[Tensor | None, ...]:
    x, weight = node.saved_values
    dims, wide = _all_but_channels(x), x.dtype.compute
    g = cast(g, wide)
    by_ops = is_grad_enabled() or g._expr.program.marks & WRAPPED  # that have gradients themselves
    if by_ops:
        mean, variance = moments(cast(x, wide), dims)
        rstd = (variance + node.eps).rsqrt()
    else:
        mean, rstd = node.mean, node.rstd
    apart = x - mean
    total, product = g.sum(dims, keepdim=True), (g * apart).sum(dims, keepdim=True)
    if not by_ops:  # both now, by one kernel: a consumer of one would leave the other behind
        assert total.array is not None
    count = x.numel() // x.shape[1]
    scale = rstd if weight is None else rstd * _per_channel(weight, x)
    gx = (g - total / count - apart * (rstd * rstd * product / count)) * scale
    gradients: list[Tensor | None] = [cast(gx, x.dtype)]
    if weight is not None:
        gradients.append(cast(_shaped(product * rstd, (-1,)), weight.dtype))
    if node.bias_type is not None:
        gradients.append(cast(_shaped(total, (-1,)), node.bias_type))
    return tuple(gradients)
