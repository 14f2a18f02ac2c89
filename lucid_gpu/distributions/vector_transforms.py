"""Maps from vectors to simplices and triangular matrices."""

from __future__ import annotations

import math
from typing import Any

from lucid_gpu.distributions import constraints
from lucid_gpu.distributions.transform import Transform
from lucid_gpu.distributions.utils import eps, tiny
from lucid_gpu.linalg import cholesky
from lucid_gpu.nn import functional as F
from lucid_gpu.ops.creation import arange, eye
from lucid_gpu.ops.grids import tril_indices
from lucid_gpu.tensor import Tensor

__all__ = [
    "CorrCholeskyTransform",
    "LowerCholeskyTransform",
    "PositiveDefiniteTransform",
    "StickBreakingTransform",
]


class StickBreakingTransform(Transform):
    """Fractions ``sigmoid(x_i - log(n - i))`` of what is left of a stick, and the last rest."""

    domain = constraints.real_vector
    codomain = constraints.simplex
    bijective = True

    def _call(self, x: Tensor) -> Tensor:
        z = _left(x).sigmoid().clamp(min=tiny(x.dtype), max=1.0 - eps(x.dtype))
        return F.pad(z, (0, 1), value=1.0) * F.pad((1 - z).cumprod(-1), (1, 0), value=1.0)

    def _inverse(self, y: Tensor) -> Tensor:
        parts = y[..., :-1]
        rest = (1 - parts.cumsum(-1)).clamp(min=tiny(y.dtype))
        return parts.log() - rest.log() + _counts(parts).log()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        z = _left(x)
        return (F.logsigmoid(z) - z + y[..., :-1].log()).sum(-1)

    def forward_shape(self, shape: Any) -> Any:
        _at_least(shape, 1)
        return (*shape[:-1], shape[-1] + 1)

    def inverse_shape(self, shape: Any) -> Any:
        _at_least(shape, 1)
        return (*shape[:-1], shape[-1] - 1)


def _counts(x: Tensor) -> Tensor:
    """``n, n - 1, ..., 1`` beside the last dimension."""
    n = x.shape[-1]
    return arange(n, 0, -1, dtype=x.dtype, device=x.device)


def _left(x: Tensor) -> Tensor:
    return x - _counts(x).log()


def _at_least(shape: Any, dims: int) -> None:
    if len(shape) < dims:
        raise ValueError("Too few dimensions on input")


class LowerCholeskyTransform(Transform):
    """The lower triangle of a matrix, with the exponential of its diagonal."""

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.lower_cholesky

    def _call(self, x: Tensor) -> Tensor:
        return x.tril(-1) + x.diagonal(dim1=-2, dim2=-1).exp().diag_embed()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.tril(-1) + y.diagonal(dim1=-2, dim2=-1).log().diag_embed()


class PositiveDefiniteTransform(Transform):
    """``L L^T`` for the ``L`` of `LowerCholeskyTransform`."""

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.positive_definite

    def _call(self, x: Tensor) -> Tensor:
        factor = LowerCholeskyTransform()(x)
        return factor @ factor.transpose(-2, -1)

    def _inverse(self, y: Tensor) -> Tensor:
        return LowerCholeskyTransform()._inverse(cholesky(y))


class CorrCholeskyTransform(Transform):
    """A vector of ``n (n - 1) / 2`` numbers as the Cholesky factor of a correlation matrix.

    ``tanh`` of the numbers stands below the diagonal, row by row; each row is a stick of length 1
    whose entries take signed shares of the square that is left.
    """

    domain = constraints.real_vector
    codomain = constraints.corr_cholesky
    bijective = True

    def _call(self, x: Tensor) -> Tensor:
        most = 1 - eps(x.dtype)
        r = _below_diagonal(x.tanh().clamp(min=-most, max=most))
        left = (1 - r * r).sqrt().cumprod(-1)
        unit = eye(r.shape[-1], dtype=r.dtype, device=r.device)
        return (r + unit) * F.pad(left[..., :-1], (1, 0), value=1.0)

    def _inverse(self, y: Tensor) -> Tensor:
        left = F.pad((1 - (y * y).cumsum(-1))[..., :-1], (1, 0), value=1.0)
        return (_of_below(y) / _of_below(left).sqrt()).atanh()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        left = _of_below(1 - (y * y).cumsum(-1), -2)
        of_tanh = x + F.softplus(-2.0 * x) - math.log(2.0)
        return 0.5 * left.log().sum(-1) - 2 * of_tanh.sum(-1)

    def forward_shape(self, shape: Any) -> Any:
        _at_least(shape, 1)
        n = _rows(shape[-1])
        return (*shape[:-1], n, n)

    def inverse_shape(self, shape: Any) -> Any:
        _at_least(shape, 2)
        if shape[-2] != shape[-1]:
            raise ValueError("Input is not square")
        return (*shape[:-2], shape[-1] * (shape[-1] - 1) // 2)


def _rows(count: int) -> int:
    """Of a matrix with so many entries below its diagonal."""
    n = round((0.25 + 2 * count) ** 0.5 + 0.5)
    if n * (n - 1) // 2 != count:
        raise ValueError("Input is not a flattened lower-diagonal number")
    return n


def _below_diagonal(x: Tensor) -> Tensor:
    """Vectors as strictly lower triangular matrices, row by row."""
    n = _rows(x.shape[-1])
    place = arange(n, device=x.device)
    row, column = place[:, None], place
    index = (row * (row - 1) // 2 + column).masked_fill(column >= row, x.shape[-1])
    return F.pad(x, (0, 1))[..., index]


def _of_below(x: Tensor, diagonal: int = -1) -> Tensor:
    """The entries of matrices on and below a diagonal, row by row."""
    i, j = tril_indices(x.shape[-2], x.shape[-1], diagonal, device=x.device)
    return x[..., i, j]
