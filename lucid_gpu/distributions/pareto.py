"""The Pareto distribution."""

from __future__ import annotations

from typing import Any

from lucid_gpu.distributions import constraints
from lucid_gpu.distributions.by_inverse import ByInverse
from lucid_gpu.tensor import Tensor

__all__ = ["Pareto"]


class Pareto(ByInverse):
    """``p(x) = alpha scale^alpha / x^(alpha + 1)`` from ``scale`` on.

    Parameters
    ----------
    scale, alpha : float or Tensor, broadcast to batch_shape
    validate_args : bool, optional
    """

    arg_constraints: Any = {"alpha": constraints.positive, "scale": constraints.positive}
    scale: Tensor
    alpha: Tensor

    def __init__(self, scale: Any, alpha: Any, validate_args: bool | None = None) -> None:
        self._take(validate_args, scale=scale, alpha=alpha)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        """From `scale` on."""
        return constraints.greater_than_eq(self.scale)

    @property
    def mean(self) -> Tensor:
        a = self.alpha.clamp(min=1)  # infinite below
        return a * self.scale / (a - 1)

    @property
    def mode(self) -> Tensor:
        return self.scale

    @property
    def variance(self) -> Tensor:
        a = self.alpha.clamp(min=2)  # infinite below
        return self.scale**2 * a / ((a - 1) ** 2 * (a - 2))

    def _log_prob(self, value: Tensor) -> Tensor:
        z = (value / self.scale).log()
        return (self.alpha / self.scale).log() - (self.alpha + 1) * z

    def _cdf(self, value: Tensor) -> Tensor:
        return -(self.alpha * (self.scale / value).log()).expm1()

    def icdf(self, value: Tensor) -> Tensor:
        return self.scale * (-(-value).log1p() / self.alpha).exp()

    def entropy(self) -> Tensor:
        return (self.scale / self.alpha).log() + (1 + 1 / self.alpha)
