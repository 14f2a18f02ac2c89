"""The continuous Bernoulli distribution."""

from __future__ import annotations

import math
from typing import Any

from lucid_gpu.distributions import constraints
from lucid_gpu.distributions.bernoulli import ByProbsOrLogits
from lucid_gpu.distributions.distribution import Shape
from lucid_gpu.distributions.utils import broadcast_all, clamp_probs, lazy_property, logits_to_probs
from lucid_gpu.nn import functional as F
from lucid_gpu.ops.elementwise import where
from lucid_gpu.ops.random import rand
from lucid_gpu.tensor import Tensor

__all__ = ["ContinuousBernoulli"]


class ContinuousBernoulli(ByProbsOrLogits):
    """``p(x) = C probs^x (1 - probs)^(1 - x)`` on ``[0, 1]`` (Loaiza-Ganem, Cunningham, 2019).

    Near ``probs = 1/2``, where the formulas divide by nearly nothing, their Taylor series are used.

    Parameters
    ----------
    probs, logits : float or Tensor, broadcast to batch_shape
        Exactly one of them, else ValueError.
    lims : (float, float)
        Where the Taylor series are used.
    validate_args : bool, optional
    """

    support: Any = constraints.unit_interval
    has_rsample = True

    def __init__(
        self,
        probs: Any = None,
        logits: Any = None,
        lims: tuple[float, float] = (0.499, 0.501),
        validate_args: bool | None = None,
    ) -> None:
        self._lims = lims
        self._take_one(validate_args, probs, logits)
        if probs is not None:
            self.probs = clamp_probs(self.probs)

    @lazy_property
    def probs(self) -> Tensor:
        """What the density is a power of, of shape ``batch_shape``."""
        return clamp_probs(logits_to_probs(self.logits, is_binary=True))

    def _apart(self) -> tuple[Tensor, Tensor]:
        """Where ``probs`` is not near 1/2, and such a ``probs``."""
        far = (self.probs <= self._lims[0]) | (self.probs > self._lims[1])
        return far, self.probs.masked_fill(far.logical_not(), self._lims[0])

    def _log_scale(self) -> Tensor:
        """``log C``."""
        far, p = self._apart()
        x = (self.probs - 0.5) ** 2
        scale = ((-p).log1p() - p.log()).abs().log() - (2 * p - 1).abs().log()
        return where(far, scale, math.log(2) + (4 / 3 + 104 / 45 * x) * x)

    @property
    def mean(self) -> Tensor:
        far, p = self._apart()
        x = self.probs - 0.5
        mean = p / (2 * p - 1) + 1 / ((-p).log1p() - p.log())
        return where(far, mean, 0.5 + (1 / 3 + 16 / 45 * x * x) * x)

    @property
    def variance(self) -> Tensor:
        far, p = self._apart()
        x = (self.probs - 0.5) ** 2
        variance = p * (p - 1) / (1 - 2 * p) ** 2 + 1 / ((-p).log1p() - p.log()) ** 2
        return where(far, variance, 1 / 12 - (1 / 15 - 128 / 945 * x) * x)

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        p = self.probs
        unit = rand(self._extended_shape(sample_shape), dtype=p.dtype, device=p.device)
        return self.icdf(unit)

    def _log_prob(self, value: Tensor) -> Tensor:
        logits, value = broadcast_all(self.logits, value)
        inner = F.binary_cross_entropy_with_logits(logits, value, reduction="none")
        return self._log_scale() - inner

    def _cdf(self, value: Tensor) -> Tensor:
        far, p = self._apart()
        below = (p**value * (1 - p) ** (1 - value) + p - 1) / (2 * p - 1)
        inside = where(far, below, value)
        return inside.masked_fill(value <= 0, 0.0).masked_fill(value >= 1, 1.0)

    def icdf(self, value: Tensor) -> Tensor:
        far, p = self._apart()
        end = (-p).log1p()
        place = ((value * (2 * p - 1) - p).log1p() - end) / (p.log() - end)
        return where(far, place, value)

    def entropy(self) -> Tensor:
        none, one = (-self.probs).log1p(), self.probs.log()
        return self.mean * (none - one) - self._log_scale() - none

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (self.logits,)

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        (x,) = natural_params
        far = (x <= self._lims[0] - 0.5) | (x > self._lims[1] - 0.5)
        safe = x.masked_fill(far.logical_not(), self._lims[0] - 0.5)
        near = 0.5 * x + x**2 / 24 - x**4 / 2880
        return where(far, safe.expm1().abs().log() - safe.abs().log(), near)
