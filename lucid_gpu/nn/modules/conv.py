"""Convolutions and transposed convolutions of signals, images and volumes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from lucid_gpu.compat.module_names import beside
from lucid_gpu.nn import functional as F
from lucid_gpu.nn import init
from lucid_gpu.nn.modules.module import Module
from lucid_gpu.nn.modules.utils import (  # noqa: F401  packages take them from here
    _pair,
    _reverse_repeat_tuple,
    _single,
    _triple,
)
from lucid_gpu.nn.parameter import Parameter
from lucid_gpu.ops.creation import empty
from lucid_gpu.tensor import Tensor

__all__ = [
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
]

_MODES = ("zeros", "reflect", "replicate", "circular")


class _ConvNd(Module):
    """A bank of filters and how it slides over so many axes."""

    _rank: int
    _about: str  # the documentation that the ranks share
    transposed = False
    output_padding: tuple[int, ...]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if hasattr(cls, "_rank") and cls.__doc__:
            cls.__doc__ += cls._about

    def _setup(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any,
        padding: Any,
        dilation: Any,
        groups: int,
        padding_mode: str,
    ) -> None:
        if groups <= 0:
            raise ValueError(f"{type(self).__name__}: groups must be a positive integer")
        for name, channels in (("in", in_channels), ("out", out_channels)):
            if channels % groups:
                raise ValueError(
                    f"{type(self).__name__}: {name}_channels must be divisible by groups"
                )
        if padding_mode not in _MODES:
            raise ValueError(
                f"{type(self).__name__}: padding_mode must be one of {set(_MODES)}, but got "
                f"padding_mode={padding_mode!r}"
            )
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size = self._setting(kernel_size)
        self.stride, self.dilation = self._setting(stride), self._setting(dilation)
        self.padding = padding if isinstance(padding, str) else self._setting(padding)
        self.padding_mode = padding_mode
        self.output_padding = (0,) * self._rank

    def _make(self, shape: Sequence[int], bias: bool, device: Any, dtype: Any) -> None:
        self.weight = Parameter(empty(*shape, device=device, dtype=dtype))
        numbers = Parameter(empty(self.out_channels, device=device, dtype=dtype)) if bias else None
        self.register_parameter("bias", numbers)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weight and bias anew."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        fan_in = math.prod(self.weight.shape[1:])
        if self.bias is not None and fan_in:
            bound = 1 / math.sqrt(fan_in)
            init.uniform_(self.bias, -bound, bound)

    def _setting(self, value: Any) -> Any:
        """An int as one for each axis."""
        return tuple(value) if isinstance(value, Iterable) else (value,) * self._rank

    def extra_repr(self) -> str:
        none, one = (0,) * self._rank, (1,) * self._rank
        settings = {
            "kernel_size": (self.kernel_size, None),
            "stride": (self.stride, None),
            "padding": (self.padding, none),
            "dilation": (self.dilation, one),
            "output_padding": (getattr(self, "output_padding", none), none),
            "groups": (self.groups, 1),
            "bias": (self.bias is not None, True),
            "padding_mode": (self.padding_mode, "zeros"),
        }
        changed = [f"{name}={value}" for name, (value, usual) in settings.items() if value != usual]
        return ", ".join([f"{self.in_channels}, {self.out_channels}", *changed])


_CONV = """

    ``out[n, o] = bias[o] + sum_c weight[o, c] * input[n, c]``, ``*`` cross-correlation.

    Parameters
    ----------
    in_channels, out_channels : int
    kernel_size, stride, dilation : int or tuple of int
    padding : int, tuple of int, "same" or "valid"
        On each side.
    groups : int
        The channels are split into this many independent groups.
    bias : bool
    padding_mode : {"zeros", "reflect", "replicate", "circular"}
        What padding is filled with; see `lucid_gpu.nn.functional.pad`.
    device, dtype : optional

    Attributes
    ----------
    weight : Parameter, shape (out_channels, in_channels // groups, *kernel_size)
        Initially uniform in ``+-1 / sqrt(in_channels // groups * prod(kernel_size))``, like the
        bias.
    bias : Parameter, shape (out_channels,), or None

    Raises
    ------
    ValueError
        For channels that ``groups`` does not divide, and an invalid padding or mode.
    """


class _Conv(_ConvNd):
    _about = _CONV

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self._setup(
            *(in_channels, out_channels, kernel_size, stride, padding, dilation, groups),
            padding_mode,
        )
        if isinstance(padding, str) and padding not in ("same", "valid"):
            raise ValueError(
                f"{type(self).__name__}: Invalid padding string {padding!r}, should be one of "
                "{'valid', 'same'}"
            )
        if padding == "same" and max(self.stride) > 1:
            raise ValueError(
                f"{type(self).__name__}: padding='same' is not supported for strided convolutions"
            )
        shape = out_channels, in_channels // groups, *self.kernel_size
        self._make(shape, bias, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        return self._conv_forward(input, self.weight, self.bias)

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The convolution by another weight: what subclasses that standardize theirs call."""
        convolve = (F.conv1d, F.conv2d, F.conv3d)[self._rank - 1]
        padding: Any = self.padding
        if self.padding_mode != "zeros" and padding != "valid":
            input, padding = F.pad(input, self._sides(), mode=self.padding_mode), 0
        return convolve(input, weight, bias, self.stride, padding, self.dilation, self.groups)

    def _sides(self) -> list[int]:
        """Padding before and behind each axis, the last axis first."""
        if isinstance(self.padding, str):
            whole = [d * (k - 1) for d, k in zip(self.dilation, self.kernel_size, strict=True)]
            sides = [(n // 2, n - n // 2) for n in whole]
        else:
            sides = [(p, p) for p in self.padding]
        return [n for pair in reversed(sides) for n in pair]


class Conv1d(_Conv):
    """Cross-correlation of signals with a bank of filters."""

    _rank = 1


class Conv2d(_Conv):
    """Cross-correlation of images with a bank of filters."""

    _rank = 2


class Conv3d(_Conv):
    """Cross-correlation of volumes with a bank of filters."""

    _rank = 3


_TRANSPOSED = """

    ``out[n, o] = bias[o] + sum_c weight[c, o]^T input[n, c]``, a filter as the matrix of its
    cross-correlation.

    Parameters
    ----------
    in_channels, out_channels : int
    kernel_size, stride, padding : int or tuple of int
        Those of the convolution from the output to the input: padding makes the output smaller.
    output_padding : int or tuple of int
        Makes the output larger on one side; less than stride or dilation.
    groups : int
        The channels are split into this many independent groups.
    bias : bool
    dilation : int or tuple of int
    padding_mode : {"zeros"}
    device, dtype : optional

    Attributes
    ----------
    weight : Parameter, shape (in_channels, out_channels // groups, *kernel_size)
        Initially uniform in ``+-1 / sqrt(out_channels // groups * prod(kernel_size))``, like the
        bias.
    bias : Parameter, shape (out_channels,), or None

    Raises
    ------
    ValueError
        For channels that ``groups`` does not divide, and another mode of padding.
    """


class _ConvTransposeNd(_ConvNd):
    _about = _TRANSPOSED
    transposed = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Any = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if padding_mode != "zeros":
            raise ValueError(
                f'Only "zeros" padding mode is supported for {type(self).__name__}, got '
                f"{padding_mode!r}"
            )
        self._setup(
            *(in_channels, out_channels, kernel_size, stride, padding, dilation, groups),
            padding_mode,
        )
        self.output_padding = self._setting(output_padding)
        shape = in_channels, out_channels // groups, *self.kernel_size
        self._make(shape, bias, device, dtype)

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """Transposed convolution.

        Parameters
        ----------
        input : Tensor, shape (n, in_channels, *) or (in_channels, *)
        output_size : sequence of int, optional
            Says ``output_padding`` by the size of the result, with or without batch and channels;
            ValueError for one that no padding gives.
        """
        spread = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[self._rank - 1]
        settings: Any = (self.stride, self.padding, self.kernel_size, self._rank, self.dilation)
        more = self._output_padding(input, output_size, *settings)
        return spread(
            *(input, self.weight, self.bias, self.stride, self.padding, more),
            *(self.groups, self.dilation),
        )

    def _output_padding(
        self,
        input: Tensor,
        output_size: Sequence[int] | None,
        stride: Sequence[int],
        padding: Sequence[int],
        kernel_size: Sequence[int],
        num_spatial_dims: int,
        dilation: Sequence[int] | None = None,
    ) -> Any:
        """How much longer than the least size the result is, along each axis."""
        if output_size is None:
            return self.output_padding
        rank, size = num_spatial_dims, list(output_size)
        if len(size) == input.ndim and input.ndim > rank:
            size = size[-rank:]
        if len(size) != rank:
            raise ValueError(
                f"{type(self).__name__}: for {input.ndim}D input, output_size must have {rank} or "
                f"{input.ndim} elements (got {len(size)})"
            )
        least = [
            (n - 1) * s - 2 * p + d * (k - 1) + 1
            for n, s, p, d, k in zip(
                *(input.shape[-rank:], stride, padding, dilation or (1,) * rank, kernel_size),
                strict=True,
            )
        ]
        most = [n + s - 1 for n, s in zip(least, stride, strict=True)]
        if any(not low <= n <= high for low, n, high in zip(least, size, most, strict=True)):
            raise ValueError(
                f"{type(self).__name__}: requested an output size of {tuple(size)}, but valid "
                f"sizes range from {least} to {most} (for an input of {input.shape[-rank:]})"
            )
        return [n - low for n, low in zip(size, least, strict=True)]


class _ConvTransposeMixin(_ConvTransposeNd):
    """PyTorch's first name for the base, which packages import; no layer is of it."""


class ConvTranspose1d(_ConvTransposeNd):
    """Transposed convolution of signals, the adjoint of `Conv1d`."""

    _rank = 1


class ConvTranspose2d(_ConvTransposeNd):
    """Transposed convolution of images, the adjoint of `Conv2d`."""

    _rank = 2


class ConvTranspose3d(_ConvTransposeNd):
    """Transposed convolution of volumes, the adjoint of `Conv3d`."""

    _rank = 3


# PyTorch has these here
__getattr__ = beside(
    globals(),
    {
        "lucid_gpu.nn.modules.lazy": "LazyConv1d LazyConv2d LazyConv3d "
        "LazyConvTranspose1d LazyConvTranspose2d LazyConvTranspose3d _LazyConvXdMixin"
    },
)
