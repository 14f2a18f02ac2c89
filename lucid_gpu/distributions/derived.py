"""Absolute values of normal and Cauchy distributions, exponentials and simplices of normal ones."""

from __future__ import annotations

import math
from typing import Any

from lucid_gpu.distributions import constraints
from lucid_gpu.distributions.composed import TransformedDistribution
from lucid_gpu.distributions.distribution import Distribution, Shape
from lucid_gpu.distributions.location_scale import Cauchy, Normal
from lucid_gpu.distributions.transforms import ExpTransform, StickBreakingTransform
from lucid_gpu.ops.creation import full_like, zeros_like
from lucid_gpu.tensor import Tensor

__all__ = ["HalfCauchy", "HalfNormal", "LogNormal", "LogisticNormal"]


class Half(Distribution):
    """``|x|`` for an ``x`` whose distribution around 0 is symmetric."""

    arg_constraints: Any = {"scale": constraints.positive}
    support: Any = constraints.nonnegative
    has_rsample = True
    scale: Tensor
    base_dist: Any

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        self._take(validate_args, scale=scale)

    @property
    def mode(self) -> Tensor:
        return zeros_like(self.scale)

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        drawn: Tensor = self.base_dist.rsample(sample_shape)
        return drawn.abs()

    def _log_prob(self, value: Tensor) -> Tensor:
        inside: Tensor = self.base_dist.log_prob(value) + math.log(2)
        return inside.masked_fill(value < 0, -math.inf)

    def _cdf(self, value: Tensor) -> Tensor:
        below: Tensor = self.base_dist.cdf(value)
        return 2 * below - 1

    def icdf(self, prob: Tensor) -> Tensor:
        quantile: Tensor = self.base_dist.icdf((prob + 1) / 2)
        return quantile

    def entropy(self) -> Tensor:
        entropy: Tensor = self.base_dist.entropy()
        return entropy - math.log(2)


class HalfNormal(Half):
    """``|x|`` for a normal ``x`` of mean 0.

    Parameters
    ----------
    scale : float or Tensor, broadcast to batch_shape
        The standard deviation of ``x``.
    validate_args : bool, optional
    """

    @property
    def base_dist(self) -> Normal:
        """That of ``x``."""
        return Normal(zeros_like(self.scale), self.scale, validate_args=False)

    @property
    def mean(self) -> Tensor:
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def variance(self) -> Tensor:
        return self.scale**2 * (1 - 2 / math.pi)


class HalfCauchy(Half):
    """``|x|`` for a Cauchy ``x`` around 0.

    Parameters
    ----------
    scale : float or Tensor, broadcast to batch_shape
        The half width of ``x`` at half maximum.
    validate_args : bool, optional
    """

    @property
    def base_dist(self) -> Cauchy:
        """That of ``x``."""
        return Cauchy(zeros_like(self.scale), self.scale, validate_args=False)

    @property
    def mean(self) -> Tensor:
        return full_like(self.scale, math.inf)

    @property
    def variance(self) -> Tensor:
        return self.base_dist.variance


class LogNormal(TransformedDistribution):
    """``exp(x)`` for a normal ``x``.

    Parameters
    ----------
    loc, scale : float or Tensor, broadcast to batch_shape
        Mean and standard deviation of ``x``.
    validate_args : bool, optional
    """

    arg_constraints: Any = {"loc": constraints.real, "scale": constraints.positive}
    support: Any = constraints.positive
    base_dist: Any

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        base = Normal(loc, scale, validate_args=validate_args)
        super().__init__(base, ExpTransform(), validate_args=validate_args)

    @property
    def loc(self) -> Tensor:
        """The mean of ``x``, of shape ``batch_shape``."""
        return self.base_dist.loc

    @property
    def scale(self) -> Tensor:
        """The standard deviation of ``x``, of shape ``batch_shape``."""
        return self.base_dist.scale

    @property
    def mean(self) -> Tensor:
        return (self.loc + self.scale**2 / 2).exp()

    @property
    def mode(self) -> Tensor:
        return (self.loc - self.scale**2).exp()

    @property
    def variance(self) -> Tensor:
        square = self.scale**2
        return square.expm1() * (2 * self.loc + square).exp()

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() + self.loc


class LogisticNormal(TransformedDistribution):
    """Probabilities that `StickBreakingTransform` makes of normal variables.

    Parameters
    ----------
    loc, scale : float or Tensor, broadcast to (..., n - 1)
        For ``n`` probabilities, the shape of an event; numbers are for two.
    validate_args : bool, optional
    """

    arg_constraints: Any = {"loc": constraints.real, "scale": constraints.positive}
    support: Any = constraints.simplex
    base_dist: Any

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        base = Normal(loc, scale, validate_args=validate_args)
        if not base.batch_shape:
            base = base.expand([1])
        super().__init__(base, StickBreakingTransform(), validate_args=validate_args)

    @property
    def loc(self) -> Tensor:
        """The means of the normal variables, of shape ``batch_shape + (n - 1,)``."""
        return self.base_dist.base_dist.loc

    @property
    def scale(self) -> Tensor:
        """Their standard deviations, of shape ``batch_shape + (n - 1,)``."""
        return self.base_dist.base_dist.scale
