"""The chi-squared distribution."""

from __future__ import annotations

from typing import Any

from lucid_gpu.distributions import constraints
from lucid_gpu.distributions.distribution import Shape
from lucid_gpu.distributions.gamma import Gamma
from lucid_gpu.tensor import Tensor

__all__ = ["Chi2"]


class Chi2(Gamma):
    """The sum of ``df`` squares of standard normal ones: a gamma distribution of ``df / 2``, 1/2.

    Parameters
    ----------
    df : float or Tensor, broadcast to batch_shape
    validate_args : bool, optional
    """

    arg_constraints: Any = {"df": constraints.positive}

    def __init__(self, df: Any, validate_args: bool | None = None) -> None:
        super().__init__(0.5 * df, 0.5, validate_args=validate_args)

    def expand(self, batch_shape: Shape, _instance: Any = None) -> Any:
        new = super().expand(batch_shape, _instance)
        new.concentration, new.rate = (
            self.concentration.expand(batch_shape),
            self.rate.expand(batch_shape),
        )
        return new

    @property
    def df(self) -> Tensor:
        """The degrees of freedom, of shape ``batch_shape``."""
        return self.concentration * 2
