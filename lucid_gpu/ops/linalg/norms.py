"""Norms of vectors and matrices, and condition numbers: compositions."""

from __future__ import annotations

import math
from typing import Any

from lucid_gpu.dtypes import as_dtype
from lucid_gpu.ops import reductions
from lucid_gpu.ops.linalg.inverse import inverse_of
from lucid_gpu.ops.linalg.matrices import require_inexact, require_matrices, require_square
from lucid_gpu.ops.linalg.svd import svdvals
from lucid_gpu.ops.reductions import normalize_dim
from lucid_gpu.ops.shape import movedim
from lucid_gpu.tape.door import op
from lucid_gpu.tensor import Tensor

Dims = Any


@op(autocast={"cuda": "float32"})
def vector_norm(
    x: Tensor, ord: Any = 2, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    """``(sum |x|^ord)^(1/ord)`` of all elements, or over dimensions.

    Parameters
    ----------
    ord : float
        Also 0 (how many are not zero), inf and -inf (the largest and the smallest size).

    Raises
    ------
    RuntimeError
        For an ``ord`` that no empty dimension has, and a ``dtype`` that loses something.
    """
    require_inexact("linalg.vector_norm", x)
    x = _converted("linalg.vector_norm", x, dtype)
    return reductions.norm(x, ord, dim, keepdim)


def _converted(name: str, x: Tensor, dtype: Any) -> Tensor:
    if dtype is None:
        return x
    d = as_dtype(dtype)
    if d.category < max(x.dtype.category, 2):
        wanted = "complex" if x.dtype.is_complex else "floating point or complex"
        raise RuntimeError(f"{name}: dtype should be {wanted}, but got {d.name}")
    return x.to(d)


@op(autocast={"cuda": "float32"})
def matrix_norm(
    A: Tensor, ord: Any = "fro", dim: Any = (-2, -1), keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    """A norm of the matrices in two dimensions.

    Parameters
    ----------
    ord : {"fro", "nuc", 1, -1, 2, -2, inf, -inf}
        Of all elements as a vector, the sum of singular values, the largest and smallest sum of
        sizes along a column (1), a singular value (2), along a row (inf).

    Raises
    ------
    RuntimeError
        For fewer than two dimensions, another ``ord``, a ``dim`` that is not two different ones,
        and a ``dtype`` that loses something.
    IndexError
        For a dimension that there is not.
    """
    name = "linalg.matrix_norm"
    if A.ndim < 2:
        raise RuntimeError(
            f"{name}: The input tensor A must have at least 2 dimensions. Got shape {list(A.shape)}"
        )
    require_inexact(name, A)
    if not hasattr(dim, "__len__") or len(dim) != 2:
        raise RuntimeError(f"{name}: dim must be a 2-tuple. Got {dim}")
    if ord not in ("fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf):
        raise RuntimeError(f"{name}: Order {ord} not supported.")
    A = _converted(name, A, dtype)
    rows, columns = [normalize_dim(d, A.ndim) for d in dim]
    if rows == columns:
        raise RuntimeError(f"{name}: dims must be different. Got ({rows}, {columns})")
    if ord == "fro":
        return vector_norm(A, 2, (rows, columns), keepdim)
    if ord in ("nuc", 2, -2):
        norms = _of_singular_values(movedim(A, (rows, columns), (-2, -1)), ord)
        return _kept(norms, rows, columns) if keepdim else norms
    summed, over = (columns, rows) if abs(ord) == math.inf else (rows, columns)
    sums = A.abs().sum(summed, True)
    norms = _largest(sums, over, True) if ord > 0 else sums.amin(over, True)
    return norms if keepdim else norms.squeeze((rows, columns))


def _largest(sums: Tensor, over: int, keepdim: bool = False) -> Tensor:
    """The largest of numbers that are not negative; 0 of none."""
    return sums.amax(over, keepdim) if sums.shape[over] else sums.sum(over, keepdim)


def _of_singular_values(A: Tensor, ord: Any) -> Tensor:
    S = svdvals(A)
    if ord == "nuc":
        return S.sum(-1)
    return _largest(S, -1) if ord > 0 else S.amin(-1)


def _kept(x: Tensor, *dims: int) -> Tensor:
    for d in sorted(dims):
        x = x.unsqueeze(d)
    return x


@op(autocast={"cuda": "float32"})
def norm(
    A: Tensor, ord: Any = None, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    """`vector_norm` of one dimension or of all elements, `matrix_norm` of two.

    Parameters
    ----------
    ord : number or str, optional
        By default 2 over whichever dimensions.

    Raises
    ------
    RuntimeError
        For an ``ord`` that is given without ``dim`` to a tensor of another rank, more than two
        dimensions, and an ``ord`` of matrices for vectors.
    """
    if ord is None:
        return vector_norm(A, 2, dim, keepdim, dtype=dtype)
    dims = (dim,) if isinstance(dim, int) else dim
    if dims is None and A.ndim not in (1, 2):
        raise RuntimeError(
            "linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. Got "
            f"{A.ndim}D."
        )
    if dims is not None and len(dims) not in (1, 2):
        raise RuntimeError(
            f"linalg.norm: If dim is specified, it must be of length 1 or 2. Got {list(dims)}"
        )
    count = A.ndim if dims is None else len(dims)
    if count == 2:
        return matrix_norm(A, ord, (-2, -1) if dims is None else dims, keepdim, dtype=dtype)
    if isinstance(ord, str):
        raise RuntimeError(f"linalg.norm: Order {ord} is one of matrices, got {count} dimension")
    return vector_norm(A, ord, dims, keepdim, dtype=dtype)


@op(autocast={"cpu": "float32"})
def cond(input: Tensor, p: Any = None) -> Tensor:
    """The condition number: the norm of a matrix times that of its inverse.

    Parameters
    ----------
    input : Tensor, shape (..., n, n), or (..., m, n) for ``p`` 2 and -2
    p : optional
        As ``ord`` of `matrix_norm`, by default 2. A singular matrix has ``inf``.

    Raises
    ------
    RuntimeError
        For another ``p``.
    NotImplementedError
        For 16-bit floats.
    """
    require_matrices("linalg.svd" if p is None else f"linalg.cond(ord={p})", input)
    if p is None or p in (2, -2):
        S = svdvals(input)
        if not S.shape[-1]:
            return S.sum(-1)
        most, least = S.narrow(-1, 0, 1), S.narrow(-1, S.shape[-1] - 1, 1)
        return (least / most if p == -2 else most / least).squeeze(-1)
    if p not in ("fro", "nuc", 1, -1, math.inf, -math.inf):
        raise RuntimeError(f"linalg.cond got an invalid norm type: {p}")
    require_square(f"linalg.cond(ord={p})", input)
    if not input.shape[-1]:
        return input.abs().sum((-2, -1))
    inverse, info = inverse_of(input, "linalg.cond", check=False)
    singular = info != 0
    inverse = inverse.masked_fill(singular[..., None, None], 0.0)  # no norm is taken of no inverse
    product = matrix_norm(input, p) * matrix_norm(inverse, p)
    return product.masked_fill(singular, math.inf)
