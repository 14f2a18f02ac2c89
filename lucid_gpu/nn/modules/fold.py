"""Windows as columns, and back."""

from __future__ import annotations

from typing import Any

from lucid_gpu.nn import functional as F
from lucid_gpu.nn.modules.module import Module
from lucid_gpu.tensor import Tensor

__all__ = ["Fold", "Unfold"]


class Unfold(Module):
    """Every window of every image as a column.

    From shape (n, c, h, w) to shape (n, c * kh * kw, positions), or both without n.

    Parameters
    ----------
    kernel_size, dilation, padding, stride : int or pair of int
    """

    def __init__(
        self, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
    ) -> None:
        super().__init__()
        self.kernel_size, self.dilation = kernel_size, dilation
        self.padding, self.stride = padding, stride

    def forward(self, input: Tensor) -> Tensor:
        return F.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, dilation={self.dilation}, padding={self.padding}, "
            f"stride={self.stride}"
        )


class Fold(Module):
    """Add columns onto images.

    From shape (n, c * kh * kw, positions) to shape (n, c, *output_size), or both without n.

    Parameters
    ----------
    output_size : int or pair of int
    kernel_size, dilation, padding, stride : int or pair of int
    """

    def __init__(
        self,
        output_size: Any,
        kernel_size: Any,
        dilation: Any = 1,
        padding: Any = 0,
        stride: Any = 1,
    ) -> None:
        super().__init__()
        self.output_size, self.kernel_size, self.dilation = output_size, kernel_size, dilation
        self.padding, self.stride = padding, stride

    def forward(self, input: Tensor) -> Tensor:
        return F.fold(
            input, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride
        )

    def extra_repr(self) -> str:
        return (
            f"output_size={self.output_size}, kernel_size={self.kernel_size}, "
            f"dilation={self.dilation}, padding={self.padding}, stride={self.stride}"
        )
