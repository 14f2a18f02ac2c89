"""Pooling to a given size: compositions, whose windows differ in size by at most one.

Window ``i`` of ``m`` along an axis of length ``n`` reaches from ``floor(i * n / m)`` up to
``ceil((i + 1) * n / m)``. Where ``m`` divides ``n`` this is ordinary pooling.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

from lucid_gpu.devices.pool import overflow
from lucid_gpu.dtypes import unimplemented
from lucid_gpu.kernels.resampling import area
from lucid_gpu.ops.arguments import as_ints, require_tensor
from lucid_gpu.ops.convolution import of_rank
from lucid_gpu.ops.creation import arange
from lucid_gpu.ops.interpolate import resample
from lucid_gpu.ops.memory_formats import (
    channels_order,
    led_in,
    lying,
    row_major_order,
    signals_order,
)
from lucid_gpu.ops.pooling import _avg_pool, _max_pool
from lucid_gpu.ops.record import keeping, keeps, leads_back, ties
from lucid_gpu.ops.registry import named
from lucid_gpu.ops.shape import own
from lucid_gpu.ops.sliding import Sizes
from lucid_gpu.tape.door import Truth, op
from lucid_gpu.tape.modes import no_grad
from lucid_gpu.tensor import Tensor

__all__ = [
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "adaptive_max_pool1d",
    "adaptive_max_pool2d",
    "adaptive_max_pool3d",
]

_MEAN = """The means of as many windows of {what} as asked for.

    Parameters
    ----------
    input : Tensor, shape (n, c, {size}) or (c, {size})
    output_size : int or tuple of int
        None keeps the input's.

    Returns
    -------
    Tensor, shape (n, c, *output_size) or (c, *output_size)

    Raises
    ------
    RuntimeError
        For another rank, empty axes, or invalid sizes. One mean of an image or a volume is
        taken of any rank.
    ValueError
        For sizes of more dimensions than the input has.
    TypeError
        For sizes that are not whole numbers.
    NotImplementedError
        For integers, bool and complex.
    """

_MAX = """The largest numbers of as many windows of {what} as asked for.

    Parameters
    ----------
    input : Tensor, shape (n, c, {size}) or (c, {size})
    output_size : int or tuple of int
        None keeps the input's.
    return_indices : bool
        Also return where in its plane, counted row by row, each maximum is.

    Returns
    -------
    Tensor, shape (n, c, *output_size) or (c, *output_size), or two of them

    Raises
    ------
    RuntimeError
        For another rank, empty axes, or invalid sizes.
    ValueError
        For sizes of more dimensions than the input has.
    TypeError
        For sizes that are not whole numbers.
    NotImplementedError
        For integers, bool and complex.
    """


def _mean_of_rank(rank: int) -> Callable[..., Tensor]:
    name = f"adaptive_avg_pool{rank}d"

    @op
    @lying("input", rule=row_major_order if rank == 3 else signals_order)
    def adaptive_avg_pool(input: Tensor, output_size: Any) -> Tensor:
        if type(output_size) is int:
            once = output_size == 1 < rank
        else:
            several = isinstance(output_size, Sequence) and 1 < rank == len(output_size)
            once = several and all(type(m) is int and m == 1 for m in output_size)
        if once:
            require_tensor(name, "input", 1, input)
            return input.mean(tuple(range(-rank, 0)), keepdim=True)  # of any rank, as in PyTorch
        size = _size(rank, name, input, output_size)
        if 0 in size or 0 in input.shape[:-rank]:  # nothing, which still has its history
            return input.flatten(-rank)[..., :0].reshape(*input.shape[:-rank], *size).clone()
        kernel = _kernel(input, size)
        if kernel is not None and size == (1,):  # a mean in PyTorch, which saves nothing
            return _avg_pool(rank, input, (kernel, None, 0, 1), False, True, 0, None)
        if kernel is not None:
            return keeps(_avg_pool(rank, input, (kernel, None, 0, 1), False, True, 0), input)
        bands = [area(n, m) for n, m in zip(input.shape[-rank:], size, strict=True)]
        order = None if rank == 3 else channels_order(input)
        return keeps(ties(leads_back(resample(input, bands), order)), input)

    return of_rank(adaptive_avg_pool, name, _MEAN, rank)


def _max_of_rank(rank: int) -> Callable[..., Any]:
    name = f"adaptive_max_pool{rank}d"

    @op
    @keeping("input")
    @lying("input", rule=row_major_order if rank == 3 else signals_order)
    def adaptive_max_pool(input: Tensor, output_size: Any, return_indices: Truth = False) -> Any:
        size = _size(rank, name, input, output_size)
        kernel = _kernel(input, size)
        if kernel is not None and input.numel():
            return _max_pool(rank, input, (kernel, None, 0, 1), False, return_indices)
        order = None if rank == 3 else channels_order(input)
        flat = led_in(input, order).flatten(-rank)
        places = _positions(input, size)
        with no_grad():
            best = flat[..., places].argmax(-1, keepdim=True)
            spread = places.expand(*best.shape[:-1], places.shape[-1])
            indices = spread.gather(-1, best).squeeze(-1)
        lead = flat.shape[:-1]
        pooled = own(ties(flat.gather(-1, indices)).reshape(*lead, *size))
        return (pooled, own(indices.reshape(*lead, *size))) if return_indices else pooled

    return of_rank(adaptive_max_pool, name, _MAX, rank)


adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d = map(_mean_of_rank, (1, 2, 3))
adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d = map(_max_of_rank, (1, 2, 3))


def _always_a_pair(pool: Callable[..., Any]) -> Callable[..., Any]:
    @op
    def with_indices(input: Tensor, output_size: Any) -> tuple[Tensor, Tensor]:
        found: tuple[Tensor, Tensor] = pool(input, output_size, True)
        return found

    doc = f"`nn.functional.{pool.__name__}` and the indices of the maxima."
    return named(with_indices, pool.__name__, doc)


FUNCTIONS = (adaptive_avg_pool1d, _always_a_pair(adaptive_max_pool1d))


def _positions(x: Tensor, size: Sizes) -> Tensor:
    """Where the numbers of each window stand in their plane; the last of short ones repeated."""
    rank = len(size)
    shape = x.shape[-rank:]
    places: Any = 0
    for axis, (n, m) in enumerate(zip(shape, size, strict=True)):
        longest = max([-(-(i + 1) * n // m) - i * n // m for i in range(m)], default=1)
        window, step = (arange(k, device=x.device) for k in (m, longest))
        last = ((window + 1) * n + (m - 1)) // m - 1
        along = ((window * n // m)[:, None] + step).minimum(last[:, None])
        along = along * math.prod(shape[axis + 1 :])
        wide = [1] * (2 * rank)
        wide[axis], wide[rank + axis] = m, longest
        places = places + along.reshape(wide)
    return places.reshape(math.prod(size), math.prod(places.shape[rank:]))


def _kernel(input: Tensor, size: Sizes) -> Sizes | None:
    """The window, where all are alike and side by side."""
    shape = input.shape[input.ndim - len(size) :]
    if 0 in size or any(n % m for n, m in zip(shape, size, strict=True)):
        return None
    return tuple([n // m for n, m in zip(shape, size, strict=True)])


def _size(rank: int, name: str, input: Tensor, output_size: Any) -> Sizes:
    require_tensor(name, "input", 1, input)
    shape = list(input.shape)
    if rank > 1 and input.ndim <= rank and not isinstance(output_size, int):
        raise ValueError(f"Input dimension should be at least {rank + 1}, got {input.ndim}")
    if input.ndim not in (rank + 1, rank + 2):
        raise RuntimeError(f"{name}(): Expected {rank + 1}D or {rank + 2}D tensor, but got {shape}")
    if 0 in shape[1 if name not in ("adaptive_avg_pool1d", "adaptive_avg_pool2d") else -rank :]:
        raise RuntimeError(
            f"{name}(): Expected input to have non-zero size for non-batch dimensions, but input "
            f"has sizes {shape}"
        )
    many = isinstance(output_size, Sequence)
    sizes = output_size if many else [output_size]
    if as_ints([0 if m is None else m for m in sizes]) is None:
        raise TypeError(
            f"{name}(): argument 'output_size' (position 2) must be int or tuple of ints, not "
            f"{output_size!r}"
        )
    output_sizes = tuple(output_size) if many else (output_size,) * rank
    if len(output_sizes) != rank:
        one = f"{name}() argument 'output_size' should contain one int (got {len(output_sizes)})"
        raise RuntimeError(
            one if rank == 1 else f"{name}: output_size must be {rank}, got {output_size!r}"
        )
    size = tuple(
        [n if m is None else int(m) for n, m in zip(shape[-rank:], output_sizes, strict=True)]
    )
    if min(size) < 0:
        raise RuntimeError(
            f"{name}: elements of output_size must be greater than or equal to 0 but received "
            f"{output_size!r}"
        )
    if input.dtype.category != 2:
        raise unimplemented(name, input.dtype)
    pooled = (*shape[:-rank], *size)
    if math.prod(pooled) * input.dtype.itemsize > sys.maxsize:  # found before its windows are
        raise overflow(pooled, 0)
    return size
