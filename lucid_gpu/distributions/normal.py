"""The normal distribution."""

from __future__ import annotations

import math

from lucid_gpu.distributions.distribution import Shape
from lucid_gpu.distributions.exp_family import ExponentialFamily
from lucid_gpu.distributions.location_scale import LocationScale
from lucid_gpu.ops.random import randn
from lucid_gpu.tensor import Tensor

__all__ = ["Normal"]


class Normal(LocationScale, ExponentialFamily):
    r"""``p(x) = exp(-((x - loc) / scale)^2 / 2) / (scale sqrt(2 pi))``.

    Parameters
    ----------
    loc, scale : float or Tensor, broadcast to batch_shape
        Mean and standard deviation.
    validate_args : bool, optional
    """

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def stddev(self) -> Tensor:
        return self.scale

    @property
    def variance(self) -> Tensor:
        return self.scale**2

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        return self.loc + randn(shape, dtype=self.loc.dtype, device=self.loc.device) * self.scale

    def _log_prob(self, value: Tensor) -> Tensor:
        z = (value - self.loc) / self.scale
        return -0.5 * z * z - self.scale.log() - 0.5 * math.log(2 * math.pi)

    def _cdf(self, value: Tensor) -> Tensor:
        return 0.5 * (1 + ((value - self.loc) / self.scale / math.sqrt(2)).erf())

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc + self.scale * (2 * value - 1).erfinv() * math.sqrt(2)

    def entropy(self) -> Tensor:
        return 0.5 + 0.5 * math.log(2 * math.pi) + self.scale.log()

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return self.loc / self.scale**2, -0.5 * self.scale**-2

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        x, y = natural_params
        return -0.25 * x * x / y + 0.5 * (-math.pi / y).log()
