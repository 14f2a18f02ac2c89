"""Mean and variance together, as one primitive; what is made of them fuses.

Going backward, what flows into mean and variance joins the direct path in the kernel that makes the
gradient of x.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from lucid_gpu.devices import backend
from lucid_gpu.dtypes import dtype
from lucid_gpu.ops.record import record
from lucid_gpu.ops.reductions import normalize_dim
from lucid_gpu.tape.door import op
from lucid_gpu.tape.modes import is_grad_enabled, no_grad
from lucid_gpu.tape.rules import Batch, batching
from lucid_gpu.tensor import Tensor, from_array

__all__ = ["moments"]

SMALL = 1 << 16  # elements up to which a few array operations beat building a kernel


@op
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
        (x,) = node.saved_values
        known = from_array(mean, x.dtype, x.device)
        center = x.mean(dims, keepdim=True) if is_grad_enabled() else known
        return ((g_mean + g_variance * 2 * (x - center)) / count,)

    return record("MomentsBackward0", (mean, variance), (input,), vjp, saved=(input,))


@batching(moments)
def _moments_batched(level: Batch, f: Any, x: Tensor, dims: Sequence[int]) -> Any:
    return level.wrap_all(f(level.value(x), [normalize_dim(d, x.ndim) + 1 for d in dims]))


def _moments(input: Tensor, dims: tuple[int, ...]) -> tuple[Any, Any]:
    """The arrays of mean and variance."""
    x, d = input.array, input.dtype
    if x.size <= SMALL:
        made: tuple[Any, Any] = backend(input.device).call("moments", _moments_at_once, x, dims, d)
        return made
    with no_grad():
        mean = input.mean(dims, keepdim=True)
        return mean.array, (input - mean).square().mean(dims, keepdim=True).array


def _moments_at_once(x: Any, dims: tuple[int, ...], d: dtype) -> tuple[Any, Any]:
    x = x.astype(d.compute.numpy, copy=False)
    center = x.mean(axis=dims, keepdims=True)
    x = x - center
    spread = (x * x).mean(axis=dims, keepdims=True)
    return center.astype(d.numpy, copy=False), spread.astype(d.numpy, copy=False)
