"""The windows of images as columns of a tensor, and columns added back onto images."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from lucid_gpu.kernels import im2col
from lucid_gpu.kernels.windows import Pair, Window, frame_of
from lucid_gpu.ops.arguments import as_ints, require_tensor
from lucid_gpu.ops.record import record
from lucid_gpu.tape.door import op
from lucid_gpu.tape.rules import Batch, batching
from lucid_gpu.tensor import Tensor

__all__ = ["fold", "unfold"]


@op
def unfold(
    input: Tensor, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> Tensor:
    """Every window of every image as a column (im2col).

    Parameters
    ----------
    input : Tensor, shape (n, c, h, w) or (c, h, w)
    kernel_size, dilation, padding, stride : int or pair of int

    Returns
    -------
    Tensor, shape (n, c * kh * kw, positions) or (c * kh * kw, positions)

    Raises
    ------
    RuntimeError
        For another rank, settings out of range, or a window larger than the padded image.
    """
    require_tensor("unfold", "input", 1, input)
    window = _window(kernel_size, dilation, padding, stride)
    shape = input._expr.shape
    if len(shape) not in (3, 4) or 0 in shape[-3:]:
        raise RuntimeError(
            "Expected 3D or 4D (batch mode) tensor with possibly 0 batch size and other non-zero "
            f"dimensions for input, but got: {list(shape)}"
        )
    steps = frame_of((1, 1, *shape[-2:]), window).steps
    if min(steps) < 1:
        raise RuntimeError(
            f"Given input with spatial size {shape[-2:]}, {_text(window)}, calculated "
            f"shape of the array of sliding blocks as {steps}, but its components must be at least "
            "one."
        )
    if len(shape) == 3:
        return _unfolded(input.unsqueeze(0), window).squeeze(0)
    return _unfolded(input, window)


@op
def fold(
    input: Tensor,
    output_size: Any,
    kernel_size: Any,
    dilation: Any = 1,
    padding: Any = 0,
    stride: Any = 1,
) -> Tensor:
    """Add columns onto images (col2im): the adjoint of `unfold`.

    Parameters
    ----------
    input : Tensor, shape (n, c * kh * kw, positions) or (c * kh * kw, positions)
    output_size : int or pair of int
        ``(h, w)`` of the images.
    kernel_size, dilation, padding, stride : int or pair of int

    Returns
    -------
    Tensor, shape (n, c, h, w) or (c, h, w)

    Raises
    ------
    RuntimeError
        If the columns are not those of such images.
    TypeError
        For sizes that are not whole numbers.
    """
    require_tensor("fold", "input", 1, input)
    size = _pair(output_size, "output_size")
    window = _window(kernel_size, dilation, padding, stride)
    if input.ndim not in (2, 3) or 0 in input.shape[-2:]:
        raise RuntimeError(
            "Expected 2D or 3D (batch mode) tensor for input with possibly 0 batch size and "
            f"non-zero dimensions for input, but got: {list(input.shape)}"
        )
    down, across = window.kernel
    rows, positions = input.shape[-2:]
    if rows % (down * across):
        raise RuntimeError(
            f"Expected size of input's dimension {input.ndim - 2} to be divisible by the product "
            f"of kernel_size, but got input.size({input.ndim - 2})={rows} and "
            f"kernel_size={window.kernel}."
        )
    steps = window.steps(size)
    if min(steps) < 1:
        raise RuntimeError(
            f"Given output_size={size}, {_text(window)}, stride={window.stride}, calculated shape "
            f"of the array of sliding blocks as {steps}, which is too small (non-positive)"
        )
    if steps[0] * steps[1] != positions:
        raise RuntimeError(
            f"Given output_size={size}, {_text(window)}, stride={window.stride}, expected size of "
            f"input's dimension {input.ndim - 1} to match the calculated number of sliding blocks "
            f"{steps[0]} * {steps[1]} = {steps[0] * steps[1]}, but got "
            f"input.size({input.ndim - 1})={positions}."
        )
    channels = rows // (down * across)
    if input.ndim == 2:
        return _folded(input.unsqueeze(0), (channels, *size), window).squeeze(0)
    return _folded(input, (channels, *size), window)


@batching(unfold, fold)
def _columns_batched(level: Batch, f: Any, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    rank = 4 if f is unfold else 3  # of a batch
    if x.ndim == rank:
        return level.parted(f(level.joined(x), *args, **kwargs), x.shape[0])
    if x.ndim == rank - 1:
        return level.wrap(f(level.value(x), *args, **kwargs))
    return NotImplemented


@op
def _unfolded(x: Tensor, window: Window) -> Tensor:
    frame = frame_of(x._expr.shape, window)
    return record(
        "Im2ColBackward0",
        im2col.im2col(x.array, frame, im2col.IMAGE_FIRST),
        (x,),
        _unfolded_vjp,
        dtype=x._expr.program.dtype,
        image=frame.shape[1:],
        window=window,
    )


def _unfolded_vjp(node: Any, g: Tensor) -> Any:
    return (_folded(g, node.image, node.window),)


@op
def _folded(columns: Tensor, image: tuple[int, ...], window: Window) -> Tensor:
    frame = frame_of((columns._expr.shape[0], *image), window)
    return record(
        "Col2ImBackward0",
        im2col.col2im(columns.array, frame, im2col.IMAGE_FIRST),
        (columns,),
        _folded_vjp,
        dtype=columns._expr.program.dtype,
        image=image,
        window=window,
    )


def _folded_vjp(node: Any, g: Tensor) -> Any:
    return (_unfolded(g, node.window),)


def _window(*settings: Any) -> Window:
    numbers = all(type(value) is int for value in settings)
    return (_window_of_numbers if numbers else _window_of)(*settings)


def _window_of(kernel: Any, dilation: Any, padding: Any, stride: Any) -> Window:
    window = Window(
        _pair(kernel, "kernel_size"),
        _pair(stride, "stride"),
        _pair(padding, "padding"),
        _pair(dilation, "dilation"),
    )
    for name, least, (down, across) in (
        ("kernel", 1, window.kernel),
        ("dilation", 1, window.dilation),
        ("stride", 1, window.stride),
        ("pad", 0, window.padding),
    ):
        if min(down, across) < least:
            what = "padding" if name == "pad" else "kernel size" if name == "kernel" else name
            need = "non-negative" if least == 0 else "greater than zero"
            raise RuntimeError(
                f"{what} should be {need}, but got {name}_height: {down} {name}_width: {across}"
            )
    return window


_window_of_numbers = functools.lru_cache(maxsize=1 << 10)(_window_of)


def _pair(value: Any, name: str) -> Pair:
    values = tuple(value) if isinstance(value, Sequence) else (value, value)
    if len(values) == 1:
        values = values * 2
    if len(values) != 2:
        raise RuntimeError(f"It is expected {name} equals to 2, but got size {len(values)}")
    pair = as_ints(values)
    if pair is None:
        raise TypeError(f"{name} must be an int or a pair of ints, got {value!r}")
    return pair[0], pair[1]


def _text(window: Window) -> str:
    return f"kernel_size={window.kernel}, dilation={window.dilation}, padding={window.padding}"
