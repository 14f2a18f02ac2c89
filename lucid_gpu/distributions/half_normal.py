"""The absolute value of a normal one, and of what else is symmetric around 0."""

from __future__ import annotations

import math
from typing import Any

from lucid_gpu.distributions import constraints
from lucid_gpu.distributions.distribution import Distribution, Shape
from lucid_gpu.distributions.normal import Normal
from lucid_gpu.ops.creation import zeros_like
from lucid_gpu.tensor import Tensor

__all__ = ["HalfNormal"]


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
        place: Tensor = self.base_dist.icdf((prob + 1) / 2)
        return place

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
