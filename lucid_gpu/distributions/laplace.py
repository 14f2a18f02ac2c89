"""The Laplace distribution."""

from __future__ import annotations

from lucid_gpu.distributions.distribution import Shape
from lucid_gpu.distributions.location_scale import LocationScale
from lucid_gpu.distributions.utils import eps
from lucid_gpu.ops.random import rand
from lucid_gpu.tensor import Tensor

__all__ = ["Laplace"]


class Laplace(LocationScale):
    """``p(x) = exp(-|x - loc| / scale) / (2 scale)``.

    Parameters
    ----------
    loc, scale : float or Tensor, broadcast to batch_shape
    validate_args : bool, optional
    """

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return 2 * self.scale**2

    @property
    def stddev(self) -> Tensor:
        return 2**0.5 * self.scale

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        d = self.loc.dtype
        u = rand(shape, dtype=d, device=self.loc.device) * (2 - eps(d)) + (eps(d) - 1)
        return self.loc - self.scale * u.sign() * (-u.abs()).log1p()

    def _log_prob(self, value: Tensor) -> Tensor:
        return -(2 * self.scale).log() - (value - self.loc).abs() / self.scale

    def _cdf(self, value: Tensor) -> Tensor:
        z = (value - self.loc) / self.scale
        return 0.5 - 0.5 * z.sign() * (-z.abs()).expm1()

    def icdf(self, value: Tensor) -> Tensor:
        term = value - 0.5
        return self.loc - self.scale * term.sign() * (-2 * term.abs()).log1p()

    def entropy(self) -> Tensor:
        return 1 + (2 * self.scale).log()
