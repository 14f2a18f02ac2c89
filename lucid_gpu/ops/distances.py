"""Distances between the rows of matrices, and products of two vectors through a third tensor."""

from __future__ import annotations

import math
from typing import Any

from lucid_gpu import dtypes as dt
from lucid_gpu.ops.arguments import require_one_device, require_tensor
from lucid_gpu.ops.einsum import einsum
from lucid_gpu.ops.elementwise import where
from lucid_gpu.ops.grids import triu_indices
from lucid_gpu.ops.record import keeping
from lucid_gpu.ops.reductions import _root, norm
from lucid_gpu.ops.shape import cat, flip, reshape, unsqueeze
from lucid_gpu.tape.door import body_of, interpreters, op
from lucid_gpu.tensor import Tensor

_MODES = (
    "use_mm_for_euclid_dist_if_necessary",
    "use_mm_for_euclid_dist",
    "donot_use_mm_for_euclid_dist",
)
_MANY = 25  # rows from which PyTorch takes Euclid's distances from a matrix product


def _length(difference: Tensor, p: float) -> Tensor:
    """The p-norm over the last dimension; its gradient is 0 where that is 0."""
    columns = difference._expr.shape[-1]
    if p != math.inf or not columns:
        return norm(difference, p if columns else 2, -1)
    size = difference.abs()
    top = size.detach().amax(-1, True)
    rest = where(size.detach() == top, size - size.detach(), 0.0)  # each of equals has the gradient
    return top.squeeze(-1) + rest.sum(-1)


@op(autocast="float32")
@keeping("x1", "x2", output=True)
def cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str | None = _MODES[0]) -> Tensor:
    """Distances of every row of one matrix from every row of another.

    Parameters
    ----------
    x1 : Tensor, shape (..., n, d)
    x2 : Tensor, shape (..., m, d)
        Leading dimensions broadcast.
    p : float
        The norm: 0 counts differences, 1, 2, inf or any number between.
    compute_mode : str
        Whether ``p=2`` is computed by a matrix product, which is faster and less exact for rows
        close to each other: where there are more than 25 rows, always, or never
        (``"donot_use_mm_for_euclid_dist"``).

    Returns
    -------
    Tensor, shape (..., n, m)

    Raises
    ------
    RuntimeError
        For fewer than two dimensions, rows of different lengths, types that are not floating point
        or differ, and a negative ``p``.
    ValueError
        For another ``compute_mode``.
    """
    for name, x in (("X1", x1), ("X2", x2)):
        value = x._expr
        if value.program.dtype.category != 2:
            raise RuntimeError(
                f"cdist only supports floating-point dtypes, {name} got: {x.dtype.type_name}"
            )
        if len(value.shape) < 2:
            raise RuntimeError(f"cdist only supports at least 2D tensors, {name} got: {x.ndim}D")
    require_one_device("cdist", x1, x2)
    (*_, n, first), (*_, m, second) = x1._expr.shape, x2._expr.shape
    if first != second:
        raise RuntimeError(
            f"X1 and X2 must have the same number of columns. X1: {first} X2: {second}"
        )
    _require_norm("cdist", p)
    if compute_mode not in (None, *_MODES):
        raise ValueError(f"{compute_mode} is not a valid value for compute_mode")
    if x1._expr.program.dtype is not x2._expr.program.dtype:
        raise RuntimeError(
            f"expected scalar type {x1.dtype.type_name} but found {x2.dtype.type_name}"
        )
    many = max(n, m) > _MANY
    if p == 2 and (compute_mode == _MODES[1] or (many and compute_mode != _MODES[2])):
        return _euclidean(x1, x2)
    beside = unsqueeze if interpreters else _unsqueeze
    return _length(beside(x1, -2) - beside(x2, -3), p)


_unsqueeze = body_of(unsqueeze)


def _euclidean(x1: Tensor, x2: Tensor) -> Tensor:
    """``|a|^2 - 2 a b + |b|^2`` as one product."""
    a, b = (x * x for x in (x1, x2))
    a, b = a.sum(-1, True), b.sum(-1, True)
    left = cat([-2 * x1, a, a * 0 + 1], -1)
    right = cat([x2, b * 0 + 1, b], -1)
    return _root((left @ right.mT).clamp(min=0))


def _require_norm(name: str, p: float) -> None:
    if not p >= 0:
        raise RuntimeError(f"{name} only supports non-negative p values")


@op(autocast={"cuda": "float32"})
@keeping("input", output=True)
def pdist(input: Tensor, p: float = 2.0) -> Tensor:
    """Distances between all pairs of a matrix's rows, in the order of an upper triangle.

    Parameters
    ----------
    input : Tensor, shape (n, d)
    p : float
        Of the norm.

    Returns
    -------
    Tensor, shape (n (n - 1) / 2,)

    Raises
    ------
    RuntimeError
        For another rank, integers, and a negative ``p``.
    """
    require_tensor("pdist", "input", 1, input)
    if input.ndim != 2:
        raise RuntimeError(f"pdist only supports 2D tensors, got: {input.ndim}D")
    if not input.dtype.is_floating_point:
        raise RuntimeError(
            f"pdist only supports floating-point dtypes, got {input.dtype.type_name}"
        )
    _require_norm("pdist", p)
    first, second = triu_indices(input.shape[0], input.shape[0], 1, device=input.device)
    return _length(input[first] - input[second], p)


@op(autocast={"cuda": "float32"})
@keeping("input", "other", output=True)
def dist(input: Tensor, other: Tensor, p: float = 2) -> Tensor:
    """The p-norm of all elements of a difference."""
    require_tensor("dist", "other", 1, other)
    return norm(input - other, p)


@op(autocast={"cuda": "promote"})
def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``y_o = x1^T W_o x2 + b_o``.

    Parameters
    ----------
    input1 : Tensor, shape (..., n)
    input2 : Tensor, shape (..., m)
    weight : Tensor, shape (out, n, m)
    bias : Tensor, shape (out,), optional

    Returns
    -------
    Tensor, shape (..., out)

    Raises
    ------
    RuntimeError
        For shapes that do not fit together.
    """
    if input1.ndim != input2.ndim:
        raise RuntimeError(
            f"bilinear(): input dimensions do not match: got {input1.ndim} and {input2.ndim}"
        )
    for d in range(input1.ndim - 1):
        if input1.shape[d] != input2.shape[d]:
            raise RuntimeError(
                f"bilinear(): input batch dimensions do not match at dim {d}: got "
                f"{input1.shape[d]} and {input2.shape[d]}"
            )
    for i, x in ((1, input1), (2, input2)):
        if x.shape[-1] != weight.shape[i]:
            raise RuntimeError(
                f"bilinear(): input{i} size does not match weight size: got {x.shape[-1]} but "
                f"expected {weight.shape[i]}"
            )
    out = weight.shape[0]
    if bias is not None and tuple(bias.shape) != (out,):
        raise RuntimeError(
            f"bilinear(): bias size does not match weight size: got {bias.shape[0]} but expected "
            f"{out}"
        )
    rows = [reshape(x, (-1, x.shape[-1])) for x in (input1, input2)]
    product = einsum("bi,oij,bj->bo", rows[0], weight, rows[1])
    product = reshape(product, (*input1.shape[:-1], out))
    return product if bias is None else product + bias


@op
def vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:
    """Powers of a vector's elements, from ``N - 1`` down to 0, as the columns of a matrix.

    Parameters
    ----------
    x : Tensor, shape (n,)
    N : int, optional
        The number of columns, by default ``n``.
    increasing : bool
        The powers from 0 up.

    Raises
    ------
    RuntimeError
        For anything but a vector, and a negative ``N``.
    """
    if x.ndim != 1:
        raise RuntimeError("x must be a one-dimensional tensor.")
    n = x.shape[0] if N is None else N
    if n < 0:
        raise RuntimeError("N must be non-negative.")
    if n < 2:
        return x.new_ones((x.shape[0], n), dtype=x.dtype if x.dtype.category > 1 else dt.int64)
    from lucid_gpu.ops.linalg.products import vander as ascending_powers

    powers: Tensor = ascending_powers(x, N=n)
    return powers if increasing else flip(powers, -1)


METHODS: tuple[Any, ...] = (dist,)
FUNCTIONS = (dist, cdist, pdist, bilinear, vander)
