"""How a window slides over images, and the arrays it slides over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from lucid_gpu.devices import room, xp_of
from lucid_gpu.tensor import Tensor

__all__ = ["Frame", "Window", "inverse", "pair"]

Pair = tuple[int, int]


def pair(value: Any, name: str) -> Pair:
    """Read an int or two ints.

    Raises
    ------
    ValueError
        For anything else; the message has the argument's name.
    """
    values = tuple(value) if isinstance(value, Sequence) else (value, value)
    if len(values) == 1:
        values = values * 2
    if len(values) != 2 or not all(isinstance(v, int) for v in values):
        raise ValueError(f"{name} must be an int or a pair of ints, got {value!r}")
    return values


class Window(NamedTuple):
    """How a window slides over the last two axes of an image."""

    kernel: Pair
    stride: Pair = (1, 1)
    padding: Pair = (0, 0)
    dilation: Pair = (1, 1)

    def steps(self, image: Sequence[int], ceil_mode: bool = False) -> Pair:
        """How many windows fit, down and across.

        With ``ceil_mode`` a last window may stand over the edge, if it starts inside the image or
        its left padding.

        Raises
        ------
        ValueError
            For a stride or dilation below 1, negative padding, or an empty kernel.
        RuntimeError
            Where the window is larger than the padded image.
        """
        for what, least in (("kernel", 1), ("stride", 1), ("padding", 0), ("dilation", 1)):
            if min(getattr(self, what)) < least:
                raise ValueError(f"{what} must be at least {least}, got {getattr(self, what)}")
        reach = self.reach()
        padded = [n + 2 * p for n, p in zip(image, self.padding, strict=True)]
        if any(r > n for r, n in zip(reach, padded, strict=True)):
            raise RuntimeError(
                f"Calculated padded input size per channel: ({padded[0]} x {padded[1]}). "
                f"Kernel size: ({reach[0]} x {reach[1]}). "
                "Kernel size can't be greater than actual input size"
            )
        counts = []
        for n, p, r, s in zip(image, self.padding, reach, self.stride, strict=True):
            count = (n + 2 * p - r) // s + 1
            over = ceil_mode and (n + 2 * p - r) % s and count * s < n + p
            counts.append(count + bool(over))
        return counts[0], counts[1]

    def overlaps(self) -> bool:
        """Whether a pixel may be in several windows."""
        return any(r > s for r, s in zip(self.reach(), self.stride))

    def reach(self) -> Pair:
        """How many pixels a window spans, down and across."""
        down, across = (d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilation, strict=True))
        return down, across

    def slices(self, steps: Pair) -> list[tuple[Pair, Any]]:
        """For each position inside the window, in order, an index of the pixels that fall on it."""
        rows, columns = (
            [slice(d * i, d * i + s * (n - 1) + 1, s) for i in range(k)]
            for k, s, d, n in zip(self.kernel, self.stride, self.dilation, steps, strict=True)
        )
        return [((i, j), (..., r, c)) for i, r in enumerate(rows) for j, c in enumerate(columns)]


class Frame:
    """Images with the border that their windows need.

    Parameters
    ----------
    shape : tuple of int
        ``(n, c, h, w)`` of the images.
    window : Window
    ceil_mode : bool
        As for `Window.steps`.

    Attributes
    ----------
    steps : pair of int
        How many windows there are, down and across.
    full : tuple of int
        ``(n, c, H, W)`` with the border.
    inside : tuple of slice
        Where the images are in it.
    """

    def __init__(self, shape: tuple[int, ...], window: Window, ceil_mode: bool = False) -> None:
        n, c, h, w = shape
        self.shape = shape
        self.window = window
        self.steps = window.steps((h, w), ceil_mode)
        sizes = [
            max(p + size, s * (m - 1) + r)
            for p, size, s, m, r in zip(
                window.padding, (h, w), window.stride, self.steps, window.reach(), strict=True
            )
        ]
        self.full = (n, c, sizes[0], sizes[1])
        (top, left) = window.padding
        self.inside = (..., slice(top, top + h), slice(left, left + w))

    def filled(self, like: Tensor, value: Any, order: Sequence[int] = (0, 1, 2, 3)) -> Any:
        """An array ``(n, c, H, W)`` of one value whose axes lie in memory in ``order``."""
        laid = room(like.device).empty([self.full[axis] for axis in order], like.dtype, like.device)
        laid[...] = value
        return laid.transpose(inverse(order))

    def bordered(self, input: Tensor, value: Any) -> Any:
        """The images in a border of one value; their own array where none is needed."""
        if self.full == self.shape:
            return input.array
        image = self.filled(input, value, memory_order(input.array))
        image[self.inside] = input.array
        return image

    def laid(self, input: Tensor, order: Sequence[int]) -> Any:
        """The images in a border of zeros, with axes that lie in memory in ``order``."""
        if self.full == self.shape:
            laid = xp_of(input).ascontiguousarray(input.array.transpose(order))
            return laid.transpose(inverse(order))
        image = self.filled(input, 0, order)
        image[self.inside] = input.array
        return image

    def windows(self, xp: Any, image: Any) -> Any:
        """A view ``(n, c, kh, kw, oh, ow)`` of an array ``(n, c, H, W)``."""
        n, c, down, across = image.strides
        (sh, sw), (dh, dw) = self.window.stride, self.window.dilation
        return xp.lib.stride_tricks.as_strided(
            image,
            (*self.shape[:2], *self.window.kernel, *self.steps),
            (n, c, down * dh, across * dw, down * sh, across * sw),
        )


def memory_order(array: Any) -> tuple[int, ...]:
    """The axes from the widest stride to the narrowest."""
    return tuple(sorted(range(array.ndim), key=lambda axis: -abs(array.strides[axis])))


def inverse(order: Sequence[int]) -> tuple[int, ...]:
    """The permutation that undoes another."""
    return tuple(order.index(axis) for axis in range(len(order)))
