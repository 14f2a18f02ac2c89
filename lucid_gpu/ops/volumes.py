"""Convolution of volumes by that of images: the slices under a filter's depth are channels.

No copy runs along three axes, and the gradients are those of what these are made of.
"""

from __future__ import annotations

from lucid_gpu.kernels.windows import Window
from lucid_gpu.ops import convolution, windows
from lucid_gpu.ops.sliding import Slide
from lucid_gpu.tensor import Tensor


def convolved(x: Tensor, weight: Tensor, window: Window, groups: int) -> Tensor:
    """Convolution of volumes (n, c, d, h, w) with filters (o, c // groups, kd, kh, kw)."""
    outputs, channels, deep, *kernel = weight.shape
    images, slices = _images(x, window)
    filters = weight.reshape(outputs, channels * deep, *kernel)
    found = convolution._convolved(images, filters, Slide(*window).window(), groups)
    return found.reshape(x.shape[0], slices, *found.shape[1:]).transpose(1, 2)


def input_gradient(
    g: Tensor, weight: Tensor, shape: tuple[int, ...], window: Window, groups: int
) -> Tensor:
    """Its gradient by volumes of a shape: each slice gives a filter's depth of slices."""
    n, c, depth, h, w = g.shape
    _, channels, deep, tall, wide = shape
    images = g.transpose(1, 2).reshape(n * depth, c, h, w)
    filters = weight.reshape(c, weight.shape[1] * weight.shape[2], *weight.shape[3:])
    stacked = channels * weight.shape[2]
    whole = (n * depth, stacked, tall, wide)
    slices = convolution._input_gradient(images, filters, whole, Slide(*window).window(), groups)
    columns = slices.reshape(n, depth, stacked, tall * wide).transpose(1, 2)
    columns = columns.reshape(n, stacked, depth * tall * wide)
    return windows._folded(columns, (channels, deep, tall * wide), Slide(*window).first()).reshape(
        shape
    )


def weight_gradient(x: Tensor, g: Tensor, window: Window, groups: int) -> Tensor:
    """Its gradient by filters, for cotangents (n, o, od, oh, ow)."""
    images, slices = _images(x, window)
    cotangents = g.transpose(1, 2).reshape(x.shape[0] * slices, g.shape[1], *g.shape[3:])
    found = convolution._weight_gradient(images, cotangents, Slide(*window).window(), groups)
    return found.reshape(g.shape[1], x.shape[1] // groups, *window.kernel)


def _images(x: Tensor, window: Window) -> tuple[Tensor, int]:
    """For each place of the filter along the depth an image with the slices under it."""
    n, c, depth, h, w = x.shape
    seen = windows._unfolded(x.reshape(n, c, depth, h * w), Slide(*window).first())
    slices, stacked = seen.shape[-1] // (h * w), c * window.kernel[0]
    images = seen.reshape(n, stacked, slices, h, w).transpose(1, 2)
    return images.reshape(n * slices, stacked, h, w), slices
