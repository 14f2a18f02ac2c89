"""The Cauchy distribution."""

from __future__ import annotations

import math

from lucid_gpu.distributions.distribution import Shape
from lucid_gpu.distributions.location_scale import LocationScale
from lucid_gpu.ops.creation import full_like
from lucid_gpu.ops.random import rand
from lucid_gpu.tensor import Tensor

__all__ = ["Cauchy"]


class Cauchy(LocationScale):
    """``p(x) = 1 / (pi scale (1 + ((x - loc) / scale)^2))``.

    Parameters
    ----------
    loc, scale : float or Tensor, broadcast to batch_shape
        Median and half width at half maximum.
    validate_args : bool, optional
    """

    @property
    def mean(self) -> Tensor:
        """Nan, of shape ``batch_shape``: there is none."""
        return full_like(self.loc, math.nan)

    @property
    def variance(self) -> Tensor:
        """Infinite, of shape ``batch_shape``."""
        return full_like(self.loc, math.inf)

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        unit = rand(shape, dtype=self.loc.dtype, device=self.loc.device)
        return self.loc + (math.pi * (unit - 0.5)).tan() * self.scale

    def _log_prob(self, value: Tensor) -> Tensor:
        z = (value - self.loc) / self.scale
        return -math.log(math.pi) - self.scale.log() - (z * z).log1p()

    def _cdf(self, value: Tensor) -> Tensor:
        return ((value - self.loc) / self.scale).atan() / math.pi + 0.5

    def icdf(self, value: Tensor) -> Tensor:
        return (math.pi * (value - 0.5)).tan() * self.scale + self.loc

    def entropy(self) -> Tensor:
        return math.log(4 * math.pi) + self.scale.log()
