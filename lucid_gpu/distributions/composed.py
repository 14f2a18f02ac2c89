"""Distributions made of others: independent copies, transformed values, mixtures."""

from __future__ import annotations

from typing import Any

from lucid_gpu.distributions import constraints
from lucid_gpu.distributions.categorical import Categorical
from lucid_gpu.distributions.constraints import _Mixture
from lucid_gpu.distributions.distribution import Distribution, Shape
from lucid_gpu.distributions.transforms import ComposeTransform, Transform
from lucid_gpu.distributions.utils import sum_rightmost
from lucid_gpu.tape.modes import no_grad
from lucid_gpu.tensor import Tensor

__all__ = ["Independent", "MixtureSameFamily", "TransformedDistribution"]


class Independent(Distribution):
    """A distribution some of whose batch dimensions, the last ones, are one event.

    Parameters
    ----------
    base_distribution : Distribution
    reinterpreted_batch_ndims : int
        How many.
    validate_args : bool, optional

    Raises
    ------
    ValueError
        For more than the base has.
    """

    arg_constraints: Any = {}

    def __init__(
        self,
        base_distribution: Distribution,
        reinterpreted_batch_ndims: int,
        validate_args: bool | None = None,
    ) -> None:
        base, count = base_distribution, reinterpreted_batch_ndims
        if count > len(base.batch_shape):
            raise ValueError(
                "Expected reinterpreted_batch_ndims <= len(base_distribution.batch_shape), "
                f"actual {count} vs {len(base.batch_shape)}"
            )
        shape = (*base.batch_shape, *base.event_shape)
        at = len(base.batch_shape) - count
        self.base_dist = base
        self.reinterpreted_batch_ndims = count
        super().__init__(shape[:at], shape[at:], validate_args=validate_args)

    def expand(self, batch_shape: Shape, _instance: Any = None) -> Any:
        new = super().expand(batch_shape, _instance)
        own = self._event_shape[: self.reinterpreted_batch_ndims]
        new.base_dist = self.base_dist.expand((*batch_shape, *own))
        return new

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        """Whether the base has it."""
        return self.base_dist.has_rsample

    @property
    def has_enumerate_support(self) -> bool:  # type: ignore[override]
        """Whether the base has it, and nothing is reinterpreted."""
        return not self.reinterpreted_batch_ndims and self.base_dist.has_enumerate_support

    @constraints.dependent_property
    def support(self) -> Any:
        """That of the base, for events."""
        result, count = self.base_dist.support, self.reinterpreted_batch_ndims
        return constraints.independent(result, count) if count else result

    @property
    def mean(self) -> Tensor:
        return self.base_dist.mean

    @property
    def mode(self) -> Tensor:
        return self.base_dist.mode

    @property
    def variance(self) -> Tensor:
        return self.base_dist.variance

    def sample(self, sample_shape: Shape = ()) -> Tensor:
        return self.base_dist.sample(sample_shape)

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        return self.base_dist.rsample(sample_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        return sum_rightmost(self.base_dist.log_prob(value), self.reinterpreted_batch_ndims)

    def entropy(self) -> Tensor:
        return sum_rightmost(self.base_dist.entropy(), self.reinterpreted_batch_ndims)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        if self.reinterpreted_batch_ndims:
            raise NotImplementedError("Enumeration over cartesian product is not implemented")
        return self.base_dist.enumerate_support(expand)

    def __repr__(self) -> str:
        return f"Independent({self.base_dist}, {self.reinterpreted_batch_ndims})"


class TransformedDistribution(Distribution):
    """``y = f(x)`` for ``x`` of a distribution: ``log p(y) = log p(x) - log |det dy/dx|``.

    Parameters
    ----------
    base_distribution : Distribution
    transforms : Transform or list of Transform
        Applied in this order.
    validate_args : bool, optional

    Raises
    ------
    ValueError
        For other objects than transforms, and for a base of fewer dimensions than they take.
    """

    arg_constraints: Any = {}

    def __init__(
        self,
        base_distribution: Distribution,
        transforms: Transform | list[Transform],
        validate_args: bool | None = None,
    ) -> None:
        maps = [transforms] if isinstance(transforms, Transform) else transforms
        if not isinstance(maps, list):
            raise ValueError(f"transforms must be a Transform or list, but was {transforms}")
        if not all(isinstance(t, Transform) for t in maps):
            raise ValueError("transforms must be a Transform or a list of Transforms")
        self.transforms: list[Transform] = maps
        base = base_distribution
        whole = ComposeTransform(maps)
        shape = base.batch_shape + base.event_shape
        if len(shape) < whole.domain.event_dim:
            raise ValueError(
                f"base_distribution needs to have shape with size at least "
                f"{whole.domain.event_dim}, but got {shape}."
            )
        shape = whole.forward_shape(shape)
        taken = whole.inverse_shape(shape)
        base = base.expand(taken[: len(taken) - len(base.event_shape)])
        more = whole.domain.event_dim - len(base.event_shape)
        self.base_dist = Independent(base, more) if more > 0 else base
        change = whole.codomain.event_dim - whole.domain.event_dim
        count = max(whole.codomain.event_dim, len(base.event_shape) + change)
        at = len(shape) - count
        super().__init__(shape[:at], shape[at:], validate_args=validate_args)

    def expand(self, batch_shape: Shape, _instance: Any = None) -> Any:
        new = super().expand(batch_shape, _instance)
        whole = ComposeTransform(self.transforms)
        shape = whole.inverse_shape((*batch_shape, *self.event_shape))
        new.base_dist = self.base_dist.expand(shape[: len(shape) - len(self.base_dist.event_shape)])
        return new

    @constraints.dependent_property(is_discrete=False)
    def support(self) -> Any:
        """The codomain of the last transform."""
        if not self.transforms:
            return self.base_dist.support
        support = self.transforms[-1].codomain
        more = len(self.event_shape) - support.event_dim
        return constraints.independent(support, more) if more > 0 else support

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        """Whether the base has it."""
        return self.base_dist.has_rsample

    def _forward(self, x: Tensor) -> Tensor:
        for transform in self.transforms:
            x = transform(x)
        return x

    def sample(self, sample_shape: Shape = ()) -> Tensor:
        with no_grad():
            return self._forward(self.base_dist.sample(sample_shape))

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        return self._forward(self.base_dist.rsample(sample_shape))

    def _log_prob(self, value: Tensor) -> Tensor:
        count = len(self.event_shape)
        total: Any = 0.0
        y = value
        for transform in reversed(self.transforms):
            x = transform.inv(y)
            count += transform.domain.event_dim - transform.codomain.event_dim
            change = transform.log_abs_det_jacobian(x, y)
            total = total - sum_rightmost(change, count - transform.domain.event_dim)
            y = x
        base = self.base_dist
        result: Tensor = total + sum_rightmost(base.log_prob(y), count - len(base.event_shape))
        return result

    def _turned(self, probability: Tensor) -> Tensor:
        """A probability below as one above, where the transforms fall."""
        sign = ComposeTransform(self.transforms).sign
        if isinstance(sign, int) and sign == 1:
            return probability
        turned: Tensor = sign * (probability - 0.5) + 0.5
        return turned

    def cdf(self, value: Tensor) -> Tensor:
        for transform in reversed(self.transforms):
            value = transform.inv(value)
        return self._turned(self.base_dist.cdf(value))

    def icdf(self, value: Tensor) -> Tensor:
        return self._forward(self.base_dist.icdf(self._turned(value)))


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
