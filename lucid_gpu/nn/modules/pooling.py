"""Pooling layers: one class a kind, which subclasses give a number of axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lucid_gpu.nn import functional as F
from lucid_gpu.nn.modules.module import Module
from lucid_gpu.nn.modules.utils import _pair, _single, _triple  # noqa: F401  packages take them from here
from lucid_gpu.tensor import Tensor

__all__ = [
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AdaptiveAvgPool3d",
    "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d",
    "AdaptiveMaxPool3d",
    "AvgPool1d",
    "AvgPool2d",
    "AvgPool3d",
    "FractionalMaxPool2d",
    "FractionalMaxPool3d",
    "LPPool1d",
    "LPPool2d",
    "LPPool3d",
    "MaxPool1d",
    "MaxPool2d",
    "MaxPool3d",
    "MaxUnpool1d",
    "MaxUnpool2d",
    "MaxUnpool3d",
]


class _Pool(Module):
    """Settings, and the function of the same name over ``_rank`` axes."""

    _rank: int
    _function: str
    _shown: tuple[str, ...]
    _about: str  # the documentation that the ranks share

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "_rank" in vars(cls) and cls.__doc__:  # not in a subclass that a user writes
            cls.__doc__ += cls._about

    def _pooled(self, *args: Any) -> Any:
        pool: Callable[..., Any] = getattr(F, f"{self._function}{self._rank}d")
        return pool(*args)

    def _tuple(self, value: Any) -> tuple[int, ...]:
        return tuple(value) if isinstance(value, Sequence) else (value,) * self._rank

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={getattr(self, name)}" for name in self._shown)


class _MaxPoolNd(_Pool):
    _function = "max_pool"
    _shown = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")
    _about = """

    Parameters
    ----------
    kernel_size, stride, padding, dilation : int or tuple of int
        ``stride`` is ``kernel_size`` by default.
    return_indices : bool
        Also return the index of each maximum in its plane.
    ceil_mode : bool
        Also use windows that extend past the end of the input.
    """

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
            *(input, self.kernel_size, self.stride, self.padding, self.dilation),
            *(self.ceil_mode, self.return_indices),
        )


class MaxPool1d(_MaxPoolNd):
    """The maximum of each window, from shape (n, c, l) to (n, c, l_out), or both without n."""

    _rank = 1


class MaxPool2d(_MaxPoolNd):
    """The maximum of each window, from (n, c, h, w) to (n, c, h_out, w_out), or both without n."""

    _rank = 2


class MaxPool3d(_MaxPoolNd):
    """The maximum of each window, from (n, c, d, h, w) to (n, c, d_out, h_out, w_out)."""

    _rank = 3


class _AvgPoolNd(_Pool):
    _function = "avg_pool"
    _shown = ("kernel_size", "stride", "padding")
    _about = """

    Parameters
    ----------
    kernel_size, stride, padding : int or tuple of int
        ``stride`` is ``kernel_size`` by default.
    ceil_mode : bool
        Also use windows that extend past the end of the input.
    count_include_pad : bool
        Whether means include the padding.
    divisor_override : int, optional
        Divide sums by this number instead of the window size.
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
        result: Tensor = self._pooled(
            *(input, self.kernel_size, self.stride, self.padding, self.ceil_mode),
            *(self.count_include_pad, self.divisor_override),
        )
        return result


class AvgPool1d(_AvgPoolNd):
    """The mean of each window, from shape (n, c, l) to (n, c, l_out), or both without n."""

    _rank = 1
    _about = _AvgPoolNd._about.replace(
        "    divisor_override : int, optional\n"
        "        Divide sums by this number instead of the window size.\n",
        "",
    )

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__(kernel_size, stride, padding, ceil_mode, count_include_pad)
        self.kernel_size, self.stride = self._tuple(self.kernel_size), self._tuple(self.stride)
        self.padding = self._tuple(self.padding)

    def _pooled(self, *args: Any) -> Any:
        return F.avg_pool1d(*args[:-1])


class AvgPool2d(_AvgPoolNd):
    """The mean of each window, from (n, c, h, w) to (n, c, h_out, w_out), or both without n."""

    _rank = 2


class AvgPool3d(_AvgPoolNd):
    """The mean of each window, from (n, c, d, h, w) to (n, c, d_out, h_out, w_out)."""

    _rank = 3


class _AdaptiveAvgPoolNd(_Pool):
    _function = "adaptive_avg_pool"
    _shown = ("output_size",)
    _about = """

    Parameters
    ----------
    output_size : int or tuple of int
        None keeps the size of the input.
    """

    def __init__(self, output_size: Any) -> None:
        super().__init__()
        self.output_size = output_size

    def forward(self, input: Tensor) -> Tensor:
        result: Tensor = self._pooled(input, self.output_size)
        return result


class AdaptiveAvgPool1d(_AdaptiveAvgPoolNd):
    """Average pooling to a given size, from shape (n, c, l) to (n, c, output_size)."""

    _rank = 1


class AdaptiveAvgPool2d(_AdaptiveAvgPoolNd):
    """Average pooling to a given size, from shape (n, c, h, w) to (n, c, *output_size)."""

    _rank = 2


class AdaptiveAvgPool3d(_AdaptiveAvgPoolNd):
    """Average pooling to a given size, from shape (n, c, d, h, w) to (n, c, *output_size)."""

    _rank = 3


class _AdaptiveMaxPoolNd(_Pool):
    _function = "adaptive_max_pool"
    _shown = ("output_size",)
    _about = """

    Parameters
    ----------
    output_size : int or tuple of int
        None keeps the size of the input.
    return_indices : bool
        Also return the index of each maximum in its plane.
    """

    def __init__(self, output_size: Any, return_indices: bool = False) -> None:
        super().__init__()
        self.output_size, self.return_indices = output_size, return_indices

    def forward(self, input: Tensor) -> Any:
        return self._pooled(input, self.output_size, self.return_indices)


class AdaptiveMaxPool1d(_AdaptiveMaxPoolNd):
    """Max pooling to a given size, from shape (n, c, l) to (n, c, output_size)."""

    _rank = 1


class AdaptiveMaxPool2d(_AdaptiveMaxPoolNd):
    """Max pooling to a given size, from shape (n, c, h, w) to (n, c, *output_size)."""

    _rank = 2


class AdaptiveMaxPool3d(_AdaptiveMaxPoolNd):
    """Max pooling to a given size, from shape (n, c, d, h, w) to (n, c, *output_size)."""

    _rank = 3


class _MaxUnpoolNd(_Pool):
    _function = "max_unpool"
    _shown = ("kernel_size", "stride", "padding")
    _about = """

    Parameters
    ----------
    kernel_size, stride, padding : int or tuple of int
        Those of the pooling.
    """

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0) -> None:
        super().__init__()
        self.kernel_size, self.padding = self._tuple(kernel_size), self._tuple(padding)
        self.stride = self._tuple(kernel_size if stride is None else stride)

    def forward(
        self, input: Tensor, indices: Tensor, output_size: Sequence[int] | None = None
    ) -> Tensor:
        result: Tensor = self._pooled(
            input, indices, self.kernel_size, self.stride, self.padding, output_size
        )
        return result


class MaxUnpool1d(_MaxUnpoolNd):
    """Place values at the positions of the maxima of a `MaxPool1d`, and zeros elsewhere."""

    _rank = 1


class MaxUnpool2d(_MaxUnpoolNd):
    """Place values at the positions of the maxima of a `MaxPool2d`, and zeros elsewhere."""

    _rank = 2


class MaxUnpool3d(_MaxUnpoolNd):
    """Place values at the positions of the maxima of a `MaxPool3d`, and zeros elsewhere."""

    _rank = 3


class _LPPoolNd(_Pool):
    _function = "lp_pool"
    _shown = ("norm_type", "kernel_size", "stride", "ceil_mode")
    _about = """

    Parameters
    ----------
    norm_type : float
        ``p`` of ``(sum of x^p)^(1/p)``.
    kernel_size, stride : int or tuple of int
        ``stride`` is ``kernel_size`` by default.
    ceil_mode : bool
        Also use windows that extend past the end of the input.
    """

    def __init__(
        self, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
    ) -> None:
        super().__init__()
        self.norm_type, self.kernel_size = norm_type, kernel_size
        self.stride, self.ceil_mode = stride, ceil_mode

    def forward(self, input: Tensor) -> Tensor:
        result: Tensor = self._pooled(
            input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode
        )
        return result


class LPPool1d(_LPPoolNd):
    """The p-norm of each window, from shape (n, c, l) to (n, c, l_out), or both without n."""

    _rank = 1


class LPPool2d(_LPPoolNd):
    """The p-norm of each window, from (n, c, h, w) to (n, c, h_out, w_out), or both without n."""

    _rank = 2


class LPPool3d(_LPPoolNd):
    """The p-norm of each window, from (n, c, d, h, w) to (n, c, d_out, h_out, w_out)."""

    _rank = 3


class _FractionalMaxPool(_Pool):
    _function = "fractional_max_pool"
    _shown = ()
    _about = """

    Parameters
    ----------
    kernel_size : int or tuple of int
    output_size : int or tuple of int
        The number of windows.
    output_ratio : float or tuple of float
        Instead, the number of windows as a fraction of the input size.
    return_indices : bool
        Also return the index of each maximum in its plane.

    Raises
    ------
    ValueError
        Unless exactly one of ``output_size`` and ``output_ratio`` is given, and for a ratio outside
        ``(0, 1)``.
    """

    _random_samples: Tensor | None

    def __init__(
        self,
        kernel_size: Any,
        output_size: Any = None,
        output_ratio: Any = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.kernel_size, self.return_indices = self._tuple(kernel_size), return_indices
        self.register_buffer("_random_samples", _random_samples)
        self.output_size = None if output_size is None else self._tuple(output_size)
        self.output_ratio = None if output_ratio is None else self._tuple(output_ratio)
        if output_size is None and output_ratio is None:
            raise ValueError(
                f"{type(self).__name__} requires specifying either an output size, or a pooling "
                "ratio"
            )
        if output_size is not None and output_ratio is not None:
            raise ValueError(
                f"{type(self).__name__}: only one of output_size and output_ratio may be specified"
            )
        if self.output_ratio is not None and not all(0 < r < 1 for r in self.output_ratio):
            raise ValueError(
                f"{type(self).__name__}: output_ratio must be between 0 and 1 (got {output_ratio})"
            )

    def forward(self, input: Tensor) -> Any:
        return self._pooled(
            *(input, self.kernel_size, self.output_size, self.output_ratio),
            *(self.return_indices, self._random_samples),
        )


class FractionalMaxPool2d(_FractionalMaxPool):
    """Max pooling over random windows, from shape (n, c, h, w) to (n, c, *output_size)."""

    _rank = 2


class FractionalMaxPool3d(_FractionalMaxPool):
    """Max pooling over random windows, from shape (n, c, d, h, w) to (n, c, *output_size)."""

    _rank = 3
