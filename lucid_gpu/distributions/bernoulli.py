"""Bernoulli distributions, plain and continuous, and the geometric distribution."""

from __future__ import annotations

import math
from typing import Any

from lucid_gpu.distributions import constraints
from lucid_gpu.distributions.distribution import ExponentialFamily, Shape
from lucid_gpu.distributions.utils import (
    broadcast_all,
    clamp_probs,
    lazy_property,
    logits_to_probs,
    probs_to_logits,
    tiny,
)
from lucid_gpu.nn import functional as F
from lucid_gpu.ops.creation import tensor, zeros_like
from lucid_gpu.ops.elementwise import where
from lucid_gpu.ops.random import bernoulli, rand
from lucid_gpu.tape.modes import no_grad
from lucid_gpu.tensor import Tensor

__all__ = ["Bernoulli", "ContinuousBernoulli", "Geometric"]


class ByProbsOrLogits(ExponentialFamily):
    """A distribution of coins, by probabilities or by the logarithms of their odds."""

    arg_constraints: Any = {"probs": constraints.unit_interval, "logits": constraints.real}

    def _take_one(self, validate_args: bool | None, probs: Any, logits: Any, **more: Any) -> None:
        if (probs is None) == (logits is None):
            raise ValueError("Either `probs` or `logits` must be specified, but not both.")
        parameter = {"logits": logits} if probs is None else {"probs": probs}
        self._take(validate_args, **parameter, **more)

    @lazy_property
    def logits(self) -> Tensor:
        """The logarithms of the odds, of shape ``batch_shape``."""
        return probs_to_logits(self.probs, is_binary=True)

    @lazy_property
    def probs(self) -> Tensor:
        """The probabilities, of shape ``batch_shape``."""
        return logits_to_probs(self.logits, is_binary=True)

    @property
    def _param(self) -> Tensor:
        parameter = self.__dict__.get("probs")
        return self.logits if parameter is None else parameter

    @property
    def param_shape(self) -> Any:
        """The shape of the parameter."""
        return self._param.shape


class Bernoulli(ByProbsOrLogits):
    """1 with probability ``probs``, else 0.

    Parameters
    ----------
    probs, logits : float or Tensor, broadcast to batch_shape
        Exactly one of them, else ValueError.
    validate_args : bool, optional
    """

    support: Any = constraints.boolean
    has_enumerate_support = True

    def __init__(
        self, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        self._take_one(validate_args, probs, logits)

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        """1 or 0, whichever is likelier, and nan for both alike, of shape ``batch_shape``."""
        mode = (self.probs >= 0.5).to(self.probs.dtype)
        return mode.masked_fill(self.probs == 0.5, math.nan)

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Shape = ()) -> Tensor:
        with no_grad():
            return bernoulli(self.probs.expand(self._extended_shape(sample_shape)))

    def _log_prob(self, value: Tensor) -> Tensor:
        logits, value = broadcast_all(self.logits, value)
        return -F.binary_cross_entropy_with_logits(logits, value, reduction="none")

    def entropy(self) -> Tensor:
        return F.binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")

    def enumerate_support(self, expand: bool = True) -> Tensor:
        values = tensor([0.0, 1.0], dtype=self._param.dtype, device=self._param.device)
        values = values.view(-1, *[1] * len(self._batch_shape))
        return values.expand(-1, *self._batch_shape) if expand else values

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (self.logits,)

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        return natural_params[0].exp().log1p()


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
        quantile = ((value * (2 * p - 1) - p).log1p() - end) / (p.log() - end)
        return where(far, quantile, value)

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


class Geometric(ByProbsOrLogits):
    """How often a coin fails before it succeeds: ``p(k) = (1 - probs)^k probs``.

    Parameters
    ----------
    probs, logits : float or Tensor, broadcast to batch_shape
        Exactly one of them, else ValueError.
    validate_args : bool, optional

    Raises
    ------
    ValueError
        For probabilities of 0 too, if validated.
    """

    support: Any = constraints.nonnegative_integer

    def __init__(
        self, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        self._take_one(validate_args, probs, logits)
        if self._validate_args and probs is not None and not (self.probs > 0).all():
            raise ValueError(
                f"Expected parameter probs (Tensor of shape {tuple(self.probs.shape)}) of "
                f"distribution {self!r} to be positive but found invalid values:\n{self.probs}"
            )

    @property
    def mean(self) -> Tensor:
        return 1.0 / self.probs - 1.0

    @property
    def mode(self) -> Tensor:
        return zeros_like(self.probs)

    @property
    def variance(self) -> Tensor:
        return (1.0 / self.probs - 1.0) / self.probs

    def sample(self, sample_shape: Shape = ()) -> Tensor:
        shape, p = self._extended_shape(sample_shape), self.probs
        with no_grad():
            u = rand(shape, dtype=p.dtype, device=p.device).clamp(min=tiny(p.dtype))
            return (u.log() / (-p).log1p()).floor()

    def _log_prob(self, value: Tensor) -> Tensor:
        value, probs = broadcast_all(value, self.probs)
        probs = probs.masked_fill((probs == 1) & (value == 0), 0.0)
        return value * (-probs).log1p() + self.probs.log()

    def entropy(self) -> Tensor:
        loss = F.binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")
        return loss / self.probs
