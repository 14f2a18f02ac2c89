"""Distributions of counts: binomial, negative binomial, multinomial, Poisson."""

from __future__ import annotations

from typing import Any

from lucid_gpu.distributions import constraints
from lucid_gpu.distributions.bernoulli import ByProbsOrLogits
from lucid_gpu.distributions.categorical import OverCategories
from lucid_gpu.distributions.distribution import Distribution, ExponentialFamily, Shape
from lucid_gpu.distributions.gamma import Gamma
from lucid_gpu.nn import functional as F
from lucid_gpu.ops.creation import arange, full_like
from lucid_gpu.ops.draws import binomial, poisson
from lucid_gpu.tape.modes import no_grad
from lucid_gpu.tensor import Tensor

__all__ = ["Binomial", "Multinomial", "NegativeBinomial", "Poisson"]


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
        return ways + value * logits + n * F.logsigmoid(-logits)

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


class Multinomial(OverCategories):
    """How often each of ``n`` categories comes up in ``total_count`` draws.

    Parameters
    ----------
    total_count : int
        The same for the whole batch; NotImplementedError for a tensor.
    probs, logits : Tensor, shape (..., n)
        See `Categorical`: exactly one of them, else ValueError.
    validate_args : bool, optional
    """

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
        super().__init__(probs, logits, validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> Any:
        """Counts whose sum is `total_count`."""
        return constraints.multinomial(self.total_count)

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


class Poisson(ExponentialFamily):
    """``p(k) = rate^k exp(-rate) / k!``.

    Parameters
    ----------
    rate : float or Tensor, broadcast to batch_shape
    validate_args : bool, optional
    """

    arg_constraints: Any = {"rate": constraints.nonnegative}
    support: Any = constraints.nonnegative_integer
    rate: Tensor

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        self._take(validate_args, rate=rate)

    @property
    def mean(self) -> Tensor:
        return self.rate

    @property
    def mode(self) -> Tensor:
        return self.rate.floor()

    @property
    def variance(self) -> Tensor:
        return self.rate

    def sample(self, sample_shape: Shape = ()) -> Tensor:
        with no_grad():
            return poisson(self.rate.expand(self._extended_shape(sample_shape)))

    def _log_prob(self, value: Tensor) -> Tensor:
        return value.xlogy(self.rate) - self.rate - (value + 1).lgamma()

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (self.rate.log(),)

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        return natural_params[0].exp()

    entropy = Distribution.entropy  # no closed form
