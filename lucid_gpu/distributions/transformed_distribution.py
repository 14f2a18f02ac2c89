"""The distribution of a function of something random."""

from __future__ import annotations

from typing import Any

from lucid_gpu.distributions import constraints
from lucid_gpu.distributions.distribution import Distribution, Shape
from lucid_gpu.distributions.independent import Independent
from lucid_gpu.distributions.transforms import ComposeTransform, Transform
from lucid_gpu.distributions.utils import sum_rightmost
from lucid_gpu.tape.modes import no_grad
from lucid_gpu.tensor import Tensor

__all__ = ["TransformedDistribution"]


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
        given = [transforms] if isinstance(transforms, Transform) else transforms
        if not isinstance(given, list):
            raise ValueError(f"transforms must be a Transform or list, but was {transforms}")
        if not all(isinstance(t, Transform) for t in given):
            raise ValueError("transforms must be a Transform or a list of Transforms")
        self.transforms: list[Transform] = given
        base = base_distribution
        whole = ComposeTransform(given)
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
