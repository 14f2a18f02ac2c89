"""The Gumbel distribution."""

from __future__ import annotations

import math

from lucid_gpu.distributions.distribution import Shape
from lucid_gpu.distributions.location_scale import LocationScale
from lucid_gpu.tensor import Tensor

__all__ = ["Gumbel"]


EULER = 0.57721566490153286060  # the Euler-Mascheroni constant


class Gumbel(LocationScale):
    """``p(x) = exp(-z - exp(-z)) / scale`` with ``z = (x - loc) / scale``: the largest of many.

    Parameters
    ----------
    loc, scale : float or Tensor, broadcast to batch_shape
    validate_args : bool, optional
    """

    @property
    def mean(self) -> Tensor:
        return self.loc + self.scale * EULER

    @property
    def stddev(self) -> Tensor:
        return math.pi / math.sqrt(6) * self.scale

    @property
    def variance(self) -> Tensor:
        return self.stddev**2

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        waiting = self.loc.new_empty(self._extended_shape(sample_shape)).exponential_()
        return self.loc - self.scale * waiting.log()

    def _log_prob(self, value: Tensor) -> Tensor:
        y = (self.loc - value) / self.scale
        return (y - y.exp()) - self.scale.log()

    def _cdf(self, value: Tensor) -> Tensor:
        return (-((self.loc - value) / self.scale).exp()).exp()

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc - self.scale * (-value.log()).log()

    def entropy(self) -> Tensor:
        return self.scale.log() + (1 + EULER)
