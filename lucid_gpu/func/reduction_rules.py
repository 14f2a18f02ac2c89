"""Batching rules of reductions and of running sums and products."""

from __future__ import annotations

from typing import Any

from lucid_gpu.func.batching import BatchLevel
from lucid_gpu.ops import (
    cumsum,
    cumulative,
    reductions,
)
from lucid_gpu.ops.reductions import normalise_dim, normalise_dims
from lucid_gpu.tape.rules import batching
from lucid_gpu.tensor import Tensor


def with_dim(level: BatchLevel, x: Tensor) -> Tensor:
    """A value with at least one dimension after the batch."""
    return level.value(x) if x.ndim else level.value(x).unsqueeze(1)


def _inner(dim: Any, x: Tensor) -> tuple[int, ...]:
    return tuple([d + 1 for d in normalise_dims(dim, x.ndim)]) or (1,)


@batching(reductions.sum, reductions.mean)
def _sum(
    level: BatchLevel, f: Any, x: Tensor, dim: Any = None, keepdim: bool = False, **options: Any
) -> Tensor:
    keepdim = keepdim and x.ndim > 0
    return level.wrap(f(with_dim(level, x), _inner(dim, x), keepdim, **options))


@batching(reductions.sum_to_shape)
def _sum_to_shape(level: BatchLevel, f: Any, x: Tensor, wanted: tuple[int, ...]) -> Tensor:
    missing = x.ndim - len(wanted)
    return level.wrap(
        f(level.value(x), (level.size, *[1] * missing, *wanted)).reshape((level.size, *wanted))
    )


@batching(reductions._extremum)
def _extremum(
    level: BatchLevel,
    f: Any,
    name: str,
    x: Tensor,
    dim: Any,
    keepdim: bool,
    *rest: Any,
    **more: Any,
) -> Tensor:
    keepdim = keepdim and x.ndim > 0
    return level.wrap(f(name, with_dim(level, x), _inner(dim, x), keepdim, *rest, **more))


@batching(reductions._position)
def _position(
    level: BatchLevel, f: Any, name: str, x: Tensor, dim: int | None, keepdim: bool
) -> Tensor:
    if dim is None or not x.ndim:
        flat = level.value(x).reshape((level.size, -1))
        found = f(name, flat, 1, False)
        return level.wrap(found.reshape((level.size, *[1] * (x.ndim if keepdim else 0))))
    return level.wrap(f(name, level.value(x), normalise_dim(dim, x.ndim) + 1, keepdim))


@batching(reductions.prod)
def _prod(
    level: BatchLevel, f: Any, x: Tensor, dim: int | None = None, keepdim: bool = False, **o: Any
) -> Tensor:
    if dim is None or not x.ndim:
        return level.wrap(f(level.value(x).reshape((level.size, -1)), 1, **o))
    return level.wrap(f(level.value(x), normalise_dim(dim, x.ndim) + 1, keepdim, **o))


@batching(reductions._median)
def _median(
    level: BatchLevel, f: Any, x: Tensor, dim: int | None, keepdim: bool, ignore_nan: bool
) -> Any:
    if dim is None or not x.ndim:
        return NotImplemented
    place = normalise_dim(dim, x.ndim) + 1
    return level.wrap_all(f(level.value(x), place, keepdim, ignore_nan))


@batching(cumsum.running_sum)
def _running_sum(level: BatchLevel, f: Any, x: Tensor, dim: int, *rest: Any) -> Tensor:
    if not x.ndim:
        return NotImplemented
    return level.wrap(f(level.value(x), normalise_dim(dim, x.ndim) + 1, *rest))


@batching(cumulative._running_product)
def _running_product(level: BatchLevel, f: Any, x: Tensor, dim: int) -> Tensor:
    return level.wrap(f(level.value(x), dim + 1))


@batching(cumulative.recurrence)
def _recurrence(level: BatchLevel, f: Any, a: Tensor, b: Tensor, dim: int, *rest: Any) -> Tensor:
    return level.wrap(f(level.full(a), level.full(b), dim + 1, *rest))


@batching(cumulative.logcumsumexp, cumulative.cummax, cumulative.cummin)
def _running(level: BatchLevel, f: Any, x: Tensor, dim: int) -> Any:
    if not x.ndim:
        return NotImplemented
    found = f(level.value(x), normalise_dim(dim, x.ndim) + 1)
    return level.wrap(found) if isinstance(found, Tensor) else level.wrap_all(found)


@batching(reductions._truth)
def _truth(level: BatchLevel, f: Any, name: str, x: Tensor, dim: Any, keepdim: bool) -> Tensor:
    keepdim = keepdim and x.ndim > 0
    return level.wrap(f(name, with_dim(level, x), _inner(dim, x), keepdim))
