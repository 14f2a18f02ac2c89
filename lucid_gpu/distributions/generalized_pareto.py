"""The generalized Pareto distribution."""

from __future__ import annotations

import math
from typing import Any

from lucid_gpu.distributions import constraints
from lucid_gpu.distributions.by_inverse import ByInverse
from lucid_gpu.ops.elementwise import where
from lucid_gpu.tensor import Tensor

__all__ = ["GeneralizedPareto"]


class GeneralizedPareto(ByInverse):
    """What is beyond a high threshold: ``P(x > loc + scale z) = (1 + k z)^(-1 / k)``.

    Parameters
    ----------
    loc, scale : float or Tensor, broadcast to batch_shape
    concentration : float or Tensor, broadcast to batch_shape
        ``k``: an exponential distribution for 0, one of a last value for less.
    validate_args : bool, optional
    """

    arg_constraints: Any = {
        "loc": constraints.real,
        "scale": constraints.positive,
        "concentration": constraints.real,
    }
    loc: Tensor
    scale: Tensor
    concentration: Tensor

    def __init__(
        self, loc: Any, scale: Any, concentration: Any, validate_args: bool | None = None
    ) -> None:
        self._take(validate_args, loc=loc, scale=scale, concentration=concentration)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        """From `loc` on, up to ``loc - scale / concentration`` for negative ones."""
        k = self.concentration
        end = self.loc - self.scale / k
        return constraints.interval(self.loc, end.masked_fill(k >= 0, math.inf))

    @property
    def _shape(self) -> tuple[Tensor, Tensor]:
        """Whether ``k`` is about 0, and a ``k`` that can be divided by."""
        none = self.concentration.abs() <= 1e-8
        return none, self.concentration.masked_fill(none, 1.0)

    @property
    def mean(self) -> Tensor:
        k = self.concentration
        mean = self.loc + self.scale / (1 - k.masked_fill(k >= 1, 0.5))
        return mean.masked_fill(k >= 1, math.nan)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        beyond = self.concentration >= 0.5
        k = self.concentration.masked_fill(beyond, 0.25)
        variance = self.scale**2 / ((1 - k) ** 2 * (1 - 2 * k))
        return variance.masked_fill(beyond, math.nan)

    def log_survival_function(self, value: Tensor) -> Tensor:
        """The logarithm of the probability of more than ``value``; shapes as of `log_prob`."""
        if self._validate_args:
            self._validate_sample(value)
        z = (value - self.loc) / self.scale
        none, k = self._shape
        return -where(none, z, (k * z).log1p() / k)

    def log_cdf(self, value: Tensor) -> Tensor:
        """The logarithm of `cdf`; shapes as of `log_prob`."""
        return (-self.log_survival_function(value).exp()).log1p()

    def _log_prob(self, value: Tensor) -> Tensor:
        z = (value - self.loc) / self.scale
        none, k = self._shape
        return -self.scale.log() - where(none, z, (1 / k + 1) * (k * z).log1p())

    def cdf(self, value: Tensor) -> Tensor:
        return -self.log_survival_function(value).expm1()

    def icdf(self, value: Tensor) -> Tensor:
        waiting = -(-value).log1p()
        none, k = self._shape
        return self.loc + self.scale * where(none, waiting, (k * waiting).expm1() / k)

    def entropy(self) -> Tensor:
        return self.scale.log() + self.concentration + 1
