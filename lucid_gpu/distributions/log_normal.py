"""The exponential of a normal one."""

from __future__ import annotations

from typing import Any

from lucid_gpu.distributions import constraints
from lucid_gpu.distributions.normal import Normal
from lucid_gpu.distributions.transformed_distribution import TransformedDistribution
from lucid_gpu.distributions.transforms import ExpTransform
from lucid_gpu.tensor import Tensor

__all__ = ["LogNormal"]


class LogNormal(TransformedDistribution):
    """``exp(x)`` for a normal ``x``.

    Parameters
    ----------
    loc, scale : float or Tensor, broadcast to batch_shape
        Mean and standard deviation of ``x``.
    validate_args : bool, optional
    """

    arg_constraints: Any = {"loc": constraints.real, "scale": constraints.positive}
    support: Any = constraints.positive
    base_dist: Any

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        base = Normal(loc, scale, validate_args=validate_args)
        super().__init__(base, ExpTransform(), validate_args=validate_args)

    @property
    def loc(self) -> Tensor:
        """The mean of ``x``, of shape ``batch_shape``."""
        return self.base_dist.loc

    @property
    def scale(self) -> Tensor:
        """The standard deviation of ``x``, of shape ``batch_shape``."""
        return self.base_dist.scale

    @property
    def mean(self) -> Tensor:
        return (self.loc + self.scale**2 / 2).exp()

    @property
    def mode(self) -> Tensor:
        return (self.loc - self.scale**2).exp()

    @property
    def variance(self) -> Tensor:
        square = self.scale**2
        return square.expm1() * (2 * self.loc + square).exp()

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() + self.loc
