"""The Poisson distribution."""

from __future__ import annotations

from typing import Any

from lucid_gpu.distributions import constraints
from lucid_gpu.distributions.distribution import Distribution, Shape
from lucid_gpu.distributions.exp_family import ExponentialFamily
from lucid_gpu.ops.draws import poisson
from lucid_gpu.tape.modes import no_grad
from lucid_gpu.tensor import Tensor

__all__ = ["Poisson"]


class Poisson(ExponentialFamily):
    """``p(k) = rate^k exp(-rate) / k!``.

    Parameters
    ----------
    rate : float or Tensor, broadcast to batch_shape
    validate_args : bool, optional
    """

    arg_constraints: Any = {"rate": constraints.nonnegative}
    support: Any = constraints.nonnegative_integer
    rate: Tensor

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        self._take(validate_args, rate=rate)

    @property
    def mean(self) -> Tensor:
        return self.rate

    @property
    def mode(self) -> Tensor:
        return self.rate.floor()

    @property
    def variance(self) -> Tensor:
        return self.rate

    def sample(self, sample_shape: Shape = ()) -> Tensor:
        with no_grad():
            return poisson(self.rate.expand(self._extended_shape(sample_shape)))

    def _log_prob(self, value: Tensor) -> Tensor:
        return value.xlogy(self.rate) - self.rate - (value + 1).lgamma()

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (self.rate.log(),)

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        return natural_params[0].exp()

    entropy = Distribution.entropy  # no closed form
