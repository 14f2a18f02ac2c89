"""What an invertible map is, and its inverse."""

from __future__ import annotations

import copy
from typing import Any

from lucid_gpu.distributions import constraints
from lucid_gpu.distributions.constraints import Constraint
from lucid_gpu.tensor import Tensor

__all__ = ["Inverse", "Transform"]


class Transform:
    """A map from `domain` to `codomain`.

    A subclass defines ``_call`` and, if it can be inverted, ``_inverse`` and
    `log_abs_det_jacobian`.

    Parameters
    ----------
    cache_size : {0, 1}
        Remember the last pair, so that the inverse of a result is what it was computed from;
        ValueError for another size.

    Attributes
    ----------
    domain, codomain : Constraint
        Where arguments and results lie.
    bijective : bool
    """

    bijective = False
    domain: Any = constraints.real
    codomain: Any = constraints.real

    def __init__(self, cache_size: int = 0) -> None:
        """``cache_size`` is 0 or 1; ValueError for others."""
        if cache_size not in (0, 1):
            raise ValueError("cache_size must be 0 or 1")
        self._cache_size = cache_size
        self._cached: tuple[Any, Any] = (None, None)

    def with_cache(self, cache_size: int = 1) -> Transform:
        """The same map with a cache of another size."""
        other = copy.copy(self)
        other._cache_size, other._cached = cache_size, (None, None)
        return self if cache_size == self._cache_size else other

    @property
    def sign(self) -> Any:
        """Of the derivative, for a map of numbers: an int, or a Tensor that broadcasts to them.

        Raises
        ------
        NotImplementedError
            For maps that neither rise nor fall.
        """
        raise NotImplementedError

    @property
    def event_dim(self) -> int:
        """How many dimensions of a value belong together.

        Raises
        ------
        ValueError
            Where arguments and results differ in it.
        """
        if self.domain.event_dim == self.codomain.event_dim:
            return int(self.domain.event_dim)
        raise ValueError("Please use either .domain.event_dim or .codomain.event_dim")

    @property
    def inv(self) -> Transform:
        """The inverse map."""
        return Inverse(self)

    def __call__(self, x: Tensor) -> Tensor:
        if not self._cache_size:
            return self._call(x)
        if self._cached[0] is not x:
            self._cached = (x, self._call(x))
        return self._cached[1]

    def _inv_call(self, y: Tensor) -> Tensor:
        if not self._cache_size:
            return self._inverse(y)
        if self._cached[1] is not y:
            self._cached = (self._inverse(y), y)
        return self._cached[0]

    def _call(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def _inverse(self, y: Tensor) -> Tensor:
        raise NotImplementedError

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """``log |det dy/dx|`` for ``y`` computed from ``x``.

        Parameters
        ----------
        x, y : Tensor
            Of shapes that are ``forward_shape`` and ``inverse_shape`` of each other.

        Returns
        -------
        Tensor
            Of the shape of ``x`` without the dimensions of an event.

        Raises
        ------
        NotImplementedError
            For maps without an inverse.
        """
        raise NotImplementedError

    def forward_shape(self, shape: Any) -> Any:
        """The shape of results for arguments of a shape; ValueError for one that does not fit."""
        return shape

    def inverse_shape(self, shape: Any) -> Any:
        """The shape of arguments for results of a shape; ValueError for one that does not fit."""
        return shape

    def __eq__(self, other: object) -> bool:
        return self is other or (
            type(self) is type(other) and self._settings() == other._settings()
        )

    def __hash__(self) -> int:
        return id(self)

    def _settings(self) -> Any:
        return {k: v for k, v in self.__dict__.items() if not k.startswith("_")}

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class Inverse(Transform):
    """The inverse of a map, as a map."""

    def __init__(self, base: Transform) -> None:
        super().__init__()
        self.base = base

    @property
    def bijective(self) -> bool:  # type: ignore[override]
        return self.base.bijective

    @property
    def domain(self) -> Constraint:
        """Where arguments lie."""
        return self.base.codomain

    @property
    def codomain(self) -> Constraint:
        """Where results lie."""
        return self.base.domain

    @property
    def sign(self) -> Any:
        return self.base.sign

    @property
    def inv(self) -> Transform:
        return self.base

    def __call__(self, x: Tensor) -> Tensor:
        return self.base._inv_call(x)

    def _inv_call(self, y: Tensor) -> Tensor:
        return self.base(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -self.base.log_abs_det_jacobian(y, x)

    def forward_shape(self, shape: Any) -> Any:
        return self.base.inverse_shape(shape)

    def inverse_shape(self, shape: Any) -> Any:
        return self.base.forward_shape(shape)

    def __repr__(self) -> str:
        return f"_InverseTransform({self.base!r})"
