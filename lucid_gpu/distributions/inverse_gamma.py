"""The reciprocal of a gamma one."""

from __future__ import annotations

import math
from typing import Any

from lucid_gpu.distributions import constraints
from lucid_gpu.distributions.distribution import Distribution, Shape
from lucid_gpu.distributions.gamma import Gamma
from lucid_gpu.ops.incomplete_gamma import igammac
from lucid_gpu.tensor import Tensor

__all__ = ["InverseGamma"]


class InverseGamma(Distribution):
    """``1 / x`` for a gamma ``x``: ``p(y) = rate^a y^(-a - 1) exp(-rate / y) / gamma(a)``.

    Parameters
    ----------
    concentration, rate : float or Tensor, broadcast to batch_shape
        Those of ``x``; ``a`` is the first.
    validate_args : bool, optional
    """

    arg_constraints: Any = {"concentration": constraints.positive, "rate": constraints.positive}
    support: Any = constraints.positive
    has_rsample = True
    concentration: Tensor
    rate: Tensor

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        self._take(validate_args, concentration=concentration, rate=rate)

    @property
    def base_dist(self) -> Gamma:
        """That of ``x``."""
        return Gamma(self.concentration, self.rate, validate_args=False)

    @property
    def mean(self) -> Tensor:
        a = self.concentration
        return (self.rate / (a - 1)).masked_fill(a <= 1, math.inf)

    @property
    def mode(self) -> Tensor:
        return self.rate / (self.concentration + 1)

    @property
    def variance(self) -> Tensor:
        a = self.concentration
        return (self.rate**2 / ((a - 1) ** 2 * (a - 2))).masked_fill(a <= 2, math.inf)

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        return self.base_dist.rsample(sample_shape).reciprocal()

    def _log_prob(self, value: Tensor) -> Tensor:
        a, rate = self.concentration, self.rate
        return a * rate.log() - (a + 1) * value.log() - rate / value - a.lgamma()

    def _cdf(self, value: Tensor) -> Tensor:
        return igammac(self.concentration, self.rate / value)

    def entropy(self) -> Tensor:
        a = self.concentration
        return a + self.rate.log() + a.lgamma() - (1 + a) * a.digamma()
