"""Distributions sampled as quantiles of uniform numbers: Weibull's, Pareto's, Kumaraswamy's."""

from __future__ import annotations

import math
from typing import Any

from lucid_gpu.distributions import constraints
from lucid_gpu.distributions.distribution import Distribution, Shape
from lucid_gpu.distributions.location_scale import EULER
from lucid_gpu.distributions.utils import tiny
from lucid_gpu.ops.elementwise import where
from lucid_gpu.ops.random import rand
from lucid_gpu.tensor import Tensor

__all__ = ["ByInverse", "GeneralizedPareto", "Kumaraswamy", "Pareto", "Weibull"]


class ByInverse(Distribution):
    """A distribution whose `icdf` is a formula: samples are its values at uniform numbers."""

    has_rsample = True

    @property
    def _one(self) -> Tensor:
        """A parameter, for its type and device."""
        first: Tensor = self.__dict__[next(iter(self.arg_constraints))]
        return first

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        like = self._one
        unit = rand(self._extended_shape(sample_shape), dtype=like.dtype, device=like.device)
        return self.icdf(unit.clamp(min=tiny(like.dtype)))


class Weibull(ByInverse):
    """``p(x) = k / scale (x / scale)^(k - 1) exp(-(x / scale)^k)`` with ``k = concentration``.

    Parameters
    ----------
    scale, concentration : float or Tensor, broadcast to batch_shape
    validate_args : bool, optional
    """

    arg_constraints: Any = {"scale": constraints.positive, "concentration": constraints.positive}
    support: Any = constraints.positive
    scale: Tensor
    concentration: Tensor

    def __init__(self, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self._take(validate_args, scale=scale, concentration=concentration)

    def _moment(self, n: int) -> Tensor:
        return self.scale**n * (1 + n / self.concentration).lgamma().exp()

    @property
    def mean(self) -> Tensor:
        return self._moment(1)

    @property
    def mode(self) -> Tensor:
        k = self.concentration
        return self.scale * ((k - 1) / k) ** (1 / k)

    @property
    def variance(self) -> Tensor:
        return self._moment(2) - self._moment(1) ** 2

    def _log_prob(self, value: Tensor) -> Tensor:
        k, z = self.concentration, value / self.scale
        return (k / self.scale).log() + (k - 1) * z.log() - z**k

    def _cdf(self, value: Tensor) -> Tensor:
        return -(-((value / self.scale) ** self.concentration)).expm1()

    def icdf(self, value: Tensor) -> Tensor:
        return self.scale * (-(-value).log1p()) ** (1 / self.concentration)

    def entropy(self) -> Tensor:
        k = self.concentration
        return EULER * (1 - 1 / k) + (self.scale / k).log() + 1


class Pareto(ByInverse):
    """``p(x) = alpha scale^alpha / x^(alpha + 1)`` from ``scale`` on.

    Parameters
    ----------
    scale, alpha : float or Tensor, broadcast to batch_shape
    validate_args : bool, optional
    """

    arg_constraints: Any = {"alpha": constraints.positive, "scale": constraints.positive}
    scale: Tensor
    alpha: Tensor

    def __init__(self, scale: Any, alpha: Any, validate_args: bool | None = None) -> None:
        self._take(validate_args, scale=scale, alpha=alpha)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        """From `scale` on."""
        return constraints.greater_than_eq(self.scale)

    @property
    def mean(self) -> Tensor:
        a = self.alpha.clamp(min=1)  # infinite below
        return a * self.scale / (a - 1)

    @property
    def mode(self) -> Tensor:
        return self.scale

    @property
    def variance(self) -> Tensor:
        a = self.alpha.clamp(min=2)  # infinite below
        return self.scale**2 * a / ((a - 1) ** 2 * (a - 2))

    def _log_prob(self, value: Tensor) -> Tensor:
        z = (value / self.scale).log()
        return (self.alpha / self.scale).log() - (self.alpha + 1) * z

    def _cdf(self, value: Tensor) -> Tensor:
        return -(self.alpha * (self.scale / value).log()).expm1()

    def icdf(self, value: Tensor) -> Tensor:
        return self.scale * (-(-value).log1p() / self.alpha).exp()

    def entropy(self) -> Tensor:
        return (self.scale / self.alpha).log() + (1 + 1 / self.alpha)


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
        """The logarithm of the probability of more than ``value``; shapes as in `log_prob`."""
        if self._validate_args:
            self._validate_sample(value)
        z = (value - self.loc) / self.scale
        none, k = self._shape
        return -where(none, z, (k * z).log1p() / k)

    def log_cdf(self, value: Tensor) -> Tensor:
        """The logarithm of `cdf`; shapes as in `log_prob`."""
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


class Kumaraswamy(ByInverse):
    """``p(x) = a b x^(a - 1) (1 - x^a)^(b - 1)``, much like a beta distribution.

    Parameters
    ----------
    concentration1, concentration0 : float or Tensor, broadcast to batch_shape
        ``a`` and ``b``.
    validate_args : bool, optional
    """

    arg_constraints: Any = {
        "concentration1": constraints.positive,
        "concentration0": constraints.positive,
    }
    support: Any = constraints.unit_interval
    concentration1: Tensor
    concentration0: Tensor

    def __init__(
        self, concentration1: Any, concentration0: Any, validate_args: bool | None = None
    ) -> None:
        self._take(validate_args, concentration1=concentration1, concentration0=concentration0)

    def _moment(self, n: int) -> Tensor:
        b, part = self.concentration0, 1 + n / self.concentration1
        return b * (part.lgamma() + b.lgamma() - (part + b).lgamma()).exp()

    @property
    def mean(self) -> Tensor:
        return self._moment(1)

    @property
    def mode(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        return ((a - 1) / (a * b - 1)).masked_fill((a < 1) | (b < 1), math.nan) ** (1 / a)

    @property
    def variance(self) -> Tensor:
        return self._moment(2) - self._moment(1) ** 2

    def _log_prob(self, value: Tensor) -> Tensor:
        a, b = self.concentration1, self.concentration0
        return (a * b).log() + (a - 1).xlogy(value) + (b - 1) * (-(value**a)).log1p()

    def _cdf(self, value: Tensor) -> Tensor:
        return -(self.concentration0 * (-(value**self.concentration1)).log1p()).expm1()

    def icdf(self, value: Tensor) -> Tensor:
        below = -((-value).log1p() / self.concentration0).expm1()
        return below ** (1 / self.concentration1)

    def entropy(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        return (1 - 1 / b) + (1 - 1 / a) * ((b + 1).digamma() + EULER) - (a * b).log()
