"""Affine maps."""

from __future__ import annotations

import math
from typing import Any

from lucid_gpu.compat.module_names import beside
from lucid_gpu.nn import functional as F
from lucid_gpu.nn import init
from lucid_gpu.nn.modules.module import Module
from lucid_gpu.nn.parameter import Parameter
from lucid_gpu.ops.creation import empty
from lucid_gpu.tensor import Tensor

__all__ = ["Bilinear", "Identity", "Linear"]


class Identity(Module):
    """Gives its input back, of any shape; takes any arguments and ignores them."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        return input


class Linear(Module):
    r"""``y = x W^T + b``, from (*, in_features) to (*, out_features).

    Parameters
    ----------
    in_features, out_features : int
    bias : bool
    device, dtype : optional

    Attributes
    ----------
    weight : Parameter, shape (out_features, in_features)
        Initially uniform in ``+-1 / sqrt(in_features)``, like the bias.
    bias : Parameter, shape (out_features,), or None
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = Parameter(empty(out_features, in_features, device=device, dtype=dtype))
        self.register_parameter(
            "bias", Parameter(empty(out_features, device=device, dtype=dtype)) if bias else None
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weight and bias anew."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(self.in_features) if self.in_features else 0.0
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Tensor) -> Tensor:
        return F.linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )


class NonDynamicallyQuantizableLinear(Linear):
    """PyTorch's name for the `Linear` at the end of an attention."""


class Bilinear(Module):
    r"""``y_o = x_1^T W_o x_2 + b_o``, from (*, in1_features) and (*, in2_features).

    Parameters
    ----------
    in1_features, in2_features, out_features : int
        The first positive, else ValueError.
    bias : bool
    device, dtype : optional

    Attributes
    ----------
    weight : Parameter, shape (out_features, in1_features, in2_features)
        Initially uniform in ``+-1 / sqrt(in1_features)``, like the bias.
    bias : Parameter, shape (out_features,), or None
    """

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if in1_features <= 0:
            raise ValueError(
                f"{type(self).__name__}: in1_features must be > 0, but got "
                f"(in1_features={in1_features})"
            )
        self.in1_features, self.in2_features = in1_features, in2_features
        self.out_features = out_features
        shape = (out_features, in1_features, in2_features)
        self.weight = Parameter(empty(shape, device=device, dtype=dtype))
        self.register_parameter(
            "bias", Parameter(empty(out_features, device=device, dtype=dtype)) if bias else None
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weight and bias anew."""
        bound = 1 / math.sqrt(self.in1_features)
        for p in self.parameters():
            init.uniform_(p, -bound, bound)

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        return F.bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self) -> str:
        return (
            f"in1_features={self.in1_features}, in2_features={self.in2_features}, "
            f"out_features={self.out_features}, bias={self.bias is not None}"
        )


# PyTorch has these here
__getattr__ = beside(globals(), {"lucid_gpu.nn.modules.lazy": "LazyLinear"})
