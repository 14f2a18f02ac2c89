"""Summaries of windows: maxima and means, and their gradients.

The NumPy twins walk over the few positions inside a window, never over pixels: each step is an
array operation on a strided view, and results keep the memory order of their input.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lucid_gpu.devices.blocks import each, slices
from lucid_gpu.devices.copies import inverse
from lucid_gpu.devices.pool import pool
from lucid_gpu.dtypes import dtype, float32, from_numpy_dtype, int32, uint8
from lucid_gpu.kernels.dispatch import by_device
from lucid_gpu.kernels.windows import (
    SIZES,
    STRIDES,
    TEMPLATE,
    Frame,
    Window,
    blocks_over,
    empty,
    memory_order,
    strides_of,
)
from lucid_gpu.launch import Kernel

BLOCK = 1 << 19  # pixels that NumPy takes together: with fewer the GIL changes hands too often
FEWEST = 1 << 15  # windows


def _kernel(name: str, parameters: str, strides: str, template: str) -> Kernel:
    return Kernel(
        "pooling.cu",
        name,
        f"{parameters}, const lucid_images size, const lucid_image_strides {strides}",
        template=f"{template}, {TEMPLATE}",
        forms={"size": SIZES, strides: STRIDES},
    )


max_kernel = _kernel("max_pool", "const T* x, T* y, P* places", "x_at", "T, P")
max_bwd_kernel = _kernel("max_pool_bwd", "const T* g, const P* places, T* x", "g_at", "T, P")
take_kernel = _kernel("max_pool_take", "const T* x, const P* places, T* y", "x_at", "T, P")
avg_kernel = _kernel("avg_pool", "const T* x, T* y, int divisor", "x_at", "T, PADDING")
avg_bwd_kernel = _kernel("avg_pool_bwd", "const T* g, T* x, int divisor", "g_at", "T, PADDING")

_POPULAR = (
    Window((2, 2), (2, 2)),
    Window((3, 3), (2, 2), (1, 1)),
    Window((1, 3), (1, 2), (0, 1), (1, 2)),
    Window((17, 17), (3, 3), (8, 8)),
)
INSTANCES = [
    (kernel, {"T": float32, **more, **window.numbers()})
    for window in _POPULAR
    for kernels, more in (
        (
            (max_kernel, max_bwd_kernel, take_kernel),
            {"P": uint8 if window.kernel[0] * window.kernel[1] <= 256 else int32},
        ),
        ((avg_kernel, avg_bwd_kernel), {"PADDING": 1}),
        ((avg_kernel, avg_bwd_kernel), {"PADDING": 0}),
    )
    for kernel in kernels
]
REGISTERS = {"max_pool": 80, "max_pool_bwd": 80, "avg_pool": 80, "avg_pool_bwd": 80}


@by_device
def max_pool(x: Any, frame: Frame) -> tuple[Any, Any]:
    """The first of the largest pixels of each window; NaN is larger than any number.

    Parameters
    ----------
    x : array, shape (n, c, h, w)
        With any strides.
    frame : Frame

    Returns
    -------
    array, shape (n, c, oh, ow)
    array of uint8 or int32, shape (n, c, oh, ow)
        The place of each maximum in its window, ``i * kw + j``.
    """
    shape = *frame.shape[:2], *frame.steps
    y, places = empty(x, shape), empty(x, shape, position_type(frame).numpy)
    _over_windows(max_kernel, (x, y, places), frame, x, {"P": position_type(frame)})
    return y, places


@by_device
def max_pool_bwd(g: Any, places: Any, frame: Frame) -> Any:
    """Gradients of maxima, put onto the pixels they were.

    Parameters
    ----------
    g : array, shape (n, c, oh, ow)
        With any strides; 16-bit floats are added in float32.
    places : array
        As `max_pool` gives it.
    frame : Frame

    Returns
    -------
    array, shape (n, c, h, w)
    """
    x = empty(g, frame.shape)
    _over_pixels(max_bwd_kernel, (g, places, x), frame, g, {"P": position_type(frame)})
    return x


@by_device
def max_pool_take(x: Any, places: Any, frame: Frame) -> Any:
    """The pixel at a known place of each window: the adjoint of `max_pool_bwd`."""
    y = empty(x, (*frame.shape[:2], *frame.steps))
    _over_windows(take_kernel, (x, places, y), frame, x, {"P": position_type(frame)})
    return y


@by_device
def avg_pool(x: Any, frame: Frame, padding: bool, divisor: int) -> Any:
    """The mean of each window.

    Parameters
    ----------
    x : array, shape (n, c, h, w)
        With any strides; 16-bit floats are added in float32.
    frame : Frame
    padding : bool
        Whether padding counts among the pixels of a window.
    divisor : int
        What sums are divided by instead of the number of pixels; 0 for the latter.

    Returns
    -------
    array, shape (n, c, oh, ow)
    """
    y = empty(x, (*frame.shape[:2], *frame.steps))
    _over_windows(avg_kernel, (x, y, divisor), frame, x, {"PADDING": int(padding)})
    return y


@by_device
def avg_pool_bwd(g: Any, frame: Frame, padding: bool, divisor: int) -> Any:
    """Gradients of means, spread over their windows: the adjoint of `avg_pool`."""
    x = empty(g, frame.shape)
    _over_pixels(avg_bwd_kernel, (g, x, divisor), frame, g, {"PADDING": int(padding)})
    return x


def _over_windows(kernel: Kernel, first: Any, frame: Frame, strided: Any, more: Any) -> None:
    _launch(kernel, frame.positions, first, frame, strided, more)


def _over_pixels(kernel: Kernel, first: Any, frame: Frame, strided: Any, more: Any) -> None:
    _launch(kernel, frame.shape[2] * frame.shape[3], first, frame, strided, more)


def _launch(
    kernel: Kernel, points: int, first: Any, frame: Frame, strided: Any, more: dict[str, Any]
) -> None:
    if points * frame.shape[0] * frame.shape[1] == 0:
        return
    grid, threads = blocks_over(points, frame.shape)
    kernel(
        grid,
        (*first, frame.sizes, strides_of(strided)),
        T=from_numpy_dtype(strided.dtype),
        **more,
        **frame.window.numbers(),
        threads=threads,
    )


@functools.lru_cache(maxsize=1 << 10)
def position_type(frame: Frame) -> dtype:
    """Return the type of places in windows."""
    down, across = frame.window.kernel
    return uint8 if down * across <= 256 else int32


# --- NumPy ----------------------------------------------------------------------------------------


def _by_channels(
    compute: Callable[..., Any], frame: Frame, arrays: Sequence[Any], size: Any, *kinds: Any
) -> list[Any]:
    """What ``compute`` makes of arrays and a frame, of some channels at a time, on all threads."""
    n, c = frame.shape[:2]
    images, windows = n * math.prod(frame.full[2:]), n * math.prod(frame.steps)
    step = max(BLOCK // max(images, 1), FEWEST // max(windows, 1), 1)
    if c <= step:
        computed = compute(*arrays, frame)
        return list(computed) if len(kinds) > 1 else [computed]
    order = memory_order(arrays[0])
    shape = (n, c, *size)
    results = [
        pool.empty([shape[axis] for axis in order], np.dtype(kind)).transpose(inverse(order))
        for kind in kinds
    ]

    def work(channels: slice) -> None:
        part = compute(*[a[:, channels] for a in arrays], frame.of(n, _length(channels)))
        for result, values in zip(results, part if len(kinds) > 1 else (part,), strict=True):
            result[:, channels] = values

    each(slices(c, step), work)
    return results


def _length(part: slice) -> int:
    return int(part.stop - part.start)


@functools.lru_cache
def _lowest(d: Any) -> Any:
    return float("-inf") if from_numpy_dtype(d).is_floating_point else np.iinfo(d).min


@max_pool.on_meta
def _max_pool_shape(x: Any, frame: Frame) -> tuple[Any, Any]:
    shape = (*frame.shape[:2], *frame.steps)
    return empty(x, shape), empty(x, shape, position_type(frame).numpy)


@max_pool_take.on_meta
def _max_pool_take_shape(x: Any, places: Any, frame: Frame) -> Any:
    return empty(x, (*frame.shape[:2], *frame.steps))


@avg_pool.on_meta
def _avg_pool_shape(x: Any, frame: Frame, padding: bool, divisor: int) -> Any:
    return empty(x, (*frame.shape[:2], *frame.steps))


@max_pool_bwd.on_meta
def _max_pool_bwd_shape(g: Any, places: Any, frame: Frame) -> Any:
    return empty(g, frame.shape)


@avg_pool_bwd.on_meta
def _avg_pool_bwd_shape(g: Any, frame: Frame, padding: bool, divisor: int) -> Any:
    return empty(g, frame.shape)


@max_pool.on_host
def _max_pool_by_channels(x: Any, frame: Frame) -> tuple[Any, Any]:
    kinds = x.dtype, position_type(frame).numpy
    y, places = _by_channels(_max_pool, frame, (x,), frame.steps, *kinds)
    return y, places


def _max_pool(x: Any, frame: Frame) -> tuple[Any, Any]:
    image, spots = frame.bordered(x, _lowest(x.dtype)), frame.window.slices(frame.steps)
    narrow = position_type(frame).numpy
    best = image[spots[0][1]].copy("K")
    places = np.empty_like(best, narrow)
    places[...] = _first_positions(frame)
    for k, (_, pixels) in enumerate(spots[1:], 1):
        here = image[pixels]
        np.maximum(places, np.multiply(here > best, narrow.type(k)), out=places)
        np.maximum(best, here, out=best)
    unknown = best != best
    if np.logical_or.reduce(unknown, None):
        for k, (_, pixels) in enumerate(spots):  # the last NaN, as in PyTorch
            np.copyto(places, narrow.type(k), where=unknown & (image[pixels] != image[pixels]))
    return best, places


@functools.lru_cache(maxsize=1 << 8)
def _first_positions(frame: Frame) -> Any:
    """The first place of each window that is a pixel of the image."""
    down, across = (
        np.maximum(-((np.arange(steps) * s - p) // d), 0)
        for steps, s, p, d in zip(
            frame.steps,
            frame.window.stride,
            frame.window.padding,
            frame.window.dilation,
            strict=True,
        )
    )
    places = down[:, None] * frame.window.kernel[1] + across
    return places.astype(position_type(frame).numpy)


@max_pool_bwd.on_host
def _max_pool_bwd_by_channels(g: Any, places: Any, frame: Frame) -> Any:
    (dx,) = _by_channels(_max_pool_bwd, frame, (g, places), frame.shape[2:], g.dtype)
    return dx


def _max_pool_bwd(g: Any, places: Any, frame: Frame) -> Any:
    overlaps, order, narrow = frame.overlaps, memory_order(places), g.dtype
    wide = from_numpy_dtype(g.dtype).compute.numpy if overlaps else g.dtype
    g = np.ascontiguousarray(g.astype(wide, copy=False).transpose(order)).transpose(inverse(order))
    image = frame.filled(wide, 0, order)
    bits = np.dtype(f"i{g.itemsize}")
    whole = image.view(bits)
    for k, (_, pixels) in enumerate(frame.window.slices(frame.steps)):
        # Bits times 0 or 1: as `where`, and a quarter of its time.
        part = np.multiply(g.view(bits), places == k, out=None if overlaps else whole[pixels])
        if overlaps:
            image[pixels] += part.view(wide)
    return image[frame.inside].astype(narrow, copy=False)


@max_pool_take.on_host
def _max_pool_take(x: Any, places: Any, frame: Frame) -> Any:
    image, spots = frame.bordered(x, 0), frame.window.slices(frame.steps)
    taken = image[spots[0][1]].copy("K")
    for k, (_, pixels) in enumerate(spots[1:], 1):
        taken = np.where(places == k, image[pixels], taken)
    return taken


@avg_pool.on_host
def _avg_pool_by_channels(x: Any, frame: Frame, padding: bool, divisor: int) -> Any:
    means = functools.partial(_avg_pool, padding=padding, divisor=divisor)
    return _by_channels(means, frame, (x,), frame.steps, x.dtype)[0]


def _avg_pool(x: Any, frame: Frame, padding: bool, divisor: int) -> Any:
    image, spots = frame.bordered(x, 0), frame.window.slices(frame.steps)
    wide = from_numpy_dtype(x.dtype).compute.numpy
    total = image[spots[0][1]].astype(wide, "K")
    for _, pixels in spots[1:]:
        total += image[pixels]
    counts = divisor or _counts(frame, padding)
    if wide.kind in "iu":
        return (total / counts).astype(x.dtype)
    total /= counts
    return total.astype(x.dtype, copy=False)


@avg_pool_bwd.on_host
def _avg_pool_bwd_by_channels(g: Any, frame: Frame, padding: bool, divisor: int) -> Any:
    spread = functools.partial(_avg_pool_bwd, padding=padding, divisor=divisor)
    return _by_channels(spread, frame, (g,), frame.shape[2:], g.dtype)[0]


def _avg_pool_bwd(g: Any, frame: Frame, padding: bool, divisor: int) -> Any:
    wide = from_numpy_dtype(g.dtype).compute.numpy
    image = frame.filled(wide, 0, memory_order(g))
    part = np.true_divide(g, divisor or _counts(frame, padding), dtype=wide)
    for _, pixels in frame.window.slices(frame.steps):
        image[pixels] += part
    return image[frame.inside].astype(g.dtype, copy=False)


@functools.lru_cache(maxsize=1 << 8)
def _counts(frame: Frame, padding: bool) -> Any:
    """Return the pixels in each window: a number where all agree, else an array that broadcasts."""
    window, image = frame.window, frame.shape[2:]
    axes = list(zip(window.padding, window.kernel, window.stride, frame.steps, image, strict=True))
    if all((not p or padding) and s * (m - 1) + k <= size + 2 * p for p, k, s, m, size in axes):
        return window.kernel[0] * window.kernel[1]
    along = []
    for p, k, s, m, size in axes:
        margin, start = p if padding else 0, np.arange(m, dtype=np.int32) * s - p
        along.append(np.minimum(start + k, size + margin) - np.maximum(start, -margin))
    return (along[0][:, None] * along[1]).astype(np.float32)
