"""The multinomial distribution."""

from __future__ import annotations

from typing import Any

from lucid_gpu.distributions import constraints
from lucid_gpu.distributions.binomial import Binomial
from lucid_gpu.distributions.categorical import Categorical
from lucid_gpu.distributions.distribution import Distribution, Shape
from lucid_gpu.nn import functional as F
from lucid_gpu.ops.creation import full_like
from lucid_gpu.tensor import Tensor

__all__ = ["Multinomial"]


class Multinomial(Distribution):
    """How often each of ``n`` categories comes up in ``total_count`` draws.

    Parameters
    ----------
    total_count : int
        The same for the whole batch; NotImplementedError for a tensor.
    probs, logits : Tensor, shape (..., n)
        As of `Categorical`: exactly one of them, else ValueError.
    validate_args : bool, optional
    """

    arg_constraints: Any = {"probs": constraints.simplex, "logits": constraints.real_vector}

    def __init__(
        self,
        total_count: int = 1,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        if not isinstance(total_count, int):
            raise NotImplementedError("inhomogeneous total_count is not supported")
        self.total_count = total_count
        self._categorical = Categorical(probs=probs, logits=logits)
        shape = self._categorical.param_shape
        super().__init__(shape[:-1], shape[-1:], validate_args=validate_args)

    def expand(self, batch_shape: Shape, _instance: Any = None) -> Any:
        new = super().expand(batch_shape, _instance)
        new._categorical = self._categorical.expand(batch_shape)
        return new

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> Any:
        """Counts whose sum is `total_count`."""
        return constraints.multinomial(self.total_count)

    @property
    def probs(self) -> Tensor:
        """The probabilities, of shape ``batch_shape + (n,)``."""
        return self._categorical.probs

    @property
    def logits(self) -> Tensor:
        """The logarithms of the probabilities, of shape ``batch_shape + (n,)``."""
        return self._categorical.logits

    @property
    def param_shape(self) -> Any:
        """The shape of the parameter: ``batch_shape + (n,)``."""
        return self._categorical.param_shape

    @property
    def mean(self) -> Tensor:
        return self.probs * self.total_count

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Shape = ()) -> Tensor:
        drawn = self._categorical.sample((self.total_count, *sample_shape))
        return F.one_hot(drawn, self._event_shape[0]).sum(0).to(self.probs.dtype)

    def _log_prob(self, value: Tensor) -> Tensor:
        logits = self.logits.masked_fill((value == 0) & (self.logits == float("-inf")), 0.0)
        ways = (value.sum(-1) + 1).lgamma() - (value + 1).lgamma().sum(-1)
        return ways + (logits * value).sum(-1)

    def entropy(self) -> Tensor:
        n = self.total_count
        single = Binomial(n, probs=self.probs, validate_args=False)
        counts = single.enumerate_support(expand=False)[1:]
        shared = (single.log_prob(counts).exp() * (counts + 1).lgamma()).sum((0, -1))
        ways = full_like(shared, n + 1.0).lgamma()
        return n * self._categorical.entropy() - ways + shared
