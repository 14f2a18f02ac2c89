"""What distributions share whose samples are quantiles of uniform numbers."""

from __future__ import annotations

from lucid_gpu.distributions.distribution import Distribution, Shape
from lucid_gpu.distributions.utils import tiny
from lucid_gpu.ops.random import rand
from lucid_gpu.tensor import Tensor

__all__ = ["ByInverse"]


class ByInverse(Distribution):
    """A distribution whose `icdf` is a formula: samples are its values at random places."""

    has_rsample = True

    @property
    def _one(self) -> Tensor:
        """A parameter, for its type and device."""
        first: Tensor = self.__dict__[next(iter(self.arg_constraints))]
        return first

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        like = self._one
        unit = rand(self._extended_shape(sample_shape), dtype=like.dtype, device=like.device)
        return self.icdf(unit.clamp(min=tiny(like.dtype)))
