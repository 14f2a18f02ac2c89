"""Convolution, differentiable any number of times.

Three bilinear maps are each other's gradients: `_convolved` (images, filters), `_input_gradient`
(cotangents, filters) and `_weight_gradient` (images, cotangents).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lucid_gpu.kernels import convolution
from lucid_gpu.kernels.windows import Frame, Pair, Window, inverse
from lucid_gpu.ops.arguments import require_tensor
from lucid_gpu.ops.record import record
from lucid_gpu.tensor import Tensor, from_array

__all__ = ["conv1d", "conv2d"]


def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    r"""Cross-correlation of signals with a bank of filters: `conv2d` with one axis less.

    Parameters
    ----------
    input : Tensor, shape (n, c, w) or (c, w)
    weight : Tensor, shape (o, c // groups, kw)
    bias : Tensor, shape (o,), optional
    stride, padding, dilation : int or tuple of one
        ``padding`` may also be ``"valid"`` or ``"same"``.
    groups : int
        Channels are split into so many groups that do not see one another.

    Returns
    -------
    Tensor, shape (n, o, ow) or (o, ow)

    Raises
    ------
    RuntimeError
        Where shapes, dtypes or settings do not fit together.
    """
    return _convolution(1, input, weight, bias, stride, padding, dilation, groups)


def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    r"""Cross-correlation of images with a bank of filters.

    ``out[n, o, y, x] = bias[o] + sum_{c, i, j} weight[o, c, i, j] *
    input[n, c, y * stride + i * dilation - padding, x * stride + j * dilation - padding]``

    Parameters
    ----------
    input : Tensor, shape (n, c, h, w) or (c, h, w)
    weight : Tensor, shape (o, c // groups, kh, kw)
    bias : Tensor, shape (o,), optional
    stride, padding, dilation : int or pair of int
        ``padding`` may also be ``"valid"`` (none) or ``"same"`` (the output is as large as the
        input; stride 1).
    groups : int
        Channels are split into so many groups that do not see one another.

    Returns
    -------
    Tensor, shape (n, o, oh, ow) or (o, oh, ow)

    Raises
    ------
    RuntimeError
        Where shapes, dtypes or settings do not fit together.
    """
    return _convolution(2, input, weight, bias, stride, padding, dilation, groups)


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
    _check_ranks(rank, input, weight)
    whole = input if input.ndim == weight.ndim else input.unsqueeze(0)
    _check(whole, weight, bias, groups)
    window = _window(weight.shape[2:], stride, padding, dilation)
    _check_size(whole, window)
    images, filters = whole, weight
    if rank == 1:
        images, filters = whole.unsqueeze(2), weight.unsqueeze(2)
    result = _convolved(images, filters, window, groups)
    if rank == 1:
        result = result.squeeze(2)
    if bias is not None:
        result = result + bias.reshape(-1, *[1] * rank)
    return result if whole is input else result.squeeze(0)


# --- the three maps -------------------------------------------------------------------------------


def _convolved(x: Tensor, weight: Tensor, window: Window, groups: int) -> Tensor:
    frame = Frame(x.shape, window)
    array, columns = convolution.convolve(x.array, weight.array, frame, groups)
    kept = None
    if columns is not None and weight.requires_grad:
        kept = from_array(columns, x.dtype, x.device)
    return record(
        "ConvolutionBackward0",
        array,
        (x, weight),
        _convolved_vjp,
        (x if weight.requires_grad else None, weight if x.requires_grad else None, kept),
        x.dtype,
        shape=frame.shape,
        window=window,
        groups=groups,
    )


def _convolved_vjp(node: Any, g: Tensor) -> Any:
    x, weight, columns = node.saved_tensors
    g_x = g_weight = None
    if all(node.needs_input_grad):
        g = _in_order(g, Frame(node.shape, node.window))
    if node.needs_input_grad[0]:
        g_x = _input_gradient(g, _conj(weight), node.shape, node.window, node.groups)
    if node.needs_input_grad[1]:
        if columns is not None and x.dtype.is_complex:
            columns = None
        g_weight = _weight_gradient(_conj(x), g, node.window, node.groups, columns)
    return g_x, g_weight


def _input_gradient(
    g: Tensor, weight: Tensor, shape: tuple[int, ...], window: Window, groups: int
) -> Tensor:
    return record(
        "ConvolutionBackwardBackward0",
        convolution.input_gradient(g.array, weight.array, Frame(shape, window), groups),
        (g, weight),
        _input_gradient_vjp,
        (g if weight.requires_grad else None, weight if g.requires_grad else None),
        g.dtype,
        shape=shape,
        window=window,
        groups=groups,
    )


def _input_gradient_vjp(node: Any, u: Tensor) -> Any:
    g, weight = node.saved_tensors
    u_g = u_weight = None
    if node.needs_input_grad[0]:
        u_g = _convolved(u, _conj(weight), node.window, node.groups)
    if node.needs_input_grad[1]:
        u_weight = _weight_gradient(u, _conj(g), node.window, node.groups)
    return u_g, u_weight


def _weight_gradient(
    x: Tensor, g: Tensor, window: Window, groups: int, columns: Tensor | None = None
) -> Tensor:
    frame, kept = Frame(x.shape, window), None if columns is None else columns.array
    return record(
        "ConvolutionBackwardBackward0",
        convolution.weight_gradient(x.array, g.array, frame, groups, kept),
        (x, g),
        _weight_gradient_vjp,
        (x if g.requires_grad else None, g if x.requires_grad else None),
        g.dtype,
        shape=frame.shape,
        window=window,
        groups=groups,
    )


def _weight_gradient_vjp(node: Any, v: Tensor) -> Any:
    x, g = node.saved_tensors
    v_x = v_g = None
    if node.needs_input_grad[0]:
        v_x = _input_gradient(_conj(g), v, node.shape, node.window, node.groups)
    if node.needs_input_grad[1]:
        v_g = _convolved(_conj(x), v, node.window, node.groups)
    return v_x, v_g


def _conj(x: Tensor) -> Tensor:
    return x.conj_physical() if x.dtype.is_complex else x


def _in_order(g: Tensor, frame: Frame) -> Tensor:
    """A cotangent that both gradients read without copying it once more."""
    order = convolution.memory_order(frame, g.device)
    return g.permute(order).contiguous().permute(inverse(order))


# --- what is refused ------------------------------------------------------------------------------


def _check_ranks(rank: int, input: Tensor, weight: Tensor) -> None:
    if input.ndim not in (rank + 1, rank + 2) or weight.ndim != rank + 2:
        raise RuntimeError(
            f"Expected {rank + 1}D (unbatched) or {rank + 2}D (batched) input to conv{rank}d, but "
            f"got input of size: {list(input.shape)}, with weight of size {list(weight.shape)}"
        )


def _check(input: Tensor, weight: Tensor, bias: Tensor | None, groups: int) -> None:
    if groups < 1:
        raise RuntimeError("non-positive groups is not supported")
    if weight.shape[0] < groups or weight.shape[0] % groups:
        raise RuntimeError(
            f"Given groups={groups}, expected weight to be at least {groups} at dimension 0 and "
            f"divisible by groups={groups}, but got weight of size {list(weight.shape)} instead"
        )
    if input.shape[1] != weight.shape[1] * groups:
        raise RuntimeError(
            f"Given groups={groups}, weight of size {list(weight.shape)}, expected "
            f"input{list(input.shape)} to have {weight.shape[1] * groups} channels, but got "
            f"{input.shape[1]} channels instead"
        )
    if bias is not None and tuple(bias.shape) != (weight.shape[0],):
        raise RuntimeError(
            f"Given weight of size {list(weight.shape)}, expected bias to be 1-dimensional with "
            f"{weight.shape[0]} elements, but got bias of size {list(bias.shape)} instead"
        )
    for name, other in (("weight", weight), ("bias", bias)):
        if other is not None and other.dtype is not input.dtype:
            raise RuntimeError(
                f"Input type ({input.dtype}) and {name} type ({other.dtype}) should be the same"
            )
        if other is not None and other.device != input.device:
            raise RuntimeError(
                f"Expected all tensors to be on the same device, but the input is on "
                f"{input.device} and the {name} on {other.device}"
            )


def _check_size(input: Tensor, window: Window) -> None:
    rank = input.ndim - 2
    image = (1, *input.shape[2:])[-2:]
    if min(window.steps(image)) < 1:
        padded, reach = (
            " x ".join(map(str, sizes[-rank:])) for sizes in (window.padded(image), window.reach())
        )
        raise RuntimeError(
            f"Calculated padded input size per channel: ({padded}). Kernel size: ({reach}). "
            "Kernel size can't be greater than actual input size"
        )


def _window(kernel: Sequence[int], stride: Any, padding: Any, dilation: Any) -> Window:
    rank = len(kernel)
    strides = _setting(stride, "stride", rank)
    dilations = _setting(dilation, "dilation", rank)
    if min(strides) < 1:
        raise RuntimeError("non-positive stride is not supported")
    if min(dilations) < 1:
        raise RuntimeError(
            f"dilation should be greater than zero, but got {list(dilations[-rank:])}"
        )
    reach = Window(_two(kernel, 1), dilation=dilations).reach()
    if not isinstance(padding, str):
        around, beyond = _setting(padding, "padding", rank, fill=0), (0, 0)
        if min(around) < 0:
            raise RuntimeError("negative padding is not supported")
    elif padding == "valid":
        around = beyond = (0, 0)
    elif padding == "same":
        if max(strides) > 1:
            raise RuntimeError("padding='same' is not supported for strided convolutions")
        around = ((reach[0] - 1) // 2, (reach[1] - 1) // 2)
        beyond = ((reach[0] - 1) % 2, (reach[1] - 1) % 2)  # PyTorch's sides: below and right
    else:
        raise RuntimeError(f"Invalid padding string: '{padding}'; write 'same' or 'valid'")
    return Window(_two(kernel, 1), strides, around, dilations, beyond)


def _setting(value: Any, name: str, rank: int, fill: int = 1) -> Pair:
    """An int, or one for each axis, as a pair; signals have a first axis of length 1."""
    values = tuple(value) if isinstance(value, Sequence) else (value,) * rank
    if len(values) == 1:
        values = values * rank
    if len(values) != rank or not all(isinstance(v, int) for v in values):
        got = list(values) if isinstance(value, Sequence) else repr(value)
        raise RuntimeError(
            f"expected {name} to be a single integer value or a list of {rank} values to match the "
            f"convolution dimensions, but got {name}={got}"
        )
    return _two(values, fill)


def _two(values: Sequence[int], fill: int) -> Pair:
    return (values[0], values[1]) if len(values) == 2 else (fill, values[0])
