"""Gradients of convolutions as functions of shapes: ``nn.grad.conv2d_input`` and so on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lucid_gpu.autograd.grad import grad
from lucid_gpu.nn import functional as F
from lucid_gpu.ops.convolution import of_rank
from lucid_gpu.tape.modes import enable_grad, is_grad_enabled
from lucid_gpu.tensor import Tensor

__all__ = [
    "conv1d_input",
    "conv1d_weight",
    "conv2d_input",
    "conv2d_weight",
    "conv3d_input",
    "conv3d_weight",
]

_INPUT = """The gradient of a convolution with respect to its input, of shape ``input_size``.

    Parameters
    ----------
    input_size : sequence of int
        ``(n, c, {size})``.
    weight, grad_output : Tensor
        The filters, and a cotangent of the result's shape.
    stride, padding, dilation, groups
        See `nn.functional.conv{rank}d`; raises the same errors.

    Raises
    ------
    RuntimeError
        For shapes that do not fit together.
    """

_WEIGHT = """The gradient of a convolution with respect to its filters, of shape ``weight_size``.

    Parameters
    ----------
    input : Tensor, shape (n, c, {size})
    weight_size : sequence of int
        ``(out, c / groups, ...)``.
    grad_output : Tensor
        A cotangent of the result's shape.
    stride, padding, dilation, groups
        See `nn.functional.conv{rank}d`; raises the same errors.

    Raises
    ------
    RuntimeError
        For shapes that do not fit together.
    """


def _of_rank(rank: int) -> tuple[Callable[..., Tensor], Callable[..., Tensor]]:
    convolution = getattr(F, f"conv{rank}d")

    def of_input(
        input_size: Sequence[int],
        weight: Tensor,
        grad_output: Tensor,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Tensor:
        settings = stride, padding, dilation, groups
        return _gradient(lambda x: convolution(x, weight, None, *settings), input_size, grad_output)

    def of_weight(
        input: Tensor,
        weight_size: Sequence[int],
        grad_output: Tensor,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Tensor:
        settings = stride, padding, dilation, groups
        return _gradient(lambda w: convolution(input, w, None, *settings), weight_size, grad_output)

    return tuple(
        of_rank(function, f"conv{rank}d_{what}", doc.replace("{rank}", str(rank)), rank)
        for function, what, doc in ((of_input, "input", _INPUT), (of_weight, "weight", _WEIGHT))
    )  # type: ignore[return-value]


def _gradient(function: Callable[[Tensor], Tensor], size: Sequence[int], g: Tensor) -> Tensor:
    """The gradient of a linear map: it does not matter where it is taken."""
    wanted = is_grad_enabled()
    with enable_grad():
        x = g.new_zeros(tuple(size))._mark()
        (gradient,) = grad(function(x), x, g, create_graph=wanted)
    return gradient


conv1d_input, conv1d_weight = _of_rank(1)
conv2d_input, conv2d_weight = _of_rank(2)
conv3d_input, conv3d_weight = _of_rank(3)
