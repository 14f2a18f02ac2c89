"""Fisher's and Snedecor's distribution."""

from __future__ import annotations

import math
from typing import Any

from lucid_gpu.distributions import constraints
from lucid_gpu.distributions.distribution import Distribution, Shape
from lucid_gpu.distributions.gamma import Gamma
from lucid_gpu.distributions.utils import tiny
from lucid_gpu.tensor import Tensor

__all__ = ["FisherSnedecor"]


class FisherSnedecor(Distribution):
    """The ratio of two chi-squared ones, each divided by its degrees of freedom.

    Parameters
    ----------
    df1, df2 : float or Tensor, broadcast to batch_shape
        The degrees of freedom above and below.
    validate_args : bool, optional
    """

    arg_constraints: Any = {"df1": constraints.positive, "df2": constraints.positive}
    support: Any = constraints.positive
    has_rsample = True
    df1: Tensor
    df2: Tensor

    def __init__(self, df1: Any, df2: Any, validate_args: bool | None = None) -> None:
        self._take(validate_args, df1=df1, df2=df2)

    @property
    def mean(self) -> Tensor:
        n = self.df2.masked_fill(self.df2 <= 2, math.nan)
        return n / (n - 2)

    @property
    def mode(self) -> Tensor:
        m, n = self.df1.masked_fill(self.df1 <= 2, math.nan), self.df2
        return (m - 2) / m * n / (n + 2)

    @property
    def variance(self) -> Tensor:
        m, n = self.df1, self.df2.masked_fill(self.df2 <= 4, math.nan)
        return 2 * n**2 * (m + n - 2) / (m * (n - 2) ** 2 * (n - 4))

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        above, below = (
            Gamma(df / 2, df, validate_args=False).rsample(sample_shape)
            for df in (self.df1, self.df2)
        )
        return (above / below).clamp(min=tiny(below.dtype))

    def _log_prob(self, value: Tensor) -> Tensor:
        a, b, ratio = self.df1 / 2, self.df2 / 2, self.df1 / self.df2
        scale = (a + b).lgamma() - a.lgamma() - b.lgamma()
        return scale + a * ratio.log() + (a - 1) * value.log() - (a + b) * (ratio * value).log1p()
