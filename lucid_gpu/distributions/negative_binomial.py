"""The negative binomial distribution."""

from __future__ import annotations

from typing import Any

from lucid_gpu.distributions import constraints
from lucid_gpu.distributions.bernoulli import ByProbsOrLogits
from lucid_gpu.distributions.distribution import Distribution, Shape
from lucid_gpu.distributions.gamma import Gamma
from lucid_gpu.nn import functional as F
from lucid_gpu.ops.draws import poisson
from lucid_gpu.tape.modes import no_grad
from lucid_gpu.tensor import Tensor

__all__ = ["NegativeBinomial"]


class NegativeBinomial(ByProbsOrLogits):
    """How many coins of probability ``probs`` show 1 before ``total_count`` of them show 0.

    Parameters
    ----------
    total_count : float or Tensor, broadcast to batch_shape
        Need not be whole.
    probs, logits : float or Tensor, broadcast to batch_shape
        Exactly one of them, else ValueError.
    validate_args : bool, optional
    """

    arg_constraints: Any = {
        "total_count": constraints.greater_than_eq(0),
        "probs": constraints.half_open_interval(0.0, 1.0),
        "logits": constraints.real,
    }
    support: Any = constraints.nonnegative_integer
    total_count: Tensor

    def __init__(
        self,
        total_count: Any,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        self._take_one(validate_args, probs, logits, total_count=total_count)
        self.total_count = self.total_count.to(self._param.dtype)

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.logits.exp()

    @property
    def mode(self) -> Tensor:
        return ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0.0)

    @property
    def variance(self) -> Tensor:
        return self.mean / (-self.logits).sigmoid()

    def sample(self, sample_shape: Shape = ()) -> Tensor:
        """Counts without gradients, of shape ``sample_shape + batch_shape``.

        Those of Poisson whose rate is a gamma variable.
        """
        with no_grad():
            rates = Gamma(self.total_count, (-self.logits).exp(), validate_args=False)
            return poisson(rates.sample(sample_shape))

    def _log_prob(self, value: Tensor) -> Tensor:
        n, logits = self.total_count, self.logits
        ways = (n + value).lgamma() - (1 + value).lgamma() - n.lgamma()
        ways = ways.masked_fill(n + value == 0, 0.0)  # none of none: certain
        return n * F.logsigmoid(-logits) + value * F.logsigmoid(logits) + ways

    entropy = Distribution.entropy  # no closed form
