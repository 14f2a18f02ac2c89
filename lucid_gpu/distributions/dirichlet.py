"""Distributions over the simplex: Dirichlet and, for two parts, beta."""

from __future__ import annotations

from typing import Any

from lucid_gpu.distributions import constraints
from lucid_gpu.distributions.distribution import ExponentialFamily, Shape
from lucid_gpu.nn import functional as F
from lucid_gpu.ops.draws import dirichlet
from lucid_gpu.ops.elementwise import where
from lucid_gpu.ops.shape import stack
from lucid_gpu.tensor import Tensor

__all__ = ["Beta", "Dirichlet"]


class Dirichlet(ExponentialFamily):
    """``p(x) = gamma(sum of a) product of x_i^(a_i - 1) / gamma(a_i)`` over the simplex.

    Samples are gamma ones divided by their sum, and so are their gradients.

    Parameters
    ----------
    concentration : Tensor, shape (..., n)
        ``a``.
    validate_args : bool, optional

    Raises
    ------
    ValueError
        For a 0-d concentration.
    """

    arg_constraints: Any = {"concentration": constraints.independent(constraints.positive, 1)}
    support: Any = constraints.simplex
    has_rsample = True

    def __init__(self, concentration: Tensor, validate_args: bool | None = None) -> None:
        if concentration.ndim < 1:
            raise ValueError("`concentration` parameter must be at least one-dimensional.")
        self.concentration = concentration
        shape = concentration.shape
        super().__init__(shape[:-1], shape[-1:], validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.concentration.sum(-1, keepdim=True)

    @property
    def mode(self) -> Tensor:
        """The most likely point, of shape ``batch_shape + (n,)``; for all ``a < 1`` a corner."""
        above = (self.concentration - 1).clamp(min=0.0)
        inside = above / above.sum(-1, keepdim=True)
        corner = F.one_hot(inside.argmax(dim=-1), above.shape[-1]).to(above.dtype)
        at_corner = (self.concentration < 1).all(-1).unsqueeze(-1)
        return where(at_corner, corner, inside)

    @property
    def variance(self) -> Tensor:
        total = self.concentration.sum(-1, keepdim=True)
        return self.concentration * (total - self.concentration) / (total**2 * (total + 1))

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        return dirichlet(self.concentration.expand(self._extended_shape(sample_shape)))

    def _log_prob(self, value: Tensor) -> Tensor:
        a = self.concentration
        return (a - 1.0).xlogy(value).sum(-1) + a.sum(-1).lgamma() - a.lgamma().sum(-1)

    def entropy(self) -> Tensor:
        a, n = self.concentration, self.concentration.shape[-1]
        total = a.sum(-1)
        of_parts = a.lgamma().sum(-1) - ((a - 1.0) * a.digamma()).sum(-1)
        return of_parts - total.lgamma() - (n - total) * total.digamma()

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (self.concentration,)

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        (a,) = natural_params
        return a.lgamma().sum(-1) - a.sum(-1).lgamma()


class Beta(ExponentialFamily):
    """``p(x)`` in proportion to ``x^(concentration1 - 1) (1 - x)^(concentration0 - 1)``.

    Parameters
    ----------
    concentration1, concentration0 : float or Tensor, broadcast to batch_shape
    validate_args : bool, optional
    """

    arg_constraints: Any = {
        "concentration1": constraints.positive,
        "concentration0": constraints.positive,
    }
    support: Any = constraints.unit_interval
    has_rsample = True
    concentration1: Tensor
    concentration0: Tensor

    def __init__(
        self, concentration1: Any, concentration0: Any, validate_args: bool | None = None
    ) -> None:
        self._take(validate_args, concentration1=concentration1, concentration0=concentration0)

    @property
    def _dirichlet(self) -> Dirichlet:
        both = stack([self.concentration1, self.concentration0], -1)
        return Dirichlet(both, validate_args=False)

    @property
    def mean(self) -> Tensor:
        return self.concentration1 / (self.concentration1 + self.concentration0)

    @property
    def mode(self) -> Tensor:
        return self._dirichlet.mode[..., 0]

    @property
    def variance(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        return a * b / ((a + b) ** 2 * (a + b + 1))

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        return self._dirichlet.rsample(sample_shape)[..., 0]

    def _log_prob(self, value: Tensor) -> Tensor:
        return self._dirichlet.log_prob(stack([value, 1.0 - value], -1))

    def entropy(self) -> Tensor:
        return self._dirichlet.entropy()

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return self.concentration1, self.concentration0

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        x, y = natural_params
        return x.lgamma() + y.lgamma() - (x + y).lgamma()
