"""The categorical distribution over vectors with a single one."""

from __future__ import annotations

from typing import Any

from lucid_gpu.distributions import constraints
from lucid_gpu.distributions.categorical import Categorical
from lucid_gpu.distributions.distribution import Distribution, Shape
from lucid_gpu.nn import functional as F
from lucid_gpu.ops.creation import eye
from lucid_gpu.tensor import Tensor

__all__ = ["OneHotCategorical", "OneHotCategoricalStraightThrough"]


class OneHotCategorical(Distribution):
    """A vector with a single one, at a place drawn by probabilities.

    Parameters
    ----------
    probs, logits : Tensor, shape (..., n)
        As of `Categorical`: exactly one of them, else ValueError.
    validate_args : bool, optional
    """

    arg_constraints: Any = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support: Any = constraints.one_hot
    has_enumerate_support = True

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
