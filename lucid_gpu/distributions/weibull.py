"""The Weibull distribution."""

from __future__ import annotations

from typing import Any

from lucid_gpu.distributions import constraints
from lucid_gpu.distributions.by_inverse import ByInverse
from lucid_gpu.distributions.gumbel import EULER
from lucid_gpu.tensor import Tensor

__all__ = ["Weibull"]


class Weibull(ByInverse):
    """``p(x) = k / scale (x / scale)^(k - 1) exp(-(x / scale)^k)`` with ``k = concentration``.

    Parameters
    ----------
    scale, concentration : float or Tensor, broadcast to batch_shape
    validate_args : bool, optional
    """

    arg_constraints: Any = {"scale": constraints.positive, "concentration": constraints.positive}
    support: Any = constraints.positive
    scale: Tensor
    concentration: Tensor

    def __init__(self, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self._take(validate_args, scale=scale, concentration=concentration)

    def _moment(self, n: int) -> Tensor:
        return self.scale**n * (1 + n / self.concentration).lgamma().exp()

    @property
    def mean(self) -> Tensor:
        return self._moment(1)

    @property
    def mode(self) -> Tensor:
        k = self.concentration
        return self.scale * ((k - 1) / k) ** (1 / k)

    @property
    def variance(self) -> Tensor:
        return self._moment(2) - self._moment(1) ** 2

    def _log_prob(self, value: Tensor) -> Tensor:
        k, z = self.concentration, value / self.scale
        return (k / self.scale).log() + (k - 1) * z.log() - z**k

    def _cdf(self, value: Tensor) -> Tensor:
        return -(-((value / self.scale) ** self.concentration)).expm1()

    def icdf(self, value: Tensor) -> Tensor:
        return self.scale * (-(-value).log1p()) ** (1 / self.concentration)

    def entropy(self) -> Tensor:
        k = self.concentration
        return EULER * (1 - 1 / k) + (self.scale / k).log() + 1
