"""Products and powers of matrices, and products of vectors: compositions."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

from lucid_gpu import dtypes as dt
from lucid_gpu.ops.arguments import no_tensor, require_one_dtype, several, takes_out
from lucid_gpu.ops.laying import lay
from lucid_gpu.ops.linalg.inverse import inverse_of
from lucid_gpu.ops.linalg.matrices import (
    conj,
    identity_like,
    require_inexact,
    require_same_type,
    require_square,
)
from lucid_gpu.ops.record import keeping
from lucid_gpu.ops.reductions import normalize_dim
from lucid_gpu.ops.shape import clone, stack
from lucid_gpu.storage import contiguous_format
from lucid_gpu.tape.door import op
from lucid_gpu.tape.rules import batching, on_value
from lucid_gpu.tensor import Tensor


@op(autocast="lower")
@takes_out
def matrix_power(input: Tensor, n: int) -> Tensor:
    """``n`` factors of each matrix, by squaring; of the inverse where ``n`` is negative.

    Parameters
    ----------
    input : Tensor, shape (..., k, k)

    Raises
    ------
    TypeError
        For an ``n`` that is not an integer.
    RuntimeError
        For anything but square matrices.
    """
    try:
        n = operator.index(n)
    except TypeError:
        raise TypeError(
            f"linalg_matrix_power(): argument 'n' (position 2) must be int, not {type(n).__name__}"
        ) from None
    name = "linalg.matrix_power"
    if input.ndim < 2 or input.shape[-1] != input.shape[-2]:
        require_square(name, input.double())
    start = input
    if n < 0:
        input, n = inverse_of(input, "linalg.inv").inverse, -n
        if n == 1:
            return input
    if not n:
        return lay((input * 0) * 0 + identity_like(input, input.shape[-1]), None)
    result: Tensor | None = None
    while True:
        if n & 1:
            result = input if result is None else result @ input
        n >>= 1
        if not n:
            assert result is not None
            return clone(result, memory_format=contiguous_format) if result is start else result
        input = input @ input


@op
@keeping("input")
def matrix_exp(input: Tensor) -> Tensor:
    """The exponential of each matrix: its power series, for the matrix scaled and squared.

    Terms up to the 15th, grouped after Paterson and Stockmeyer (1973), of the matrix divided by
    ``2^s`` so that its 1-norm is at most 1/2, then ``s`` squarings (Higham, Functions of Matrices,
    2008, 10.3).

    Parameters
    ----------
    input : Tensor, shape (..., n, n)

    Raises
    ------
    RuntimeError
        For anything but square matrices.
    """
    require_square("linalg.matrix_exp", input, low_precision=True)
    n = input.shape[-1]
    if not input.numel():
        return input.clone()
    size = 0 if input.is_meta else input.detach().abs().sum(-2).amax().item()
    squarings = max(0, math.ceil(math.log2(2 * size))) if 0 < size < math.inf else 0
    scaled = input * 2.0**-squarings
    square = scaled @ scaled
    powers = [identity_like(scaled, n), scaled, square, square @ scaled]
    fourth = square @ square
    total: Tensor | None = None
    for first in (12, 8, 4, 0):
        group: Any = 0
        for i, power in enumerate(powers):
            group = group + power * (1 / math.factorial(first + i))
        total = group if total is None else total @ fourth + group
    assert total is not None
    for _ in range(squarings):
        total = total @ total
    return total


batching(matrix_exp)(on_value)


@op(autocast="lower")
def multi_dot(tensors: Sequence[Tensor]) -> Tensor:
    """The product of several matrices, multiplied in the order that costs least.

    The order is found by dynamic programming (Cormen et al., Introduction to Algorithms, 15.2).

    Parameters
    ----------
    tensors : sequence of Tensor
        Two or more matrices; the first may be a row vector, the last a column vector.

    Raises
    ------
    RuntimeError
        For fewer than two tensors, and shapes that do not fit each other.
    """
    factors = several("multi_dot", tensors)
    for index, factor in enumerate(factors):
        if not isinstance(factor, Tensor):
            raise no_tensor(index, factor)
    if len(factors) < 2:
        raise RuntimeError(f"multi_dot(): expected at least 2 tensors but got {len(factors)}")
    _check_chain(factors)
    row, column = factors[0].ndim == 1, factors[-1].ndim == 1
    if row:
        factors[0] = factors[0].unsqueeze(0)
    if column:
        factors[-1] = factors[-1].unsqueeze(1)
    cuts = _order([*[f.shape[0] for f in factors], factors[-1].shape[1]])
    product = _multiplied(factors, cuts, 0, len(factors) - 1)
    if column:
        product = product.squeeze(-1)
    return product.squeeze(0) if row else product


def _check_chain(factors: list[Tensor]) -> None:
    last = len(factors) - 1
    for i, factor in enumerate(factors):
        which = "the first tensor" if i == 0 else "the last tensor" if i == last else f"tensor {i}"
        if factor.ndim != 2 and (0 < i < last or factor.ndim != 1):
            allowed = "2D" if 0 < i < last else "1D or 2D"
            raise RuntimeError(f"multi_dot(): {which} must be {allowed} but got {factor.ndim}D")
    for i, (a, b) in enumerate(zip(factors, factors[1:], strict=False)):
        if a.shape[-1] != b.shape[0]:
            raise RuntimeError(
                f"multi_dot(): tensors {i} and {i + 1} with shapes {list(a.shape)} and "
                f"{list(b.shape)} cannot be multiplied"
            )


def _order(sizes: list[int]) -> dict[tuple[int, int], int]:
    """After which factor each run of factors is parted."""
    count = len(sizes) - 1
    costs = {(i, i): 0 for i in range(count)}
    cuts: dict[tuple[int, int], int] = {}
    for length in range(1, count):
        for i in range(count - length):
            j = i + length
            costs[i, j], cuts[i, j] = min(
                (costs[i, k] + costs[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1], k)
                for k in range(i, j)
            )
    return cuts


def _multiplied(factors: list[Tensor], cuts: dict[tuple[int, int], int], i: int, j: int) -> Tensor:
    """The product of the factors from one to another."""
    if i == j:
        return factors[i]
    k = cuts[i, j]
    return _multiplied(factors, cuts, i, k) @ _multiplied(factors, cuts, k + 1, j)


@op(autocast="lower")
@takes_out
def chain_matmul(*matrices: Tensor) -> Tensor:
    """`multi_dot`, the product of matrices, under its old name.

    RuntimeError without a matrix, or for what is no matrix.
    """
    if not matrices:
        raise RuntimeError("chain_matmul(): Expected one or more matrices")
    for matrix in matrices:
        if matrix.ndim != 2:
            raise RuntimeError(f"Tensor dimension is {matrix.ndim}, expected 2 instead.")
    return multi_dot(matrices) if len(matrices) > 1 else matrices[0].clone()


@op(autocast={"cuda": "promote"})
@takes_out
def cross(input: Tensor, other: Tensor, dim: int | None = None) -> Tensor:
    """The vector product along a dimension of three elements.

    Parameters
    ----------
    input, other : Tensor
        Of as many dimensions; they are broadcast.
    dim : int, optional
        By default the first with three elements.

    Raises
    ------
    RuntimeError
        If that dimension has another size, or there is none of size three.
    """
    if dim is None:
        dim = next((d for d, n in enumerate(input.shape) if n == 3), None)
        if dim is None:
            raise RuntimeError("no dimension of size 3 in input")
    return crossed(input, other, dim)


def crossed(input: Tensor, other: Tensor, dim: int) -> Tensor:
    """`cross` along a given dimension."""
    if input.ndim != other.ndim:
        raise RuntimeError("linalg.cross: inputs must have the same number of dimensions.")
    if input.dtype is dt.bool:
        raise dt.unimplemented("cross", input.dtype)
    require_one_dtype("cross: expected input and other to have the same dtype", input, other)
    axis = normalize_dim(dim, input.ndim)
    if input.shape[axis] != 3 or other.shape[axis] != 3:
        raise RuntimeError(
            f"linalg.cross: inputs dimension {dim} must have length 3. Got {input.shape[axis]} "
            f"and {other.shape[axis]}"
        )
    a, b = input.unbind(axis), other.unbind(axis)
    return stack([a[i - 2] * b[i - 1] - a[i - 1] * b[i - 2] for i in range(3)], axis)


@op(autocast={"cuda": "promote"})
def linalg_cross(input: Tensor, other: Tensor, *, dim: int = -1) -> Tensor:
    """The vector product along a dimension of three elements."""
    return crossed(input, other, dim)


@op(autocast="lower")
def vecdot(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    """Inner products along a dimension, ``sum(conj(x) * y)``; the two broadcast.

    RuntimeError for two vectors of different sizes.
    """
    require_inexact("linalg.vecdot", x)
    require_same_type("linalg.vecdot", x, y, "x", "y")
    if x.ndim == y.ndim == 1 and x.shape != y.shape:
        raise RuntimeError(
            f"inconsistent tensor size, expected tensor [{x.shape[0]}] and src [{y.shape[0]}] "
            f"to have the same number of elements, but got {x.shape[0]} and {y.shape[0]} "
            "elements respectively"
        )
    return (conj(x) * y).sum(dim)


@op
def vander(x: Tensor, *, N: int | None = None) -> Tensor:
    """Powers of each element, from the 0th to the ``N - 1``-th, along a new last dimension.

    RuntimeError for an ``N`` that is not above 0.
    """
    count = N if N is not None else x.shape[-1] if x.ndim else 1
    if count <= 0 or (N is None and not x.ndim):
        raise RuntimeError("N must be greater than 1.")
    x = x if x.ndim else x.unsqueeze(0)
    x = x.to(dt.int64) if x.dtype.category == 1 else x
    powers = [x * 0 + 1 if x.dtype.category < 2 else x**0]
    for _ in range(count - 1):
        powers.append(powers[-1] * x)
    return stack(powers, -1)


@op
def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """A view of the diagonals of the matrices in two dimensions, by default the last ones."""
    view: Tensor = A.diagonal(offset, dim1, dim2)
    return view


METHODS = (matrix_power, matrix_exp, cross)
FUNCTIONS = (*METHODS, chain_matmul)
