"""Normalisation: one primitive, mean and variance together; the rest is arithmetic that fuses.

``y = (x - mean) * rsqrt(var + eps) * weight + bias`` is elementwise, with whatever follows it.
Going backward, the two sums over a group come from the fused kernels' reductions, and what flows
into mean and variance joins the direct path in the kernel that makes the gradient of x.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from lucid_gpu.ops.record import record
from lucid_gpu.tape.modes import is_grad_enabled, no_grad
from lucid_gpu.tensor import Tensor, from_array

__all__ = ["batch_norm", "layer_norm", "moments"]

SMALL = 1 << 16  # elements up to which a few array operations beat building a kernel


def moments(input: Tensor, dims: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Mean and variance (divided by the count) over some dimensions, which are kept with size 1.

    Parameters
    ----------
    input : Tensor
    dims : sequence of int

    Returns
    -------
    mean, variance : Tensor
    """
    dims = tuple(dims)
    count = prod(input.shape[d] for d in dims)
    mean, variance = _moments(input, dims)

    def vjp(node: Any, g_mean: Tensor, g_variance: Tensor) -> tuple[Tensor]:
        (x,) = node.saved_tensors
        known = from_array(mean, x.dtype, x.device)
        center = x.mean(dims, keepdim=True) if is_grad_enabled() else known
        return ((g_mean + g_variance * 2 * (x - center)) / count,)

    return record("MomentsBackward0", (mean, variance), (input,), vjp, saved=(input,))


def _moments(input: Tensor, dims: tuple[int, ...]) -> tuple[Any, Any]:
    """The arrays of mean and variance."""
    x, narrow = input.array, input.dtype.numpy
    if x.size <= SMALL:
        x = x.astype(input.dtype.compute.numpy, copy=False)
        center = x.mean(axis=dims, keepdims=True)
        x = x - center
        spread = (x * x).mean(axis=dims, keepdims=True)
        return center.astype(narrow, copy=False), spread.astype(narrow, copy=False)
    with no_grad():
        mean = input.mean(dims, keepdim=True)
        return mean.array, (input - mean).square().mean(dims, keepdim=True).array


def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise over the last dimensions, then scale and shift.

    Parameters
    ----------
    input : Tensor, shape (*, *normalized_shape)
    normalized_shape : sequence of int
    weight, bias : Tensor, shape normalized_shape, optional
    eps : float

    Returns
    -------
    Tensor, of input's shape
    """
    shape = tuple(normalized_shape)
    if not shape or tuple(input.shape[-len(shape) :]) != shape:
        raise RuntimeError(
            f"Given normalized_shape={list(shape)}, expected input with shape "
            f"[*{''.join(f', {n}' for n in shape)}], but got input of size{list(input.shape)}"
        )
    for name, t in (("weight", weight), ("bias", bias)):
        if t is not None and tuple(t.shape) != shape:
            raise RuntimeError(
                f"Expected {name} to be of same shape as normalized_shape, but got {name} of shape "
                f"{list(t.shape)} and normalized_shape = {list(shape)}"
            )
    mean, variance = moments(input, range(-len(shape), 0))
    return _affine((input - mean) * (variance + eps).rsqrt(), weight, bias)


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
    """Normalise each channel over the batch, or by running figures when not training.

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
    """
    channels = input.shape[1]
    for name, t in (
        ("running_mean", running_mean),
        ("running_var", running_var),
        ("weight", weight),
        ("bias", bias),
    ):
        if t is not None and t.numel() != channels:
            raise RuntimeError(f"{name} should contain {channels} elements not {t.numel()}")
    if training:
        mean, variance = _batch_moments(input, running_mean, running_var, momentum)
    elif running_mean is None or running_var is None:
        raise RuntimeError(
            "Expected running_mean and running_var to be defined when training=False"
        )
    else:
        mean, variance = _per_channel(running_mean, input), _per_channel(running_var, input)
    scaled = (input - mean) * (variance + eps).rsqrt()
    return _affine(
        scaled,
        None if weight is None else _per_channel(weight, input),
        None if bias is None else _per_channel(bias, input),
    )


def _batch_moments(
    input: Tensor, running_mean: Tensor | None, running_var: Tensor | None, momentum: float
) -> tuple[Tensor, Tensor]:
    count = input.numel() // max(input.shape[1], 1)
    if count == 1:
        raise ValueError(
            f"Expected more than 1 value per channel when training, got input size {input.shape}"
        )
    mean, variance = moments(input, [d for d in range(input.ndim) if d != 1])
    with no_grad():
        for running, now in ((running_mean, mean), (running_var, variance * (count / (count - 1)))):
            if running is not None:
                fresh = now.detach().reshape(-1).to(running.dtype)
                running.mul_(1 - momentum).add_(fresh * momentum)
    return mean, variance


def _per_channel(t: Tensor, input: Tensor) -> Tensor:
    return t.reshape(1, -1, *[1] * (input.ndim - 2))


def _affine(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    if weight is not None:
        x = x * weight
    return x if bias is None else x + bias
