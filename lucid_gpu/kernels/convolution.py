"""Convolution of images and its two gradients, each a matrix product over windows.

On a GPU cuDNN computes them where it is installed; volumes too, as they are. Else columns are made
for a few images at a time, so that they stay in the second-level cache between the kernel that
writes them and the product that reads them, whatever the batch.

On a CPU `convolution_on_host` does the same with blocks of windows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from lucid_gpu.device import device
from lucid_gpu.devices import backend_of_array, cudnn
from lucid_gpu.dtypes import from_numpy_dtype
from lucid_gpu.kernels import convolution_on_host as on_host
from lucid_gpu.kernels.im2col import IMAGE_FIRST, ROW_FIRST, col2im, im2col
from lucid_gpu.kernels.windows import Frame, Window, empty
from lucid_gpu.launch import runs_cuda_c
from lucid_gpu.launch.function import device_of

COLUMN_BYTES = 32 << 20  # of columns at a time on a GPU: they fit the cache of those of 2022 and on


def takes_volumes(where: device, kind: str) -> bool:
    """Whether `convolve` and its gradients may take arrays (n, c, d, h, w) of a type."""
    return where.type == "cuda" and cudnn.in_use(kind)


def memory_order(frame: Frame, where: device) -> tuple[int, ...]:
    """How the axes of images lie in memory where no copy is wanted."""
    if runs_cuda_c(where):
        return tuple(range(len(frame.shape)))
    return on_host.axes_in_memory(frame)


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
    if runs_cuda_c(device_of(x)):
        shape = frame.shape[0], weight.shape[0], *frame.steps
        found = _by_library("conv_fprop", x, weight, shape, frame.window)
        if found is not None or x.ndim > 4:
            return found
        return _convolve_in_parts(x, weight, frame, groups)
    return on_host.convolve(x, weight, frame, groups)


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
    if runs_cuda_c(device_of(g)):
        found = _by_library("conv_dgrad", g, weight, frame.shape, frame.window)
        if found is not None or g.ndim > 4:
            return found
        filters = _filters(weight, groups).swapaxes(-1, -2)
        return _input_gradient_in_parts(g, filters, frame, groups)
    return on_host.input_gradient(g, weight, frame, groups)


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
    if not runs_cuda_c(device_of(g)):
        return on_host.weight_gradient(x, g, frame, groups)
    shape = g.shape[1], frame.shape[1] // groups, *frame.window.kernel
    found = _by_library("conv_wgrad", x, g, shape, frame.window)
    if found is not None or g.ndim > 4:
        return found
    return _weight_gradient_in_parts(x, g, frame, groups).reshape(shape)


def _by_library(op: str, a: Any, b: Any, shape: tuple[int, ...], window: Window) -> Any:
    backend = backend_of_array(a)
    assert backend is not None
    return backend.convolve(op, a, b, shape, window)


# --- some images at a time ------------------------------------------------------------------------


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
    rows, width = laid.shape[0], math.prod(laid.shape[1:])
    return laid.reshape(rows, width) if groups == 1 else laid.reshape(groups, rows // groups, width)


def _filters(weight: Any, groups: int) -> Any:
    """Filters as the rows of a matrix, or of one for each group."""
    outputs, size = weight.shape[0], math.prod(weight.shape[1:])
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
