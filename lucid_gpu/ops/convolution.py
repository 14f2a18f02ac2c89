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
from lucid_gpu.fusion.costs import costs_of
from lucid_gpu.fusion.pending_reductions import summed_to
from lucid_gpu.kernels import convolution
from lucid_gpu.kernels.windows import Frame, frame_of
from lucid_gpu.ops import windows
from lucid_gpu.ops.laying import lay
from lucid_gpu.ops.memory_formats import channels_order, led_in, signals_order
from lucid_gpu.ops.record import keeping, leads_back, record
from lucid_gpu.ops.registry import named
from lucid_gpu.ops.shape import own
from lucid_gpu.ops.sliding import framed
from lucid_gpu.ops.user_warnings import warn_user_once
from lucid_gpu.tape import costly
from lucid_gpu.tape.door import interpreters, op
from lucid_gpu.tape.levels import open_levels
from lucid_gpu.tape.modes import is_grad_enabled
from lucid_gpu.tape.rules import Batch, batching, jvp
from lucid_gpu.tensor import Tensor, from_array, in_free_order

__all__ = ["conv1d", "conv2d", "conv3d", "named"]

_WORDS = {
    1: {"rank": 1, "what": "signals", "size": "w", "kernel": "kw"},
    2: {"rank": 2, "what": "images", "size": "h, w", "kernel": "kh, kw"},
    3: {"rank": 3, "what": "volumes", "size": "d, h, w", "kernel": "kd, kh, kw"},
}


def of_rank(function: Callable[..., Any], name: str, doc: str, rank: int) -> Callable[..., Any]:
    """Return a function made for a rank, under its name, with its documentation."""
    return named(function, name, doc.format(**_WORDS[rank]))


@op(autocast="lower")
@keeping("input", "weight")
def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """Cross-correlate signals of shape (n, c, w) or (c, w) with a bank of filters.

    As `conv2d`, which raises the same errors, with a weight of shape (o, c // groups, kw).
    """
    x, frame = framed(1, input, weight, bias, stride, padding, dilation, groups)
    order = signals_order(weight)  # as PyTorch has it, signals alone do not tell
    result = _convolved(x.unsqueeze(2), weight.unsqueeze(2), frame, groups).squeeze(2)
    return finished(result, bias, order, x is input)


@op(autocast="lower")
@keeping("input", "weight")
def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """Cross-correlate images with a bank of filters.

    ``out[n, o, p] = bias[o] + sum_{c, i} weight[o, c, i] *
    input[n, c, p * stride + i * dilation - padding]``, with a place ``p`` and a place in the
    window ``i`` along each of the axes.

    Parameters
    ----------
    input : Tensor, shape (n, c, h, w) or (c, h, w)
    weight : Tensor, shape (o, c // groups, kh, kw)
    bias : Tensor, shape (o,), optional
    stride, padding, dilation : int or one for each axis
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
    x, frame = framed(2, input, weight, bias, stride, padding, dilation, groups)
    order = channels_order(x, weight)
    seen = open_levels or interpreters or costly.active
    if bias is None or seen or not costs_of(x.device).walks_blocks:
        result = leads_back(_convolved(x, weight, frame, groups), order)
        return finished(result, bias, order, x is input)
    result = leads_back(_biased(x, weight, bias, frame, groups), order)
    return finished(result, None, order, x is input)


@op(autocast="lower")
@keeping("input", "weight")
def conv3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """Cross-correlate volumes of shape (n, c, d, h, w) or (c, d, h, w) with a bank of filters.

    As `conv2d`, which raises the same errors, with a weight of shape (o, c // groups, kd, kh, kw).
    """
    x, frame = framed(3, input, weight, bias, stride, padding, dilation, groups)
    order = order_of_result(x, weight, groups)
    if convolution.takes_volumes(x.device, x.dtype.name):
        result = leads_back(_convolved(x, weight, frame, groups), order)
    else:
        result = _convolved_volumes(led_in(x, order), led_in(weight, order), frame, groups)
    return finished(result, bias, order, x is input)


FUNCTIONS = (conv1d, conv2d, conv3d)


def order_of_result(x: Tensor, weight: Tensor, groups: int) -> tuple[int, ...] | None:
    """Return how the result for a batch lies in memory: channels last where one of the two do."""
    if x.ndim == 3:
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
        if result._base is not None:
            result = own(result if laid else result.contiguous())
        return result
    if result._base is not None and result._wrapper is None and not laid:  # PyTorch's is row-major
        result = in_free_order(result)
    return result + bias.reshape(-1, *[1] * (result.ndim - 1 - batched))


# --- the three maps -------------------------------------------------------------------------------


@op
def _convolved(x: Tensor, weight: Tensor, frame: Frame, groups: int) -> Tensor:
    like = x._expr.program
    if like.device.type == "cuda" and cudnn.is_missed(like.dtype.name):
        warn_user_once(
            "backends.cudnn.is_available() is False: convolutions on a GPU are products of "
            f"windows, which take longer; cuDNN is installed by {cudnn.install()}"
        )
    result = _computed("images", convolution.convolve, x, weight, frame, groups)
    if result is None:
        return _convolved_volumes(x, weight, frame, groups)
    return _recorded("ConvolutionBackward0", result, x, weight, _convolved_vjp, frame, groups)


def _computed(
    of: str, compute: Callable[..., Any], a: Tensor, b: Tensor, frame: Frame, groups: int
) -> Any:
    """Return the images, or the gradient ``of`` input or weight, which some count or keep."""
    x, y = a.array, b.array
    if not costly.active:
        return compute(x, y, frame, groups)
    name, (kernel, *slides, _) = "convolution", frame.window
    settings: tuple[Any, ...] = (None, *slides, of == "input", (0,) * len(kernel), groups)
    if costly.in_backward():
        name = "convolution_backward"
        settings = (*settings, (of != "weight", of == "weight", False))
    compute_now = partial(compute, x, y, frame, groups)
    return costly.run(name, a.device, compute_now, (x, y), settings)


def _recorded(
    name: str, result: Any, a: Tensor, b: Tensor, vjp: Any, frame: Frame, groups: int, *more: Tensor
) -> Tensor:
    """Return the result of a bilinear map; an operand is saved for the other's gradient."""
    left, right = a._expr.program, b._expr.program
    recorded: Tensor = record(
        *(name, result, (a, b, *more), vjp),
        (a if right.needs_grad else None, b if left.needs_grad else None),
        left.dtype,
        frame=frame,
        groups=groups,
    )
    return recorded


def _biased(x: Tensor, weight: Tensor, bias: Tensor, frame: Frame, groups: int) -> Tensor:
    """`_convolved` with a bias, which is added while the products are in cache."""
    result = convolution.convolve(x.array, weight.array, frame, groups, bias.array)
    name = "ConvolutionBackward0"
    return _recorded(name, result, x, weight, _biased_vjp, frame, groups, bias)


def _biased_vjp(node: Any, g: Tensor) -> Any:
    gradients, channels = _convolved_vjp(node, g), g._expr.shape[1]
    if not node.needs_input_grad[2]:
        return *gradients, None
    if is_grad_enabled() or interpreters or g._wrapper is not None:
        return *gradients, g.sum((0, 2, 3))
    array = summed_to(g._expr, (channels, 1, 1))  # now: a sum that waits would keep the cotangent
    return *gradients, from_array(array.reshape(channels), g.dtype)


def _convolved_vjp(node: Any, g: Tensor) -> Any:
    x, weight = node.saved_values
    g_x = g_weight = None
    if all(node.needs_input_grad[:2]):
        g = _in_order(g, node.frame)
    if node.needs_input_grad[0]:
        g_x = _input_gradient(g, _conj(weight), node.frame, node.groups)
    if node.needs_input_grad[1]:
        g_weight = _weight_gradient(_conj(x), g, node.frame, node.groups)
    return g_x, g_weight


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


_SECOND = "ConvolutionBackwardBackward0"


@op
def _input_gradient(g: Tensor, weight: Tensor, frame: Frame, groups: int) -> Tensor:
    result = _computed("input", convolution.input_gradient, g, weight, frame, groups)
    if result is None:
        return volumes_input_gradient(g, weight, frame, groups)
    return _recorded(_SECOND, result, g, weight, _input_gradient_vjp, frame, groups)


@batching(_convolved, _input_gradient)
def _convolved_batched(
    level: Batch, f: Any, x: Tensor, weight: Tensor, frame: Frame, groups: int
) -> Any:
    """The examples as one batch; with filters of their own, as groups that see no other."""
    n, c, size = frame.shape[0], frame.shape[1], level.size
    if not level.holds(weight):
        return level.parted(f(level.joined(x), weight, frame.of(size * n), groups), n)
    images, filters = _as_groups(level, x), _as_filters(level, weight)
    return _from_groups(level, f(images, filters, frame.of(n, size * c), groups * size))


def _input_gradient_vjp(node: Any, u: Tensor) -> Any:
    g, weight = node.saved_values
    u_g = u_weight = None
    if node.needs_input_grad[0]:
        u_g = _convolved(u, _conj(weight), node.frame, node.groups)
    if node.needs_input_grad[1]:
        u_weight = _weight_gradient(u, _conj(g), node.frame, node.groups)
    return u_g, u_weight


@op
def _weight_gradient(x: Tensor, g: Tensor, frame: Frame, groups: int) -> Tensor:
    result = _computed("weight", convolution.weight_gradient, x, g, frame, groups)
    if result is None:
        return _volumes_weight_gradient(x, g, frame, groups)
    return _recorded(_SECOND, result, x, g, _weight_gradient_vjp, frame, groups)


def _weight_gradient_vjp(node: Any, v: Tensor) -> Any:
    x, g = node.saved_values
    v_x = v_g = None
    if node.needs_input_grad[0]:
        v_x = _input_gradient(_conj(g), v, node.frame, node.groups)
    if node.needs_input_grad[1]:
        v_g = _convolved(_conj(x), v, node.frame, node.groups)
    return v_x, v_g


@batching(_weight_gradient)
def _weight_gradient_batched(
    level: Batch, f: Any, x: Tensor, g: Tensor, frame: Frame, groups: int
) -> Any:
    images, cotangents = _as_groups(level, x), _as_groups(level, g)
    frame = frame.of(frame.shape[0], level.size * frame.shape[1])
    filters = f(images, cotangents, frame, groups * level.size)
    return level.wrap(filters.reshape((level.size, g.shape[1], *filters.shape[1:])))


for _vjp, _map in (
    (_convolved_vjp, _convolved),
    (_input_gradient_vjp, _input_gradient),
    (_weight_gradient_vjp, _weight_gradient),
):
    jvp(_vjp)(lambda call, f=_map: call.bilinear(f, "frame", "groups"))


def _conj(x: Tensor) -> Tensor:
    return x.conj_physical() if x._expr.program.dtype.is_complex else x


def _in_order(g: Tensor, frame: Frame) -> Tensor:
    """A cotangent that both gradients read without copying it once more."""
    order = convolution.memory_order(frame, g.device)
    if g._wrapper is None and g.array.transpose(order).flags.c_contiguous:
        return g
    return g.permute(order).contiguous().permute(inverse(order))


# --- volumes: images whose channels are the slices under a filter's depth ------------------------

# No copy runs along three axes, and the gradients are those of what these are made of.


def _convolved_volumes(x: Tensor, weight: Tensor, frame: Frame, groups: int) -> Tensor:
    """Convolution of volumes (n, c, d, h, w) with filters (o, c // groups, kd, kh, kw)."""
    outputs, channels, deep, *kernel = weight.shape
    images, slices, frame = _images(x, frame)
    filters = weight.reshape(outputs, channels * deep, *kernel)
    convolved = _convolved(images, filters, frame, groups)
    return convolved.reshape(x.shape[0], slices, *convolved.shape[1:]).transpose(1, 2)


def volumes_input_gradient(g: Tensor, weight: Tensor, frame: Frame, groups: int) -> Tensor:
    """Its gradient by volumes: each slice gives a filter's depth of slices."""
    n, c, depth, h, w = g.shape
    _, channels, deep, tall, wide = frame.shape
    images = leads_back(g.transpose(1, 2).reshape(n * depth, c, h, w), (0, 2, 1, 3, 4))
    filters = weight.reshape(c, weight.shape[1] * weight.shape[2], *weight.shape[3:])
    stacked = channels * weight.shape[2]
    whole = frame_of((n * depth, stacked, tall, wide), frame.window.over_images())
    slices = _input_gradient(images, filters, whole, groups)
    columns = slices.reshape(n, depth, stacked, tall * wide).transpose(1, 2)
    columns = columns.reshape(n, stacked, depth * tall * wide)
    folded = windows._folded(columns, (channels, deep, tall * wide), frame.window.over_depth())
    return folded.reshape(frame.shape)


def _volumes_weight_gradient(x: Tensor, g: Tensor, frame: Frame, groups: int) -> Tensor:
    """Its gradient by filters, for cotangents (n, o, od, oh, ow)."""
    images, slices, of_images = _images(x, frame)
    cotangents = g.transpose(1, 2).reshape(x.shape[0] * slices, g.shape[1], *g.shape[3:])
    gradient = _weight_gradient(images, cotangents, of_images, groups)
    return gradient.reshape(g.shape[1], x.shape[1] // groups, *frame.window.kernel)


def _images(x: Tensor, frame: Frame) -> tuple[Tensor, int, Frame]:
    """For each place of the filter along the depth an image with the slices under it."""
    n, c, depth, h, w = x.shape
    seen = windows._unfolded(x.reshape(n, c, depth, h * w), frame.window.over_depth())
    slices, stacked = seen.shape[-1] // (h * w), c * frame.window.kernel[0]
    shape = (n * slices, stacked, h, w)
    images = seen.reshape(n, stacked, slices, h, w).transpose(1, 2).reshape(shape)
    return images, slices, frame_of(shape, frame.window.over_images())
