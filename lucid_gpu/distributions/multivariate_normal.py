"""Normal distributions of vectors, by a full covariance or by a diagonal and a low rank."""

from __future__ import annotations

import math
from typing import Any

from lucid_gpu.distributions import constraints
from lucid_gpu.distributions.distribution import Distribution, Shape
from lucid_gpu.distributions.utils import lazy_property
from lucid_gpu.linalg import cholesky, solve_triangular
from lucid_gpu.ops.creation import eye
from lucid_gpu.ops.random import randn
from lucid_gpu.ops.stacking import broadcast_tensors
from lucid_gpu.tensor import Tensor

__all__ = ["LowRankMultivariateNormal", "MultivariateNormal"]


def one_of_three(
    refusal: type[Exception],
    covariance_matrix: Tensor | None,
    precision_matrix: Tensor | None,
    scale_tril: Tensor | None,
) -> tuple[str, Tensor]:
    """The name and value of the matrix that is not None; ``refusal`` is raised for more or none."""
    matrices = {
        "covariance_matrix": covariance_matrix,
        "precision_matrix": precision_matrix,
        "scale_tril": scale_tril,
    }
    present = {name: m for name, m in matrices.items() if m is not None}
    if len(present) != 1:
        raise refusal(
            "Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified."
        )
    ((name, matrix),) = present.items()
    if matrix.ndim < 2:
        raise ValueError(
            f"{name} must be at least two-dimensional, with optional leading batch dimensions"
        )
    return name, matrix


class MultivariateNormal(Distribution):
    r"""``p(x) = exp(-(x - loc)^T S^-1 (x - loc) / 2) / sqrt(det(2 pi S))``.

    Pass one of the matrices; `scale_tril`, the factor ``L`` of ``S = L L^T``, is computed from
    the others and is what everything is computed with.

    Parameters
    ----------
    loc : Tensor, shape (..., n)
    covariance_matrix, precision_matrix : Tensor, shape (..., n, n)
        ``S`` and its inverse.
    scale_tril : Tensor, shape (..., n, n)
        ``L``, lower triangular with a positive diagonal.
    validate_args : bool, optional

    Raises
    ------
    ValueError
        For none or several of the matrices, and for too few dimensions.
    """

    arg_constraints: Any = {
        "loc": constraints.real_vector,
        "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
    }
    support: Any = constraints.real_vector
    has_rsample = True

    def __init__(
        self,
        loc: Tensor,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        if loc.ndim < 1:
            raise ValueError("loc must be at least one-dimensional.")
        name, matrix = one_of_three(ValueError, covariance_matrix, precision_matrix, scale_tril)
        batch = (loc[..., 0] + matrix[..., 0, 0]).shape
        self.loc = loc.expand((*batch, -1))
        self.__dict__[name] = matrix.expand((*batch, -1, -1))
        super().__init__(batch, loc.shape[-1:], validate_args=validate_args)
        if "scale_tril" not in self.__dict__:
            self.scale_tril = _factor(self)

    @lazy_property
    def scale_tril(self) -> Tensor:
        """``L``, of shape ``batch_shape + (n, n)``."""
        return _factor(self)

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """``S``, of shape ``batch_shape + (n, n)``."""
        return self.scale_tril @ self.scale_tril.transpose(-2, -1)

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """The inverse of ``S``, of shape ``batch_shape + (n, n)``."""
        inverse = _inverse(self.scale_tril)
        return inverse.transpose(-2, -1) @ inverse

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        variance: Tensor = (self.scale_tril**2).sum(-1)
        return variance

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        noise = randn(shape, dtype=self.loc.dtype, device=self.loc.device)
        return self.loc + (self.scale_tril @ noise.unsqueeze(-1)).squeeze(-1)

    def _log_prob(self, value: Tensor) -> Tensor:
        distance = mahalanobis(self.scale_tril, value - self.loc)
        n = self._event_shape[0]
        return -0.5 * (n * math.log(2 * math.pi) + distance) - half_log_det(self.scale_tril)

    def entropy(self) -> Tensor:
        n = self._event_shape[0]
        return 0.5 * n * (1.0 + math.log(2 * math.pi)) + half_log_det(self.scale_tril)


def half_log_det(factor: Tensor) -> Tensor:
    """Half the logarithm of the determinant of ``L L^T``."""
    return factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def mahalanobis(factor: Tensor, x: Tensor) -> Tensor:
    """``x^T (L L^T)^-1 x``."""
    solved = solve_triangular(factor, x.unsqueeze(-1), upper=False)
    return solved.squeeze(-1).square().sum(-1)


_batch_mahalanobis = mahalanobis  # the names that packages import


def _batch_mv(bmat: Tensor, bvec: Tensor) -> Tensor:
    """Products of matrices with vectors."""
    return (bmat @ bvec.unsqueeze(-1)).squeeze(-1)


def _inverse(factor: Tensor) -> Tensor:
    unit = eye(factor.shape[-1], dtype=factor.dtype, device=factor.device)
    return solve_triangular(factor, unit.expand(factor.shape), upper=False)


def _precision_to_scale_tril(P: Tensor) -> Tensor:
    """``L`` from the inverse of ``S``: that of the matrix turned by half a turn, inverted."""
    return _inverse(cholesky(P.flip((-2, -1))).flip((-2, -1)).transpose(-2, -1))


def _factor(self: Any) -> Tensor:
    if "covariance_matrix" in self.__dict__:
        return cholesky(self.covariance_matrix)
    return _precision_to_scale_tril(self.precision_matrix)


class LowRankMultivariateNormal(Distribution):
    r"""A normal distribution of covariance ``S = W W^T + D``; densities take no ``n^3`` operations.

    With ``C = I + W^T D^-1 W``, of the rank's size, ``det S = det C det D`` and
    ``S^-1 = D^-1 - D^-1 W C^-1 W^T D^-1`` (Woodbury).

    Parameters
    ----------
    loc : Tensor, shape (..., n)
    cov_factor : Tensor, shape (..., n, rank)
        ``W``.
    cov_diag : Tensor, shape (..., n)
        The diagonal of ``D``.
    validate_args : bool, optional

    Raises
    ------
    ValueError
        For shapes that do not fit together.
    """

    arg_constraints: Any = {
        "loc": constraints.real_vector,
        "cov_factor": constraints.independent(constraints.real, 2),
        "cov_diag": constraints.independent(constraints.positive, 1),
    }
    support: Any = constraints.real_vector
    has_rsample = True
    loc: Tensor
    cov_factor: Tensor
    cov_diag: Tensor

    def __init__(
        self,
        loc: Tensor,
        cov_factor: Tensor,
        cov_diag: Tensor,
        validate_args: bool | None = None,
    ) -> None:
        _check_shapes(loc, cov_factor, cov_diag)
        try:
            columns = broadcast_tensors(loc.unsqueeze(-1), cov_factor, cov_diag.unsqueeze(-1))
        except RuntimeError as error:
            raise ValueError(
                f"Incompatible batch shapes: loc {loc.shape}, cov_factor {cov_factor.shape}, "
                f"cov_diag {cov_diag.shape}"
            ) from error
        self.loc, self.cov_factor, self.cov_diag = (
            columns[0][..., 0],
            columns[1],
            columns[2][..., 0],
        )
        super().__init__(self.loc.shape[:-1], loc.shape[-1:], validate_args=validate_args)

    @property
    def _scaled(self) -> Tensor:
        """``D^-1/2 W``."""
        return self.cov_factor / self.cov_diag.sqrt().unsqueeze(-1)

    @property
    def _capacitance(self) -> Tensor:
        """The Cholesky factor of ``C``."""
        w = self._scaled
        return cholesky(_with_unit(w.transpose(-2, -1) @ w))

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return self.cov_factor.square().sum(-1) + self.cov_diag

    @lazy_property
    def scale_tril(self) -> Tensor:
        """The Cholesky factor of ``S``, of shape ``batch_shape + (n, n)``."""
        w = self._scaled
        factor = cholesky(_with_unit(w @ w.transpose(-2, -1)))
        return self.cov_diag.sqrt().unsqueeze(-1) * factor

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """``S``, of shape ``batch_shape + (n, n)``."""
        return self.cov_factor @ self.cov_factor.transpose(-2, -1) + self.cov_diag.diag_embed()

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """The inverse of ``S``, of shape ``batch_shape + (n, n)``."""
        w = self.cov_factor.transpose(-2, -1) / self.cov_diag.unsqueeze(-2)
        a = solve_triangular(self._capacitance, w, upper=False)
        return self.cov_diag.reciprocal().diag_embed() - a.transpose(-2, -1) @ a

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        shape, like = self._extended_shape(sample_shape), self.loc
        of_rank = (*shape[:-1], self.cov_factor.shape[-1], 1)
        far = self.cov_factor @ randn(of_rank, dtype=like.dtype, device=like.device)
        near = self.cov_diag.sqrt() * randn(shape, dtype=like.dtype, device=like.device)
        return like + far.squeeze(-1) + near

    def _half_log_det(self) -> Tensor:
        return half_log_det(self._capacitance) + 0.5 * self.cov_diag.log().sum(-1)

    def _log_prob(self, value: Tensor) -> Tensor:
        x, n = value - self.loc, self._event_shape[0]
        z = x / self.cov_diag.sqrt()
        along = (self._scaled.transpose(-2, -1) @ z.unsqueeze(-1)).squeeze(-1)
        distance = z.square().sum(-1) - mahalanobis(self._capacitance, along)
        return -0.5 * (n * math.log(2 * math.pi) + distance) - self._half_log_det()

    def entropy(self) -> Tensor:
        n = self._event_shape[0]
        return 0.5 * n * (1.0 + math.log(2 * math.pi)) + self._half_log_det()


def _with_unit(matrix: Tensor) -> Tensor:
    return matrix + eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)


def _check_shapes(loc: Tensor, cov_factor: Tensor, cov_diag: Tensor) -> None:
    if loc.ndim < 1:
        raise ValueError("loc must be at least one-dimensional.")
    if cov_factor.ndim < 2:
        raise ValueError(
            "cov_factor must be at least two-dimensional, with optional leading batch dimensions"
        )
    if cov_factor.shape[-2] != loc.shape[-1]:
        raise ValueError(f"cov_factor must be a batch of matrices with shape {loc.shape[-1]} x m")
    if cov_diag.shape[-1:] != loc.shape[-1:]:
        raise ValueError(f"cov_diag must be a batch of vectors with shape {loc.shape[-1:]}")
