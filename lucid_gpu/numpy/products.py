"""Products of vectors and matrices, and sums of products, under NumPy's names."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from operator import mul
from typing import Any

import numpy as np

from lucid_gpu.dtypes import element_type
from lucid_gpu.numpy.operands import alike, as_tensor
from lucid_gpu.numpy.refusals import takes_out
from lucid_gpu.numpy.shapes import axes_of, moveaxis
from lucid_gpu.ops.einsum import einsum as _einsum
from lucid_gpu.ops.einsum import tensordot as _tensordot
from lucid_gpu.ops.shape import stack
from lucid_gpu.tensor import Tensor

__all__ = ["convolve", "correlate", "cross", "dot", "einsum", "inner", "kron", "outer", "polyval"]
__all__ += ["tensordot", "vander", "vdot"]


@takes_out
def dot(a: Any, b: Any, out: Any = None) -> Tensor:
    """`numpy.dot`: over the last axis of ``a`` and the last but one of ``b``."""
    a, b = alike(a, b)
    if a.ndim == 0 or b.ndim == 0:
        return a * b
    if a.ndim <= 2 and b.ndim <= 2:
        _agree("dot", a, b, a.shape[-1], b.shape[0])
        return a.matmul(b)
    return tensordot(a, b, (-1, max(b.ndim - 2, 0)))


def _agree(name: str, a: Tensor, b: Tensor, m: int, n: int) -> None:
    if m != n:
        raise ValueError(
            f"{name}: shapes {tuple(a.shape)} and {tuple(b.shape)} not aligned: {m} != {n}"
        )


def vdot(a: Any, b: Any) -> Tensor:
    """`numpy.vdot`: of all elements, those of ``a`` conjugated."""
    a, b = alike(a, b)
    a, b = a.reshape(-1), b.reshape(-1)
    _agree("vdot", a, b, a.shape[0], b.shape[0])
    return (a.conj_physical() if a.dtype.category == 3 else a).matmul(b)


def inner(a: Any, b: Any, /) -> Tensor:
    """`numpy.inner`: over the last axis of both."""
    a, b = alike(a, b)
    return a * b if a.ndim == 0 or b.ndim == 0 else tensordot(a, b, (-1, -1))


@takes_out
def outer(a: Any, b: Any, out: Any = None) -> Tensor:
    """`numpy.outer`: of all elements of both."""
    a, b = alike(a, b)
    return a.reshape(-1, 1) * b.reshape(1, -1)


def tensordot(a: Any, b: Any, axes: Any = 2) -> Tensor:
    """`numpy.tensordot`."""
    a, b = alike(a, b)
    if isinstance(axes, (int, np.integer)):
        count = int(axes)
        of_a: Sequence[int] = range(a.ndim - count, a.ndim)
        of_b: Sequence[int] = range(count)
    else:
        of_a, of_b = (np.atleast_1d(one).tolist() for one in axes)
    of_a, of_b = axes_of(tuple(of_a), a.ndim), axes_of(tuple(of_b), b.ndim)
    if [a.shape[k] for k in of_a] != [b.shape[k] for k in of_b]:
        raise ValueError(
            f"shape-mismatch for sum: axes {of_a} of shape {tuple(a.shape)} and axes {of_b} of "
            f"shape {tuple(b.shape)}"
        )
    return _tensordot(a, b, (of_a, of_b))


@takes_out
def einsum(*operands: Any, out: Any = None, optimize: Any = False, **kwargs: Any) -> Tensor:
    """`numpy.einsum`, by subscripts or by lists of axes."""
    if kwargs:
        raise TypeError(f"numpy.einsum of tensors does not take {', '.join(kwargs)}")
    if isinstance(operands[0], str):
        return _einsum(operands[0], *alike(*operands[1:]))
    last = [list(operands[-1])] if len(operands) % 2 else []
    arrays = alike(*operands[: len(operands) - len(last) : 2])
    pairs: list[Any] = []
    for array, axes in zip(arrays, operands[1::2], strict=False):
        pairs += [array, list(axes)]
    return _einsum(*pairs, *last)


def kron(a: Any, b: Any) -> Tensor:
    """`numpy.kron`."""
    a, b = alike(a, b)
    return a.kron(b)


def cross(
    a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None
) -> Tensor:
    """`numpy.cross` of vectors of three elements."""
    if axis is not None:
        axisa = axisb = axisc = axis
    a, b = alike(a, b)
    a, b = moveaxis(a, axisa, -1), moveaxis(b, axisb, -1)
    if a.shape[-1] != 3 or b.shape[-1] != 3:
        raise ValueError(
            f"incompatible vector dimensions for cross product (must be 3), got {a.shape[-1]} and "
            f"{b.shape[-1]}"
        )
    (a1, a2, a3), (b1, b2, b3) = a.unbind(-1), b.unbind(-1)
    parts = (a2 * b3 - a3 * b2, a3 * b1 - a1 * b3, a1 * b2 - a2 * b1)
    return moveaxis(stack(parts, -1), -1, axisc)


def convolve(a: Any, v: Any, mode: str = "full") -> Tensor:
    """`numpy.convolve` of vectors: ``"full"``, ``"same"`` or ``"valid"``."""
    a, v = alike(a, v)
    if a.ndim != 1 or v.ndim != 1:
        raise ValueError(f"object too deep for desired array: {a.ndim} and {v.ndim} dimensions")
    if not a.numel() or not v.numel():
        raise ValueError("a cannot be empty" if not a.numel() else "v cannot be empty")
    if v.shape[0] > a.shape[0]:
        a, v = v, a
    n, m = a.shape[0], v.shape[0]
    margins = {"full": m - 1, "same": m - 1, "valid": 0}
    if mode not in margins:
        raise ValueError(f"mode must be one of 'valid', 'same', or 'full' (got {mode!r})")
    from lucid_gpu.nn.functional import pad

    widened = pad(a, (margins[mode], margins[mode]))
    convolved = widened.unfold(0, m, 1).matmul(v.flip(0))
    if mode == "same":
        convolved = convolved[(m - 1) // 2 : (m - 1) // 2 + n]
    return convolved


def correlate(a: Any, v: Any, mode: str = "valid") -> Tensor:
    """`numpy.correlate` of vectors."""
    a, v = alike(a, v)
    turned = v.flip(0)
    longer = v.shape[0] > a.shape[0] and mode != "valid"
    correlated = convolve(a, turned.conj_physical() if turned.dtype.category == 3 else turned, mode)
    if longer and mode == "same":
        full = convolve(a, turned, "full")
        start = (min(a.shape[0], v.shape[0])) // 2
        return full[start : start + v.shape[0]]
    return correlated


def polyval(p: Any, x: Any) -> Tensor:
    """`numpy.polyval`: the highest power's coefficient first (Horner)."""
    p, x = alike(p, x)
    value = x * 0
    for coefficient in p.reshape(-1).unbind():
        value = value * x + coefficient
    return value


def vander(x: Any, N: int | None = None, increasing: bool = False) -> Tensor:
    """`numpy.vander`."""
    x = as_tensor(x)
    if x.ndim != 1:
        raise ValueError("x must be a one-dimensional array or sequence.")
    x = x.to(element_type(np.promote_types(x.dtype.numpy, int)))
    count = x.shape[0] if N is None else N
    # products, whose derivatives at 0 are right to any order, where those of powers are not
    powers = list(accumulate([x] * (count - 1), mul, initial=x * 0 + 1))[:count]
    if not powers:
        return x.new_zeros((x.shape[0], 0))
    return stack(powers if increasing else powers[::-1], -1)


def _dot_of_arrays(self: Tensor, other: Any) -> Tensor:
    """`dot` where one is an array, or neither a vector."""
    return dot(self, other)


METHODS = (_dot_of_arrays,)
