"""Windows of images as columns, and columns added back onto images: two adjoint linear maps.

Columns have three axes, which an `Order` lays in memory: images, rows (a channel and a place in the
window) and positions (the windows of an image).
"""

from __future__ import annotations

from typing import Any

from lucid_gpu.devices.copies import inverse
from lucid_gpu.devices.pool import pool
from lucid_gpu.dtypes import float32, from_numpy_dtype
from lucid_gpu.kernels.dispatch import by_device
from lucid_gpu.kernels.windows import (
    SIZES,
    STRIDES,
    TEMPLATE,
    Frame,
    Window,
    blocks_over,
    empty,
    strides_of,
)
from lucid_gpu.launch import Kernel

Order = tuple[int, int, int]
IMAGE_FIRST: Order = (0, 1, 2)  # a matrix for each image
ROW_FIRST: Order = (1, 0, 2)  # one matrix, image after image in each row
IMAGE_LAST: Order = (1, 2, 0)  # one matrix, and copies that run over whole batches

im2col_kernel = Kernel(
    "im2col.cu",
    "im2col",
    "const T* x, T* columns, const lucid_images size, const lucid_image_strides x_at, "
    "const lucid_column_strides columns_at",
    template=f"T, {TEMPLATE}",
    forms={"size": SIZES, "x_at": STRIDES, "columns_at": "3q"},
)
col2im_kernel = Kernel(
    "im2col.cu",
    "col2im",
    "const T* columns, T* x, const lucid_images size, const lucid_column_strides columns_at",
    template=f"T, {TEMPLATE}",
    forms={"size": SIZES, "columns_at": "3q"},
)

_POPULAR = (
    Window((3, 3), padding=(1, 1)),
    Window((3, 3), (2, 2), (1, 1)),
    Window((7, 7), (2, 2), (3, 3)),
    Window((1, 1)),
    Window((1, 5), dilation=(1, 2)),
    Window((11, 11), (4, 4), (2, 2)),
)
INSTANCES = [
    (kernel, {"T": d, **window.numbers()})
    for kernel in (im2col_kernel, col2im_kernel)
    for window in _POPULAR
    for d in (float32,)
]
REGISTERS = {"im2col": 80, "col2im": 96}


@by_device
def im2col(x: Any, frame: Frame, order: Order) -> Any:
    """Every window of every image as a column.

    Parameters
    ----------
    x : array, shape (n, c, h, w)
        With any strides.
    frame : Frame
    order : Order

    Returns
    -------
    array
        Row-major; its axes are ``n``, ``frame.rows`` and ``frame.positions`` in this order.
    """
    columns = empty(x, _laid(frame, order))
    if columns.size:
        grid, threads = blocks_over(frame.positions, frame.shape)
        im2col_kernel(
            grid,
            (x, columns, frame.sizes, strides_of(x), _strides(columns, order)),
            T=from_numpy_dtype(x.dtype),
            **frame.window.numbers(),
            threads=threads,
        )
    return columns


@by_device
def col2im(columns: Any, frame: Frame, order: Order, out: Any = None) -> Any:
    """Add columns onto images: the adjoint of `im2col`.

    Parameters
    ----------
    columns : array
        Row-major, as `im2col` gives it; 16-bit floats are added in float32.
    frame : Frame
    order : Order
    out : array, shape (n, c, h, w), optional
        Row-major.

    Returns
    -------
    array, shape (n, c, h, w)
    """
    x = empty(columns, frame.shape) if out is None else out
    if x.size:
        grid, threads = blocks_over(frame.shape[2] * frame.shape[3], frame.shape)
        laid = columns.reshape(_laid(frame, order))
        col2im_kernel(
            grid,
            (columns, x, frame.sizes, _strides(laid, order)),
            T=from_numpy_dtype(x.dtype),
            **frame.window.numbers(),
            threads=threads,
        )
    return x


def _laid(frame: Frame, order: Order) -> list[int]:
    """The shape of columns in an order."""
    sizes = frame.shape[0], frame.rows, frame.positions
    return [sizes[axis] for axis in order]


def _strides(columns: Any, order: Order) -> list[int]:
    """The strides, in elements, of images, rows and positions."""
    return strides_of(columns.transpose(inverse(order)))


# --- NumPy ----------------------------------------------------------------------------------------

# The axes of images and of windows as they lie in memory.
_IMAGES = {
    IMAGE_FIRST: (0, 1, 2, 3),
    ROW_FIRST: (1, 0, 2, 3),
    IMAGE_LAST: (1, 2, 3, 0),
}
_WINDOWS = {
    IMAGE_FIRST: (0, 1, 2, 3, 4, 5),
    ROW_FIRST: (1, 2, 3, 0, 4, 5),
    IMAGE_LAST: (1, 2, 3, 4, 5, 0),
}


@im2col.on_meta
def _im2col_shape(x: Any, frame: Frame, order: Order) -> Any:
    return empty(x, _laid(frame, order))


@col2im.on_meta
def _col2im_shape(columns: Any, frame: Frame, order: Order, out: Any = None) -> Any:
    if out is not None:
        return out
    return empty(columns, [frame.shape[axis] for axis in _IMAGES[order]]).transpose(
        inverse(_IMAGES[order])
    )


@im2col.on_host
def _im2col(x: Any, frame: Frame, order: Order) -> Any:
    view = frame.windows(frame.laid(x, _IMAGES[order])).transpose(_WINDOWS[order])
    columns = pool.empty(view.shape, x.dtype)
    columns[...] = view
    return columns.reshape(_laid(frame, order))


@col2im.on_host
def _col2im(columns: Any, frame: Frame, order: Order, out: Any = None) -> Any:
    wide = from_numpy_dtype(columns.dtype).compute.numpy
    axes = _WINDOWS[order]
    sizes = (*frame.shape[:2], *frame.window.kernel, *frame.steps)
    parts = columns.reshape([sizes[axis] for axis in axes]).transpose(inverse(axes))
    laid = [frame.shape[axis] for axis in _IMAGES[order]]
    image = pool.empty(laid, wide).transpose(inverse(_IMAGES[order]))
    image[...] = 0
    for (i, j), pixels, places in frame.inner_slices():
        image[pixels] += parts[:, :, i, j][places]
    if out is None:
        return image.astype(columns.dtype, copy=False)
    out[...] = image
    return out
