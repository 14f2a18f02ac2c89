"""The absolute value of a normal one."""

from __future__ import annotations

import math
from typing import Any

from lucid_gpu.distributions import constraints
from lucid_gpu.distributions.distribution import Distribution, Shape
from lucid_gpu.distributions.normal import Normal
from lucid_gpu.ops.creation import zeros_like
from lucid_gpu.tensor import Tensor

__all__ = ["HalfNormal"]


class HalfNormal(Distribution):
    """``|x|`` for a normal ``x`` of mean 0.

    Parameters
    ----------
    scale : float or Tensor
        The standard deviation of ``x``.
    validate_args : bool, optional
    """

    arg_constraints: Any = {"scale": constraints.positive}
    support: Any = constraints.nonnegative
    has_rsample = True
    scale: Tensor

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        self._take(validate_args, scale=scale)

    @property
    def base_dist(self) -> Normal:
        """That of ``x``."""
        return Normal(zeros_like(self.scale), self.scale, validate_args=False)

    @property
    def mean(self) -> Tensor:
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def mode(self) -> Tensor:
        return zeros_like(self.scale)

    @property
    def variance(self) -> Tensor:
        return self.scale**2 * (1 - 2 / math.pi)

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        return self.base_dist.rsample(sample_shape).abs()

    def _log_prob(self, value: Tensor) -> Tensor:
        inside = self.base_dist.log_prob(value) + math.log(2)
        return inside.masked_fill(value < 0, -math.inf)

    def _cdf(self, value: Tensor) -> Tensor:
        return 2 * self.base_dist.cdf(value) - 1

    def icdf(self, value: Tensor) -> Tensor:
        return self.base_dist.icdf((value + 1) / 2)

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() - math.log(2)
