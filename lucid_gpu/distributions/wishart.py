"""Distributions of matrices: Wishart, and Cholesky factors of correlation matrices."""

from __future__ import annotations

import math
import warnings
from typing import Any

from lucid_gpu.distributions import constraints
from lucid_gpu.distributions.dirichlet import Beta
from lucid_gpu.distributions.distribution import Distribution, ExponentialFamily, Shape
from lucid_gpu.distributions.gamma import Chi2
from lucid_gpu.distributions.multivariate_normal import (
    MultivariateNormal,
    half_log_det,
    one_of_three,
)
from lucid_gpu.distributions.utils import broadcast_all, eps, tiny
from lucid_gpu.linalg import slogdet, solve_triangular
from lucid_gpu.ops.creation import arange, tensor
from lucid_gpu.ops.random import randn
from lucid_gpu.ops.stacking import broadcast_shapes
from lucid_gpu.tape.modes import no_grad
from lucid_gpu.tensor import Tensor

__all__ = ["LKJCholesky", "Wishart"]


class Wishart(ExponentialFamily):
    r"""``sum of x x^T`` over ``df`` normal vectors ``x`` of covariance ``S``.

    Drawn by Bartlett's decomposition: ``L A A^T L^T`` for the factor ``L`` of ``S`` and a lower
    triangular ``A`` of normal numbers, on its diagonal roots of chi-squared ones.

    Parameters
    ----------
    df : float or Tensor, broadcast to batch_shape
        More than ``n - 1``.
    covariance_matrix, precision_matrix : Tensor, shape (..., n, n)
        ``S`` and its inverse.
    scale_tril : Tensor, shape (..., n, n)
        ``L``. Pass one of the three.
    validate_args : bool, optional

    Raises
    ------
    AssertionError
        For none or several of the matrices.
    ValueError
        For too few degrees of freedom or dimensions.
    """

    support: Any = constraints.positive_definite
    has_rsample = True
    df: Tensor

    def __init__(
        self,
        df: Any,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        name, matrix = one_of_three(AssertionError, covariance_matrix, precision_matrix, scale_tril)
        if not isinstance(df, Tensor):
            df = tensor(df, dtype=matrix.dtype, device=matrix.device)
        batch, n = broadcast_shapes(matrix.shape[:-2], df.shape), matrix.shape[-1]
        self.df = df.expand(batch)
        if (self.df <= n - 1).any():
            raise ValueError(f"Value of df={df} expected to be greater than ndim - 1 = {n - 1}.")
        if (self.df < n).any():
            warnings.warn(
                "Low df values detected. Singular samples are highly likely to occur for "
                "ndim - 1 < df < ndim.",
                stacklevel=2,
            )
        self.__dict__[name] = matrix.expand((*batch, -1, -1))
        super().__init__(batch, matrix.shape[-2:], validate_args=validate_args)
        if "scale_tril" not in self.__dict__:
            self.scale_tril = MultivariateNormal.scale_tril.fget(self)

    # The matrices by each other are those of the normal vectors.
    scale_tril: Any = MultivariateNormal.scale_tril
    covariance_matrix: Any = MultivariateNormal.covariance_matrix
    precision_matrix: Any = MultivariateNormal.precision_matrix

    @property
    def arg_constraints(self) -> Any:
        """By the size of the matrices."""
        return {
            "covariance_matrix": constraints.positive_definite,
            "precision_matrix": constraints.positive_definite,
            "scale_tril": constraints.lower_cholesky,
            "df": constraints.greater_than(self._event_shape[-1] - 1),
        }

    @property
    def _n(self) -> int:
        return int(self._event_shape[-1])

    @property
    def _df(self) -> Tensor:
        """Beside matrices."""
        return self.df[..., None, None]

    @property
    def mean(self) -> Tensor:
        mean: Tensor = self._df * self.covariance_matrix
        return mean

    @property
    def mode(self) -> Tensor:
        factor = self._df - self._n - 1
        mode: Tensor = factor.masked_fill(factor <= 0, math.nan) * self.covariance_matrix
        return mode

    @property
    def variance(self) -> Tensor:
        s = self.covariance_matrix
        own = s.diagonal(dim1=-2, dim2=-1)
        variance: Tensor = self._df * (s**2 + own.unsqueeze(-1) * own.unsqueeze(-2))
        return variance

    def _below(self) -> Tensor:
        """``df, df - 1, ...``."""
        rows = arange(self._n, dtype=self.df.dtype, device=self.df.device)
        return self.df.unsqueeze(-1) - rows

    def rsample(self, sample_shape: Shape = (), max_try_correction: int | None = None) -> Tensor:
        """Matrices with gradients, of shape ``sample_shape + batch_shape + (n, n)``.

        Parameters
        ----------
        sample_shape : sequence of int
        max_try_correction : int, optional
            Accepted for compatibility; nothing needs to be drawn again.
        """
        roots = Chi2(self._below(), validate_args=False).rsample(sample_shape).sqrt()
        like = self.scale_tril
        noise = randn(self._extended_shape(sample_shape), dtype=like.dtype, device=like.device)
        factor = like @ (noise.tril(-1) + roots.clamp(min=eps(roots.dtype)).diag_embed())
        drawn: Tensor = factor @ factor.transpose(-2, -1)
        return drawn

    def _log_scale(self) -> Tensor:
        """Half the logarithm of ``det(2 S)``."""
        return self._n * math.log(2) / 2 + half_log_det(self.scale_tril)

    def _log_prob(self, value: Tensor) -> Tensor:
        nu, n = self.df, self._n
        shape = (*(value[..., 0, 0] + nu).shape, n, n)
        factor = self.scale_tril.expand(shape)
        half = solve_triangular(factor, value.expand(shape), upper=False)
        whole = solve_triangular(factor.transpose(-2, -1), half, upper=True)
        trace = whole.diagonal(dim1=-2, dim2=-1).sum(-1)
        size = (nu - n - 1) / 2 * slogdet(value)[1]
        return size - trace / 2 - nu * self._log_scale() - (nu / 2).mvlgamma(n)

    def entropy(self) -> Tensor:
        nu, n = self.df, self._n
        of_log = (self._below() / 2).digamma().sum(-1)
        rest = (nu / 2).mvlgamma(n) - (nu - n - 1) / 2 * of_log + nu * n / 2
        return (n + 1) * self._log_scale() + rest

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return -self.precision_matrix / 2, (self.df - self._n - 1) / 2

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        x, y = natural_params
        n = self._n
        a = y + (n + 1) / 2
        return a * (n * math.log(2) - slogdet(-2 * x)[1]) + a.mvlgamma(n)


class LKJCholesky(Distribution):
    """``L`` with ``p(L L^T)`` in proportion to ``det(L L^T)^(concentration - 1)``.

    Drawn row by row, by the onion method (Lewandowski, Kurowicka, Joe, Generating random
    correlation matrices based on vines and extended onion method, 2009, section 3.2).

    Parameters
    ----------
    dim : int
        Rows of the matrices, at least 2, else ValueError.
    concentration : float or Tensor, broadcast to batch_shape
        1 for a uniform distribution of the correlation matrices.
    validate_args : bool, optional
    """

    arg_constraints: Any = {"concentration": constraints.positive}
    support: Any = constraints.corr_cholesky
    concentration: Tensor

    def __init__(
        self, dim: int, concentration: Any = 1.0, validate_args: bool | None = None
    ) -> None:
        if dim < 2:
            raise ValueError(
                f"Expected dim to be an integer greater than or equal to 2. Found dim={dim}."
            )
        self.dim = dim
        (self.concentration,) = broadcast_all(concentration)
        super().__init__(self.concentration.shape, (dim, dim), validate_args)

    def _numbers(self, first: int, end: int) -> Tensor:
        c = self.concentration
        return arange(first, end, dtype=c.dtype, device=c.device)

    def sample(self, sample_shape: Shape = ()) -> Tensor:
        """Factors without gradients, of shape ``sample_shape + batch_shape + (dim, dim)``.

        Each row is a direction times the root of a beta variable, and what is left of 1.
        """
        c, n = self.concentration.unsqueeze(-1), self.dim
        row = self._numbers(-1, n - 1).clamp(min=0)
        with no_grad():
            size = Beta(row + 0.5, c + 0.5 * (n - 2) - 0.5 * row, validate_args=False)
            squares = size.sample(sample_shape).unsqueeze(-1)
            noise = randn(self._extended_shape(sample_shape), dtype=c.dtype, device=c.device)
            noise = noise.tril(-1)
            lengths = noise.square().sum(-1, keepdim=True).sqrt().clamp(min=tiny(c.dtype))
            below = squares.sqrt() * noise / lengths  # the first row is 0
            left = (1 - below.square().sum(-1)).clamp(min=tiny(c.dtype)).sqrt()
            return below + left.diag_embed()

    def _log_prob(self, value: Tensor) -> Tensor:
        n, c = self.dim, self.concentration
        order = 2 * (c - 1).unsqueeze(-1) + n - self._numbers(2, n + 1)
        density = (order * value.diagonal(dim1=-2, dim2=-1)[..., 1:].log()).sum(-1)
        alpha = c + 0.5 * (n - 1)
        scale = (alpha - 0.5).mvlgamma(n - 1) - (n - 1) * alpha.lgamma()
        return density - (0.5 * (n - 1) * math.log(math.pi) + scale)
