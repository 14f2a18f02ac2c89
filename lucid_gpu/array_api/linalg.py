"""The extension ``linalg``."""

from __future__ import annotations

from typing import Any

from lucid_gpu import linalg as ops
from lucid_gpu.array_api.types import promoted
from lucid_gpu.numpy import matrices as ours
from lucid_gpu.numpy import products, shapes
from lucid_gpu.tensor import Tensor

__all__ = ["cholesky", "cross", "det", "diagonal", "eigh", "eigvalsh", "inv", "matmul"]
__all__ += ["matrix_norm", "matrix_power", "matrix_rank", "matrix_transpose", "outer", "pinv"]
__all__ += ["qr", "slogdet", "solve", "svd", "svdvals", "tensordot", "trace", "vecdot"]
__all__ += ["vector_norm"]

cholesky, diagonal, trace = ours.cholesky, ours.diagonal, ours.trace
matrix_norm, vector_norm = ours.matrix_norm, ours.vector_norm


def matmul(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The product of matrices, in their common type.

    ValueError for 0-d arrays.
    """
    x1, x2 = promoted(x1, x2)
    if x1.ndim == 0 or x2.ndim == 0:
        raise ValueError("matmul takes arrays of at least one dimension, got a number")
    return x1.matmul(x2)


def matrix_transpose(x: Tensor, /) -> Tensor:
    """The last two axes exchanged: ``(..., m, n)`` to ``(..., n, m)``."""
    return shapes.matrix_transpose(x)


def tensordot(x1: Tensor, x2: Tensor, /, *, axes: Any = 2) -> Tensor:
    """The sum of products over axes of both; of the shape of the axes that are left."""
    x1, x2 = promoted(x1, x2)
    return products.tensordot(x1, x2, axes)


def vecdot(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """The sum of products along an axis, the first conjugated, in their type; the two broadcast.

    ValueError for an ``axis`` that is not negative or not in both, and for lengths that differ.
    """
    if not -min(x1.ndim, x2.ndim) <= axis < 0:
        raise ValueError(
            f"vecdot: axis must be from {-min(x1.ndim, x2.ndim)} to -1 for arrays of {x1.ndim} and "
            f"{x2.ndim} dimensions, got {axis}"
        )
    if x1.shape[axis] != x2.shape[axis]:
        raise ValueError(f"vecdot: axes of length {x1.shape[axis]} and {x2.shape[axis]} differ")
    x1, x2 = promoted(x1, x2)
    return ((x1.conj_physical() if x1.dtype.category == 3 else x1) * x2).sum(axis, dtype=x1.dtype)


def cross(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """The product of vectors of three elements."""
    return ours.cross(*shapes.broadcast_arrays(*promoted(x1, x2)), axis=axis)


def outer(x1: Tensor, x2: Tensor, /) -> Tensor:
    """All products of the elements of two vectors."""
    product: Tensor = ours.outer(*promoted(x1, x2))
    return product


def det(x: Tensor, /) -> Tensor:
    """The determinant."""
    return ours.det(x)


def slogdet(x: Tensor, /) -> Any:
    """Sign and logarithm of the determinant."""
    return ours.slogdet(x)


def inv(x: Tensor, /) -> Tensor:
    """The inverse."""
    return ours.inv(x)


def pinv(x: Tensor, /, *, rtol: Any = None) -> Tensor:
    """The pseudoinverse; smaller singular values than ``rtol`` of the largest count as none."""
    return ops.pinv(x, rtol=rtol)


def solve(x1: Tensor, x2: Tensor, /) -> Tensor:
    """What ``x1`` takes to ``x2``, a vector where it has one dimension, else matrices."""
    return ours.solve(*promoted(x1, x2))


def eigh(x: Tensor, /) -> Any:
    """Eigenvalues and eigenvectors of symmetric matrices."""
    return ours.eigh(x)


def eigvalsh(x: Tensor, /) -> Tensor:
    """Eigenvalues of symmetric matrices."""
    return ours.eigvalsh(x)


def qr(x: Tensor, /, *, mode: str = "reduced") -> Any:
    """Orthogonal times triangular."""
    return ours.qr(x, mode)


def svd(x: Tensor, /, *, full_matrices: bool = True) -> Any:
    """Singular vectors and values."""
    return ours.svd(x, full_matrices)


def svdvals(x: Tensor, /) -> Tensor:
    """Singular values."""
    return ours.svdvals(x)


def matrix_power(x: Tensor, n: int, /) -> Tensor:
    """The product of ``n`` times the same matrix."""
    return ours.matrix_power(x, n)


def matrix_rank(x: Tensor, /, *, rtol: Any = None) -> Tensor:
    """How many singular values are more than ``rtol`` of the largest."""
    return ops.matrix_rank(x, rtol=rtol)
