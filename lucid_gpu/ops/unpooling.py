"""Maxima put back where they were, and norms of windows: compositions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from lucid_gpu.dtypes import int64
from lucid_gpu.kernels.windows import Window
from lucid_gpu.ops import pooling
from lucid_gpu.ops.arguments import in_float32, require_tensor
from lucid_gpu.ops.convolution import of_rank
from lucid_gpu.ops.creation import zeros
from lucid_gpu.ops.memory_formats import channels_order, lying, row_major_order
from lucid_gpu.ops.shape import own
from lucid_gpu.ops.sliding import Sizes
from lucid_gpu.tape.door import op
from lucid_gpu.tape.levels import open_levels
from lucid_gpu.tensor import Tensor

__all__ = [
    "lp_pool1d",
    "lp_pool2d",
    "lp_pool3d",
    "max_unpool1d",
    "max_unpool2d",
    "max_unpool3d",
]

_UNPOOL = """Numbers put where the maxima of {what} were, zeros elsewhere.

    Parameters
    ----------
    input : Tensor, shape (n, c, {size}) or (c, {size})
    indices : Tensor of int64, of the same shape
        As pooling with ``return_indices`` gives them.
    kernel_size, stride, padding : int or tuple of int
        Those of the pooling.
    output_size : sequence of int, optional
        Of the result, with or without batch and channels; less than a stride from
        ``(size - 1) * stride - 2 * padding + kernel_size``, which it is by default.

    Returns
    -------
    Tensor, shape (n, c, ...) or (c, ...)

    Raises
    ------
    RuntimeError
        Where the indices are no places of the result.
    ValueError
        For an ``output_size`` that pooling would not shrink to the input.
    """

_NORM = """``(sum over a window of x^p)^(1/p)`` for each window of {what}.

    Parameters
    ----------
    input : Tensor, shape (n, c, {size}) or (c, {size})
    norm_type : float
        ``p``.
    kernel_size, stride : int or tuple of int
        ``stride`` is ``kernel_size`` by default.
    ceil_mode : bool
        Also use windows that extend past the end of the input.

    Returns
    -------
    Tensor, shape (n, c, ...) or (c, ...)
    """


def _unpool_of_rank(rank: int) -> Callable[..., Tensor]:
    name = f"max_unpool{rank}d"

    @op
    @lying("input", rule=channels_order if rank == 2 else row_major_order)
    def max_unpool(
        input: Tensor,
        indices: Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        output_size: Sequence[int] | None = None,
    ) -> Tensor:
        require_tensor(name, "input", 1, input)
        require_tensor(name, "indices", 2, indices)
        if input.ndim not in (rank + 1, rank + 2):
            raise RuntimeError(
                f"Input to {name} should be a {rank + 1}d or {rank + 2}d Tensor, but got a tensor "
                f"with {input.ndim} dimensions."
            )
        size = _size(input, pooling.slide_of(rank, name, kernel_size, stride, padding), output_size)
        _check_indices(input, indices, size)
        lead = tuple(input.shape[:-rank])
        empty = zeros(*lead, math.prod(size), dtype=input.dtype, device=input.device)
        put = empty.scatter(-1, indices.flatten(-rank), input.flatten(-rank))
        return own(put.reshape(*lead, *size))

    return of_rank(max_unpool, name, _UNPOOL, rank)


_max_pools = {1: pooling.max_pool1d, 2: pooling.max_pool2d, 3: pooling.max_pool3d}


def _norm_of_rank(rank: int) -> Callable[..., Tensor]:
    @op
    @in_float32
    def lp_pool(
        input: Tensor,
        norm_type: float,
        kernel_size: Any,
        stride: Any = None,
        ceil_mode: bool = False,
    ) -> Tensor:
        require_tensor(f"lp_pool{rank}d", "input", 1, input)
        settings = kernel_size, stride, 0, 1
        if norm_type in (math.inf, -math.inf):  # the largest or the smallest size
            sign = math.copysign(1, norm_type)
            return _max_pools[rank](input.abs() * sign, *settings, ceil_mode) * sign
        powers = input.pow(norm_type)
        if rank == 1:  # by its public name, under which results lie as signals do
            means = pooling.avg_pool1d(powers, kernel_size, stride, 0, ceil_mode)
        else:
            means = pooling._avg_pool(rank, powers, settings, ceil_mode, True, 0)
        one = isinstance(kernel_size, int)
        count = kernel_size**rank if one else math.prod(kernel_size)
        return (means.sign() * means.abs().relu() * count).pow(1.0 / norm_type)

    return of_rank(lp_pool, f"lp_pool{rank}d", _NORM, rank)


max_unpool1d, max_unpool2d, max_unpool3d = map(_unpool_of_rank, (1, 2, 3))
lp_pool1d, lp_pool2d, lp_pool3d = map(_norm_of_rank, (1, 2, 3))


def _size(input: Tensor, slide: Window, wanted: Sequence[int] | None) -> Sizes:
    rank = len(slide.kernel)
    rows = zip(input.shape[-rank:], slide.stride, slide.padding, slide.kernel, strict=True)
    usual = tuple([(n - 1) * s - 2 * p + k for n, s, p, k in rows])
    if wanted is None:
        return usual
    size = tuple(wanted)[-rank:] if len(wanted) == rank + 2 else tuple(wanted)
    if len(size) != rank:
        raise ValueError(
            f"output_size should be a sequence containing {rank} or {rank + 2} elements, but it "
            f"has a length of '{len(size)}'"
        )
    for axis, (n, m, s) in enumerate(zip(size, usual, slide.stride, strict=True)):
        if not m - s < n < m + s:
            raise ValueError(
                f'invalid output_size "{size}" (dim {axis} must be between {m - s} and {m + s})'
            )
    return size


def _check_indices(input: Tensor, indices: Tensor, size: Sizes) -> None:
    if indices.dtype is not int64:
        raise RuntimeError(f"elements in indices should be type int64 but got: {indices.dtype}")
    if tuple(indices.shape) != tuple(input.shape):
        raise RuntimeError(
            f"Expected shape of indices to be same as that of the input tensor "
            f"({list(input.shape)}) but got indices tensor with shape: {list(indices.shape)}"
        )
    if open_levels or indices.device.type != "cpu" or not indices.numel():
        return  # `scatter` looks there
    for index in (int(indices.min()), int(indices.max())):
        if not 0 <= index < math.prod(size):
            raise RuntimeError(
                f"Found an invalid max index: {index} (output volumes are of size "
                f"{'x'.join(map(str, size))})"
            )
