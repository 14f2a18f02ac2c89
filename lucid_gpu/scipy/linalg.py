"""`scipy.linalg` with derivatives: matrices in the last two dimensions, batches before them."""

from __future__ import annotations

from typing import Any

from lucid_gpu import linalg as ours
from lucid_gpu.numpy.operands import alike, as_tensor, as_tensors, inexact
from lucid_gpu.ops.shape import cat
from lucid_gpu.scipy.rows import composed, others
from lucid_gpu.tensor import Tensor

__all__ = ["cho_factor", "cho_solve", "cholesky", "hankel", "solve_triangular", "toeplitz"]


def _numbers(*values: Any) -> list[Tensor]:
    """Return `values` as tensors of one floating point or complex type and one device."""
    return alike(*[inexact(t) for t in as_tensors(values)])


def _columns(b: Tensor) -> Tensor:
    """Return `b` as matrices: SciPy takes one dimension for a vector, more for matrices."""
    return b.unsqueeze(-1) if b.ndim == 1 else b


def _like(x: Tensor, b: Tensor) -> Tensor:
    """Return the solution `x` of `_columns(b)` as vectors where `b` is one."""
    return x.squeeze(-1) if b.ndim == 1 else x


def _mirrored(a: Tensor, lower: bool) -> Tensor:
    """Return the Hermitian matrices of one triangle of `a`; the other is not read."""
    half = a.tril(-1) if lower else a.triu(1)
    return half + half.mH + a.diagonal(0, -2, -1).diag_embed()


@composed("linalg", domain="positive definite `a`")
def cholesky(a: Any, lower: bool = False) -> Tensor:
    """Return the factor of `a`, (..., n, n), by the triangle that it fills: upper by default."""
    (a,) = _numbers(a)
    return ours.cholesky(_mirrored(a, lower), upper=not lower)


@composed("linalg", domain="positive definite `a`")
def cho_factor(a: Any, lower: bool = False) -> tuple[Tensor, bool]:
    """Return the factor of `a` for `cho_solve`, and `lower`; its other triangle is zero."""
    return cholesky(a, lower), lower


@composed("linalg", by="c_and_lower b")
def cho_solve(c_and_lower: tuple[Any, bool], b: Any) -> Tensor:
    """Return the solution of ``A x = b`` by the answer of `cho_factor`, of one triangle."""
    c, lower = c_and_lower
    c, b = _numbers(c, b)
    first = solve_triangular(c, b, 2 - 2 * lower, lower)
    return solve_triangular(c, first, 2 * lower, lower)


@composed("linalg", domain="no zero on the diagonal of `a`", by="a b")
def solve_triangular(
    a: Any, b: Any, trans: Any = 0, lower: bool = False, unit_diagonal: bool = False
) -> Tensor:
    """Return the solution of ``op(a) x = b`` for one triangle of `a`, (..., n, n).

    Parameters
    ----------
    a, b : Tensor or array
        Of shapes (..., n, n) and (n,) or (..., n, k).
    trans : {0, 1, 2, "N", "T", "C"}
        What ``op`` is: nothing, the transpose, its conjugate.
    lower, unit_diagonal : bool
        Whether the lower triangle is read, and whether its diagonal counts as ones.

    Raises
    ------
    ValueError
        For another `trans`.
    """
    if trans not in (0, 1, 2, "N", "T", "C"):
        raise ValueError(f"trans is 0, 1, 2, 'N', 'T' or 'C', got {trans!r}")
    a, b = _numbers(a, b)
    if trans not in (0, "N"):
        a, lower = (a.mT if trans in (1, "T") else a.mH), not lower
    x = ours.solve_triangular(a, _columns(b), upper=not lower, unitriangular=unit_diagonal)
    return _like(x, b)


@composed("linalg", by="c r")
def toeplitz(c: Any, r: Any = None) -> Tensor:
    """Return the matrix of first column `c` and first row `r`, by default `c` conjugated.

    Of (..., m) and (..., n) it is (..., m, n); the first number of `r` is not read.
    """
    c, r = _numbers(c, as_tensor(c).conj() if r is None else r)
    return hankel(c.flip(-1), r).flip(-2)


@composed("linalg", by="c r")
def hankel(c: Any, r: Any = None) -> Tensor:
    """Return the matrix of first column `c` and last row `r`, by default zeros.

    Of (..., m) and (..., n) it is (..., m, n); the first number of `r` is not read.
    """
    c, r = _numbers(c, as_tensor(c) * 0 if r is None else r)
    return cat([c, r[..., 1:]], -1).unfold(-1, r.shape[-1], 1)


__getattr__ = others("linalg", globals())
