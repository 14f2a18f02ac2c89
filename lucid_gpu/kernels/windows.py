"""How a window slides over images, and the arrays it slides over."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from lucid_gpu.devices import backend_of_array, loops
from lucid_gpu.devices.copies import inverse, strided
from lucid_gpu.devices.pool import pool
from lucid_gpu.dtypes import from_numpy_dtype

Pair = tuple[int, ...]  # a number for each axis


class Window(NamedTuple):
    """How a window slides over images; over signals along one axis, over volumes along three.

    Signals are images of one row for those who compute, and only cuDNN takes volumes as they are.

    Attributes
    ----------
    kernel, stride, padding, dilation : tuple of int
    beyond : tuple of int
        Padding more behind each axis: on the lower and right side.
    """

    kernel: Pair
    stride: Pair = (1, 1)
    padding: Pair = (0, 0)
    dilation: Pair = (1, 1)
    beyond: Pair = (0, 0)

    def steps(self, image: Sequence[int], ceil_mode: bool = False) -> Pair:
        """How many windows fit, down and across; below 1 where the image is too small.

        With ``ceil_mode`` a last window may stand over the edge, if it starts inside the image or
        its left padding.
        """
        counts = []
        for n, size, p, r, s in zip(
            image, self.padded(image), self.padding, self.reach(), self.stride, strict=True
        ):
            count = (size - r) // s + 1
            over = ceil_mode and (size - r) % s and count * s < n + p
            counts.append(count + bool(over))
        return tuple(counts)

    def padded(self, image: Sequence[int]) -> Pair:
        """Rows and columns of an image with its padding."""
        rows = zip(image, self.padding, self.beyond, strict=True)
        return tuple([n + 2 * p + more for n, p, more in rows])

    def reach(self) -> Pair:
        """How many pixels a window spans, down and across."""
        return tuple([d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilation, strict=True)])

    @functools.lru_cache(maxsize=1 << 10)  # noqa: B019  # of values, not of objects
    def over_images(self) -> Window:
        """Return how it slides along the last two axes; signals have a first one of length 1."""
        return Window(*[(one, *axes)[-2:] for one, axes in zip(_ONCE, self, strict=True)])

    def over_depth(self) -> Window:
        """Return how it slides along the first axis, over images whose pixels stand in a row."""
        return Window(*[(axes[0], one) for one, axes in zip(_ONCE, self, strict=True)])

    def overlaps(self) -> bool:
        """Whether a pixel may be in several windows."""
        return any(r > s for r, s in zip(self.reach(), self.stride, strict=True))

    def is_pixel(self) -> bool:
        """Whether windows are the image's pixels, one by one."""
        return self == Window((1, 1), dilation=self.dilation)

    @functools.lru_cache(maxsize=1 << 10)  # noqa: B019
    def slices(self, steps: Pair) -> list[tuple[Pair, Any]]:
        """For each position inside the window, in order, an index of the pixels that fall on it."""
        rows, columns = (
            [slice(d * i, d * i + s * (n - 1) + 1, s) for i in range(k)]
            for k, s, d, n in zip(self.kernel, self.stride, self.dilation, steps, strict=True)
        )
        return [((i, j), (..., r, c)) for i, r in enumerate(rows) for j, c in enumerate(columns)]

    def numbers(self) -> dict[str, int]:
        """The template arguments of kernels that slide a window."""
        sizes = (*self.kernel, *self.stride, *self.padding, *self.dilation)
        return dict(zip(TEMPLATE.split(", "), sizes, strict=True))


_ONCE = (1, 1, 0, 1, 0)  # along an axis of length 1

# How kernels that slide a window take it, and images (`kernels/windows.cuh`).
TEMPLATE = "KH, KW, SH, SW, PH, PW, DH, DW"  # `Window.numbers`
SIZES = "6i"  # `Frame.sizes` as lucid_images
STRIDES = "4q"  # `strides_of` as lucid_image_strides


class Taps(NamedTuple):
    """How one axis of filters slides: tap t of window p reads ``start + p stride + t dilation``."""

    number: int
    start: int
    stride: int
    dilation: int
    steps: int

    @property
    def span(self) -> int:
        """How many pixels the windows reach over together."""
        return (self.steps - 1) * self.stride + (self.number - 1) * self.dilation + 1


class Frame:
    """Images with the border that their windows need.

    Parameters
    ----------
    shape : tuple of int
        ``(n, c, h, w)`` of the images.
    window : Window
    ceil_mode : bool
        See `Window.steps`.

    Attributes
    ----------
    steps : pair of int
        How many windows there are, down and across.
    full : tuple of int
        ``(n, c, H, W)`` with the border.
    inside : tuple of slice
        Where the images are in it.
    overlaps : bool
        Whether a pixel may be in several windows.
    """

    def __init__(self, shape: Sequence[int], window: Window, ceil_mode: bool = False) -> None:
        n, c, *size = self.shape = tuple(shape)
        self.window, self.ceil_mode = window, ceil_mode
        self.steps = window.steps(size, ceil_mode)
        sizes = [
            max(p + size, s * (m - 1) + r)
            for p, size, s, m, r in zip(
                window.padding, size, window.stride, self.steps, window.reach(), strict=True
            )
        ]
        self.full = (n, c, *sizes)
        self.overlaps = window.overlaps()
        self.inside = (..., *[slice(p, p + m) for p, m in zip(window.padding, size, strict=True)])

    def of(self, images: int, channels: int | None = None) -> Frame:
        """Return the frame of other numbers of images and channels."""
        _, c, *size = self.shape
        shape = (images, c if channels is None else channels, *size)
        return frame_of(shape, self.window, self.ceil_mode)

    @property
    def sizes(self) -> tuple[int, ...]:
        """What kernels are told of the images."""
        return (*self.shape, *self.steps)

    @property
    def positions(self) -> int:
        """How many windows an image has."""
        return self.steps[0] * self.steps[1]

    @property
    def rows(self) -> int:
        """How many numbers a window holds."""
        return self.shape[1] * self.window.kernel[0] * self.window.kernel[1]

    # --- NumPy arrays -----------------------------------------------------------------------------

    def filled(self, dtype: Any, value: Any, order: Sequence[int] = (0, 1, 2, 3)) -> Any:
        """An array ``(n, c, H, W)`` of one value whose axes lie in memory in ``order``."""
        laid = pool.empty([self.full[axis] for axis in order], dtype)
        laid.fill(value)
        return laid.transpose(inverse(tuple(order)))

    def bordered(self, array: Any, value: Any) -> Any:
        """The images in a border of one value; their own array where none is needed."""
        if self.full == self.shape:
            return array
        image = self.filled(array.dtype, value, memory_order(array))
        image[self.inside] = array
        return image

    def laid(self, array: Any, order: Sequence[int]) -> Any:
        """The images in a border of zeros, with axes that lie in memory in ``order``."""
        if self.full == self.shape:
            return np.ascontiguousarray(array.transpose(order)).transpose(inverse(tuple(order)))
        image = self.filled(array.dtype, 0, order)
        image[self.inside] = array
        return image

    def inner_slices(self) -> list[tuple[Pair, Any, Any]]:
        """For each position inside the window, the pixels that fall on it, and for which windows.

        Pixels of the border are left out: these are indices of images without it.
        """
        window = self.window
        axes = zip(
            *(window.kernel, window.stride, window.padding, window.dilation),
            *(self.shape[2:], self.steps),
            strict=True,
        )
        rows, columns = (
            [_clipped(i * d - p, s, size, steps) for i in range(k)]
            for k, s, p, d, size, steps in axes
        )
        return [
            ((i, j), (..., r[0], c[0]), (..., r[1], c[1]))
            for i, r in enumerate(rows)
            for j, c in enumerate(columns)
        ]

    def windows(self, image: Any) -> Any:
        """A view ``(n, c, kh, kw, oh, ow)`` of an array ``(n, c, H, W)``."""
        n, c, down, across = image.strides
        (sh, sw), (dh, dw) = self.window.stride, self.window.dilation
        return strided(
            image,
            (*self.shape[:2], *self.window.kernel, *self.steps),
            (n, c, down * dh, across * dw, down * sh, across * sw),
        )


frame_of = functools.lru_cache(maxsize=1 << 10)(Frame)  # which nobody changes


def _clipped(start: int, step: int, size: int, count: int) -> tuple[slice, slice]:
    """Of ``count`` pixels from ``start``, those inside an axis of ``size``, and their numbers."""
    first = max(-(start // step), 0)
    last = max(min((size - 1 - start) // step + 1, count), first)
    low = start + first * step
    return slice(low, max(low + (last - first - 1) * step + 1, low), step), slice(first, last)


def _windows(x: Any, down: Taps, across: Taps, images_last: bool, out: Any) -> None:
    """Write for each channel and tap what windows of images read, and zeros outside of them.

    ``out`` has the shape (c, kh, kw, down, across, n) where images are last, or (c, kh, kw, n,
    down, across).
    """
    columns = out.transpose(0, 1, 2, 5, 3, 4) if images_last else out
    for i, j in np.ndindex(down.number, across.number):
        (rows, v), (pixels, u) = [
            _clipped(t.start + k * t.dilation, t.stride, size, t.steps)
            for t, k, size in zip((down, across), (i, j), x.shape[2:], strict=True)
        ]
        part = columns[:, i, j]
        part[...] = 0
        part[:, :, v, u] = x[:, :, rows, pixels].swapaxes(0, 1)


windows: Any = loops.windows if loops.available() else _windows


def memory_order(array: Any) -> tuple[int, ...]:
    """The axes from the widest stride to the narrowest."""
    return _order_of(array.strides)


@functools.lru_cache(maxsize=1 << 10)
def _order_of(strides: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted(range(len(strides)), key=lambda axis: -abs(strides[axis])))


# --- what launches need ---------------------------------------------------------------------------


def empty(like: Any, shape: Sequence[int], dtype: Any = None) -> Any:
    """An uninitialized row-major array on another's device."""
    backend = backend_of_array(like)
    assert backend is not None
    return backend.empty(shape, from_numpy_dtype(dtype or like.dtype), backend.device_of(like))


def strides_of(array: Any) -> list[int]:
    """Strides in elements."""
    return [stride // array.itemsize for stride in array.strides]


def blocks_over(points: int, shape: Sequence[int]) -> tuple[tuple[int, int, int], tuple[int, int]]:
    """Grid and block of a kernel with a thread a point of each plane of ``(n, c, ...)`` images."""
    images, channels = shape[:2]
    wide = min(-(-points // 32) * 32, 256)
    high = min(256 // wide, channels)
    grid = -(-points // wide), min(-(-channels // high), 65535), min(images, 65535)
    return grid, (wide, high)
