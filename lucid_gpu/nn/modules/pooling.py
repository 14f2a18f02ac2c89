"""Pooling layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucid_gpu.nn import functional as F
from lucid_gpu.nn.modules.module import Module
from lucid_gpu.tensor import Tensor

__all__ = ["AvgPool1d", "AvgPool2d", "MaxPool1d", "MaxPool2d"]


class _MaxPool(Module):
    """Settings of the largest number of each window; subclasses say over how many axes."""

    _pooled: Callable[..., Any]

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.dilation = padding, dilation
        self.return_indices, self.ceil_mode = return_indices, ceil_mode

    def forward(self, input: Tensor) -> Any:
        return self._pooled(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.dilation,
            self.ceil_mode,
            self.return_indices,
        )

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
            f"dilation={self.dilation}, ceil_mode={self.ceil_mode}"
        )


class MaxPool1d(_MaxPool):
    """The largest number of each window of a signal.

    Parameters
    ----------
    kernel_size, stride, padding, dilation : int or tuple of one
        ``stride`` is ``kernel_size`` by default.
    return_indices : bool
        Also return where in its signal each maximum is.
    ceil_mode : bool
        Also take windows that stand over the right edge.
    """

    _pooled = staticmethod(F.max_pool1d)


class MaxPool2d(_MaxPool):
    """The largest pixel of each window.

    Parameters
    ----------
    kernel_size, stride, padding, dilation : int or pair of int
        ``stride`` is ``kernel_size`` by default.
    return_indices : bool
        Also return where in its image each maximum is.
    ceil_mode : bool
        Also take windows that stand over the lower or right edge.
    """

    _pooled = staticmethod(F.max_pool2d)


class AvgPool1d(Module):
    """The mean of each window of a signal.

    Parameters
    ----------
    kernel_size, stride, padding : int or tuple of one
        ``stride`` is ``kernel_size`` by default.
    ceil_mode : bool
        Also take windows that stand over the right edge.
    count_include_pad : bool
        Whether padding counts among the numbers of a window.
    """

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__()
        one = [v[0] if isinstance(v, (tuple, list)) else v for v in (kernel_size, stride, padding)]
        self.kernel_size, self.stride, self.padding = (one[0],), (one[1] or one[0],), (one[2],)
        self.ceil_mode, self.count_include_pad = ceil_mode, count_include_pad

    def forward(self, input: Tensor) -> Tensor:
        return F.avg_pool1d(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
        )

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool2d(Module):
    """The mean of each window.

    Parameters
    ----------
    kernel_size, stride, padding : int or pair of int
        ``stride`` is ``kernel_size`` by default.
    ceil_mode : bool
        Also take windows that stand over the lower or right edge.
    count_include_pad : bool
        Whether padding counts among the pixels of a window.
    divisor_override : int, optional
        What sums are divided by instead.
    """

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__()
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.ceil_mode = padding, ceil_mode
        self.count_include_pad, self.divisor_override = count_include_pad, divisor_override

    def forward(self, input: Tensor) -> Tensor:
        return F.avg_pool2d(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
            self.divisor_override,
        )

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"
