"""Coins and categories made continuous, with gradients."""

from __future__ import annotations

import math
from typing import Any

from lucid_gpu.distributions import constraints
from lucid_gpu.distributions.bernoulli import ByProbsOrLogits
from lucid_gpu.distributions.categorical import OverCategories
from lucid_gpu.distributions.composed import TransformedDistribution
from lucid_gpu.distributions.distribution import Shape
from lucid_gpu.distributions.transforms import ExpTransform, SigmoidTransform
from lucid_gpu.distributions.utils import clamp_probs
from lucid_gpu.ops.creation import tensor
from lucid_gpu.ops.random import rand
from lucid_gpu.tensor import Tensor

__all__ = [
    "ExpRelaxedCategorical",
    "LogitRelaxedBernoulli",
    "RelaxedBernoulli",
    "RelaxedOneHotCategorical",
]


class LogitRelaxedBernoulli(ByProbsOrLogits):
    """The logit of a `RelaxedBernoulli`: ``(logit(probs) + logit(u)) / temperature``.

    ``u`` is uniform.

    Parameters
    ----------
    temperature : float or Tensor, broadcast to batch_shape
    probs, logits : float or Tensor, broadcast to batch_shape
        Exactly one of them, else ValueError.
    validate_args : bool, optional
    """

    support: Any = constraints.real
    has_rsample = True

    def __init__(
        self,
        temperature: Any,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        self.temperature = temperature
        self._take_one(validate_args, probs, logits)

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        probs = clamp_probs(self.probs.expand(shape))
        u = clamp_probs(rand(shape, dtype=probs.dtype, device=probs.device))
        noise = u.log() - (-u).log1p() + probs.log() - (-probs).log1p()
        return noise / self.temperature

    def _log_prob(self, value: Tensor) -> Tensor:
        apart = self.logits - value * self.temperature
        temperature = self.temperature
        log = temperature.log() if isinstance(temperature, Tensor) else math.log(temperature)
        return log + apart - 2 * apart.exp().log1p()


class RelaxedBernoulli(TransformedDistribution):
    """A number between 0 and 1, nearer to them for lower temperatures.

    Maddison et al., The concrete distribution, 2017; Jang et al., Categorical reparameterization
    with Gumbel-softmax, 2017.

    Parameters
    ----------
    temperature : float or Tensor, broadcast to batch_shape
    probs, logits : float or Tensor, broadcast to batch_shape
        Exactly one of them, else ValueError.
    validate_args : bool, optional
    """

    arg_constraints: Any = ByProbsOrLogits.arg_constraints
    support: Any = constraints.unit_interval
    has_rsample = True
    base_dist: Any

    def __init__(
        self,
        temperature: Any,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        base = LogitRelaxedBernoulli(temperature, probs, logits)
        super().__init__(base, SigmoidTransform(), validate_args=validate_args)

    @property
    def temperature(self) -> Any:
        """How far from 0 and 1."""
        return self.base_dist.temperature

    @property
    def logits(self) -> Tensor:
        """The logarithms of the odds, of shape ``batch_shape``."""
        return self.base_dist.logits

    @property
    def probs(self) -> Tensor:
        """The probabilities, of shape ``batch_shape``."""
        return self.base_dist.probs


class ExpRelaxedCategorical(OverCategories):
    """The logarithm of a `RelaxedOneHotCategorical`.

    Parameters
    ----------
    temperature : float or Tensor, 0-d
    probs, logits : Tensor, shape (..., n)
        Exactly one of them, else ValueError.
    validate_args : bool, optional
    """

    support: Any = constraints.real_vector
    has_rsample = True

    def __init__(
        self,
        temperature: Any,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        self.temperature = temperature
        super().__init__(probs, logits, validate_args)

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        gumbel = -self.logits.new_empty(shape).exponential_().log()
        scores = (self.logits + gumbel) / self.temperature
        return scores - scores.logsumexp(-1, keepdim=True)

    def _log_prob(self, value: Tensor) -> Tensor:
        n, logits = self._event_shape[0], self.logits
        t = self.temperature
        if not isinstance(t, Tensor):
            t = tensor(float(t), dtype=logits.dtype, device=logits.device)
        scale = tensor(float(n), dtype=logits.dtype, device=logits.device).lgamma()
        score = logits - value * t
        score = (score - score.logsumexp(-1, keepdim=True)).sum(-1)
        return score + scale + (n - 1) * t.log()


class RelaxedOneHotCategorical(TransformedDistribution):
    """A point of the simplex, nearer to its corners for lower temperatures.

    Maddison et al., The concrete distribution, 2017; Jang et al., Categorical reparameterization
    with Gumbel-softmax, 2017.

    Parameters
    ----------
    temperature : float or Tensor, 0-d
    probs, logits : Tensor, shape (..., n)
        Exactly one of them, else ValueError.
    validate_args : bool, optional
    """

    arg_constraints: Any = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support: Any = constraints.simplex
    has_rsample = True
    base_dist: Any

    def __init__(
        self,
        temperature: Any,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        base = ExpRelaxedCategorical(temperature, probs, logits, validate_args=validate_args)
        super().__init__(base, ExpTransform(), validate_args=validate_args)

    @property
    def temperature(self) -> Any:
        """How far from the corners."""
        return self.base_dist.temperature

    @property
    def logits(self) -> Tensor:
        """The logarithms of the probabilities, of shape ``batch_shape + (n,)``."""
        return self.base_dist.logits

    @property
    def probs(self) -> Tensor:
        """The probabilities, of shape ``batch_shape + (n,)``."""
        return self.base_dist.probs
