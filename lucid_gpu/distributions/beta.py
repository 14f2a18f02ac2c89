"""The beta distribution."""

from __future__ import annotations

from typing import Any

from lucid_gpu.distributions import constraints
from lucid_gpu.distributions.dirichlet import Dirichlet
from lucid_gpu.distributions.distribution import Shape
from lucid_gpu.distributions.exp_family import ExponentialFamily
from lucid_gpu.ops.shape import stack
from lucid_gpu.tensor import Tensor

__all__ = ["Beta"]


class Beta(ExponentialFamily):
    """``p(x)`` in proportion to ``x^(concentration1 - 1) (1 - x)^(concentration0 - 1)``.

    Parameters
    ----------
    concentration1, concentration0 : float or Tensor, broadcast to batch_shape
    validate_args : bool, optional
    """

    arg_constraints: Any = {
        "concentration1": constraints.positive,
        "concentration0": constraints.positive,
    }
    support: Any = constraints.unit_interval
    has_rsample = True
    concentration1: Tensor
    concentration0: Tensor

    def __init__(
        self, concentration1: Any, concentration0: Any, validate_args: bool | None = None
    ) -> None:
        self._take(validate_args, concentration1=concentration1, concentration0=concentration0)

    @property
    def _dirichlet(self) -> Dirichlet:
        both = stack([self.concentration1, self.concentration0], -1)
        return Dirichlet(both, validate_args=False)

    @property
    def mean(self) -> Tensor:
        return self.concentration1 / (self.concentration1 + self.concentration0)

    @property
    def mode(self) -> Tensor:
        return self._dirichlet.mode[..., 0]

    @property
    def variance(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        return a * b / ((a + b) ** 2 * (a + b + 1))

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        return self._dirichlet.rsample(sample_shape)[..., 0]

    def _log_prob(self, value: Tensor) -> Tensor:
        return self._dirichlet.log_prob(stack([value, 1.0 - value], -1))

    def entropy(self) -> Tensor:
        return self._dirichlet.entropy()

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return self.concentration1, self.concentration0

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        x, y = natural_params
        return x.lgamma() + y.lgamma() - (x + y).lgamma()
