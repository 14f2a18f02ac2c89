"""The geometric distribution."""

from __future__ import annotations

from typing import Any

from lucid_gpu.distributions import constraints
from lucid_gpu.distributions.bernoulli import ByProbsOrLogits
from lucid_gpu.distributions.distribution import Shape
from lucid_gpu.distributions.utils import broadcast_all, tiny
from lucid_gpu.nn import functional as F
from lucid_gpu.ops.creation import zeros_like
from lucid_gpu.ops.random import rand
from lucid_gpu.tape.modes import no_grad
from lucid_gpu.tensor import Tensor

__all__ = ["Geometric"]


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
