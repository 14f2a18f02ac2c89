"""`numpy.linalg` on tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lucid_gpu import linalg as ours
from lucid_gpu.dtypes import element_type
from lucid_gpu.numpy import arranging, products, reductions, shapes
from lucid_gpu.numpy.operands import alike, as_tensor, as_tensors, inexact
from lucid_gpu.numpy.refusals import takes_out
from lucid_gpu.tensor import Tensor

__all__ = ["cholesky", "cond", "cross", "det", "diagonal", "eig", "eigh", "eigvals", "eigvalsh"]
__all__ += ["inv", "lstsq", "matmul", "matrix_norm", "matrix_power", "matrix_rank", "multi_dot"]
__all__ += ["matrix_transpose", "norm", "outer", "pinv", "qr", "slogdet", "solve", "svd"]
__all__ += ["svdvals", "tensordot", "tensorinv", "tensorsolve", "trace", "vecdot", "vector_norm"]

tensordot = products.tensordot
matrix_transpose = shapes.matrix_transpose


SPECTRAL = (2, -2, "nuc")  # norms of singular values


def _numbers(a: Any) -> Tensor:
    return inexact(as_tensor(a))


def _factored(a: Any) -> Tensor:
    """Floating point numbers that matrices can be factored in.

    Raises
    ------
    TypeError
        For those of two bytes.
    """
    a = _numbers(a)
    if a.dtype.itemsize == 2:
        raise TypeError(
            f"array type {a.dtype.name} is unsupported in linalg; write a.astype('float32')"
        )
    return a


def _matrices(a: Any, known: Callable[[Any], Tensor] = _factored) -> Tensor:
    """Matrices of floating point numbers.

    Raises
    ------
    numpy.linalg.LinAlgError
        For fewer than two dimensions.
    """
    a = known(a)
    if a.ndim < 2:
        raise ours.LinAlgError(
            f"{a.ndim}-dimensional array given. Array must be at least two-dimensional"
        )
    return a


def _square(a: Any, known: Callable[[Any], Tensor] = _factored) -> Tensor:
    a = _matrices(a, known)
    if a.shape[-1] != a.shape[-2]:
        raise ours.LinAlgError("Last 2 dimensions of the array must be square")
    return a


def _half(a: Any, UPLO: str) -> tuple[Tensor, str]:
    """Hermitian matrices of one triangle, which alone is read and gets a gradient."""
    if UPLO.upper() not in ("L", "U"):
        raise ValueError("UPLO argument must be 'L' or 'U'")
    lower = _square(a) if UPLO.upper() == "L" else _square(a).mT
    below, on = lower.tril(-1), lower.diagonal(0, -2, -1)
    whole: Tensor = below + below.mH + (on.real if on.dtype.category == 3 else on).diag_embed()
    return (whole if UPLO.upper() == "L" else whole.mT), UPLO.upper()


def solve(a: Any, b: Any) -> Tensor:
    """`numpy.linalg.solve`; ``b`` is a vector where it has one dimension, else matrices."""
    a, b = as_tensors((a, b))
    a, b = alike(_square(a), _factored(b))
    if 1 < b.ndim == a.ndim - 1:  # a matrix for all, which PyTorch might take for vectors
        b = b.unsqueeze(0)
    return ours.solve(a, b)


def inv(a: Any) -> Tensor:
    """`numpy.linalg.inv`."""
    return ours.inv(_square(a))


def pinv(
    a: Any, rcond: Any = None, hermitian: bool = False, *, rtol: Any = reductions.NOT_GIVEN
) -> Tensor:
    """`numpy.linalg.pinv`; singular values below 1e-15 of the largest count as none."""
    bound = rcond if rtol is reductions.NOT_GIVEN else rtol
    return ours.pinv(_matrices(a), rtol=1e-15 if bound is None else bound, hermitian=hermitian)


def det(a: Any) -> Tensor:
    """`numpy.linalg.det`."""
    return ours.det(_square(a))


def slogdet(a: Any) -> Any:
    """`numpy.linalg.slogdet`."""
    return ours.slogdet(_square(a))


def cholesky(a: Any, /, *, upper: bool = False) -> Tensor:
    """`numpy.linalg.cholesky`."""
    return ours.cholesky(_square(a), upper=upper)


def qr(a: Any, mode: str = "reduced") -> Any:
    """`numpy.linalg.qr`, in the modes ``reduced``, ``complete`` and ``r``."""
    if mode not in ("reduced", "complete", "r"):
        raise ValueError(f"Unrecognized mode {mode!r}: write 'reduced', 'complete' or 'r'")
    factors = ours.qr(_matrices(a), "reduced" if mode == "r" else mode)
    return factors.R if mode == "r" else factors


def svd(
    a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False
) -> Any:
    """`numpy.linalg.svd`."""
    a = _matrices(a)
    return ours.svd(a, full_matrices) if compute_uv else ours.svdvals(a)


def svdvals(x: Any, /) -> Tensor:
    """`numpy.linalg.svdvals`."""
    return ours.svdvals(_matrices(x))


def eigh(a: Any, UPLO: str = "L") -> Any:
    """`numpy.linalg.eigh`."""
    return ours.eigh(*_half(a, UPLO))


def eigvalsh(a: Any, UPLO: str = "L") -> Tensor:
    """`numpy.linalg.eigvalsh`."""
    return ours.eigvalsh(*_half(a, UPLO))


def eig(a: Any) -> Any:
    """`numpy.linalg.eig`; always complex numbers, as the type must not depend on the values."""
    return ours.eig(_square(a))


def eigvals(a: Any) -> Tensor:
    """`numpy.linalg.eigvals`; always complex numbers, as the type must not depend on the values."""
    return ours.eigvals(_square(a))


def lstsq(a: Any, b: Any, rcond: Any = None) -> tuple[Any, ...]:
    """`numpy.linalg.lstsq`: the solution, the sums of squares left, rank and singular values."""
    a, b = as_tensors((a, b))
    a, b = alike(_matrices(a), _factored(b))
    if a.ndim != 2 or b.ndim not in (1, 2) or a.shape[0] != b.shape[0]:
        raise ours.LinAlgError(
            f"lstsq takes a matrix and a vector or matrix of as many rows, got {tuple(a.shape)} "
            f"and {tuple(b.shape)}"
        )
    m, n = a.shape
    values = ours.svdvals(a)
    bound = float(np.finfo(a.dtype.numpy).eps) * max(m, n) if rcond is None else max(rcond, 0.0)
    rank = int((values > bound * values.max()).sum()) if values.numel() else 0
    columns = b.unsqueeze(-1) if b.ndim == 1 else b
    solution = ours.pinv(a, rtol=bound).matmul(columns)
    left = reductions.squared_size(columns - a.matmul(solution)).sum(0)
    left = left if rank == n and m > n else left[:0]
    return (solution.squeeze(-1) if b.ndim == 1 else solution), left, rank, values


def matrix_power(a: Any, n: int) -> Tensor:
    """`numpy.linalg.matrix_power`."""
    return ours.matrix_power(_square(a, _factored if n < 0 else _numbers), n)


def matrix_rank(A: Any, tol: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Tensor:
    """`numpy.linalg.matrix_rank`."""
    A = as_tensor(A)
    if A.ndim < 2:
        return (A != 0).any().to(element_type(int))
    return ours.matrix_rank(_factored(A), atol=tol, rtol=rtol, hermitian=hermitian)


def cond(x: Any, p: Any = None) -> Tensor:
    """`numpy.linalg.cond`."""
    return ours.cond(_matrices(x), p)


def tensorsolve(a: Any, b: Any, axes: Any = None) -> Tensor:
    """`numpy.linalg.tensorsolve`."""
    a, b = as_tensors((a, b))
    a, b = alike(_factored(a), _factored(b))
    return ours.tensorsolve(a, b, axes)


def tensorinv(a: Any, ind: int = 2) -> Tensor:
    """`numpy.linalg.tensorinv`."""
    return ours.tensorinv(_factored(a), ind)


@takes_out
def multi_dot(arrays: Sequence[Any], *, out: Any = None) -> Tensor:
    """`numpy.linalg.multi_dot`."""
    return ours.multi_dot(alike(*arrays))


def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Tensor:
    """`numpy.linalg.norm` of vectors and matrices."""
    x = _numbers(x)
    if axis is None:
        if ord is None:
            total = ours.vector_norm(x.reshape(-1))
            return total.reshape((1,) * x.ndim) if keepdims else total
        if x.ndim not in (1, 2):
            raise ValueError("Improper number of dimensions to norm.")
        axes = tuple(range(x.ndim))
    else:
        axes = reductions.axes_of(x, axis)
    if len(axes) == 1:
        if isinstance(ord, str):
            raise ValueError(f"Invalid norm order '{ord}' for vectors")
        return ours.vector_norm(x, 2 if ord is None else ord, axes, keepdims)
    if len(axes) != 2:
        raise ValueError("Improper number of dimensions to norm.")
    ord = "fro" if ord is None else ord
    return ours.matrix_norm(_factored(x) if ord in SPECTRAL else x, ord, axes, keepdims)


def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Tensor:
    """`numpy.linalg.vector_norm`."""
    x = _numbers(x)
    return ours.vector_norm(x, ord, reductions.axes_of(x, axis), keepdims)


def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Tensor:
    """`numpy.linalg.matrix_norm`."""
    x = _matrices(x, _factored if ord in SPECTRAL else _numbers)
    return ours.matrix_norm(x, ord, (-2, -1), keepdims)


def trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Any:
    """`numpy.linalg.trace`, over the last two axes."""
    return reductions.sum(diagonal(x, offset=offset), -1, dtype)


def diagonal(x: Any, /, *, offset: int = 0) -> Tensor:
    """`numpy.linalg.diagonal`, of the last two axes."""
    return arranging.diagonal(x, offset, -2, -1)


def cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Tensor:
    """`numpy.linalg.cross`."""
    return products.cross(x1, x2, axis=axis)


def outer(x1: Any, x2: Any, /) -> Any:
    """`numpy.linalg.outer` of two vectors."""
    if as_tensor(x1).ndim != 1 or as_tensor(x2).ndim != 1:
        raise ValueError("Input arrays must be one-dimensional")
    return products.outer(x1, x2)


def matmul(x1: Any, x2: Any, /) -> Any:
    """`numpy.linalg.matmul`."""
    return np.matmul(x1, x2)


def vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Tensor:
    """`numpy.linalg.vecdot`."""
    x1, x2 = alike(x1, x2)
    inner: Any = np.vecdot(*[shapes.moveaxis(x, axis, -1) for x in (x1, x2)])  # type: ignore[call-overload]
    return inner
