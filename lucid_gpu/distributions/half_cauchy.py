"""The absolute value of a Cauchy one."""

from __future__ import annotations

import math

from lucid_gpu.distributions.cauchy import Cauchy
from lucid_gpu.distributions.half_normal import Half
from lucid_gpu.ops.creation import full_like, zeros_like
from lucid_gpu.tensor import Tensor

__all__ = ["HalfCauchy"]


class HalfCauchy(Half):
    """``|x|`` for a Cauchy ``x`` around 0.

    Parameters
    ----------
    scale : float or Tensor, broadcast to batch_shape
        The half width of ``x`` at half maximum.
    validate_args : bool, optional
    """

    @property
    def base_dist(self) -> Cauchy:
        """That of ``x``."""
        return Cauchy(zeros_like(self.scale), self.scale, validate_args=False)

    @property
    def mean(self) -> Tensor:
        return full_like(self.scale, math.inf)

    @property
    def variance(self) -> Tensor:
        return self.base_dist.variance
