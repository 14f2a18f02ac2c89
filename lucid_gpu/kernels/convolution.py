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
from typing import Any, NamedTuple

import numpy as np

from lucid_gpu.device import device
from lucid_gpu.devices import backend_of_array, cudnn, threads
from lucid_gpu.devices.blas import UNPACKED, UNSHARED, UNSPLIT, matmul
from lucid_gpu.devices.blocks import each, slices
from lucid_gpu.devices.copies import inverse, laid_in
from lucid_gpu.devices.pool import pool
from lucid_gpu.devices.scratch import memory_of_thread
from lucid_gpu.dtypes import from_numpy_dtype
from lucid_gpu.kernels import depthwise
from lucid_gpu.kernels.dispatch import by_device
from lucid_gpu.kernels.im2col import IMAGE_FIRST, ROW_FIRST, col2im, im2col
from lucid_gpu.kernels.windows import Frame, Pair, Taps, Window, empty, windows
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
def convolve(x: Any, weight: Any, frame: Frame, groups: int, bias: Any = None) -> Any:
    """Slide filters over images.

    Parameters
    ----------
    x : array, shape (n, c, h, w)
    weight : array, shape (o, c // groups, kh, kw)
    frame : Frame
    groups : int
    bias : array, shape (o,), optional

    Returns
    -------
    array, shape (n, o, oh, ow)
        None for volumes that cuDNN does not take, here and for the gradients.
    """
    shape = frame.shape[0], weight.shape[0], *frame.steps
    output = _by_library("conv_fprop", x, weight, shape, frame.window)
    if output is None and x.ndim == 4:
        output = _convolve_in_parts(x, weight, frame, groups)
    if bias is not None:
        output += bias.reshape(-1, *[1] * (output.ndim - 2))
    return output


@convolve.on_meta
def _convolve_shape(x: Any, weight: Any, frame: Frame, groups: int, bias: Any = None) -> Any:
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
def convolve_on_host(x: Any, weight: Any, frame: Frame, groups: int, bias: Any = None) -> Any:
    """Return what `convolve` does, of NumPy's arrays."""
    if (wide := _wide(x.dtype)) != x.dtype:
        bias = None if bias is None else bias.astype(wide)
        result = convolve_on_host(x.astype(wide), weight.astype(wide), frame, groups, bias)
        return result.astype(x.dtype)
    axes, outputs = axes_in_memory(frame), len(weight)
    filters = weight.reshape(groups, outputs // groups, frame.rows // groups)
    if bias is not None:
        bias = bias.reshape(groups, outputs // groups, 1)
    return _slide(filters, x, _forward(frame), axes, None, bias).transpose(inverse(axes))


@input_gradient.on_host
def input_gradient_on_host(g: Any, weight: Any, frame: Frame, groups: int) -> Any:
    """Return what `input_gradient` does, of NumPy's arrays."""
    if (wide := _wide(g.dtype)) != g.dtype:
        result = input_gradient_on_host(g.astype(wide), weight.astype(wide), frame, groups)
        return result.astype(g.dtype)
    axes, phases = axes_in_memory(frame), _phases(frame)
    if frame.window.stride == (1, 1):  # of all pixels, which all taps see
        ((_, _, slides),) = phases
        return _slide(_turned(weight, groups), g, slides, axes).transpose(inverse(axes))
    images = pool.empty(itemgetter(*axes)(frame.shape), wide).transpose(inverse(axes))
    for pixels, taps, slides in phases:
        part = images[pixels]
        if slides[0].number and slides[1].number:
            _slide(_turned(weight[taps], groups), g, slides, axes, part.transpose(axes))
        else:
            part[...] = 0
    return images


@weight_gradient.on_host
def weight_gradient_on_host(x: Any, g: Any, frame: Frame, groups: int) -> Any:
    """Return what `weight_gradient` does, of NumPy's arrays."""
    if (wide := _wide(g.dtype)) != g.dtype:
        result = weight_gradient_on_host(x.astype(wide), g.astype(wide), frame, groups)
        return result.astype(g.dtype)
    axes, slides = axes_in_memory(frame), _forward(frame)
    shape = g.shape[1], frame.shape[1] // groups, *frame.window.kernel
    if not g.size:
        return np.zeros(shape, wide)
    if depthwise.applies(groups, x.shape[1], g.shape[1], wide):
        return depthwise.weight_gradient(x, g, slides, axes).reshape(shape)
    laid = laid_in(g, axes).transpose(axes)
    laid = laid.reshape(groups, shape[0] // groups, prod(laid.shape[1:]))
    gradient = _correlate(x, slides, axes, laid).swapaxes(1, 2)
    return np.ascontiguousarray(gradient).reshape(shape)


def _slide(
    filters: Any, x: Any, slides: Slides, axes: Pair, out: Any = None, bias: Any = None
) -> Any:
    """Filters (groups, o, c kh kw) along images (n, c, h, w), into ``out``, which lies as said;
    with a bias (groups, o, 1).
    """
    groups, outputs, _ = filters.shape
    blocks = _blocks(x.shape, slides, axes, groups, outputs, threads.team.count)
    if out is None:
        out = pool.empty((groups * outputs, *blocks.extents), x.dtype)
    if not out.size:
        return out
    if depthwise.applies(groups, x.shape[1], groups * outputs, x.dtype):
        depthwise.convolve(filters[:, 0], x, slides, axes, out)
        if bias is not None:
            out += bias[:, None]
    else:
        _multiply(filters, x, axes, blocks, out, bias)
    return out


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


@_remembered
def _phases(frame: Frame) -> list[tuple[Any, Any, Slides]]:
    """For each phase of the strides its pixels, the taps that see them, and how these slide."""
    strides = zip(frame.window.stride, frame.shape[2:], strict=True)
    along = [[(at, s, *_backward(frame, axis, at)) for at in range(min(s, size))]
             for axis, (s, size) in enumerate(strides)]  # fmt: skip
    everything = slice(None), slice(None)
    return [
        ((*everything, slice(i, None, s), slice(j, None, t)), (*everything, rows, columns),
         (down, across))
        for (i, s, rows, down), (j, t, columns, across) in itertools.product(*along)
    ]  # fmt: skip


def _turned(filters: Any, groups: int) -> Any:
    """Filters (o, c / groups, kh, kw) as those of the adjoint: (groups, c / groups, o kh kw)."""
    outputs, inputs, *kernel = filters.shape
    split = filters.reshape(groups, outputs // groups, inputs, *kernel)[..., ::-1, ::-1]
    taps = outputs // groups * prod(kernel)  # no -1: there may be no inputs
    return split.swapaxes(1, 2).reshape(groups, inputs, taps)


# --- NumPy: products ------------------------------------------------------------------------------


class _Block(NamedTuple):
    """A part of the windows: how they slide, the shape of their columns, and which these are."""

    cut: tuple[slice, slice, slice]  # of all channels, along the two axes next in memory
    images: slice | None  # None are all
    down: Taps
    across: Taps
    shape: Pair
    size: int
    matrices: Pair  # for each group: (groups, c kh kw, windows)
    place: slice


class _Blocks(NamedTuple):
    """Windows of images in blocks; ``extents`` are those of images, rows and columns as they lie.

    ``pixels`` says that each is a pixel, ``small`` that BLAS leaves the product to one thread.
    """

    parts: list[_Block]
    extents: Pair
    pixels: bool
    small: bool


@_remembered
def _blocks(
    size: Pair, slides: Slides, axes: Pair, groups: int, outputs: int, count: int
) -> _Blocks:
    """Cut windows of images (n, c, h, w) into blocks that stay in cache, for so many threads."""
    down, across = slides
    extents = size[0], size[1], down.steps, across.steps
    a, b, c = itemgetter(*axes[1:])(extents)
    rows, places = size[1] * down.number * across.number, a * b * c

    def block(first: slice, second: slice) -> _Block:
        parts = [slice(0, extent) for extent in extents]
        parts[axes[1]], parts[axes[2]] = first, second
        lengths = [part.stop - part.start for part in parts]
        v, u = [
            t._replace(start=t.start + t.stride * part.start, steps=part.stop - part.start)
            for t, part in zip(slides, parts[2:], strict=True)
        ]
        shape = size[1], down.number, across.number, *itemgetter(*axes[1:])(lengths)
        start = (first.start * b + second.start) * c
        width = prod(shape[3:])
        images = None if lengths[0] == size[0] else parts[0]
        matrices, place = (groups, rows // groups, width), slice(start, start + width)
        return _Block(
            (slice(None), first, second), images, v, u, shape, rows * width, matrices, place
        )

    most = max(BLOCK // max(rows, 1), FEWEST)
    outer = min(most // max(b * c, 1), -(-a // count))
    products = rows * places * outputs
    if products < ALONE and rows * places <= BLOCK:
        outer, count = a, 1
    if outer:
        turns = count * -(-a // (count * outer))  # as many for each thread
        parts = [block(part, slice(0, b)) for part in _cut(a, -(-a // turns))]
    else:
        inner = _cut(b, max(most // max(c, 1), 1))
        parts = [block(slice(i, i + 1), part) for i in range(a) for part in inner]
    pixels = all(t == Taps(1, 0, 1, t.dilation, n) for t, n in zip(slides, size[2:], strict=True))
    few = UNSPLIT if min(outputs, places, rows // groups) > 1 else UNSHARED
    return _Blocks(parts, (a, b, c), pixels, products <= few * groups)


def _cut(size: int, most: int) -> list[slice]:
    """An axis in parts of about equal size."""
    step = -(-size // max(-(-size // most), 1))
    return slices(size, max(step, 1))


def _in_order(x: Any, axes: Pair, blocks: _Blocks) -> Any:
    """Images as windows are read from them: along memory, whose axes lie in this order."""
    if x.strides[axes[3]] == x.itemsize and not blocks.pixels:
        return x
    return laid_in(x, axes)


def _laid_out(x: Any, axes: Pair, blocks: _Blocks, block: _Block) -> Any:
    """The windows of a block as columns (groups, c kh kw, windows)."""
    if blocks.pixels:
        columns = x.transpose(axes).reshape(x.shape[1], prod(blocks.extents))[:, block.place]
    else:
        columns = memory_of_thread.view(x.dtype, block.shape, block.size * x.itemsize)
        x = x if block.images is None else x[block.images]
        windows(x, block.down, block.across, axes[3] == 0, columns)
    return columns.reshape(block.matrices)


def _multiply(
    filters: Any, x: Any, axes: Pair, blocks: _Blocks, out: Any, bias: Any = None
) -> None:
    """Products of filters (groups, o, c kh kw) with the windows of images, into (o, ...)."""
    groups, outputs, _ = filters.shape
    flat = out.reshape(groups, outputs, prod(blocks.extents)) if out.flags.c_contiguous else None
    x = _in_order(x, axes, blocks)

    def work(block: _Block) -> None:
        columns = _laid_out(x, axes, blocks, block)
        if flat is None:
            products = np.empty((groups, outputs, columns.shape[2]), out.dtype)
        else:
            products = flat[:, :, block.place]
        _product(filters, columns, products)
        if bias is not None:
            np.add(products, bias, products)
        if flat is None:
            part = out[block.cut]
            part[...] = products.reshape(part.shape)

    each(blocks.parts, work, blocks.small)


def _product(filters: Any, columns: Any, out: Any) -> None:
    if filters.shape[2] == 1:
        np.multiply(filters, columns, out)  # of a channel of its own: faster than BLAS
        return
    count = 1 if len(filters) > 1 else _strips(filters.size, columns.shape[2])
    if count > 1:
        filters, columns, out = filters[0], _split(columns[0], count), _split(out[0], count)
    matmul(filters, columns, out)


def _correlate(x: Any, slides: Slides, axes: Pair, g: Any) -> Any:
    """Products of windows with cotangents (groups, o, windows), summed: (groups, c kh kw, o)."""
    groups, outputs, _ = g.shape
    count = threads.team.count
    blocks = _blocks(x.shape, slides, axes, groups, outputs, count)
    x = _in_order(x, axes, blocks)

    def work(parts: Sequence[_Block]) -> Any:
        total = None
        for block in parts:
            columns = _laid_out(x, axes, blocks, block)
            product = columns @ g[:, :, block.place].swapaxes(1, 2)
            total = product if total is None else np.add(total, product, total)
        return total

    parts = blocks.parts
    share = -(-len(parts) // count)  # by thread: the order of sums is fixed
    shares = [parts[i : i + share] for i in range(0, len(parts), share)]
    totals = each(shares, work, blocks.small)
    return sum(totals[1:], totals[0])


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
