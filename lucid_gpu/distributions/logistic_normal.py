"""The logistic normal distribution."""

from __future__ import annotations

from typing import Any

from lucid_gpu.distributions import constraints
from lucid_gpu.distributions.normal import Normal
from lucid_gpu.distributions.transformed_distribution import TransformedDistribution
from lucid_gpu.distributions.transforms import StickBreakingTransform
from lucid_gpu.tensor import Tensor

__all__ = ["LogisticNormal"]


class LogisticNormal(TransformedDistribution):
    """Probabilities that `StickBreakingTransform` makes of normal variables.

    Parameters
    ----------
    loc, scale : float or Tensor, broadcast to (..., n - 1)
        For ``n`` probabilities, the shape of an event; numbers are for two.
    validate_args : bool, optional
    """

    arg_constraints: Any = {"loc": constraints.real, "scale": constraints.positive}
    support: Any = constraints.simplex
    base_dist: Any

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        base = Normal(loc, scale, validate_args=validate_args)
        if not base.batch_shape:
            base = base.expand([1])
        super().__init__(base, StickBreakingTransform(), validate_args=validate_args)

    @property
    def loc(self) -> Tensor:
        """The means of the normal variables, of shape ``batch_shape + (n - 1,)``."""
        return self.base_dist.base_dist.loc

    @property
    def scale(self) -> Tensor:
        """Their standard deviations, of shape ``batch_shape + (n - 1,)``."""
        return self.base_dist.base_dist.scale
