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

__all__ = ["layer_norm", "moments"]

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


def _affine(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    if weight is not None:
        x = x * weight
    return x if bias is None else x + bias
