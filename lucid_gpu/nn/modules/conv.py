"""Convolutions."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from lucid_gpu.nn import functional as F
from lucid_gpu.nn import init
from lucid_gpu.nn.modules.module import Module
from lucid_gpu.nn.parameter import Parameter
from lucid_gpu.ops.creation import empty
from lucid_gpu.tensor import Tensor

__all__ = ["Conv1d", "Conv2d"]


class _Conv(Module):
    """A bank of filters and how it slides; subclasses say over how many axes."""

    _rank: int

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
        if groups <= 0:
            raise ValueError("groups must be a positive integer")
        for name, channels in (("in", in_channels), ("out", out_channels)):
            if channels % groups:
                raise ValueError(f"{name}_channels must be divisible by groups")
        if padding_mode != "zeros":
            raise ValueError(f"padding_mode must be 'zeros', but got padding_mode={padding_mode!r}")
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size = self._setting(kernel_size)
        self.stride, self.dilation = self._setting(stride), self._setting(dilation)
        self.padding = padding if isinstance(padding, str) else self._setting(padding)
        if isinstance(padding, str) and padding not in ("same", "valid"):
            raise ValueError(
                f"Invalid padding string {padding!r}, should be one of {{'valid', 'same'}}"
            )
        self.padding_mode = padding_mode
        shape = out_channels, in_channels // groups, *self.kernel_size
        self.weight = Parameter(empty(*shape, device=device, dtype=dtype))
        self.register_parameter(
            "bias", Parameter(empty(out_channels, device=device, dtype=dtype)) if bias else None
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weight and bias anew."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        fan_in = math.prod(self.weight.shape[1:])
        if self.bias is not None and fan_in:
            bound = 1 / math.sqrt(fan_in)
            init.uniform_(self.bias, -bound, bound)

    def _setting(self, value: Any) -> tuple[int, ...]:
        """An int as one for each axis."""
        return tuple(value) if isinstance(value, Iterable) else (value,) * self._rank

    @property
    def _settings(self) -> tuple[Any, ...]:
        return self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups

    def extra_repr(self) -> str:
        shown = [
            f"{self.in_channels}, {self.out_channels}",
            f"kernel_size={self.kernel_size}",
            f"stride={self.stride}",
        ]
        if self.padding not in ((0,) * self._rank, "valid"):
            shown.append(f"padding={self.padding}")
        if self.dilation != (1,) * self._rank:
            shown.append(f"dilation={self.dilation}")
        if self.groups != 1:
            shown.append(f"groups={self.groups}")
        if self.bias is None:
            shown.append("bias=False")
        return ", ".join(shown)


class Conv1d(_Conv):
    r"""``out[n, o] = bias[o] + sum_c weight[o, c] * input[n, c]``, ``*`` a 1-D cross-correlation.

    Parameters
    ----------
    in_channels, out_channels : int
    kernel_size, stride, dilation : int or tuple of one
    padding : int, tuple of one, "same" or "valid"
        Zeros on each side.
    groups : int
        Channels are split into so many groups that do not see one another.
    bias : bool
    padding_mode : {"zeros"}
    device, dtype : optional

    Attributes
    ----------
    weight : Parameter, shape (out_channels, in_channels // groups, kw)
        Uniform in ``+-1 / sqrt(in_channels // groups * kw)`` at first, like the bias.
    bias : Parameter, shape (out_channels,), or None
    """

    _rank = 1

    def forward(self, input: Tensor) -> Tensor:
        return F.conv1d(input, *self._settings)


class Conv2d(_Conv):
    r"""``out[n, o] = bias[o] + sum_c weight[o, c] * input[n, c]``, ``*`` a 2-D cross-correlation.

    Parameters
    ----------
    in_channels, out_channels : int
    kernel_size, stride, dilation : int or pair of int
    padding : int, pair of int, "same" or "valid"
        Rows and columns of zeros on each side.
    groups : int
        Channels are split into so many groups that do not see one another.
    bias : bool
    padding_mode : {"zeros"}
    device, dtype : optional

    Attributes
    ----------
    weight : Parameter, shape (out_channels, in_channels // groups, kh, kw)
        Uniform in ``+-1 / sqrt(in_channels // groups * kh * kw)`` at first, like the bias.
    bias : Parameter, shape (out_channels,), or None
    """

    _rank = 2

    def forward(self, input: Tensor) -> Tensor:
        return F.conv2d(input, *self._settings)
