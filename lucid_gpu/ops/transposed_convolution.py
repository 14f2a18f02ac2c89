"""Transposed convolution: the gradient of a convolution by its input, as a layer of its own.

Dumoulin and Visin, "A guide to convolution arithmetic for deep learning" (2016), section 4.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucid_gpu.kernels.convolution import takes_volumes
from lucid_gpu.kernels.windows import Window, frame_of
from lucid_gpu.ops import convolution
from lucid_gpu.ops.arguments import require_tensor
from lucid_gpu.ops.memory_formats import led_in
from lucid_gpu.ops.padding import pad
from lucid_gpu.ops.record import leads_back
from lucid_gpu.ops.sliding import (
    Sizes,
    check_bias,
    check_channels,
    check_groups,
    check_kinds,
    check_ranks,
    setting,
    window_of,
)
from lucid_gpu.tape.door import op
from lucid_gpu.tensor import Tensor

__all__ = ["conv_transpose1d", "conv_transpose2d", "conv_transpose3d"]

_DOC = """Filters put onto each place of {what}, and added up: the adjoint of `conv{rank}d`.

    ``out[n, o, p * stride + i * dilation - padding] += weight[c, o, i] * input[n, c, p]``, and
    ``bias[o]``, with a place ``p`` and a place in the window ``i`` along each of the {rank} axes.

    Parameters
    ----------
    input : Tensor, shape (n, c, {size}) or (c, {size})
    weight : Tensor, shape (c, o // groups, {kernel})
    bias : Tensor, shape (o,), optional
    stride, padding, dilation : int or {rank} of them
        Those of the convolution whose adjoint this is: padding makes the output smaller.
    output_padding : int or {rank} of them
        Makes the output larger on one side; less than stride or dilation.
    groups : int
        The channels are split into this many independent groups.

    Returns
    -------
    Tensor, shape (n, o, ...) or (o, ...)
        ``(size - 1) * stride - 2 * padding + dilation * (kernel - 1) + output_padding + 1`` along
        each axis.

    Raises
    ------
    RuntimeError
        Where shapes, dtypes or settings do not fit together.
    TypeError
        For a padding by name.
    """


def _of_rank(rank: int) -> Callable[..., Tensor]:
    @op(autocast="lower")
    def conv_transpose(
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        dilation: Any = 1,
    ) -> Tensor:
        name = f"conv_transpose{rank}d"
        require_tensor(name, "input", 1, input)
        check_ranks(name, rank, input._expr.shape, weight._expr.shape)
        whole = input if input.ndim == weight.ndim else input.unsqueeze(0)
        _check(whole, weight, bias, groups)
        window = _window(weight._expr.shape[2:], stride, padding, dilation)
        more = _output_padding(output_padding, window)
        order = convolution.order_of_result(whole, weight, groups)
        result = _spread(whole, weight, window, more, groups, order)
        return convolution.finished(result, bias, order, whole is input)

    return convolution.of_rank(conv_transpose, f"conv_transpose{rank}d", _DOC, rank)


conv_transpose1d, conv_transpose2d, conv_transpose3d = (_of_rank(rank) for rank in (1, 2, 3))

FUNCTIONS = (conv_transpose1d, conv_transpose2d, conv_transpose3d)


def _spread(
    x: Tensor,
    weight: Tensor,
    window: Window,
    more: Sizes,
    groups: int,
    order: tuple[int, ...] | None,
) -> Tensor:
    """The adjoint of a convolution; ``more`` is what its stride left over behind each axis."""
    size = tuple(
        [
            (n - 1) * s - 2 * p + r + m
            for n, s, p, r, m in zip(
                x.shape[2:], window.stride, window.padding, window.reach(), more, strict=True
            )
        ]
    )
    _check_size(x, size)
    if any(m >= s for m, s in zip(more, window.stride, strict=True)):  # dilation may leave so much
        none = (0,) * len(size)
        uncut = _spread(x, weight, window._replace(padding=none), none, groups, order)
        ends = zip(reversed(window.padding), reversed(more), strict=True)
        return pad(uncut, [n for p, m in ends for n in (-p, m - p)])
    whole = (x.shape[0], weight.shape[1] * groups, *size)
    if len(size) == 1:
        frame = frame_of((*whole[:2], 1, *size), window.over_images())
        images = convolution._input_gradient(x.unsqueeze(2), weight.unsqueeze(2), frame, groups)
        return images.squeeze(2)
    frame = frame_of(whole, window)
    if len(size) == 2 or takes_volumes(x.device, x.dtype.name):
        return leads_back(convolution._input_gradient(x, weight, frame, groups), order)
    x, weight = led_in(x, order), led_in(weight, order)
    return convolution.volumes_input_gradient(x, weight, frame, groups)


# --- what is refused ------------------------------------------------------------------------------


def _check(input: Tensor, weight: Tensor, bias: Tensor | None, groups: int) -> None:
    size, filters = input._expr.shape, weight._expr.shape
    check_groups(filters, groups)
    intro = f"Given transposed=1, weight of size {list(filters)}"
    check_channels(intro, size, filters[0])
    check_bias(intro, None if bias is None else bias._expr.shape, filters[1] * groups)
    check_kinds(input, weight, bias)


def _window(kernel: Sizes, stride: Any, padding: Any, dilation: Any) -> Window:
    rank = len(kernel)
    if isinstance(padding, str):
        raise TypeError(
            f"conv_transpose{rank}d(): argument 'padding' must be tuple of ints, not str"
        )
    names = {"stride": stride, "padding": padding, "dilation": dilation}
    return window_of(kernel, *[setting(value, name, rank) for name, value in names.items()])


def _output_padding(value: Any, window: Window) -> Sizes:
    more = setting(value, "output_padding", len(window.kernel))
    if min(more) < 0:
        raise RuntimeError("negative output_padding is not supported")
    if any(m >= max(s, d) for m, s, d in zip(more, window.stride, window.dilation, strict=True)):
        raise RuntimeError(
            "output padding must be smaller than either stride or dilation, but got "
            f"output_padding={list(more)}, stride={list(window.stride)}, "
            f"dilation={list(window.dilation)}"
        )
    return more


def _check_size(x: Tensor, size: Sizes) -> None:
    if min(size) < 1:
        input_size, output_size = ("x".join(map(str, s)) for s in (x.shape[2:], size))
        raise RuntimeError(
            f"Given input size per channel: ({input_size}). Calculated output size per channel: "
            f"({output_size}). Output size is too small"
        )
