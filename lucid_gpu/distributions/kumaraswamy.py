"""The Kumaraswamy distribution."""

from __future__ import annotations

import math
from typing import Any

from lucid_gpu.distributions import constraints
from lucid_gpu.distributions.by_inverse import ByInverse
from lucid_gpu.distributions.gumbel import EULER
from lucid_gpu.tensor import Tensor

__all__ = ["Kumaraswamy"]


class Kumaraswamy(ByInverse):
    """``p(x) = a b x^(a - 1) (1 - x^a)^(b - 1)``, much like a beta distribution.

    Parameters
    ----------
    concentration1, concentration0 : float or Tensor, broadcast to batch_shape
        ``a`` and ``b``.
    validate_args : bool, optional
    """

    arg_constraints: Any = {
        "concentration1": constraints.positive,
        "concentration0": constraints.positive,
    }
    support: Any = constraints.unit_interval
    concentration1: Tensor
    concentration0: Tensor

    def __init__(
        self, concentration1: Any, concentration0: Any, validate_args: bool | None = None
    ) -> None:
        self._take(validate_args, concentration1=concentration1, concentration0=concentration0)

    def _moment(self, n: int) -> Tensor:
        b, part = self.concentration0, 1 + n / self.concentration1
        return b * (part.lgamma() + b.lgamma() - (part + b).lgamma()).exp()

    @property
    def mean(self) -> Tensor:
        return self._moment(1)

    @property
    def mode(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        return ((a - 1) / (a * b - 1)).masked_fill((a < 1) | (b < 1), math.nan) ** (1 / a)

    @property
    def variance(self) -> Tensor:
        return self._moment(2) - self._moment(1) ** 2

    def _log_prob(self, value: Tensor) -> Tensor:
        a, b = self.concentration1, self.concentration0
        return (a * b).log() + (a - 1).xlogy(value) + (b - 1) * (-(value**a)).log1p()

    def _cdf(self, value: Tensor) -> Tensor:
        return -(self.concentration0 * (-(value**self.concentration1)).log1p()).expm1()

    def icdf(self, value: Tensor) -> Tensor:
        below = -((-value).log1p() / self.concentration0).expm1()
        return below ** (1 / self.concentration1)

    def entropy(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        return (1 - 1 / b) + (1 - 1 / a) * ((b + 1).digamma() + EULER) - (a * b).log()
