"""Pooling: a summary of each window of a signal or image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lucid_gpu.devices import xp_of
from lucid_gpu.kernels import pooling
from lucid_gpu.kernels.windows import Frame, Pair, Window
from lucid_gpu.ops.arguments import require_tensor
from lucid_gpu.ops.record import record
from lucid_gpu.tensor import Tensor, from_array

__all__ = ["avg_pool1d", "avg_pool2d", "max_pool1d", "max_pool2d"]


def max_pool1d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The largest number of each window of a signal: `max_pool2d` with one axis less.

    Parameters
    ----------
    input : Tensor, shape (n, c, w) or (c, w)
    kernel_size, stride, padding, dilation : int or tuple of one
    ceil_mode, return_indices : bool

    Returns
    -------
    Tensor, shape (n, c, ow) or (c, ow), or two of them
    """
    _check_rank(1, "max_pool1d", input)
    window = _window(1, "max_pool1d", kernel_size, stride, padding, dilation)
    return _max_pool(1, input, window, ceil_mode, return_indices)


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

    Raises
    ------
    RuntimeError
        For another rank, or settings that do not fit the images.
    NotImplementedError
        For bool and complex.
    """
    _check_rank(2, "max_pool2d", input)
    window = _window(2, "max_pool2d", kernel_size, stride, padding, dilation)
    return _max_pool(2, input, window, ceil_mode, return_indices)


def avg_pool1d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """The mean of each window of a signal: `avg_pool2d` with one axis less.

    Parameters
    ----------
    input : Tensor, shape (n, c, w) or (c, w)
    kernel_size, stride, padding : int or tuple of one
    ceil_mode, count_include_pad : bool

    Returns
    -------
    Tensor, shape (n, c, ow) or (c, ow)
    """
    _check_rank(1, "avg_pool1d", input)
    window = _window(1, "avg_pool1d", kernel_size, stride, padding, 1)
    return _avg_pool(1, input, window, ceil_mode, count_include_pad, 0)


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

    Raises
    ------
    RuntimeError
        For another rank, or settings that do not fit the images.
    """
    _check_rank(2, "avg_pool2d", input)
    if divisor_override == 0:
        raise RuntimeError("divisor must be not zero")
    window = _window(2, "avg_pool2d", kernel_size, stride, padding, 1)
    return _avg_pool(2, input, window, ceil_mode, count_include_pad, divisor_override or 0)


# --- signals and single images as batches of images -----------------------------------------------


def _as_images(rank: int, input: Tensor) -> Tensor:
    batch = input if input.ndim == rank + 2 else input.unsqueeze(0)
    return batch if rank == 2 else batch.unsqueeze(2)


def _as_before(rank: int, input: Tensor, result: Tensor) -> Tensor:
    if rank == 1:
        result = result.squeeze(2)
    return result if input.ndim == rank + 2 else result.squeeze(0)


# --- maximum: the place of each window's maximum is kept, one byte each ---------------------------


def _max_pool(rank: int, input: Tensor, window: Window, ceil_mode: bool, indices: bool) -> Any:
    images = _as_images(rank, input)
    frame = _frame(rank, f"max_pool{rank}d", images, window, ceil_mode)
    largest, places = pooling.max_pool(images.array, frame)
    pooled = record(
        "MaxPool2DWithIndicesBackward0",
        largest,
        (images,),
        _max_pool_vjp,
        (from_array(places, None, input.device),),
        input.dtype,
        frame=frame,
    )
    pooled = _as_before(rank, input, pooled)
    if not indices:
        return pooled
    flat = from_array(_flat_indices(xp_of(input), frame, places), None, input.device)
    return pooled, _as_before(rank, input, flat)


def _max_pool_vjp(node: Any, g: Tensor) -> Any:
    return (_put(g, node.saved_tensors[0].array, node.frame),)


def _put(g: Tensor, places: Any, frame: Frame) -> Tensor:
    """Gradients of maxima, put onto the pixels they were; the adjoint of `_take`."""
    return record(
        "MaxPool2DPutBackward0",
        pooling.max_pool_bwd(g.array, places, frame),
        (g,),
        lambda node, gg: (_take(gg, places, frame),),
        dtype=g.dtype,
    )


def _take(input: Tensor, places: Any, frame: Frame) -> Tensor:
    """The pixel at a known place of each window; the adjoint of `_put`."""
    return record(
        "MaxPool2DTakeBackward0",
        pooling.max_pool_take(input.array, places, frame),
        (input,),
        lambda node, g: (_put(g, places, frame),),
        dtype=input.dtype,
    )


def _flat_indices(xp: Any, frame: Frame, places: Any) -> Any:
    (_, kw), (sh, sw), (top, left), (dh, dw) = frame.window[:4]
    rows, columns = (xp.arange(m, dtype=xp.int64) for m in frame.steps)
    row = rows[:, None] * sh - top + (places // kw).astype(xp.int64) * dh
    column = columns * sw - left + (places % kw).astype(xp.int64) * dw
    return row * frame.shape[3] + column


# --- mean -----------------------------------------------------------------------------------------


def _avg_pool(
    rank: int, input: Tensor, window: Window, ceil_mode: bool, padding: bool, divisor: int
) -> Tensor:
    images = _as_images(rank, input)
    frame = _frame(rank, f"avg_pool{rank}d", images, window, ceil_mode)
    return _as_before(rank, input, _mean(images, frame, padding, divisor))


def _mean(x: Tensor, frame: Frame, padding: bool, divisor: int) -> Tensor:
    return record(
        "AvgPool2DBackward0",
        pooling.avg_pool(x.array, frame, padding, divisor),
        (x,),
        lambda node, g: (_spread(g, frame, padding, divisor),),
        dtype=x.dtype,
    )


def _spread(g: Tensor, frame: Frame, padding: bool, divisor: int) -> Tensor:
    """Gradients of means, spread over their windows; the adjoint of `_mean`."""
    return record(
        "AvgPool2DSpreadBackward0",
        pooling.avg_pool_bwd(g.array, frame, padding, divisor),
        (g,),
        lambda node, gg: (_mean(gg, frame, padding, divisor),),
        dtype=g.dtype,
    )


# --- what is refused ------------------------------------------------------------------------------


def _check_rank(rank: int, name: str, input: Tensor) -> None:
    require_tensor(name, "input", 1, input)
    if input.ndim not in (rank + 1, rank + 2) or 0 in input.shape[-rank - 1 :]:
        raise RuntimeError(
            f"{name}: Expected {rank + 1}D or {rank + 2}D (batch mode) tensor with optional 0 dim "
            f"batch size for input, but got: {list(input.shape)}"
        )
    if input.dtype.category not in (1, 2):
        raise NotImplementedError(f'"{name}" not implemented for {input.dtype}')


def _window(rank: int, name: str, kernel: Any, stride: Any, padding: Any, dilation: Any) -> Window:
    sizes = _setting(rank, name, "kernel_size", kernel)
    empty = stride is None or stride == [] or stride == ()
    strides = sizes if empty else _setting(rank, name, "stride", stride)
    around = _setting(rank, name, "padding", padding, 0)
    window = Window(sizes, strides, around, _setting(rank, name, "dilation", dilation))
    for what, least, values in (
        ("kernel_size", 1, window.kernel),
        ("stride", 1, window.stride),
        ("dilation", 1, window.dilation),
        ("padding", 0, window.padding),
    ):
        if min(values) < least:
            need = "greater than zero" if least else "non-negative"
            raise RuntimeError(f"{name}: {what} should be {need}, but got {list(values[-rank:])}")
    if any(2 * p > r for p, r in zip(window.padding, window.reach(), strict=True)):
        raise RuntimeError(
            f"pad should be at most half of effective kernel size, but got "
            f"pad={_told(rank, around)}, kernel_size={_told(rank, sizes)} and "
            f"dilation={_told(rank, window.dilation)}"
        )
    return window


def _setting(rank: int, name: str, what: str, value: Any, fill: int = 1) -> Pair:
    """An int, or one for each axis, as a pair; signals have a first axis of length 1."""
    values = tuple(value) if isinstance(value, Sequence) else (value,) * rank
    if len(values) == 1:
        values = values * rank
    if len(values) != rank or not all(isinstance(v, int) for v in values):
        one = "a single int" if rank == 2 else "an int"
        many = "a tuple of two ints" if rank == 2 else "a tuple of one int"
        raise RuntimeError(f"{name}: {what} must either be {one}, or {many}, but got {value!r}")
    return (values[0], values[1]) if rank == 2 else (fill, values[0])


def _told(rank: int, values: Pair) -> Any:
    return values if rank == 2 else values[1]


def _frame(rank: int, name: str, images: Tensor, window: Window, ceil_mode: bool) -> Frame:
    frame = Frame(images.shape, window, ceil_mode)
    if min(frame.steps) < 1:
        c, *size = (images.shape[1], *images.shape[-rank:])
        given, found = ("x".join(map(str, (c, *s))) for s in (size, frame.steps[-rank:]))
        raise RuntimeError(
            f"{name}: Given input size: ({given}). Calculated output size: ({found}). Output size "
            "is too small"
        )
    return frame
