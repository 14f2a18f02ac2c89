"""Which map leads from unconstrained numbers into a set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucid_gpu.distributions import constraints, transforms
from lucid_gpu.distributions.constraints import Constraint
from lucid_gpu.distributions.transform import Transform

__all__ = ["ConstraintRegistry", "biject_to", "transform_to"]

Factory = Callable[[Any], Transform]


class ConstraintRegistry:
    """Constraints and the maps into them: called with one, it gives the map."""

    def __init__(self) -> None:
        self._registry: dict[type[Constraint], Factory] = {}

    def register(self, constraint: Any, factory: Factory | None = None) -> Any:
        """Say how the map into a kind of constraint is made; a decorator without ``factory``.

        Parameters
        ----------
        constraint : Constraint or subclass of it
        factory : callable, optional
            Of a constraint, gives a `Transform`.
        """
        if factory is None:
            return lambda factory: self.register(constraint, factory)
        kind = type(constraint) if isinstance(constraint, Constraint) else constraint
        if not isinstance(kind, type) or not issubclass(kind, Constraint):
            raise TypeError(
                "Expected constraint to be either a Constraint subclass or instance, but got "
                f"{constraint}"
            )
        self._registry[kind] = factory
        return factory

    def __call__(self, constraint: Constraint) -> Transform:
        factory = self._registry.get(type(constraint))
        if factory is None:
            raise NotImplementedError(
                f"Cannot transform {type(constraint).__name__} constraints"
            ) from None
        return factory(constraint)


def _beyond(bound: Any, direction: int) -> Transform:
    """Above or below a bound."""
    return transforms.ComposeTransform(
        [transforms.ExpTransform(), transforms.AffineTransform(bound, direction)]
    )


def _between(c: Any) -> Transform:
    low, high = c.lower_bound, c.upper_bound
    if isinstance(low, (int, float)) and isinstance(high, (int, float)) and (low, high) == (0, 1):
        return transforms.SigmoidTransform()
    return transforms.ComposeTransform(
        [transforms.SigmoidTransform(), transforms.AffineTransform(low, high - low)]
    )


biject_to = ConstraintRegistry()  # maps that can be inverted, with Jacobians
transform_to = ConstraintRegistry()  # maps for optimization, coordinate by coordinate

_SHARED: tuple[tuple[Any, Factory], ...] = (
    (constraints.real, lambda c: transforms.identity_transform),
    (constraints.positive, lambda c: _beyond(c.lower_bound, 1)),
    (constraints.nonnegative, lambda c: _beyond(c.lower_bound, 1)),
    (constraints.less_than, lambda c: _beyond(c.upper_bound, -1)),
    (constraints.interval, _between),
    (constraints.half_open_interval, _between),
    (constraints.corr_cholesky, lambda c: transforms.CorrCholeskyTransform()),
)
_BIJECTIONS: tuple[tuple[Any, Factory], ...] = (
    (constraints.simplex, lambda c: transforms.StickBreakingTransform()),
)
_OTHERS: tuple[tuple[Any, Factory], ...] = (
    (constraints.simplex, lambda c: transforms.SoftmaxTransform()),
    (constraints.lower_cholesky, lambda c: transforms.LowerCholeskyTransform()),
    (constraints.positive_definite, lambda c: transforms.PositiveDefiniteTransform()),
    (constraints.positive_semidefinite, lambda c: transforms.PositiveDefiniteTransform()),
)


def _fill(registry: ConstraintRegistry, own: tuple[tuple[Any, Factory], ...]) -> None:
    for constraint, factory in (*_SHARED, *own):
        registry.register(constraint, factory)

    @registry.register(constraints.independent)
    def _independent(c: Any) -> Transform:
        inner = registry(c.base_constraint)
        return transforms.IndependentTransform(inner, c.reinterpreted_batch_ndims)

    @registry.register(constraints.cat)
    def _cat(c: Any) -> Transform:
        return transforms.CatTransform([registry(one) for one in c.cseq], c.dim, c.lengths)

    @registry.register(constraints.stack)
    def _stack(c: Any) -> Transform:
        return transforms.StackTransform([registry(one) for one in c.cseq], c.dim)


_fill(biject_to, _BIJECTIONS)
_fill(transform_to, _OTHERS)
