"""Maps applied to parts of a value, reshapes, and distribution functions as maps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from lucid_gpu.distributions import constraints
from lucid_gpu.distributions.transform import Transform
from lucid_gpu.distributions.utils import sum_rightmost
from lucid_gpu.ops.shape import cat, stack
from lucid_gpu.tensor import Size, Tensor

__all__ = [
    "CatTransform",
    "CumulativeDistributionTransform",
    "ReshapeTransform",
    "StackTransform",
]


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
    """Maps of parts of so many entries each, in the manner of ``cat``.

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
    """Maps of the entries along a dimension, in the manner of ``stack``.

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
