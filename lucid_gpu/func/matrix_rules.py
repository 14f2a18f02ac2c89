"""Batching rules of matrix products, decompositions and spectra."""

from __future__ import annotations

from typing import Any

from lucid_gpu.func.batching import BatchLevel
from lucid_gpu.ops import (
    fourier,
    matmul,
)
from lucid_gpu.ops.linalg import (
    cholesky,
    determinant,
    eigen,
    inverse,
    lu,
    products,
    qr,
    quotients,
    svd,
)
from lucid_gpu.tape.rules import batching
from lucid_gpu.tensor import Tensor


@batching(matmul._product)
def _product(level: BatchLevel, f: Any, a: Tensor, b: Tensor) -> Tensor:
    if not level.holds(a) and a.ndim == b.ndim == 2 and b.shape[-1] == 1:
        rows = level.value(b).squeeze(-1)  # a vector an example: one product of matrices
        return level.wrap(f(rows, a.mT).unsqueeze(-1))
    rank = max(a.ndim, b.ndim)
    if not level.holds(b) and b.ndim == 2:
        return level.wrap(f(level.value(a), b))
    return level.wrap(f(level.aligned(a, rank), level.aligned(b, rank)))


@batching(matmul.linear)
def _linear(
    level: BatchLevel, f: Any, x: Tensor, weight: Tensor, bias: Tensor | None = None
) -> Tensor:
    if not level.holds(weight):
        if not level.holds(x):
            return f(x, weight) + bias
        product = level.wrap(f(level.value(x), weight))
    else:
        product = x @ weight.mT
    return product if bias is None else product + bias


@batching(inverse.inverse_of, determinant._determinant, determinant._signed_logarithm,
          cholesky._factor, qr.qr, lu.lu_factor, lu.lu_factor_ex, svd.svd, svd.svdvals, svd.pinv,
          svd.matrix_rank, eigen.eigh, eigen.eigvalsh, eigen.eig, products.matrix_exp)  # fmt: skip
def _matrices(level: BatchLevel, f: Any, A: Tensor, *args: Any, **options: Any) -> Any:
    return level.wrap_all(f(level.value(A), *args, **options))


@batching(fourier.transformed, fourier.half_spectrum, fourier.from_half)
def _spectrum(level: BatchLevel, f: Any, x: Tensor, *args: Any) -> Any:
    return level.wrap(f(level.value(x), *args))


@batching(quotients.solved)
def _solved(level: BatchLevel, f: Any, A: Tensor, B: Tensor) -> Any:
    rank = max(A.ndim, B.ndim)
    X, numbers = f(level.aligned(A, rank), level.aligned(B, rank))
    return level.wrap(X), numbers
