"""Convolution as a matrix product over the windows of an image.

`unfold` writes every window of a padded image as a column; `fold` adds columns back onto the image.
The two are adjoint linear maps, so each is the other's gradient, and whatever is built of them and
of matrix products can be differentiated any number of times.

The batch is the innermost axis of the columns wherever it is at least as long as a row: copies then
run over long contiguous stretches (a quarter of the time of channel-first order on a CPU), and a
batch that stays in that memory order from layer to layer is never transposed.
"""

from __future__ import annotations

from typing import Any

from lucid_gpu.devices import room, xp_of
from lucid_gpu.ops.record import record
from lucid_gpu.ops.windows import Frame, Pair, Window, inverse, pair
from lucid_gpu.tensor import Tensor

__all__ = ["conv2d", "fold", "unfold"]


def unfold(input: Tensor, window: Window) -> Tensor:
    """Every window of every image as a column.

    Parameters
    ----------
    input : Tensor, shape (n, c, h, w)
    window : Window

    Returns
    -------
    Tensor, shape (c * kh * kw, columns)
        A column for each window of each image, ordered as `fold` knows.
    """
    shape = tuple(input.shape)
    frame = Frame(shape, window)
    order = _Order(frame)
    image = frame.laid(input, order.images)
    view = frame.windows(xp_of(input), image).transpose(order.columns)
    columns = room(input.device).empty(view.shape, input.dtype, input.device)
    columns[...] = view
    return record(
        "UnfoldBackward0",
        columns.reshape(order.flat),
        (input,),
        lambda node, g: (fold(g, shape, window),),
    )


def fold(columns: Tensor, shape: tuple[int, ...], window: Window) -> Tensor:
    """Add the columns of `unfold` onto images.

    Parameters
    ----------
    columns : Tensor, shape (c * kh * kw, columns)
    shape : tuple of int
        ``(n, c, h, w)`` of the images.
    window : Window

    Returns
    -------
    Tensor, shape (n, c, h, w)
    """
    frame = Frame(shape, window)
    order = _Order(frame)
    image = frame.filled(columns, 0, order.images)
    parts = order.windows(columns.array)
    for (i, j), pixels in window.slices(frame.steps):
        image[pixels] += parts[:, :, i, j]
    return record(
        "FoldBackward0", image[frame.inside], (columns,), lambda node, g: (unfold(g, window),)
    )


class _Order:
    """In which order images and columns lie in memory (see the head of this file)."""

    def __init__(self, frame: Frame) -> None:
        (n, c), (kh, kw), (oh, ow) = frame.shape[:2], frame.window.kernel, frame.steps
        self.flat = (c * kh * kw, oh * ow * n)
        self.sizes = (n, c, kh, kw, oh, ow)
        self.batch_last = n >= ow
        self.images = (1, 2, 3, 0) if self.batch_last else (1, 0, 2, 3)
        self.columns = (1, 2, 3, 4, 5, 0) if self.batch_last else (1, 2, 3, 0, 4, 5)

    def windows(self, columns: Any) -> Any:
        """An array of columns seen as ``(n, c, kh, kw, oh, ow)``."""
        laid = columns.reshape([self.sizes[axis] for axis in self.columns])
        return laid.transpose(inverse(self.columns))

    def as_images(self, rows: Tensor) -> Tensor:
        """A tensor ``(o, columns)`` seen as images ``(n, o, oh, ow)``."""
        n, *_, oh, ow = self.sizes
        if self.batch_last:
            return rows.reshape(-1, oh, ow, n).permute(3, 0, 1, 2)
        return rows.reshape(-1, n, oh, ow).permute(1, 0, 2, 3)


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
        Where shapes or dtypes do not fit together.
    """
    if input.ndim == 3 and weight.ndim == 4:
        whole = conv2d(input.unsqueeze(0), weight, bias, stride, padding, dilation, groups)
        return whole.squeeze(0)
    _check(input, weight, bias, groups)
    kernel, dilation = pair(list(weight.shape[2:]), "kernel_size"), pair(dilation, "dilation")
    window = Window(kernel, pair(stride, "stride"), (0, 0), dilation)
    input, window = _with_padding(input, window, padding)
    columns, outputs = unfold(input, window), weight.shape[0]
    if groups == 1:
        product = weight.reshape(outputs, -1) @ columns
    else:
        split = columns.reshape(groups, -1, columns.shape[1])
        product = weight.reshape(groups, outputs // groups, -1) @ split
        product = product.reshape(outputs, -1)
    result = _Order(Frame(tuple(input.shape), window)).as_images(product)
    return result if bias is None else result + bias.reshape(-1, 1, 1)


def _with_padding(input: Tensor, window: Window, padding: Any) -> tuple[Tensor, Window]:
    if not isinstance(padding, str):
        return input, window._replace(padding=pair(padding, "padding"))
    if padding == "valid":
        return input, window
    if padding != "same":
        raise ValueError(f"padding must be an int, a pair, 'same' or 'valid', got {padding!r}")
    if window.stride != (1, 1):
        raise RuntimeError("padding='same' is not supported for strided convolutions")
    total = [d * (k - 1) for k, d in zip(window.kernel, window.dilation, strict=True)]
    window = window._replace(padding=(total[0] // 2, total[1] // 2))
    odd = total[0] % 2, total[1] % 2  # the side that PyTorch pads once more: below and right
    return (_pad_end(input, odd) if any(odd) else input), window


def _pad_end(input: Tensor, more: Pair) -> Tensor:
    """Zeros below and right of the images; `_crop_end` is the adjoint."""
    xp, array = xp_of(input), input.array
    n, c, h, w = array.shape
    padded = xp.zeros((n, c, h + more[0], w + more[1]), array.dtype)
    padded[:, :, :h, :w] = array
    return record("ConstantPadNdBackward0", padded, (input,), lambda node, g: (g[:, :, :h, :w],))


def _check(input: Tensor, weight: Tensor, bias: Tensor | None, groups: int) -> None:
    if input.ndim != 4 or weight.ndim != 4:
        raise RuntimeError(
            "Expected 3D (unbatched) or 4D (batched) input to conv2d, but got input of size: "
            f"{list(input.shape)}, with weight of size {list(weight.shape)}"
        )
    if groups < 1 or weight.shape[0] % groups:
        raise RuntimeError(
            f"expected weight to be at least {groups} at dimension 0 and divisible by "
            f"groups={groups}, but got weight of size {list(weight.shape)}"
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
