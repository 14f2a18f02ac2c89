"""The exponential distribution."""

from __future__ import annotations

from typing import Any

from lucid_gpu.distributions import constraints
from lucid_gpu.distributions.distribution import Shape
from lucid_gpu.distributions.exp_family import ExponentialFamily
from lucid_gpu.ops.creation import zeros_like
from lucid_gpu.tensor import Tensor

__all__ = ["Exponential"]


class Exponential(ExponentialFamily):
    """``p(x) = rate exp(-rate x)``.

    Parameters
    ----------
    rate : float or Tensor, broadcast to batch_shape
    validate_args : bool, optional
    """

    arg_constraints: Any = {"rate": constraints.positive}
    support: Any = constraints.nonnegative
    has_rsample = True
    rate: Tensor

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        self._take(validate_args, rate=rate)

    @property
    def mean(self) -> Tensor:
        return self.rate.reciprocal()

    @property
    def mode(self) -> Tensor:
        return zeros_like(self.rate)

    @property
    def stddev(self) -> Tensor:
        return self.rate.reciprocal()

    @property
    def variance(self) -> Tensor:
        return self.rate**-2

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        return self.rate.new_empty(self._extended_shape(sample_shape)).exponential_() / self.rate

    def _log_prob(self, value: Tensor) -> Tensor:
        return self.rate.log() - self.rate * value

    def _cdf(self, value: Tensor) -> Tensor:
        return 1 - (-self.rate * value).exp()

    def icdf(self, value: Tensor) -> Tensor:
        return -(-value).log1p() / self.rate

    def entropy(self) -> Tensor:
        return 1.0 - self.rate.log()

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (-self.rate,)

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        return -(-natural_params[0]).log()
