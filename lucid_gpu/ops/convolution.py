"""Convolution, differentiable any number of times.

Three bilinear maps are each other's gradients: `_convolved` (images, filters), `_input_gradient`
(cotangents, filters) and `_weight_gradient` (images, cotangents). Signals are images of one row.
Volumes are images too, at the end of the file, where no library takes them as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from lucid_gpu import dtypes as dt
from lucid_gpu.devices import cudnn
from lucid_gpu.devices.copies import inverse
from lucid_gpu.kernels import convolution
from lucid_gpu.kernels.windows import Frame, Window
from lucid_gpu.ops import windows
from lucid_gpu.ops.arguments import require_tensor
from lucid_gpu.ops.laying import lay
from lucid_gpu.ops.memory_formats import channels_order, led_in, signals_order
from lucid_gpu.ops.record import keeping, leads_back, record
from lucid_gpu.ops.shape import own
from lucid_gpu.ops.sliding import Slide, check, check_ranks, check_size, slide_of
from lucid_gpu.ops.user_warnings import warn_user_once
from lucid_gpu.tape import costly
from lucid_gpu.tape.door import op
from lucid_gpu.tape.rules import Batch, Call, batching, jvp
from lucid_gpu.tensor import Tensor, in_free_order

__all__ = ["conv1d", "conv2d", "conv3d", "named"]

_DOC = """Cross-correlation of {what} with a bank of filters.

    ``out[n, o, p] = bias[o] + sum_{{c, i}} weight[o, c, i] *
    input[n, c, p * stride + i * dilation - padding]``, with a place ``p`` and a place in the
    window ``i`` along each of the {rank} axes.

    Parameters
    ----------
    input : Tensor, shape (n, c, {size}) or (c, {size})
    weight : Tensor, shape (o, c // groups, {kernel})
    bias : Tensor, shape (o,), optional
    stride, padding, dilation : int or {rank} of them
        ``padding`` may also be ``"valid"`` (none) or ``"same"`` (the output is as large as the
        input; stride 1).
    groups : int
        The channels are split into this many independent groups.

    Returns
    -------
    Tensor, shape (n, o, ...) or (o, ...)

    Raises
    ------
    RuntimeError
        Where shapes, dtypes or settings do not fit together.
    """

_WORDS = {
    1: {"rank": 1, "what": "signals", "size": "w", "kernel": "kw"},
    2: {"rank": 2, "what": "images", "size": "h, w", "kernel": "kh, kw"},
    3: {"rank": 3, "what": "volumes", "size": "d, h, w", "kernel": "kd, kh, kw"},
}


def named(function: Callable[..., Any], name: str, doc: str, rank: int) -> Callable[..., Any]:
    """A function made for a rank, under its name, with its documentation."""
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc.format(**_WORDS[rank])
    return function


def _of_rank(rank: int) -> Callable[..., Tensor]:
    @op(autocast="lower")
    @keeping("input", "weight")
    def conv(
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Tensor:
        return _convolution(rank, input, weight, bias, stride, padding, dilation, groups)

    return named(conv, f"conv{rank}d", _DOC, rank)


conv1d, conv2d, conv3d = (_of_rank(rank) for rank in (1, 2, 3))

FUNCTIONS = (conv1d, conv2d, conv3d)


def _convolution(
    rank: int,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
) -> Tensor:
    require_tensor(f"conv{rank}d", "input", 1, input)
    check_ranks(f"conv{rank}d", rank, input, weight)
    whole = input if input.ndim == weight.ndim else input.unsqueeze(0)
    slide = slide_of(weight.shape[2:], stride, padding, dilation)
    check(whole, weight, bias, groups)
    check_size(whole, slide)
    order = order_of_result(whole, weight, groups)
    if rank == 1:
        result = _convolved(whole.unsqueeze(2), weight.unsqueeze(2), slide.window(), groups)
        result = result.squeeze(2)
    elif rank == 2:
        result = leads_back(_convolved(whole, weight, slide.window(), groups), order)
    elif convolution.takes_volumes(whole.device, whole.dtype.name):
        result = leads_back(_convolved(whole, weight, Window(*slide), groups), order)
    else:
        x, filters = led_in(whole, order), led_in(weight, order)
        result = _convolved_volumes(x, filters, Window(*slide), groups)
    return finished(result, bias, order, batched=whole is input)


def order_of_result(x: Tensor, weight: Tensor, groups: int) -> tuple[int, ...] | None:
    """How the result for a batch lies in memory: channels last where one of the two lies so."""
    if x.ndim == 3:  # as PyTorch has it, signals alone do not tell
        return signals_order(weight)
    order = channels_order(x, weight)
    row_major = order is not None and x.ndim == 5 and _in_rows(x, weight, groups)
    return None if row_major else order


def _in_rows(x: Tensor, weight: Tensor, groups: int) -> bool:
    """Whether PyTorch computes volumes row by row, as it does few of them on a CPU."""
    if x.dtype in _ROW_MAJOR_VOLUMES:
        return True
    alone = groups == 1 and x.shape[0] < 2 and x.device.type == "cpu"
    return alone and min(weight.shape[-2:]) <= 3 and math.prod(x.shape[:4]) <= 20480


_ROW_MAJOR_VOLUMES = (dt.float64, dt.int64, dt.int32, dt.int16, dt.int8, dt.uint8)


def finished(
    result: Tensor, bias: Tensor | None, order: tuple[int, ...] | None, batched: bool
) -> Tensor:
    """With its bias, and without the batch that stood in for none; no view of anything."""
    laid = order is not None and result._wrapper is None
    if laid:
        result = lay(result, order)
    if not batched:
        result = result.squeeze(0)
    if bias is None:
        if result._is_view():
            result = own(result if laid else result.contiguous())
        return result
    if result._is_view() and result._wrapper is None and not laid:  # PyTorch's is row-major
        result = in_free_order(result)
    return result + bias.reshape(-1, *[1] * (result.ndim - 1 - batched))


# --- the three maps -------------------------------------------------------------------------------


@op
def _convolved(x: Tensor, weight: Tensor, window: Window, groups: int) -> Tensor:
    frame = Frame(x.shape, window)
    if x.device.type == "cuda" and cudnn.is_missed(x.dtype.name):
        warn_user_once(
            "backends.cudnn.is_available() is False: convolutions on a GPU are products of "
            f"windows, which take longer; cuDNN is installed by {cudnn.install()}"
        )
    if costly.active:
        result = _watched("images", convolution.convolve, x, weight, frame, groups)
    else:
        result = convolution.convolve(x.array, weight.array, frame, groups)
    if result is None:
        return _convolved_volumes(x, weight, window, groups)
    return record(
        "ConvolutionBackward0",
        result,
        (x, weight),
        _convolved_vjp,
        (x if weight.requires_grad else None, weight if x.requires_grad else None),
        x.dtype,
        shape=frame.shape,
        window=window,
        groups=groups,
    )


def _watched(
    of: str, compute: Callable[..., Any], a: Tensor, b: Tensor, frame: Frame, groups: int
) -> Any:
    """The images, or the gradient ``of`` input or weight, by way of who counts or keeps it."""
    x, y = a.array, b.array
    window, nothing = frame.window, (0,) * len(frame.window.kernel)
    name = "convolution"
    settings: tuple[Any, ...] = (window.stride, window.padding, window.dilation)
    settings = (None, *settings, of == "input", nothing, groups)
    if costly.in_backward():
        name, settings = (
            "convolution_backward",
            (*settings, (of != "weight", of == "weight", False)),
        )
    compute_now = partial(compute, x, y, frame, groups)
    return costly.run(name, a.device, compute_now, (x, y), settings)


def _convolved_vjp(node: Any, g: Tensor) -> Any:
    x, weight = node.saved_values
    g_x = g_weight = None
    if all(node.needs_input_grad):
        g = _in_order(g, Frame(node.shape, node.window))
    if node.needs_input_grad[0]:
        g_x = _input_gradient(g, _conj(weight), node.shape, node.window, node.groups)
    if node.needs_input_grad[1]:
        g_weight = _weight_gradient(_conj(x), g, node.window, node.groups)
    return g_x, g_weight


@jvp(_convolved_vjp)
def _convolved_jvp(call: Call) -> Any:
    return call.bilinear(_convolved, "window", "groups")


@batching(_convolved)
def _convolved_batched(
    level: Batch, f: Any, x: Tensor, weight: Tensor, window: Window, groups: int
) -> Any:
    """The examples as one batch; with filters of their own, as groups that see no other."""
    if not level.holds(weight):
        return level.parted(f(level.joined(x), weight, window, groups), x.shape[0])
    images, filters = _as_groups(level, x), _as_filters(level, weight)
    return _from_groups(level, f(images, filters, window, groups * level.size))


def _as_groups(level: Batch, x: Tensor) -> Tensor:
    """A batch of images (examples, n, c, h, w) as images (n, examples * c, h, w)."""
    n, c, *size = x.shape
    images: Tensor = level.full(x).transpose(0, 1).reshape((n, level.size * c, *size))
    return images


def _as_filters(level: Batch, weight: Tensor) -> Tensor:
    filters: Tensor = level.full(weight).reshape((level.size * weight.shape[0], *weight.shape[1:]))
    return filters


def _from_groups(level: Batch, images: Tensor) -> Any:
    n, c, *size = images.shape
    return level.wrap(images.reshape((n, level.size, c // level.size, *size)).transpose(0, 1))


@op
def _input_gradient(
    g: Tensor, weight: Tensor, shape: tuple[int, ...], window: Window, groups: int
) -> Tensor:
    frame = Frame(shape, window)
    if costly.active:
        result = _watched("input", convolution.input_gradient, g, weight, frame, groups)
    else:
        result = convolution.input_gradient(g.array, weight.array, frame, groups)
    if result is None:
        return volumes_input_gradient(g, weight, shape, window, groups)
    return record(
        "ConvolutionBackwardBackward0",
        result,
        (g, weight),
        _input_gradient_vjp,
        (g if weight.requires_grad else None, weight if g.requires_grad else None),
        g.dtype,
        shape=shape,
        window=window,
        groups=groups,
    )


def _input_gradient_vjp(node: Any, u: Tensor) -> Any:
    g, weight = node.saved_values
    u_g = u_weight = None
    if node.needs_input_grad[0]:
        u_g = _convolved(u, _conj(weight), node.window, node.groups)
    if node.needs_input_grad[1]:
        u_weight = _weight_gradient(u, _conj(g), node.window, node.groups)
    return u_g, u_weight


@jvp(_input_gradient_vjp)
def _input_gradient_jvp(call: Call) -> Any:
    return call.bilinear(_input_gradient, "shape", "window", "groups")


@batching(_input_gradient)
def _input_gradient_batched(
    level: Batch, f: Any, g: Tensor, weight: Tensor, shape: Any, window: Window, groups: int
) -> Any:
    n, c, *size = shape
    if not level.holds(weight):
        whole = (level.size * n, c, *size)
        return level.parted(f(level.joined(g), weight, whole, window, groups), n)
    images, filters = _as_groups(level, g), _as_filters(level, weight)
    whole = (n, level.size * c, *size)
    return _from_groups(level, f(images, filters, whole, window, groups * level.size))


@op
def _weight_gradient(x: Tensor, g: Tensor, window: Window, groups: int) -> Tensor:
    frame = Frame(x.shape, window)
    if costly.active:
        result = _watched("weight", convolution.weight_gradient, x, g, frame, groups)
    else:
        result = convolution.weight_gradient(x.array, g.array, frame, groups)
    if result is None:
        return _volumes_weight_gradient(x, g, window, groups)
    return record(
        "ConvolutionBackwardBackward0",
        result,
        (x, g),
        _weight_gradient_vjp,
        (x if g.requires_grad else None, g if x.requires_grad else None),
        g.dtype,
        shape=frame.shape,
        window=window,
        groups=groups,
    )


def _weight_gradient_vjp(node: Any, v: Tensor) -> Any:
    x, g = node.saved_values
    v_x = v_g = None
    if node.needs_input_grad[0]:
        v_x = _input_gradient(_conj(g), v, node.shape, node.window, node.groups)
    if node.needs_input_grad[1]:
        v_g = _convolved(_conj(x), v, node.window, node.groups)
    return v_x, v_g


@jvp(_weight_gradient_vjp)
def _weight_gradient_jvp(call: Call) -> Any:
    return call.bilinear(_weight_gradient, "window", "groups")


@batching(_weight_gradient)
def _weight_gradient_batched(
    level: Batch, f: Any, x: Tensor, g: Tensor, window: Window, groups: int
) -> Any:
    images, cotangents = _as_groups(level, x), _as_groups(level, g)
    filters = f(images, cotangents, window, groups * level.size)
    return level.wrap(filters.reshape((level.size, g.shape[1], *filters.shape[1:])))


def _conj(x: Tensor) -> Tensor:
    return x.conj_physical() if x.dtype.is_complex else x


def _in_order(g: Tensor, frame: Frame) -> Tensor:
    """A cotangent that both gradients read without copying it once more."""
    order = convolution.memory_order(frame, g.device)
    if g._wrapper is None and g.array.transpose(order).flags.c_contiguous:
        return g
    return g.permute(order).contiguous().permute(inverse(order))


# --- volumes: images whose channels are the slices under a filter's depth ------------------------

# No copy runs along three axes, and the gradients are those of what these are made of.


def _convolved_volumes(x: Tensor, weight: Tensor, window: Window, groups: int) -> Tensor:
    """Convolution of volumes (n, c, d, h, w) with filters (o, c // groups, kd, kh, kw)."""
    outputs, channels, deep, *kernel = weight.shape
    images, slices = _images(x, window)
    filters = weight.reshape(outputs, channels * deep, *kernel)
    convolved = _convolved(images, filters, Slide(*window).window(), groups)
    return convolved.reshape(x.shape[0], slices, *convolved.shape[1:]).transpose(1, 2)


def volumes_input_gradient(
    g: Tensor, weight: Tensor, shape: tuple[int, ...], window: Window, groups: int
) -> Tensor:
    """Its gradient by volumes of a shape: each slice gives a filter's depth of slices."""
    n, c, depth, h, w = g.shape
    _, channels, deep, tall, wide = shape
    images = leads_back(g.transpose(1, 2).reshape(n * depth, c, h, w), (0, 2, 1, 3, 4))
    filters = weight.reshape(c, weight.shape[1] * weight.shape[2], *weight.shape[3:])
    stacked = channels * weight.shape[2]
    whole = (n * depth, stacked, tall, wide)
    slices = _input_gradient(images, filters, whole, Slide(*window).window(), groups)
    columns = slices.reshape(n, depth, stacked, tall * wide).transpose(1, 2)
    columns = columns.reshape(n, stacked, depth * tall * wide)
    return windows._folded(columns, (channels, deep, tall * wide), Slide(*window).first()).reshape(
        shape
    )


def _volumes_weight_gradient(x: Tensor, g: Tensor, window: Window, groups: int) -> Tensor:
    """Its gradient by filters, for cotangents (n, o, od, oh, ow)."""
    images, slices = _images(x, window)
    cotangents = g.transpose(1, 2).reshape(x.shape[0] * slices, g.shape[1], *g.shape[3:])
    gradient = _weight_gradient(images, cotangents, Slide(*window).window(), groups)
    return gradient.reshape(g.shape[1], x.shape[1] // groups, *window.kernel)


def _images(x: Tensor, window: Window) -> tuple[Tensor, int]:
    """For each place of the filter along the depth an image with the slices under it."""
    n, c, depth, h, w = x.shape
    seen = windows._unfolded(x.reshape(n, c, depth, h * w), Slide(*window).first())
    slices, stacked = seen.shape[-1] // (h * w), c * window.kernel[0]
    images = seen.reshape(n, stacked, slices, h, w).transpose(1, 2)
    return images.reshape(n * slices, stacked, h, w), slices
