"""Dimensions of the batch as dimensions of events."""

from __future__ import annotations

from typing import Any

from lucid_gpu.distributions import constraints
from lucid_gpu.distributions.distribution import Distribution, Shape
from lucid_gpu.distributions.utils import sum_rightmost
from lucid_gpu.tensor import Tensor

__all__ = ["Independent"]


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
