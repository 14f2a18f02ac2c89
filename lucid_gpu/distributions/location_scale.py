"""What the distributions by location and scale share."""

from __future__ import annotations

from typing import Any

from lucid_gpu.distributions import constraints
from lucid_gpu.distributions.distribution import Distribution
from lucid_gpu.tensor import Tensor

__all__ = ["LocationScale"]


class LocationScale(Distribution):
    """A distribution of the reals moved by ``loc``, where its mode is, and stretched by ``scale``.

    Parameters
    ----------
    loc, scale : float or Tensor, broadcast to batch_shape
    validate_args : bool, optional
    """

    arg_constraints: Any = {"loc": constraints.real, "scale": constraints.positive}
    support: Any = constraints.real
    has_rsample = True
    loc: Tensor
    scale: Tensor

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self._take(validate_args, loc=loc, scale=scale)

    @property
    def mode(self) -> Tensor:
        return self.loc
