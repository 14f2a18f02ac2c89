"""Student's t-distribution."""

from __future__ import annotations

import math
from typing import Any

from lucid_gpu.distributions import constraints
from lucid_gpu.distributions.chi2 import Chi2
from lucid_gpu.distributions.distribution import Distribution, Shape
from lucid_gpu.ops.elementwise import where
from lucid_gpu.ops.random import randn
from lucid_gpu.tensor import Tensor

__all__ = ["StudentT"]


class StudentT(Distribution):
    """``loc + scale * x / sqrt(z / df)`` for standard normal ``x``, chi-squared ``z``.

    Parameters
    ----------
    df : float or Tensor, broadcast to batch_shape
        Degrees of freedom.
    loc, scale : float or Tensor, broadcast to batch_shape
    validate_args : bool, optional
    """

    arg_constraints: Any = {
        "df": constraints.positive,
        "loc": constraints.real,
        "scale": constraints.positive,
    }
    support: Any = constraints.real
    has_rsample = True
    df: Tensor
    loc: Tensor
    scale: Tensor

    def __init__(
        self, df: Any, loc: Any = 0.0, scale: Any = 1.0, validate_args: bool | None = None
    ) -> None:
        self._take(validate_args, df=df, loc=loc, scale=scale)

    @property
    def mean(self) -> Tensor:
        return self.loc.masked_fill(self.df <= 1, math.nan)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        finite = self.scale**2 * self.df / (self.df - 2)
        known = where(self.df > 2, finite, math.inf)
        return known.masked_fill(self.df <= 1, math.nan)

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        x = randn(shape, dtype=self.df.dtype, device=self.df.device)
        z = Chi2(self.df, validate_args=False).rsample(sample_shape)
        return self.loc + self.scale * x * (z / self.df).rsqrt()

    def _log_prob(self, value: Tensor) -> Tensor:
        y = (value - self.loc) / self.scale
        half = 0.5 * self.df
        normalizer = self.scale.log() + 0.5 * self.df.log() + 0.5 * math.log(math.pi)
        normalizer = normalizer + half.lgamma() - (half + 0.5).lgamma()
        return -0.5 * (self.df + 1.0) * (y**2 / self.df).log1p() - normalizer

    def entropy(self) -> Tensor:
        half = 0.5 * self.df
        beta = half.lgamma() + math.lgamma(0.5) - (0.5 + half).lgamma()
        slope = (0.5 * (self.df + 1)).digamma() - half.digamma()
        return self.scale.log() + 0.5 * (self.df + 1) * slope + 0.5 * self.df.log() + beta
