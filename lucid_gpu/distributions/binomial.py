"""The binomial distribution."""

from __future__ import annotations

from typing import Any

from lucid_gpu.distributions import constraints
from lucid_gpu.distributions.bernoulli import ByProbsOrLogits
from lucid_gpu.distributions.distribution import Shape
from lucid_gpu.ops.creation import arange
from lucid_gpu.ops.draws import binomial
from lucid_gpu.tape.modes import no_grad
from lucid_gpu.tensor import Tensor

__all__ = ["Binomial"]


class Binomial(ByProbsOrLogits):
    """How many of ``total_count`` coins of probability ``probs`` show 1.

    Parameters
    ----------
    total_count : int or Tensor, broadcast to batch_shape
        `entropy` and `enumerate_support` raise NotImplementedError unless all are the same.
    probs, logits : float or Tensor, broadcast to batch_shape
        Exactly one of them, else ValueError.
    validate_args : bool, optional
    """

    arg_constraints: Any = {
        "total_count": constraints.nonnegative_integer,
        **ByProbsOrLogits.arg_constraints,
    }
    has_enumerate_support = True
    total_count: Tensor

    def __init__(
        self,
        total_count: Any = 1,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        self._take_one(validate_args, probs, logits, total_count=total_count)
        self.total_count = self.total_count.to(self._param.dtype)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Any:
        """Whole numbers up to `total_count`."""
        return constraints.integer_interval(0, self.total_count)

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.probs

    @property
    def mode(self) -> Tensor:
        return ((self.total_count + 1) * self.probs).floor().minimum(self.total_count)

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Shape = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        with no_grad():
            return binomial(self.total_count.expand(shape), self.probs.expand(shape))

    def _log_prob(self, value: Tensor) -> Tensor:
        n, logits = self.total_count, self.logits
        ways = (n + 1).lgamma() - (value + 1).lgamma() - (n - value + 1).lgamma()
        return ways + value * logits - n * (logits.clamp(min=0) + (-logits.abs()).exp().log1p())

    def entropy(self) -> Tensor:
        if not (self.total_count == self.total_count.max()).all():
            raise NotImplementedError("Inhomogeneous total count not supported by `entropy`.")
        log_prob = self.log_prob(self.enumerate_support(False))
        return -(log_prob.exp() * log_prob).sum(0)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        most = int(self.total_count.max().item())
        if not (self.total_count == most).all():
            raise NotImplementedError(
                "Inhomogeneous total count not supported by `enumerate_support`."
            )
        values = arange(most + 1, dtype=self._param.dtype, device=self._param.device)
        values = values.view(-1, *[1] * len(self._batch_shape))
        return values.expand(-1, *self._batch_shape) if expand else values
