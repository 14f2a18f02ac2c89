"""Invertible maps: the base, inverses, and maps made of other maps or of a distribution."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

from lucid_gpu.distributions import constraints
from lucid_gpu.distributions.constraints import Constraint
from lucid_gpu.distributions.utils import sum_rightmost
from lucid_gpu.ops.shape import cat, stack
from lucid_gpu.storage import Size
from lucid_gpu.tensor import Tensor

__all__ = [
    "CatTransform",
    "CumulativeDistributionTransform",
    "Inverse",
    "ReshapeTransform",
    "StackTransform",
    "Transform",
]


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
            If arguments and results differ in it.
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


class ReshapeTransform(Transform):
    """The last dimensions in another shape.

    Parameters
    ----------
    in_shape, out_shape : sequence of int
        Of one event, before and after; of as many elements, else ValueError.
    cache_size : {0, 1}
    """

    bijective = True

    def __init__(
        self, in_shape: Sequence[int], out_shape: Sequence[int], cache_size: int = 0
    ) -> None:
        super().__init__(cache_size)
        self.in_shape, self.out_shape = Size(in_shape), Size(out_shape)
        if math.prod(self.in_shape) != math.prod(self.out_shape):
            raise ValueError("in_shape, out_shape have different numbers of elements")
        self.domain = constraints.independent(constraints.real, len(self.in_shape))
        self.codomain = constraints.independent(constraints.real, len(self.out_shape))

    def _call(self, x: Tensor) -> Tensor:
        return x.reshape(self.forward_shape(x.shape))

    def _inverse(self, y: Tensor) -> Tensor:
        return y.reshape(self.inverse_shape(y.shape))

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x.new_zeros(x.shape[: x.ndim - len(self.in_shape)])

    def forward_shape(self, shape: Any) -> Any:
        return _exchanged(shape, self.in_shape, self.out_shape)

    def inverse_shape(self, shape: Any) -> Any:
        return _exchanged(shape, self.out_shape, self.in_shape)


def _exchanged(shape: Any, ending: Size, other: Size) -> Size:
    cut = len(shape) - len(ending)
    if cut < 0:
        raise ValueError("Too few dimensions on input")
    if tuple(shape[cut:]) != tuple(ending):
        raise ValueError(f"Shape mismatch: expected {Size(shape[cut:])} but got {ending}")
    return Size((*shape[:cut], *other))


class _Joined(Transform):
    """Maps of the parts of a value along a dimension."""

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, cache_size: int = 0) -> None:
        if not all(isinstance(t, Transform) for t in tseq):
            raise AssertionError("All elements of tseq must be Transform instances")
        super().__init__(cache_size)
        self.transforms = [t.with_cache(cache_size) for t in tseq] if cache_size else list(tseq)
        self.dim = dim

    @property
    def bijective(self) -> bool:  # type: ignore[override]
        return all(t.bijective for t in self.transforms)

    def _parts(self, x: Tensor) -> Sequence[Tensor]:
        """One for each map."""
        raise NotImplementedError

    def _join(self, parts: list[Tensor], dim: int) -> Tensor:
        raise NotImplementedError

    def _check(self, x: Tensor, extent: int) -> None:
        if not -x.ndim <= self.dim < x.ndim:
            raise AssertionError(f"dim {self.dim} out of range for tensor with {x.ndim} dimensions")
        if x.shape[self.dim] != extent:
            raise AssertionError(
                f"x.size({self.dim}) = {x.shape[self.dim]} must equal length {extent}"
            )

    def _call(self, x: Tensor) -> Tensor:
        pairs = zip(self.transforms, self._parts(x), strict=True)
        return self._join([t(part) for t, part in pairs], self.dim)

    def _inverse(self, y: Tensor) -> Tensor:
        pairs = zip(self.transforms, self._parts(y), strict=True)
        return self._join([t.inv(part) for t, part in pairs], self.dim)


class CatTransform(_Joined):
    """Transforms of consecutive parts along a dimension, whose results are joined as by ``cat``.

    Parameters
    ----------
    tseq : list of Transform
        One for each part; AssertionError for other objects, and for tensors of another length.
    dim : int
    lengths : list of int, optional
        One entry each by default.
    cache_size : {0, 1}
    """

    def __init__(
        self,
        tseq: Sequence[Transform],
        dim: int = 0,
        lengths: Sequence[int] | None = None,
        cache_size: int = 0,
    ) -> None:
        super().__init__(tseq, dim, cache_size)
        self.lengths = [1] * len(self.transforms) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.transforms):
            raise AssertionError(
                f"lengths ({len(self.lengths)}) must match transforms ({len(self.transforms)})"
            )

    @property
    def event_dim(self) -> int:
        return max(t.event_dim for t in self.transforms)

    @property
    def length(self) -> int:
        """The entries of all parts."""
        return sum(self.lengths)

    @property
    def domain(self) -> Any:
        """Where arguments lie."""
        return constraints.cat([t.domain for t in self.transforms], self.dim, self.lengths)

    @property
    def codomain(self) -> Any:
        """Where results lie."""
        return constraints.cat([t.codomain for t in self.transforms], self.dim, self.lengths)

    def _parts(self, x: Tensor) -> Sequence[Tensor]:
        self._check(x, self.length)
        return list(x.split(self.lengths, self.dim))

    def _join(self, parts: list[Tensor], dim: int) -> Tensor:
        return cat(parts, dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        terms = [
            sum_rightmost(t.log_abs_det_jacobian(a, b), self.event_dim - t.event_dim)
            for t, a, b in zip(self.transforms, self._parts(x), self._parts(y), strict=True)
        ]
        dim = (self.dim - x.ndim if self.dim >= 0 else self.dim) + self.event_dim
        if dim < 0:
            return cat(terms, dim)
        total: Any = sum(terms)  # the parts belong to one event
        result: Tensor = total
        return result


class StackTransform(_Joined):
    """Transforms of single entries along a dimension, joined as by ``stack``.

    Parameters
    ----------
    tseq : list of Transform
        One for each entry; AssertionError for other objects, and for tensors of another length.
    dim : int
    cache_size : {0, 1}
    """

    @property
    def domain(self) -> Any:
        """Where arguments lie."""
        return constraints.stack([t.domain for t in self.transforms], self.dim)

    @property
    def codomain(self) -> Any:
        """Where results lie."""
        return constraints.stack([t.codomain for t in self.transforms], self.dim)

    def _parts(self, x: Tensor) -> Sequence[Tensor]:
        self._check(x, len(self.transforms))
        return list(x.unbind(self.dim))

    def _join(self, parts: list[Tensor], dim: int) -> Tensor:
        return stack(parts, dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        rows = zip(self.transforms, self._parts(x), self._parts(y), strict=True)
        return stack([t.log_abs_det_jacobian(a, b) for t, a, b in rows], self.dim)


class CumulativeDistributionTransform(Transform):
    """A distribution's `cdf`; its inverse is the `icdf`.

    Parameters
    ----------
    distribution : Distribution
    cache_size : {0, 1}
    """

    bijective = True
    codomain = constraints.unit_interval
    sign = 1

    def __init__(self, distribution: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.distribution = distribution

    @property
    def domain(self) -> Any:
        """Where arguments lie."""
        return self.distribution.support

    def _call(self, x: Tensor) -> Tensor:
        y: Tensor = self.distribution.cdf(x)
        return y

    def _inverse(self, y: Tensor) -> Tensor:
        x: Tensor = self.distribution.icdf(y)
        return x

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        density: Tensor = self.distribution.log_prob(x)
        return density
