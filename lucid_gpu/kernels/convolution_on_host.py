"""Convolution and its two gradients by NumPy: products of filters with columns, block by block.

The axes of images lie in memory as channels first and, wherever the batch is at least as long as a
row, the batch last: copies then run over long contiguous stretches, and a batch that stays in that
order from layer to layer is never transposed. A block is a part of the windows whose columns stay
in a core's cache between the copy that makes them and the product that reads them; threads take
blocks in turn, with one BLAS thread each.

The gradient by the images is a convolution too. With stride s the pixels ``x[s q + a]`` of a phase
``a`` see every s-th tap only, so each phase is a convolution of stride 1 of its own, and no zero is
multiplied (Dumoulin and Visin, "A guide to convolution arithmetic for deep learning", 2016, 4.6).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from math import gcd, prod
from typing import Any, NamedTuple

import numpy as np

from lucid_gpu.devices import threads
from lucid_gpu.devices.pool import pool
from lucid_gpu.devices.scratch import memory_of_thread
from lucid_gpu.dtypes import from_numpy_dtype
from lucid_gpu.kernels import depthwise_on_host as depthwise
from lucid_gpu.kernels.row_blocks import each, slices
from lucid_gpu.kernels.windows import Frame, Taps, inverse

__all__ = ["axes_in_memory", "convolve", "input_gradient", "weight_gradient"]

BLOCK = 1 << 19  # numbers in the columns of a block: with fewer the GIL changes hands too often
FEWEST = 256  # columns of a block: fewer leave a product's packing unpaid
SMALL = 1_000_000  # multiplications up to which OpenBLAS reads matrices where they lie, unpacked
NARROWEST = 192  # columns of a strip that gain from it
ALONE = 500_000  # multiplications that are not worth a second thread


def axes_in_memory(frame: Frame) -> tuple[int, int, int, int]:
    """How the axes (n, c, h, w) of images and results lie in memory."""
    return (1, 2, 3, 0) if frame.shape[0] >= frame.steps[1] else (1, 0, 2, 3)


def convolve(x: Any, weight: Any, frame: Frame, groups: int) -> Any:
    """`lucid_gpu.kernels.convolution.convolve` on NumPy's arrays."""
    axes, wide = axes_in_memory(frame), _wide(x)
    shape = (frame.shape[0], weight.shape[0], *frame.steps)
    out = pool.empty([shape[axis] for axis in axes], wide.dtype)
    filters = _wide(weight).reshape(groups, len(weight) // groups, -1)
    _slide(filters, wide, _forward(frame), axes, out)
    return out.astype(x.dtype, copy=False).transpose(inverse(axes))


def input_gradient(g: Any, weight: Any, frame: Frame, groups: int) -> Any:
    """`lucid_gpu.kernels.convolution.input_gradient` on NumPy's arrays."""
    axes = axes_in_memory(frame)
    wide, filters = _wide(g), _wide(weight)
    (sh, sw), size = frame.window.stride, frame.shape[2:]
    result = pool.empty([frame.shape[axis] for axis in axes], wide.dtype)
    images = result.transpose(inverse(axes))
    for phase in itertools.product(range(min(sh, size[0])), range(min(sw, size[1]))):
        part = images[:, :, phase[0] :: sh, phase[1] :: sw]
        found = [_backward(frame, axis, phase[axis]) for axis in (0, 1)]
        if any(taps.number == 0 for _, taps in found):
            part[...] = 0
            continue
        (rows, down), (columns, across) = found
        turned = _turned(filters[:, :, rows, columns], groups)
        _slide(turned, wide, (down, across), axes, part.transpose(axes))
    return result.astype(g.dtype, copy=False).transpose(inverse(axes))


def weight_gradient(x: Any, g: Any, frame: Frame, groups: int) -> Any:
    """`lucid_gpu.kernels.convolution.weight_gradient` on NumPy's arrays."""
    axes = axes_in_memory(frame)
    if g.size and depthwise.applies(groups, x.shape[1], g.shape[1], _wide(g).dtype):
        found = depthwise.weight_gradient(_wide(x), _wide(g), _forward(frame), axes)
        return found.reshape(-1, 1, *frame.window.kernel).astype(g.dtype, copy=False)
    view = _windows(_wide(x), _forward(frame), axes)
    laid = np.ascontiguousarray(_wide(g).transpose(axes))
    found = _correlate(view, laid.reshape(groups, len(laid) // groups, -1))
    shape = g.shape[1], frame.shape[1] // groups, *frame.window.kernel
    return found.swapaxes(-1, -2).reshape(shape).astype(g.dtype, copy=False)


def _slide(filters: Any, x: Any, slides: tuple[Taps, Taps], axes: Sequence[int], out: Any) -> None:
    """Filters (groups, o, c kh kw) along images (n, c, h, w), into ``out``, which lies as said."""
    groups, outputs, _ = filters.shape
    if out.size and depthwise.applies(groups, x.shape[1], groups * outputs, x.dtype):
        depthwise.convolve(filters[:, 0], x, slides, axes, out)
    else:
        _multiply(filters, _windows(x, slides, axes), out)


# --- which pixels are read ------------------------------------------------------------------------


def _forward(frame: Frame) -> tuple[Taps, Taps]:
    window = frame.window
    settings = zip(window.kernel, window.padding, window.stride, window.dilation, frame.steps,
                   strict=True)  # fmt: skip
    down, across = [Taps(k, -p, s, d, steps) for k, p, s, d, steps in settings]
    return down, across


def _backward(frame: Frame, axis: int, phase: int) -> tuple[slice, Taps]:
    """For the pixels ``s q + phase`` of an axis: which taps see them, in the order cotangents lie.

    Tap i of window p reads pixel ``s p + d i - padding``, hence ``p = q + (phase + padding - d i)
    / s`` for each i where that is whole: every ``s / gcd(s, d)``-th one.
    """
    window = frame.window
    k, s, d = window.kernel[axis], window.stride[axis], window.dilation[axis]
    at, shared = phase + window.padding[axis], gcd(s, d)
    taps = [i for i in range(k) if (at - d * i) % s == 0]
    steps = -(-(frame.shape[2 + axis] - phase) // s)
    if not taps:
        return slice(0), Taps(0, 0, 1, 1, steps)
    seen = Taps(len(taps), (at - d * taps[-1]) // s, 1, d // shared, steps)
    return slice(taps[0], None, s // shared), seen


def _turned(filters: Any, groups: int) -> Any:
    """Filters (o, c / groups, kh, kw) as those of the adjoint: (groups, c / groups, o kh kw)."""
    outputs, inputs, *kernel = filters.shape
    split = filters[:, :, ::-1, ::-1].reshape(groups, outputs // groups, inputs, *kernel)
    return np.ascontiguousarray(split.swapaxes(1, 2)).reshape(groups, inputs, -1)


def _windows(x: Any, slides: tuple[Taps, Taps], axes: Sequence[int]) -> Any:
    """A view (c, kh, kw, ...) whose last three axes are images, rows and columns as they lie."""
    n, c, *size = x.shape
    outside = [t.start < 0 or t.start + t.span > s for t, s in zip(slides, size, strict=True)]
    laid = x.transpose(axes)
    if any(outside) or not laid.flags.c_contiguous:
        shape = (n, c, slides[0].span, slides[1].span)
        laid = pool.empty([shape[axis] for axis in axes], x.dtype)
        _place(x, slides, laid.transpose(inverse(axes)))
        first = 0
    else:
        first = slides[0].start * x.strides[2] + slides[1].start * x.strides[3]
    of_image, of_channel, down, across = laid.transpose(inverse(axes)).strides
    places = {0: (n, of_image)}
    for axis, t, stride in ((2, slides[0], down), (3, slides[1], across)):
        places[axis] = (t.steps, stride * t.stride)
    rest = [places[axis] for axis in axes[1:]]
    taps = [(t.number, s * t.dilation) for t, s in zip(slides, (down, across), strict=True)]
    shape, strides = zip((c, of_channel), *taps, *rest, strict=True)
    start = laid.reshape(-1)[first // x.itemsize :]
    return np.lib.stride_tricks.as_strided(start, shape, strides)


def _place(x: Any, slides: tuple[Taps, Taps], out: Any) -> None:
    """Copy the pixels that windows reach into ``out``, and zeros where there are none."""
    inside, source = [], []
    for t, size in zip(slides, x.shape[2:], strict=True):
        low, high = max(t.start, 0), max(min(t.start + t.span, size), max(t.start, 0))
        source.append(slice(low, high))
        inside.append(slice(low - t.start, high - t.start))
    rows, columns = inside
    whole = x[:, :, source[0], source[1]]

    def fill(channels: slice) -> None:
        part = out[:, channels]
        part[:, :, : rows.start] = 0
        part[:, :, rows.stop :] = 0
        part[:, :, rows, : columns.start] = 0
        part[:, :, rows, columns.stop :] = 0
        part[:, :, rows, columns] = whole[:, channels]

    count = x.shape[1]
    step = max(-(-count // threads.team.count), BLOCK * count // max(out.size, 1), 1)
    each([slice(first, first + step) for first in range(0, count, step)], fill)


# --- products -------------------------------------------------------------------------------------


class _Block(NamedTuple):
    """Windows taken together: parts of two axes, and where they lie among all."""

    outer: slice
    middle: slice
    flat: slice


def _blocks(view: Any, multiplications: int) -> list[_Block]:
    """Windows cut into blocks whose columns stay in cache."""
    rows, (a, b, c) = prod(view.shape[:3]), view.shape[3:]
    if multiplications < ALONE and rows * a * b * c <= BLOCK:
        return [_Block(slice(0, a), slice(0, b), slice(0, a * b * c))]
    wide = max(BLOCK // max(rows, 1), FEWEST)
    outer = min(wide // max(b * c, 1), -(-a // threads.team.count))
    if outer:
        whole = slice(0, b)
        return [_Block(s, whole, slice(s.start * b * c, s.stop * b * c)) for s in _cut(a, outer)]
    return [
        _Block(slice(i, i + 1), s, slice((i * b + s.start) * c, (i * b + s.stop) * c))
        for i in range(a) for s in _cut(b, max(wide // max(c, 1), 1))
    ]  # fmt: skip


def _cut(size: int, most: int) -> list[slice]:
    """An axis in parts of about equal size."""
    step = -(-size // max(-(-size // most), 1))
    return slices(size, max(step, 1))


def _columns(view: Any, block: _Block) -> Any:
    """The windows of a block as columns (c kh kw, windows)."""
    rows = prod(view.shape[:3])
    if view.flags.c_contiguous:
        return view.reshape(rows, prod(view.shape[3:]))[:, block.flat]
    part = view[:, :, :, block.outer, block.middle]
    (columns,) = memory_of_thread.views([from_numpy_dtype(view.dtype)], part.shape)
    columns[...] = part
    return columns.reshape(rows, prod(part.shape[3:]))


def _multiply(filters: Any, view: Any, out: Any) -> None:
    """Products of filters (groups, o, c kh kw) with the windows of a view, into (o, ...)."""
    groups, outputs, depth = filters.shape
    flat = None
    if out.flags.c_contiguous:
        flat = out.reshape(groups, outputs, prod(out.shape[1:]))

    def work(block: _Block) -> None:
        columns = _columns(view, block)
        columns = columns.reshape(groups, depth, columns.shape[1])
        if flat is not None:
            _product(filters, columns, flat[:, :, block.flat])
            return
        found = np.empty((groups, outputs, columns.shape[2]), out.dtype)
        _product(filters, columns, found)
        part = out[:, block.outer, block.middle]
        part[...] = found.reshape(part.shape)

    if out.size:
        each(_blocks(view, out.size * depth), work)


def _product(filters: Any, columns: Any, out: Any) -> None:
    if filters.shape[2] == 1:
        np.multiply(filters, columns, out)  # of a channel of its own: faster than BLAS
        return
    if len(filters) > 1:
        np.matmul(filters, columns, out)
        return
    count = _strips(filters.size, columns.shape[2])
    np.matmul(filters[0], _split(columns[0], count), _split(out[0], count))


def _correlate(view: Any, g: Any) -> Any:
    """Products of windows with cotangents (groups, o, windows), summed: (groups, c kh kw, o)."""
    groups, outputs, _ = g.shape
    depth = prod(view.shape[:3]) // groups

    def work(blocks: Sequence[_Block]) -> Any:
        total = np.zeros((groups, depth, outputs), view.dtype)
        for block in blocks:
            columns, part = _columns(view, block), g[:, :, block.flat]
            columns = columns.reshape(groups, depth, columns.shape[1])
            total += columns @ part.swapaxes(1, 2)
        return total

    blocks = _blocks(view, g.size * depth)
    share = max(-(-len(blocks) // threads.team.count), 1)  # by thread: the order of sums is fixed
    shares = [blocks[i : i + share] for i in range(0, len(blocks), share)]
    parts = each(shares, work)
    return sum(parts[1:], parts[0]) if parts else work([])


def _strips(size: int, width: int) -> int:
    """Into how many equal strips columns are cut that cost ``size`` multiplications each."""
    step = SMALL // max(size, 1)
    if NARROWEST <= step < width:
        least = -(-width // step)
        for count in range(least, min(2 * least, width // NARROWEST) + 1):
            if width % count == 0:
                return count
    return 1


def _split(matrix: Any, strips: int) -> Any:
    """A view (strips, rows, columns) of a matrix: one call multiplies them all."""
    rows, columns = matrix.shape
    return matrix.reshape(rows, strips, columns // strips).swapaxes(0, 1)


def _wide(array: Any) -> Any:
    """In the type that is computed in: float32 for 16-bit floats."""
    return array.astype(from_numpy_dtype(array.dtype).compute.numpy, copy=False)
