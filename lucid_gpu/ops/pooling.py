"""Pooling: a summary of each window of a signal, an image or a volume.

Signals are images of one row. Volumes are pooled twice, each slice as an image and then along the
depth: windows are boxes, so the largest of the largest is the first largest, and sums are sums.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from lucid_gpu.devices import xp_of
from lucid_gpu.dtypes import int64, unimplemented
from lucid_gpu.kernels import pooling
from lucid_gpu.kernels.windows import Frame, Window, frame_of
from lucid_gpu.ops.arguments import as_ints, require_tensor
from lucid_gpu.ops.convolution import of_rank
from lucid_gpu.ops.laying import is_plain, lay
from lucid_gpu.ops.memory_formats import (
    channels_lie_last,
    channels_order,
    led_in,
    lying,
    signals_order,
    strides_of,
)
from lucid_gpu.ops.record import TIED, Ties, keeping, leads_back, record, watch
from lucid_gpu.ops.shape import own
from lucid_gpu.ops.sliding import Sizes
from lucid_gpu.tape.door import Truth, op
from lucid_gpu.tape.modes import is_grad_enabled
from lucid_gpu.tape.rules import Batch, batching
from lucid_gpu.tensor import Tensor, from_array

__all__ = ["avg_pool1d", "avg_pool2d", "avg_pool3d", "max_pool1d", "max_pool2d", "max_pool3d"]

_MAX = """The largest number of each window of {what}; the first one where several are equal.

    Parameters
    ----------
    input : Tensor, shape (n, c, {size}) or (c, {size})
    kernel_size, stride, padding, dilation : int or tuple of int
        ``stride`` is ``kernel_size`` by default; padding counts as minus infinity.
    ceil_mode : bool
        Also use windows that extend past the end of the input.
    return_indices : bool
        Also return where in its plane, counted row by row, each maximum is.

    Returns
    -------
    Tensor, shape (n, c, ...) or (c, ...), or two of them

    Raises
    ------
    RuntimeError
        For another rank, or settings that do not fit the input.
    NotImplementedError
        For bool and complex.
    """

_MEAN = """The mean of each window of {what}.

    Parameters
    ----------
    input : Tensor, shape (n, c, {size}) or (c, {size})
    kernel_size, stride, padding : int or tuple of int
        ``stride`` is ``kernel_size`` by default; padding is zeros.
    ceil_mode : bool
        Also use windows that extend past the end of the input.
    count_include_pad : bool
        Whether padding counts among the numbers of a window.
    divisor_override : int, optional
        What sums are divided by instead; not for signals.

    Returns
    -------
    Tensor, shape (n, c, ...) or (c, ...)

    Raises
    ------
    RuntimeError
        For another rank, or settings that do not fit the input.
    NotImplementedError
        For whole numbers but int64, and for bool.
    """


def _signals_with_gradient(input: Tensor) -> tuple[int, ...] | None:
    """PyTorch has a row-major kernel for signals that need no gradient."""
    recorded = input.requires_grad and is_grad_enabled()
    return signals_order(input) if recorded else None


def _volumes_order(input: Tensor) -> tuple[int, ...] | None:
    """`channels_order` of volumes; one without a batch dimension is a batch of one."""
    if input.ndim != 4:
        return channels_order(input)
    strides = strides_of(input)
    batch = (max(strides) * max(input.shape), *strides)
    lies = channels_lie_last((1, *input.shape), batch, (0, 2, 3, 4, 1))
    return (1, 2, 3, 0) if lies else None


_ORDERS_OF_MAXIMA: dict[int, Callable[..., Any]] = {
    1: _signals_with_gradient,
    2: channels_order,
    3: _volumes_order,
}


def _max_of_rank(rank: int) -> Callable[..., Any]:
    @op
    @keeping("input")
    @lying("input", rule=_ORDERS_OF_MAXIMA[rank])
    def max_pool(
        input: Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: Truth = False,
    ) -> Any:
        settings = kernel_size, stride, padding, dilation
        return _max_pool(rank, input, settings, ceil_mode, return_indices)

    return of_rank(max_pool, f"max_pool{rank}d", _MAX, rank)


def _mean_of_rank(rank: int) -> Callable[..., Tensor]:
    @op(autocast={"cpu": "float32"} if rank == 3 else None)
    @keeping("input")
    def avg_pool(
        input: Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Tensor:
        if divisor_override == 0:
            raise RuntimeError("divisor must be not zero")
        settings, divisor = (kernel_size, stride, padding, 1), divisor_override or 0
        return _avg_pool(rank, input, settings, ceil_mode, count_include_pad, divisor)

    return of_rank(avg_pool, f"avg_pool{rank}d", _MEAN, rank)


@op
@keeping("input")
@lying("input", rule=signals_order)
def avg_pool1d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """As `avg_pool2d`, of signals (n, c, w) or (c, w); without ``divisor_override``.

    Raises
    ------
    NotImplementedError
        For whole numbers but int64, and for bool.
    """
    settings = kernel_size, stride, padding, 1
    return _avg_pool(1, input, settings, ceil_mode, count_include_pad, 0)


max_pool1d, max_pool2d, max_pool3d = (_max_of_rank(rank) for rank in (1, 2, 3))
avg_pool2d, avg_pool3d = (_mean_of_rank(rank) for rank in (2, 3))

FUNCTIONS = (avg_pool1d, max_pool1d, max_pool2d, max_pool3d)


@op
def _max_pool(
    rank: int, input: Tensor, settings: tuple[Any, ...], ceil_mode: bool, indices: Truth
) -> Any:
    images, slide = _checked(rank, f"max_pool{rank}d", input, settings, ceil_mode)
    in_rows = images.array.flags.c_contiguous
    order = None if is_plain(images._expr) else channels_order(images)
    if rank == 3:
        pooled, places = _largest_of_volumes(led_in(images, order), slide, ceil_mode, indices)
    else:
        frame = frame_of(images._expr.shape, slide.over_images(), ceil_mode)
        pooled, places = _largest(images, frame, indices)
        if order is not None:
            leads_back(pooled, order)
    if order is not None or not in_rows:
        pooled = lay(pooled, order)
    if not indices:
        return _as_before(rank, input, pooled)
    positions = lay(from_array(places, None, input.device), order)
    positions = _as_before(rank, input, positions)
    watch(pooled, positions)
    return _as_before(rank, input, pooled), positions


@op
def _avg_pool(
    rank: int,
    input: Tensor,
    settings: tuple[Any, ...],
    ceil_mode: bool,
    padding: bool,
    divisor: int,
    ties: Ties = TIED,
) -> Tensor:
    images, slide = _checked(rank, f"avg_pool{rank}d", input, settings, ceil_mode)
    d = input._expr.program.dtype
    if d.category == 1 and d is not int64:
        raise unimplemented(f"avg_pool{rank}d", d, ": convert it with .float()")
    if rank == 3:
        result = _mean_of_volumes(images, slide, ceil_mode, padding, divisor)
    else:
        frame = frame_of(images._expr.shape, slide.over_images(), ceil_mode)
        result = _mean(images, frame, padding, divisor, ties)
        order = None if is_plain(images._expr) else channels_order(images)
        if order is not None or not images.array.flags.c_contiguous:
            result = leads_back(lay(result, order), order)
    return _as_before(rank, input, result)


@batching(_max_pool, _avg_pool)
def _pool_batched(level: Batch, f: Any, rank: int, x: Tensor, *settings: Any) -> Any:
    if x.ndim == rank + 2:
        return level.parted(f(rank, level.joined(x), *settings), x.shape[0])
    if x.ndim == rank + 1:
        return level.wrap_all(f(rank, level.value(x), *settings))
    return NotImplemented


def _as_before(rank: int, input: Tensor, result: Tensor) -> Tensor:
    """Without the axes that stood in for none; no view of anything."""
    if rank == 1:
        result = result.squeeze(2)
    if len(input._expr.shape) != rank + 2:
        result = result.squeeze(0)
    return result if result._base is None else own(result.contiguous(), input)


# --- maximum: the place of each window's maximum is kept, one byte each ---------------------------


def _largest(images: Tensor, frame: Frame, indices: Truth, ties: Ties = TIED) -> tuple[Tensor, Any]:
    """The largest of each window, and where they are in their images."""
    largest, places = pooling.max_pool(images.array, frame)
    program = images._expr.program
    pooled = record(
        "MaxPool2DWithIndicesBackward0",
        largest,
        (images,),
        _max_pool_vjp,
        (from_array(places, pooling.position_type(frame), program.device),),
        program.dtype,
        frame=frame,
        ties=ties,
    )
    return pooled, _flat_indices(xp_of(images), frame, places) if indices else None


def _largest_of_volumes(
    x: Tensor, slide: Window, ceil_mode: bool, indices: Truth
) -> tuple[Tensor, Any]:
    n, c, depth, h, w = x.shape
    slices = frame_of((n, c * depth, h, w), slide.over_images(), ceil_mode)
    pooled, inside = _largest(x.reshape(slices.shape), slices, indices)
    stacked = frame_of((n, c, depth, slices.positions), slide.over_depth(), ceil_mode)
    pooled, places = _largest(pooled.reshape(stacked.shape), stacked, indices, None)
    shape = n, c, stacked.steps[0], *slices.steps
    if indices:
        inside = inside.reshape(stacked.shape)
        layer = places // slices.positions
        places = layer * (h * w) + xp_of(x).take_along_axis(inside, layer, 2)
        places = places.reshape(shape)
    return pooled.reshape(shape), places


def _max_pool_vjp(node: Any, g: Tensor) -> Any:
    return (_put(g, node.saved_values[0].array, node.frame),)


@op
def _put(g: Tensor, places: Any, frame: Frame) -> Tensor:
    """Gradients of maxima, put onto the pixels they were; the adjoint of `_take`."""
    return record(
        "MaxPool2DPutBackward0",
        pooling.max_pool_bwd(g.array, places, frame),
        (g,),
        lambda node, gg: (_take(gg, places, frame),),
        dtype=g._expr.program.dtype,
    )


@op
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


def _mean_of_volumes(
    x: Tensor, slide: Window, ceil_mode: bool, padding: bool, divisor: int
) -> Tensor:
    if x.dtype.category == 1:
        return _quotients_of_volumes(x, slide, ceil_mode, padding, divisor)
    n, c, depth, h, w = x.shape
    alone = 1 if divisor else 0
    slices = frame_of((n, c * depth, h, w), slide.over_images(), ceil_mode)
    means = _mean(x.reshape(slices.shape), slices, padding, alone)
    stacked = frame_of((n, c, depth, slices.positions), slide.over_depth(), ceil_mode)
    means = _mean(means.reshape(stacked.shape), stacked, padding, alone, None)
    means = means.reshape(n, c, stacked.steps[0], *slices.steps)
    return means / divisor if divisor else means


def _quotients_of_volumes(
    x: Tensor, slide: Window, ceil_mode: bool, padding: bool, divisor: int
) -> Tensor:
    """Means of integers: sums divided once, without a remainder."""
    real = x.double()
    sums = _mean_of_volumes(real, slide, ceil_mode, padding, 1)
    counts: Any = divisor
    if not divisor:
        ones = real.new_ones(real.shape)
        valid = _mean_of_volumes(ones, slide, ceil_mode, padding, 1)
        counts = (valid / _mean_of_volumes(ones, slide, ceil_mode, padding, 0)).round()
    return (sums / counts).trunc().to(x.dtype)


@op
def _mean(x: Tensor, frame: Frame, padding: bool, divisor: int, ties: Ties = TIED) -> Tensor:
    return record(
        "AvgPool2DBackward0",
        pooling.avg_pool(x.array, frame, padding, divisor),
        (x,),
        lambda node, g: (_spread(g, frame, padding, divisor, ties),),
        dtype=x._expr.program.dtype,
        ties=ties,
    )


@op
def _spread(g: Tensor, frame: Frame, padding: bool, divisor: int, ties: Ties) -> Tensor:
    """Gradients of means, spread over their windows; the adjoint of `_mean`."""
    return record(
        "AvgPool2DSpreadBackward0",
        pooling.avg_pool_bwd(g.array, frame, padding, divisor),
        (g,),
        lambda node, gg: (_mean(gg, frame, padding, divisor, ties),),
        dtype=g._expr.program.dtype,
    )


# --- what is refused ------------------------------------------------------------------------------


def _checked(
    rank: int, name: str, input: Tensor, settings: tuple[Any, ...], ceil_mode: bool
) -> tuple[Tensor, Window]:
    """A batch of images, or of volumes, and how windows slide over it."""
    require_tensor(name, "input", 1, input)
    slide = slide_of(rank, name, *settings)
    size, d = input._expr.shape, input._expr.program.dtype
    if len(size) not in (rank + 1, rank + 2) or 0 in size[-rank - 1 :]:
        ranks = f"{rank + 1}D or {rank + 2}D (batch mode) tensor"
        raise RuntimeError(
            f"{name}: Expected {ranks} with optional 0 dim batch size for input, but got: "
            f"{list(size)}"
            if rank == 1
            else f"{name}: non-empty {ranks} expected for input, but got: {list(size)}"
        )
    if d.category not in (1, 2):
        raise unimplemented(name, d)
    _check_steps(rank, name, size[-rank - 1 :], slide, ceil_mode)
    batch = input if len(size) == rank + 2 else input.unsqueeze(0)
    return batch.unsqueeze(2) if rank == 1 else batch, slide


def slide_of(
    rank: int, name: str, kernel: Any, stride: Any, padding: Any = 0, dilation: Any = 1
) -> Window:
    """How windows slide, from settings as a user gives them."""
    if type(kernel) is type(padding) is type(dilation) is int and type(stride) in _ONE_OR_NONE:
        return _slide_of_numbers(rank, name, kernel, stride, padding, dilation)
    return _slide_of(rank, name, kernel, stride, padding, dilation)


_ONE_OR_NONE = (int, type(None))


def _slide_of(
    rank: int, name: str, kernel: Any, stride: Any, padding: Any, dilation: Any
) -> Window:
    sizes = _setting(rank, name, "kernel_size", kernel)
    empty = stride is None or (isinstance(stride, (list, tuple)) and not stride)
    return _window(
        name,
        sizes,
        sizes if empty else _setting(rank, name, "stride", stride),
        _setting(rank, name, "padding", padding),
        _setting(rank, name, "dilation", dilation),
    )


_slide_of_numbers = functools.lru_cache(maxsize=1 << 10)(_slide_of)


@functools.lru_cache(maxsize=1 << 10)
def _window(name: str, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes) -> Window:
    window = Window(kernel, stride, padding, dilation, (0,) * len(kernel))
    for what, values in (("kernel_size", kernel), ("stride", stride), ("dilation", dilation)):
        if min(values) < 1:
            verb = "must" if name == "max_pool1d" else "should"
            raise RuntimeError(
                f"{name}() {what} {verb} be greater than zero, but got {_one_or_all(values)}"
            )
    if min(padding) < 0:
        raise RuntimeError(f"pad must be non-negative, but got pad: {min(padding)}")
    for p, k, d, reach in zip(padding, kernel, dilation, window.reach(), strict=True):
        if 2 * p > reach:
            raise RuntimeError(
                f"pad should be at most half of effective kernel size, but got pad={p}, "
                f"kernel_size={k} and dilation={d}"
            )
    return window


_COUNTS = {1: "one int", 2: "two ints", 3: "three ints"}


def _setting(rank: int, name: str, what: str, value: Any) -> Sizes:
    """An int, or one for each axis."""
    if type(value) is int:
        return (value,) * rank
    values = tuple(value) if isinstance(value, (tuple, list, Sequence)) else (value,)
    if len(values) == 1:
        values = values * rank
    sizes = as_ints(values)
    if sizes is None or len(sizes) != rank:
        raise RuntimeError(
            f"{name}: {what} must either be a single int, or a tuple of {_COUNTS[rank]}, but got "
            f"{value!r}"
        )
    return sizes


def _one_or_all(values: Sizes) -> Any:
    return values if len(values) > 1 else values[0]


@functools.lru_cache(maxsize=1 << 10)
def _check_steps(rank: int, name: str, image: Sizes, slide: Window, ceil_mode: bool) -> None:
    c, *size = image
    steps = slide.over_images().steps((1, *size)[-2:], ceil_mode)[-rank:]
    if rank == 3:
        steps = slide.over_depth().steps((size[0], 1), ceil_mode)[:1] + steps
    if min(steps) < 1:
        input_size, output_size = ("x".join(map(str, (c, *s))) for s in (size, steps))
        raise RuntimeError(
            f"{name}: Given input size: ({input_size}). Calculated output size: "
            f"({output_size}). Output size is too small"
        )
