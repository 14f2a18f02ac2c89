"""Mixtures of distributions of one kind."""

from __future__ import annotations

from typing import Any

from lucid_gpu.distributions import constraints
from lucid_gpu.distributions.categorical import Categorical
from lucid_gpu.distributions.constraints import _Mixture
from lucid_gpu.distributions.distribution import Distribution, Shape
from lucid_gpu.tape.modes import no_grad
from lucid_gpu.tensor import Tensor

__all__ = ["MixtureSameFamily"]


class MixtureSameFamily(Distribution):
    """A component drawn by weights: ``p(x) = sum of w_k p_k(x)``.

    Parameters
    ----------
    mixture_distribution : Categorical
        The weights.
    component_distribution : Distribution
        Its last batch dimension runs over the components.
    validate_args : bool, optional

    Raises
    ------
    ValueError
        For other kinds of objects, another number of components, and batches that do not broadcast.
    """

    arg_constraints: Any = {}

    def __init__(
        self,
        mixture_distribution: Categorical,
        component_distribution: Distribution,
        validate_args: bool | None = None,
    ) -> None:
        if not isinstance(mixture_distribution, Categorical):
            raise ValueError(
                " The Mixture distribution needs to be an  instance of "
                "lucid_gpu.distributions.Categorical"
            )
        if not isinstance(component_distribution, Distribution):
            raise ValueError(
                "The Component distribution need to be an instance of "
                "lucid_gpu.distributions.Distribution"
            )
        weights, parts = mixture_distribution, component_distribution
        own, batch = weights.batch_shape, parts.batch_shape[:-1]
        for m, n in zip(reversed(own), reversed(batch), strict=False):
            if m != 1 and n != 1 and m != n:
                raise ValueError(
                    f"`mixture_distribution.batch_shape` ({own}) is not compatible with "
                    f"`component_distribution.batch_shape`({batch})"
                )
        if parts.batch_shape[-1] != weights._num_events:
            raise ValueError(
                f"`mixture_distribution component` ({weights._num_events}) does not equal "
                f"`component_distribution.batch_shape[-1]` ({parts.batch_shape[-1]})"
            )
        self._mixture_distribution = weights
        self._component_distribution = parts
        super().__init__(batch, parts.event_shape, validate_args=validate_args)

    def expand(self, batch_shape: Shape, _instance: Any = None) -> Any:
        new = super().expand(batch_shape, _instance)
        parts = self.component_distribution
        new._component_distribution = parts.expand((*batch_shape, parts.batch_shape[-1]))
        new._mixture_distribution = self.mixture_distribution.expand(batch_shape)
        return new

    @property
    def mixture_distribution(self) -> Categorical:
        """The weights."""
        return self._mixture_distribution

    @property
    def component_distribution(self) -> Distribution:
        """The components."""
        return self._component_distribution

    @constraints.dependent_property
    def support(self) -> Any:
        """That of the components."""
        return _Mixture(self._component_distribution.support)

    def _weighted(self, value: Tensor) -> Tensor:
        """The mean of a value of each component, by weights."""
        return (self._padded(self.mixture_distribution.probs) * value).sum(self._component_dim)

    @property
    def _component_dim(self) -> int:
        return -1 - len(self.event_shape)

    def _padded(self, x: Tensor) -> Tensor:
        return x.reshape((*x.shape, *[1] * len(self.event_shape)))

    @property
    def mean(self) -> Tensor:
        return self._weighted(self.component_distribution.mean)

    @property
    def variance(self) -> Tensor:
        within = self._weighted(self.component_distribution.variance)
        apart = self.component_distribution.mean - self.mean.unsqueeze(self._component_dim)
        return within + self._weighted(apart**2)

    def _log_prob(self, value: Tensor) -> Tensor:
        value = value.unsqueeze(self._component_dim)
        logits = self.mixture_distribution.logits.log_softmax(-1)
        return (self.component_distribution.log_prob(value) + logits).logsumexp(-1)

    def log_prob(self, x: Tensor) -> Tensor:
        return super().log_prob(x)

    def cdf(self, x: Tensor) -> Tensor:
        each = self.component_distribution.cdf(x.unsqueeze(self._component_dim))
        return (each * self.mixture_distribution.probs).sum(-1)

    def sample(self, sample_shape: Shape = ()) -> Tensor:
        with no_grad():
            index = self.mixture_distribution.expand(self._batch_shape).sample(sample_shape)
            each = self.component_distribution.sample(sample_shape)
            events = len(self.event_shape)
            index = index.reshape((*index.shape, *[1] * (events + 1)))
            dim = each.ndim - events - 1
            shape = (*each.shape[:dim], 1, *each.shape[dim + 1 :])
            return each.gather(dim, index.expand(shape)).squeeze(dim)

    def __repr__(self) -> str:
        return (
            f"MixtureSameFamily(\n  {self.mixture_distribution},\n  {self.component_distribution})"
        )
