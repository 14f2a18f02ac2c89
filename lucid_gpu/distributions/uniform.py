"""The uniform distribution."""

from __future__ import annotations

import math
from typing import Any

from lucid_gpu.distributions import constraints
from lucid_gpu.distributions.distribution import Distribution, Shape
from lucid_gpu.ops.random import rand
from lucid_gpu.tensor import Tensor

__all__ = ["Uniform"]


class Uniform(Distribution):
    """``p(x) = 1 / (high - low)`` for ``low <= x < high``.

    Parameters
    ----------
    low, high : float or Tensor, broadcast to batch_shape
        ``low < high``, else ValueError, if validated.
    validate_args : bool, optional
    """

    arg_constraints: Any = {
        "low": constraints.dependent(is_discrete=False, event_dim=0),
        "high": constraints.dependent(is_discrete=False, event_dim=0),
    }
    has_rsample = True
    low: Tensor
    high: Tensor

    def __init__(self, low: Any, high: Any, validate_args: bool | None = None) -> None:
        self._take(validate_args, low=low, high=high)
        if self._validate_args and not (self.low < self.high).all():
            raise ValueError("Uniform is not defined when low>= high")

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        """From `low` to `high`."""
        return constraints.interval(self.low, self.high)

    @property
    def mean(self) -> Tensor:
        return (self.high + self.low) / 2

    @property
    def mode(self) -> Tensor:
        """Nan, of shape ``batch_shape``: all values are alike."""
        return math.nan * self.high

    @property
    def stddev(self) -> Tensor:
        return (self.high - self.low) / 12**0.5

    @property
    def variance(self) -> Tensor:
        return (self.high - self.low) ** 2 / 12

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        unit = rand(shape, dtype=self.low.dtype, device=self.low.device)
        return self.low + unit * (self.high - self.low)

    def _log_prob(self, value: Tensor) -> Tensor:
        inside = (value >= self.low) & (value < self.high)
        return inside.to(self.low.dtype).log() - (self.high - self.low).log()

    def _cdf(self, value: Tensor) -> Tensor:
        return ((value - self.low) / (self.high - self.low)).clamp(min=0, max=1)

    def icdf(self, value: Tensor) -> Tensor:
        return value * (self.high - self.low) + self.low

    def entropy(self) -> Tensor:
        return (self.high - self.low).log()
