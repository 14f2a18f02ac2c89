"""The Bernoulli distribution, and distributions by probabilities or logits."""

from __future__ import annotations

import math
from typing import Any

from lucid_gpu.distributions import constraints
from lucid_gpu.distributions.distribution import Shape
from lucid_gpu.distributions.exp_family import ExponentialFamily
from lucid_gpu.distributions.utils import (
    broadcast_all,
    lazy_property,
    logits_to_probs,
    probs_to_logits,
)
from lucid_gpu.nn import functional as F
from lucid_gpu.ops.creation import tensor
from lucid_gpu.ops.random import bernoulli
from lucid_gpu.tape.modes import no_grad
from lucid_gpu.tensor import Tensor

__all__ = ["Bernoulli"]


class ByProbsOrLogits(ExponentialFamily):
    """A distribution of coins, given by probabilities or by the logarithms of their odds."""

    arg_constraints: Any = {"probs": constraints.unit_interval, "logits": constraints.real}

    def _take_one(self, validate_args: bool | None, probs: Any, logits: Any, **more: Any) -> None:
        if (probs is None) == (logits is None):
            raise ValueError("Either `probs` or `logits` must be specified, but not both.")
        given = {"logits": logits} if probs is None else {"probs": probs}
        self._take(validate_args, **given, **more)

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
        given = self.__dict__.get("probs")
        return self.logits if given is None else given

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
