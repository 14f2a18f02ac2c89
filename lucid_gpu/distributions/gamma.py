"""The gamma distribution."""

from __future__ import annotations

from typing import Any

from lucid_gpu.distributions import constraints
from lucid_gpu.distributions.distribution import Shape
from lucid_gpu.distributions.exp_family import ExponentialFamily
from lucid_gpu.distributions.utils import tiny
from lucid_gpu.ops.draws import standard_gamma
from lucid_gpu.ops.incomplete_gamma import igamma
from lucid_gpu.tensor import Tensor

__all__ = ["Gamma"]


class Gamma(ExponentialFamily):
    """``p(x) = rate^a x^(a - 1) exp(-rate x) / gamma(a)`` with ``a = concentration``.

    Gradients of samples are implicit: those at a fixed quantile (Figurnov et al., Implicit
    reparameterization gradients, 2018).

    Parameters
    ----------
    concentration, rate : float or Tensor, broadcast to batch_shape
    validate_args : bool, optional
    """

    arg_constraints: Any = {
        "concentration": constraints.positive,
        "rate": constraints.positive,
    }
    support: Any = constraints.nonnegative
    has_rsample = True
    concentration: Tensor
    rate: Tensor

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        self._take(validate_args, concentration=concentration, rate=rate)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.rate

    @property
    def mode(self) -> Tensor:
        return ((self.concentration - 1) / self.rate).clamp(min=0)

    @property
    def variance(self) -> Tensor:
        return self.concentration / self.rate**2

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        value = standard_gamma(self.concentration.expand(shape)) / self.rate
        return value.clamp(min=tiny(value.dtype))

    def _log_prob(self, value: Tensor) -> Tensor:
        a, rate = self.concentration, self.rate
        return a.xlogy(rate) + (a - 1).xlogy(value) - rate * value - a.lgamma()

    def _cdf(self, value: Tensor) -> Tensor:
        return igamma(self.concentration, self.rate * value)

    def entropy(self) -> Tensor:
        a = self.concentration
        return a - self.rate.log() + a.lgamma() + (1.0 - a) * a.digamma()

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return self.concentration - 1, -self.rate

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        x, y = natural_params
        return (x + 1).lgamma() - (x + 1) * (-y).log()
