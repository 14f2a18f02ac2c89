"""Sums of exponentials over axes, of `scipy.special`."""

from __future__ import annotations

import math
from typing import Any

from lucid_gpu import special as ops
from lucid_gpu.ops.elementwise import where
from lucid_gpu.scipy.rows import composed, floats
from lucid_gpu.tensor import Tensor

__all__ = ["log_softmax", "logsumexp", "softmax"]


def _axes(x: Tensor, axis: Any) -> tuple[int, ...]:
    return tuple(range(x.ndim)) if axis is None else axis if isinstance(axis, tuple) else (axis,)


@composed("special", by="a b")
def logsumexp(
    a: Any, axis: Any = None, b: Any = None, keepdims: bool = False, return_sign: bool = False
) -> Any:
    """Return ``log(sum(b * exp(a)))`` over `axis`, without overflow.

    Parameters
    ----------
    a, b : array_like
        Exponents, and factors, 1 where not given; the two broadcast.
    axis : int or tuple of int, optional
        All where not given.
    keepdims : bool, optional
        Keep `axis`, with length 1.
    return_sign : bool, optional
        Return the logarithm of the sum's size, and its sign. Else that of a negative sum is NaN.
    """
    if b is None and not return_sign:
        (a,) = floats("special.logsumexp", {"a": a})
        return ops.logsumexp(a, _axes(a, axis), keepdims)
    a, b = floats("special.logsumexp", {"a": a, "b": 1.0 if b is None else b})
    axes = _axes(a + b, axis)
    a = where(b == 0, -math.inf, a)
    high = a.detach().amax(axes, keepdim=True)
    high = where(high.isfinite(), high, 0.0)
    total = (b * (a - high).exp()).sum(axes, keepdim=True)
    result = (total.abs() if return_sign else total).log() + high
    both = result, total.detach().sign()
    both = both if keepdims else tuple([t.squeeze(axes) for t in both])
    return both if return_sign else both[0]


@composed("special")
def log_softmax(x: Any, axis: Any = None) -> Any:
    """Return the logarithm of `softmax`, accurate where that vanishes."""
    (x,) = floats("special.log_softmax", {"x": x})
    axes = _axes(x, axis)
    shifted = x - x.detach().amax(axes, keepdim=True)
    return shifted - ops.logsumexp(shifted, axes, True)


@composed("special")
def softmax(x: Any, axis: Any = None) -> Any:
    """Return ``exp(x)`` divided by its sum over `axis`, an int or some; over all for None."""
    return log_softmax(x, axis).exp()
