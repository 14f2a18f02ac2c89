"""Coins made continuous."""

from __future__ import annotations

import math
from typing import Any

from lucid_gpu.distributions import constraints
from lucid_gpu.distributions.bernoulli import ByProbsOrLogits
from lucid_gpu.distributions.distribution import Shape
from lucid_gpu.distributions.transformed_distribution import TransformedDistribution
from lucid_gpu.distributions.transforms import SigmoidTransform
from lucid_gpu.distributions.utils import clamp_probs
from lucid_gpu.ops.random import rand
from lucid_gpu.tensor import Tensor

__all__ = ["LogitRelaxedBernoulli", "RelaxedBernoulli"]


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
