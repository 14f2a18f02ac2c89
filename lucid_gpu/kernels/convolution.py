"""Convolution of images and its two gradients, each a matrix product over windows.

On a GPU cuDNN computes them where it is installed; volumes too, as they are. Else columns are made
for a few images at a time, so that they stay in the second-level cache between the kernel that
writes them and the product that reads them, whatever the batch.

On a CPU they are products of filters with columns, block by block. The axes of images lie in memory
as channels first and, wherever the batch is at least as long as a row, the batch last: copies then
run over long contiguous stretches, and a batch that stays in that order from layer to layer is
never transposed. A block is a part of the windows whose columns stay in a core's cache between the
copy that makes them and the product that reads them; threads take blocks in turn, with one BLAS
thread each.

The gradient by the images is a convolution too. With stride s the pixels ``x[s q + a]`` of a phase
``a`` see every s-th tap only, so each phase is a convolution of stride 1 of its own, and no zero is
multiplied (Dumoulin and Visin, "A guide to convolution arithmetic for deep learning", 2016, 4.6).
Filters of single channels are another algorithm: `lucid_gpu.kernels.depthwise`.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from math import gcd, prod
from operator import itemgetter
from typing import Any

import numpy as np

from lucid_gpu.device import device
from lucid_gpu.devices import backend_of_array, cudnn, threads
from lucid_gpu.devices.blas import UNPACKED
from lucid_gpu.devices.blocks import each, slices
from lucid_gpu.devices.copies import inverse
from lucid_gpu.devices.pool import pool
from lucid_gpu.devices.scratch import memory_of_thread
from lucid_gpu.dtypes import from_numpy_dtype
from lucid_gpu.kernels import depthwise
from lucid_gpu.kernels.dispatch import by_device
from lucid_gpu.kernels.im2col import IMAGE_FIRST, ROW_FIRST, col2im, im2col
from lucid_gpu.kernels.windows import Frame, Pair, Taps, Window, empty
from lucid_gpu.launch import runs_cuda_c

__all__ = ["convolve", "input_gradient", "memory_order", "takes_volumes", "weight_gradient"]

COLUMN_BYTES = 32 << 20  # of columns at a time on a GPU: they fit the cache of those of 2022 and on

Slides = tuple[Taps, Taps]

# On a CPU:
BLOCK = 1 << 19  # numbers in the columns of a block: with fewer the GIL changes hands too often
FEWEST = 256  # columns of a block: fewer leave a product's packing unpaid
NARROWEST = 192  # columns of a strip that gain from it
ALONE = 500_000  # multiplications that are not worth a second thread


def takes_volumes(where: device, kind: str) -> bool:
    """Whether `convolve` and its gradients may take arrays (n, c, d, h, w) of a type."""
    return where.type == "meta" or (where.type == "cuda" and cudnn.in_use(kind))


def memory_order(frame: Frame, where: device) -> tuple[int, ...]:
    """How the axes of images lie in memory where no copy is wanted."""
    if where.type != "cpu" or runs_cuda_c(where):
        return tuple(range(len(frame.shape)))
    return axes_in_memory(frame)


@by_device
def convolve(x: Any, weight: Any, frame: Frame, groups: int) -> Any:
    """Slide filters over images.

    Parameters
    ----------
    x : array, shape (n, c, h, w)
    weight : array, shape (o, c // groups, kh, kw)
    frame : Frame
    groups : int

    Returns
    -------
    array, shape (n, o, oh, ow)
        None for volumes that cuDNN does not take, here and for the gradients.
    """
    shape = frame.shape[0], weight.shape[0], *frame.steps
    output = _by_library("conv_fprop", x, weight, shape, frame.window)
    if output is not None or x.ndim > 4:
        return output
    return _convolve_in_parts(x, weight, frame, groups)


@convolve.on_meta
def _convolve_shape(x: Any, weight: Any, frame: Frame, groups: int) -> Any:
    return empty(x, (frame.shape[0], weight.shape[0], *frame.steps))


@by_device
def input_gradient(g: Any, weight: Any, frame: Frame, groups: int) -> Any:
    """The gradient of `convolve` by its images, which is transposed convolution.

    Parameters
    ----------
    g : array, shape (n, o, oh, ow)
    weight : array, shape (o, c // groups, kh, kw)
    frame : Frame
    groups : int

    Returns
    -------
    array, shape (n, c, h, w)
    """
    gradient = _by_library("conv_dgrad", g, weight, frame.shape, frame.window)
    if gradient is not None or g.ndim > 4:
        return gradient
    filters = _filters(weight, groups).swapaxes(-1, -2)
    return _input_gradient_in_parts(g, filters, frame, groups)


@input_gradient.on_meta
def _input_gradient_shape(g: Any, weight: Any, frame: Frame, groups: int) -> Any:
    return empty(g, frame.shape)


@by_device
def weight_gradient(x: Any, g: Any, frame: Frame, groups: int) -> Any:
    """The gradient of `convolve` by its filters.

    Parameters
    ----------
    x : array, shape (n, c, h, w)
    g : array, shape (n, o, oh, ow)
    frame : Frame
    groups : int

    Returns
    -------
    array, shape (o, c // groups, kh, kw)
    """
    shape = g.shape[1], frame.shape[1] // groups, *frame.window.kernel
    gradient = _by_library("conv_wgrad", x, g, shape, frame.window)
    if gradient is not None or g.ndim > 4:
        return gradient
    return _weight_gradient_in_parts(x, g, frame, groups).reshape(shape)


@weight_gradient.on_meta
def _weight_gradient_shape(x: Any, g: Any, frame: Frame, groups: int) -> Any:
    return empty(x, (g.shape[1], frame.shape[1] // groups, *frame.window.kernel))


def _by_library(op: str, a: Any, b: Any, shape: tuple[int, ...], window: Window) -> Any:
    backend = backend_of_array(a)
    assert backend is not None
    return backend.convolve(op, a, b, shape, window)


# --- CUDA C: some images at a time ----------------------------------------------------------------


def _parts(frame: Frame, dtype: Any) -> Iterator[tuple[slice, Frame]]:
    """Images whose columns are no larger than `COLUMN_BYTES` together, or single ones."""
    n, of_one = frame.shape[0], frame.rows * frame.positions * dtype.itemsize
    many = n if frame.window.is_pixel() else max(COLUMN_BYTES // max(of_one, 1), 1)
    for first in range(0, n, many):
        yield slice(first, first + many), frame.of(min(many, n - first))


def _convolve_in_parts(x: Any, weight: Any, frame: Frame, groups: int) -> Any:
    filters = _filters(weight, groups)
    product = empty(x, (frame.shape[0], *filters.shape[:-1], frame.positions))
    for images, part in _parts(frame, x.dtype):
        columns = _columns(x[images], part)
        _matmul(filters, _grouped(columns, groups), product[images])
    return product.reshape(frame.shape[0], weight.shape[0], *frame.steps)


def _input_gradient_in_parts(g: Any, filters: Any, frame: Frame, groups: int) -> Any:
    flat = _flat(g)
    if frame.window.is_pixel():
        return _matmul(filters, _grouped(flat, groups)).reshape(frame.shape)
    x = empty(g, frame.shape)
    for images, part in _parts(frame, g.dtype):
        columns = _matmul(filters, _grouped(flat[images], groups))
        col2im(columns, part, IMAGE_FIRST, x[images])
    return x


def _weight_gradient_in_parts(x: Any, g: Any, frame: Frame, groups: int) -> Any:
    """Sums over parts are kept in float32 where the type is narrower."""
    pixels, wide = Window((1, 1)), from_numpy_dtype(g.dtype).compute.numpy
    total: Any = None
    for images, part in _parts(frame, x.dtype):
        of_part = g[images]
        rows = _rows(_in_rows(of_part, Frame(of_part.shape, pixels)), groups)
        columns = _rows(_in_rows(x[images], part), groups)
        product = _matmul(rows, columns.swapaxes(-1, -2))
        total = product.astype(wide, copy=False) if total is None else total + product
    if total is None:
        total = empty(g, (g.shape[1], frame.rows // groups))
        total[...] = 0
    return total.astype(g.dtype, copy=False)


def _columns(x: Any, frame: Frame) -> Any:
    """A matrix for each image: the image itself where windows are its pixels."""
    if frame.window.is_pixel():
        return _flat(x)
    return im2col(x, frame, IMAGE_FIRST)


def _in_rows(x: Any, frame: Frame) -> Any:
    """One matrix, image after image in each row: a single image itself, where it is its windows."""
    if frame.window.is_pixel() and frame.shape[0] == 1:
        return _flat(x)[0]
    return im2col(x, frame, ROW_FIRST)


def _grouped(matrices: Any, groups: int) -> Any:
    """Matrices (n, rows, positions), their rows split among the groups."""
    if groups == 1:
        return matrices
    n, rows, positions = matrices.shape
    return matrices.reshape(n, groups, rows // groups, positions)


def _rows(laid: Any, groups: int) -> Any:
    """Rows of columns as a matrix, or as one for each group."""
    rows, width = laid.shape[0], prod(laid.shape[1:])
    return laid.reshape(rows, width) if groups == 1 else laid.reshape(groups, rows // groups, width)


def _filters(weight: Any, groups: int) -> Any:
    """Filters as the rows of a matrix, or of one for each group."""
    outputs, size = weight.shape[0], prod(weight.shape[1:])
    if groups == 1:
        return weight.reshape(outputs, size)
    return weight.reshape(groups, outputs // groups, size)


def _matmul(a: Any, b: Any, out: Any = None) -> Any:
    backend = backend_of_array(a)
    assert backend is not None
    return backend.matmul(a, b, from_numpy_dtype(a.dtype), out)


def _flat(images: Any) -> Any:
    """Images as matrices (n, c, pixels)."""
    n, c, h, w = images.shape
    if images.flags.c_contiguous:
        return images.reshape(n, c, h * w)
    return im2col(images, Frame(images.shape, Window((1, 1))), IMAGE_FIRST)


# --- NumPy: blocks of windows ---------------------------------------------------------------------


_remembered = functools.lru_cache(maxsize=1 << 10)  # what depends on shapes and settings alone


@_remembered
def axes_in_memory(frame: Frame) -> tuple[int, int, int, int]:
    """Return how the axes (n, c, h, w) of images and results lie in memory."""
    return (1, 2, 3, 0) if frame.shape[0] >= frame.steps[1] else (1, 0, 2, 3)


@convolve.on_host
def convolve_on_host(x: Any, weight: Any, frame: Frame, groups: int) -> Any:
    """Return what `convolve` does, of NumPy's arrays."""
    axes, wide = axes_in_memory(frame), _wide(x.dtype)
    outputs, shape = len(weight), (groups, len(weight) // groups, prod(weight.shape[1:]))
    out = pool.empty(itemgetter(*axes)((frame.shape[0], outputs, *frame.steps)), wide)
    filters = weight.astype(wide, copy=False).reshape(shape)
    _slide(filters, x.astype(wide, copy=False), _forward(frame), axes, out)
    return out.astype(x.dtype, copy=False).transpose(inverse(axes))


@input_gradient.on_host
def input_gradient_on_host(g: Any, weight: Any, frame: Frame, groups: int) -> Any:
    """Return what `input_gradient` does, of NumPy's arrays."""
    axes, wide = axes_in_memory(frame), _wide(g.dtype)
    result = pool.empty(itemgetter(*axes)(frame.shape), wide)
    images = result.transpose(inverse(axes))
    filters, cotangents = weight.astype(wide, copy=False), g.astype(wide, copy=False)
    (sh, sw), (h, w) = frame.window.stride, frame.shape[2:]
    for row, column in itertools.product(range(min(sh, h)), range(min(sw, w))):
        part = images[:, :, row::sh, column::sw]
        (rows, down), (columns, across) = _backward(frame, 0, row), _backward(frame, 1, column)
        if down.number and across.number:
            turned = _turned(filters[:, :, rows, columns], groups)
            _slide(turned, cotangents, (down, across), axes, part.transpose(axes))
        else:
            part[...] = 0
    return result.astype(g.dtype, copy=False).transpose(inverse(axes))


@weight_gradient.on_host
def weight_gradient_on_host(x: Any, g: Any, frame: Frame, groups: int) -> Any:
    """Return what `weight_gradient` does, of NumPy's arrays."""
    axes, wide, slides = axes_in_memory(frame), _wide(g.dtype), _forward(frame)
    images, cotangents = x.astype(wide, copy=False), g.astype(wide, copy=False)
    shape = g.shape[1], frame.shape[1] // groups, *frame.window.kernel
    if g.size and depthwise.applies(groups, x.shape[1], g.shape[1], wide):
        gradient = depthwise.weight_gradient(images, cotangents, slides, axes)
    else:
        laid = np.ascontiguousarray(cotangents.transpose(axes))
        laid = laid.reshape(groups, len(laid) // groups, prod(laid.shape[1:]))
        gradient = _correlate(_windows(images, slides, axes), laid).swapaxes(-1, -2)
    return gradient.reshape(shape).astype(g.dtype, copy=False)


def _slide(filters: Any, x: Any, slides: Slides, axes: Pair, out: Any) -> None:
    """Filters (groups, o, c kh kw) along images (n, c, h, w), into ``out``, which lies as said."""
    groups, outputs, _ = filters.shape
    if out.size and depthwise.applies(groups, x.shape[1], groups * outputs, x.dtype):
        depthwise.convolve(filters[:, 0], x, slides, axes, out)
    else:
        _multiply(filters, _windows(x, slides, axes), out)


# --- NumPy: which pixels are read -----------------------------------------------------------------


@_remembered
def _forward(frame: Frame) -> Slides:
    window = frame.window
    settings = zip(window.kernel, window.padding, window.stride, window.dilation, frame.steps,
                   strict=True)  # fmt: skip
    down, across = [Taps(k, -p, s, d, steps) for k, p, s, d, steps in settings]
    return down, across


@_remembered
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
    taps = outputs // groups * prod(kernel)  # no -1: there may be no inputs
    return np.ascontiguousarray(split.swapaxes(1, 2)).reshape(groups, inputs, taps)


@_remembered
def _reading(size: Pair, slides: Slides, axes: Pair, item: int, dense: bool) -> Any:
    """Return how windows read images (n, c, h, w), which lie densely in an order of axes or not.

    That is the extents of a copy of the pixels that they reach, or None where they are views of the
    images; which pixels are copied, and to which rows and columns, between zeros; and the shape,
    first byte and strides of the windows.
    """
    lows = [max(t.start, 0) for t in slides]
    extents = zip(slides, size[2:], lows, strict=True)
    source = [slice(low, max(min(t.start + t.span, n), low)) for t, n, low in extents]
    inside = [slice(s.start - t.start, s.stop - t.start) for s, t in zip(source, slides)]
    spans = slides[0].span, slides[1].span
    whole = dense and 0 not in size and inside == [slice(0, span) for span in spans]
    lies = size if whole else (*size[:2], *spans)
    steps = {axis: item * prod([lies[a] for a in axes[i:]]) for i, axis in enumerate(axes, 1)}
    places, taps = {0: (size[0], steps[0])}, []
    for axis, t in enumerate(slides, 2):
        places[axis] = (t.steps, steps[axis] * t.stride)
        taps.append((t.number, steps[axis] * t.dilation))
    rest = [places[axis] for axis in axes[1:]]
    shape, strides = zip((size[1], steps[1]), *taps, *rest, strict=True)
    first = lows[0] * steps[2] + lows[1] * steps[3] if whole else 0
    copied = None if whole else itemgetter(*axes)(lies)
    return copied, (..., *source), inside, shape, first, strides


def _windows(x: Any, slides: Slides, axes: Pair) -> Any:
    """A view (c, kh, kw, ...) whose last three axes are images, rows and columns as they lie."""
    laid = x.transpose(axes)
    copied, source, inside, shape, first, strides = _reading(
        x.shape, slides, axes, x.itemsize, laid.flags.c_contiguous
    )
    if copied is not None:
        laid = pool.empty(copied, x.dtype)
        _copy_padded(x[source], inside, laid.transpose(inverse(axes)))
    return np.ndarray(shape, x.dtype, laid, first, strides)


def _copy_padded(x: Any, inside: Sequence[slice], out: Any) -> None:
    """Copy the pixels that windows reach into ``out``, and zeros where there are none."""
    rows, columns = inside

    def fill(channels: slice) -> None:
        part = out[:, channels]
        part[:, :, : rows.start] = 0
        part[:, :, rows.stop :] = 0
        part[:, :, rows, : columns.start] = 0
        part[:, :, rows, columns.stop :] = 0
        part[:, :, rows, columns] = x[:, channels]

    count = x.shape[1]
    step = max(-(-count // threads.team.count), BLOCK * count // max(out.size, 1), 1)
    if step < count:
        each(slices(count, step), fill)
    else:
        fill(slice(0, count))


# --- NumPy: products ------------------------------------------------------------------------------


_Block = tuple[slice, slice, slice]  # of windows: parts of two axes, and where they lie among all


@_remembered
def _blocks(shape: Pair, multiplications: int, count: int) -> list[_Block]:
    """Return a view of windows cut into blocks whose columns stay in cache, for so many threads."""
    rows, (a, b, c) = prod(shape[:3]), shape[3:]
    if multiplications < ALONE and rows * a * b * c <= BLOCK:
        return [(slice(0, a), slice(0, b), slice(0, a * b * c))]
    wide = max(BLOCK // max(rows, 1), FEWEST)
    outer = min(wide // max(b * c, 1), -(-a // count))
    if outer:
        whole = slice(0, b)
        return [(s, whole, slice(s.start * b * c, s.stop * b * c)) for s in _cut(a, outer)]
    return [
        (slice(i, i + 1), s, slice((i * b + s.start) * c, (i * b + s.stop) * c))
        for i in range(a) for s in _cut(b, max(wide // max(c, 1), 1))
    ]  # fmt: skip


def _cut(size: int, most: int) -> list[slice]:
    """An axis in parts of about equal size."""
    step = -(-size // max(-(-size // most), 1))
    return slices(size, max(step, 1))


def _laid_out(view: Any, block: _Block) -> Any:
    """The windows of a block as columns (c kh kw, windows)."""
    rows = prod(view.shape[:3])
    if view.flags.c_contiguous:
        return view.reshape(rows, prod(view.shape[3:]))[:, block[2]]
    part = view[:, :, :, block[0], block[1]]
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
        columns = _laid_out(view, block)
        columns = columns.reshape(groups, depth, columns.shape[1])
        if flat is not None:
            _product(filters, columns, flat[:, :, block[2]])
            return
        products = np.empty((groups, outputs, columns.shape[2]), out.dtype)
        _product(filters, columns, products)
        part = out[:, block[0], block[1]]
        part[...] = products.reshape(part.shape)

    if out.size:
        each(_blocks(view.shape, out.size * depth, threads.team.count), work)


def _product(filters: Any, columns: Any, out: Any) -> None:
    if filters.shape[2] == 1:
        np.multiply(filters, columns, out)  # of a channel of its own: faster than BLAS
        return
    count = 1 if len(filters) > 1 else _strips(filters.size, columns.shape[2])
    if count > 1:
        filters, columns, out = filters[0], _split(columns[0], count), _split(out[0], count)
    np.matmul(filters, columns, out)


def _correlate(view: Any, g: Any) -> Any:
    """Products of windows with cotangents (groups, o, windows), summed: (groups, c kh kw, o)."""
    groups, outputs, _ = g.shape
    depth = prod(view.shape[:3]) // groups

    def work(blocks: Sequence[_Block]) -> Any:
        total = np.zeros((groups, depth, outputs), view.dtype)
        for block in blocks:
            columns, part = _laid_out(view, block), g[:, :, block[2]]
            columns = columns.reshape(groups, depth, columns.shape[1])
            total += columns @ part.swapaxes(1, 2)
        return total

    count = threads.team.count
    blocks = _blocks(view.shape, g.size * depth, count)
    share = max(-(-len(blocks) // count), 1)  # by thread: the order of sums is fixed
    shares = [blocks[i : i + share] for i in range(0, len(blocks), share)]
    parts = each(shares, work)
    return sum(parts[1:], parts[0]) if parts else work([])


@_remembered
def _strips(size: int, width: int) -> int:
    """Into how many equal strips columns are cut that cost ``size`` multiplications each."""
    step = UNPACKED // max(size, 1)
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


@_remembered
def _wide(kind: Any) -> Any:
    """Return the type that is computed in: float32 for 16-bit floats."""
    return from_numpy_dtype(kind).compute.numpy
