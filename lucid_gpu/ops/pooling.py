"""Pooling: a summary of each window of an image.

Poolings walk over the few positions inside a window, never over pixels: each step is an array
operation on a strided view, and results keep the memory order of their input.
"""

from __future__ import annotations

from typing import Any

from lucid_gpu.devices import xp_of
from lucid_gpu.ops.record import record
from lucid_gpu.ops.windows import Frame, Window, memory_order, pair
from lucid_gpu.tensor import Tensor, from_array

__all__ = ["avg_pool2d", "max_pool2d"]


def max_pool2d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The largest pixel of each window; the first one where several are equal.

    Parameters
    ----------
    input : Tensor, shape (n, c, h, w) or (c, h, w)
    kernel_size, stride, padding, dilation : int or pair of int
        ``stride`` is ``kernel_size`` by default; padding counts as minus infinity.
    ceil_mode : bool
        Also take windows that stand over the lower or right edge.
    return_indices : bool
        Also return where in its image (``row * w + column``) each maximum is.

    Returns
    -------
    Tensor, shape (n, c, oh, ow) or (c, oh, ow), or two of them
    """
    if input.ndim == 3:
        pooled = max_pool2d(
            input.unsqueeze(0), kernel_size, stride, padding, dilation, ceil_mode, return_indices
        )
        return tuple(t.squeeze(0) for t in pooled) if return_indices else pooled.squeeze(0)
    window = _window(input, "max_pool2d", kernel_size, stride, padding, dilation)
    frame = Frame(tuple(input.shape), window, ceil_mode)
    largest, place = _largest(xp_of(input), frame, frame.bordered(input, _lowest(input)))
    pooled = record(
        "MaxPool2DWithIndicesBackward0",
        largest,
        (input,),
        lambda node, g: (_put(g, node.saved_tensors[0].array, frame),),
        (from_array(place, None, input.device),),
    )
    if not return_indices:
        return pooled
    indices = _flat_indices(xp_of(input), frame, place)
    return pooled, from_array(indices, None, input.device)


def avg_pool2d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The mean of each window.

    Parameters
    ----------
    input : Tensor, shape (n, c, h, w) or (c, h, w)
    kernel_size, stride, padding : int or pair of int
        ``stride`` is ``kernel_size`` by default; padding is zeros.
    ceil_mode : bool
        Also take windows that stand over the lower or right edge.
    count_include_pad : bool
        Whether padding counts among the pixels of a window.
    divisor_override : int, optional
        What sums are divided by instead.

    Returns
    -------
    Tensor, shape (n, c, oh, ow) or (c, oh, ow)
    """
    if input.ndim == 3:
        return avg_pool2d(
            input.unsqueeze(0),
            kernel_size,
            stride,
            padding,
            ceil_mode,
            count_include_pad,
            divisor_override,
        ).squeeze(0)
    if divisor_override == 0:
        raise RuntimeError("divisor must be not zero")
    window = _window(input, "avg_pool2d", kernel_size, stride, padding, 1)
    frame = Frame(tuple(input.shape), window, ceil_mode)
    counts = divisor_override or _counts(input, frame, count_include_pad)
    return _sum(input, frame) / counts


def _window(
    input: Tensor, name: str, kernel: Any, stride: Any, padding: Any, dilation: Any
) -> Window:
    if input.ndim != 4:
        raise RuntimeError(
            f"{name}: Expected 3D or 4D (batch mode) tensor for input, but got: {list(input.shape)}"
        )
    kernel = pair(kernel, "kernel_size")
    empty = stride is None or stride == [] or stride == ()
    stride = kernel if empty else pair(stride, "stride")
    window = Window(kernel, stride, pair(padding, "padding"), pair(dilation, "dilation"))
    if any(2 * p > r for p, r in zip(window.padding, window.reach(), strict=True)):
        raise RuntimeError(
            f"pad should be at most half of effective kernel size, but got pad={window.padding}, "
            f"kernel_size={kernel} and dilation={window.dilation}"
        )
    return window


# -- maximum: the position k of each window's maximum is kept, one byte each -------------------


def _lowest(input: Tensor) -> Any:
    if input.is_floating_point():
        return float("-inf")
    return xp_of(input).iinfo(input.array.dtype).min


def _largest(xp: Any, frame: Frame, image: Any) -> tuple[Any, Any]:
    """Each window's maximum and its position; NaN counts as larger than any number."""
    spots = frame.window.slices(frame.steps)
    narrow = xp.uint8 if len(spots) <= 256 else xp.int32
    best = image[spots[0][1]].copy("K")
    place = xp.zeros_like(best, dtype=narrow)
    for k, (_, pixels) in enumerate(spots[1:], 1):
        here = image[pixels]
        better = (here > best) | (here != here)
        xp.maximum(place, better * narrow(k), out=place)
        xp.maximum(best, here, out=best)
    return best, place


def _put(g: Tensor, place: Any, frame: Frame) -> Tensor:
    """Gradients of maxima, put onto the pixels they were; the adjoint of `_take`."""
    xp, array = xp_of(g), g.array
    image = frame.filled(g, 0, memory_order(array))
    overlaps = frame.window.overlaps()
    for k, (_, pixels) in enumerate(frame.window.slices(frame.steps)):
        if overlaps:
            image[pixels] += xp.where(place == k, array, array.dtype.type(0))
        else:
            xp.copyto(image[pixels], array, where=place == k)
    return record(
        "MaxPool2DPutBackward0",
        image[frame.inside],
        (g,),
        lambda node, gg: (_take(gg, place, frame),),
    )


def _take(input: Tensor, place: Any, frame: Frame) -> Tensor:
    """The pixel at a known position of each window; the adjoint of `_put`."""
    xp, image = xp_of(input), frame.bordered(input, 0)
    spots = frame.window.slices(frame.steps)
    taken = image[spots[0][1]].copy("K")
    for k, (_, pixels) in enumerate(spots[1:], 1):
        taken = xp.where(place == k, image[pixels], taken)
    return record(
        "MaxPool2DTakeBackward0", taken, (input,), lambda node, g: (_put(g, place, frame),)
    )


def _flat_indices(xp: Any, frame: Frame, place: Any) -> Any:
    (_, kw), (sh, sw), (top, left), (dh, dw) = frame.window
    rows, columns = (xp.arange(m, dtype=xp.int64) for m in frame.steps)
    row = rows[:, None] * sh - top + (place // kw).astype(xp.int64) * dh
    column = columns * sw - left + (place % kw).astype(xp.int64) * dw
    return row * frame.shape[3] + column


# -- mean: a sum over windows, whose adjoint spreads each gradient over its window -------------


def _sum(input: Tensor, frame: Frame) -> Tensor:
    image = frame.bordered(input, 0)
    spots = frame.window.slices(frame.steps)
    total = image[spots[0][1]].copy("K")
    for _, pixels in spots[1:]:
        total += image[pixels]
    return record("AvgPool2DBackward0", total, (input,), lambda node, g: (_spread(g, frame),))


def _spread(g: Tensor, frame: Frame) -> Tensor:
    array = g.array
    image = frame.filled(g, 0, memory_order(array))
    for _, pixels in frame.window.slices(frame.steps):
        image[pixels] += array
    return record(
        "AvgPool2DSpreadBackward0",
        image[frame.inside],
        (g,),
        lambda node, gg: (_sum(gg, frame),),
    )


def _counts(input: Tensor, frame: Frame, include_padding: bool) -> Any:
    """Pixels in each window: a number where all agree, else an array that broadcasts."""
    window, image = frame.window, frame.shape[2:]
    if all(
        (not p or include_padding) and s * (m - 1) + k <= size + 2 * p
        for p, k, s, m, size in zip(
            window.padding, window.kernel, window.stride, frame.steps, image, strict=True
        )
    ):
        return window.kernel[0] * window.kernel[1]
    xp, along = xp_of(input), []
    for p, k, s, m, size in zip(
        window.padding, window.kernel, window.stride, frame.steps, image, strict=True
    ):
        margin = p if include_padding else 0
        start = xp.arange(m) * s - p
        inside = xp.minimum(start + k, size + margin) - xp.maximum(start, -margin)
        along.append(inside.astype(input.array.dtype))
    return from_array(along[0][:, None] * along[1], input.dtype, input.device)
