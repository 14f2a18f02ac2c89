"""Distributions over categories: numbers, one-hot vectors."""

from __future__ import annotations

import math
from typing import Any

from lucid_gpu.distributions import constraints
from lucid_gpu.distributions.distribution import Distribution, Shape
from lucid_gpu.distributions.utils import (
    broadcast_all,
    lazy_property,
    logits_to_probs,
    probs_to_logits,
)
from lucid_gpu.nn import functional as F
from lucid_gpu.ops.creation import arange, eye
from lucid_gpu.ops.multinomial import multinomial
from lucid_gpu.tensor import Tensor

__all__ = ["Categorical", "OneHotCategorical", "OneHotCategoricalStraightThrough"]


class Categorical(Distribution):
    """A number below ``n``, by ``n`` probabilities.

    Parameters
    ----------
    probs : Tensor, shape (..., n)
        Weights, which need not sum to one.
    logits : Tensor, shape (..., n)
        Instead of ``probs``: their logarithms, up to a constant.
    validate_args : bool, optional

    Raises
    ------
    ValueError
        For both or none of them, and for a 0-d one.
    """

    arg_constraints: Any = {"probs": constraints.simplex, "logits": constraints.real_vector}
    has_enumerate_support = True

    def __init__(
        self,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        if (probs is None) == (logits is None):
            raise ValueError("Either `probs` or `logits` must be specified, but not both.")
        name, parameter = ("probs", probs) if logits is None else ("logits", logits)
        assert parameter is not None
        if parameter.ndim < 1:
            raise ValueError(f"`{name}` parameter must be at least one-dimensional.")
        if name == "probs":
            self.probs = parameter / parameter.sum(-1, keepdim=True)
        else:
            self.logits = parameter - parameter.logsumexp(-1, keepdim=True)
        super().__init__(parameter.shape[:-1], validate_args=validate_args)

    @property
    def _param(self) -> Tensor:
        parameter = self.__dict__.get("probs")
        return self.logits if parameter is None else parameter

    @property
    def _num_events(self) -> int:
        return int(self._param.shape[-1])

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Any:
        """The numbers below ``n``."""
        return constraints.integer_interval(0, self._num_events - 1)

    @lazy_property
    def logits(self) -> Tensor:
        """The logarithms of the probabilities, of shape ``batch_shape + (n,)``."""
        return probs_to_logits(self.probs)

    @lazy_property
    def probs(self) -> Tensor:
        """The probabilities, whose sum is 1, of shape ``batch_shape + (n,)``."""
        return logits_to_probs(self.logits)

    @property
    def param_shape(self) -> Any:
        """The shape of the parameter: ``batch_shape + (n,)``."""
        return self._param.shape

    @property
    def mean(self) -> Tensor:
        """Nan, of shape ``batch_shape``: categories have no order."""
        return self._param.new_full(self._extended_shape(), math.nan)

    @property
    def mode(self) -> Tensor:
        return self.probs.argmax(dim=-1)

    @property
    def variance(self) -> Tensor:
        """Nan, of shape ``batch_shape``."""
        return self._param.new_full(self._extended_shape(), math.nan)

    def sample(self, sample_shape: Shape = ()) -> Tensor:
        rows = self.probs.detach().reshape(-1, self._num_events)
        drawn = multinomial(rows, math.prod(sample_shape), True)
        return drawn.t().reshape(self._extended_shape(sample_shape))

    def _log_prob(self, value: Tensor) -> Tensor:
        index = value.long().unsqueeze(-1)
        index, logits = broadcast_all(index, self.logits)
        return logits.gather(-1, index[..., :1]).squeeze(-1)

    def entropy(self) -> Tensor:
        least = -3.3895e38 if self.logits.dtype.itemsize == 2 else -3.4e38
        return -(self.logits.clamp(min=least) * self.probs).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        values = arange(self._num_events, device=self._param.device)
        values = values.view(-1, *[1] * len(self._batch_shape))
        return values.expand(-1, *self._batch_shape) if expand else values


class OverCategories(Distribution):
    """What is made of draws of a `Categorical`, or of its probabilities."""

    arg_constraints: Any = {"probs": constraints.simplex, "logits": constraints.real_vector}

    def __init__(
        self,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        self._categorical = Categorical(probs, logits)
        shape = self._categorical.param_shape
        super().__init__(shape[:-1], shape[-1:], validate_args=validate_args)

    def expand(self, batch_shape: Shape, _instance: Any = None) -> Any:
        new = super().expand(batch_shape, _instance)
        new._categorical = self._categorical.expand(batch_shape)
        return new

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


class OneHotCategorical(OverCategories):
    """A vector with a single one, at an index drawn by probabilities.

    Parameters
    ----------
    probs, logits : Tensor, shape (..., n)
        See `Categorical`: exactly one of them, else ValueError.
    validate_args : bool, optional
    """

    support: Any = constraints.one_hot
    has_enumerate_support = True

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        return self._hot(self.probs.argmax(dim=-1))

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    def _hot(self, index: Tensor) -> Tensor:
        return F.one_hot(index, self._event_shape[0]).to(self.probs.dtype)

    def sample(self, sample_shape: Shape = ()) -> Tensor:
        return self._hot(self._categorical.sample(sample_shape))

    def _log_prob(self, value: Tensor) -> Tensor:
        return self._categorical.log_prob(value.argmax(dim=-1))

    def entropy(self) -> Tensor:
        return self._categorical.entropy()

    def enumerate_support(self, expand: bool = True) -> Tensor:
        n = self._event_shape[0]
        values = eye(n, dtype=self.probs.dtype, device=self.probs.device)
        values = values.view(n, *[1] * len(self._batch_shape), n)
        return values.expand(n, *self._batch_shape, n) if expand else values


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """The same, with the gradient of its probabilities for samples (Bengio et al., 2013).

    Parameters
    ----------
    probs, logits : Tensor, shape (..., n)
    validate_args : bool, optional
    """

    has_rsample = True

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        return self.sample(sample_shape) + (self.probs - self.probs.detach())
