"""The last layer of a classifier and its loss, as one module."""

from __future__ import annotations

import math
from typing import Any

from lucid_gpu.nn import functional as F
from lucid_gpu.nn.linear_cross_entropy import LinearCrossEntropyOptions
from lucid_gpu.nn.modules.linear import Linear
from lucid_gpu.nn.modules.module import Module
from lucid_gpu.tensor import Tensor

__all__ = ["LinearCrossEntropyLoss", "LinearCrossEntropyOptions"]


class LinearCrossEntropyLoss(Module):
    """``cross_entropy(linear(x), target)``.

    The input is (*, in_features), targets are class numbers (int64) of shape (*, *out_features) or
    probabilities: see `nn.functional.linear_cross_entropy`.

    Parameters
    ----------
    in_features, num_classes : int
    out_features : tuple of int
        Positions of which each has a class of its own.
    bias : bool
    device, dtype : optional
    reduction, weight, ignore_index, label_smoothing
        See `CrossEntropyLoss`.
    options : LinearCrossEntropyOptions, optional
        Taken and without effect.

    Attributes
    ----------
    linear : Linear

    Raises
    ------
    RuntimeError
        For a ``weight`` of another shape, and a ``label_smoothing`` outside ``[0, 1]``.
    """

    weight: Tensor | None

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        out_features: tuple[int, ...] = (),
        bias: bool = False,
        device: Any = None,
        dtype: Any = None,
        reduction: str = "mean",
        weight: Tensor | None = None,
        ignore_index: int | None = None,
        label_smoothing: float = 0.0,
        options: LinearCrossEntropyOptions | None = None,
    ) -> None:
        super().__init__()
        if weight is not None and tuple(weight.shape) != (num_classes,):
            raise RuntimeError(
                f"expected weight shape to be {(num_classes,)}, got {tuple(weight.shape)}"
            )
        if not 0 <= label_smoothing <= 1:
            raise RuntimeError(
                f"expected label_smoothing to be in range [0, 1], got {label_smoothing}"
            )
        self.reduction, self.ignore_index = reduction, ignore_index
        self.register_buffer("weight", weight)
        self.num_classes, self.out_features = num_classes, out_features
        self.label_smoothing, self.options = label_smoothing, options
        rows = math.prod((num_classes, *out_features))
        self.linear = Linear(in_features, rows, bias=bias, device=device, dtype=dtype)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        shape, bias = (self.num_classes, *self.out_features), self.linear.bias
        return F.linear_cross_entropy(
            input,
            self.linear.weight.reshape(*shape, -1),
            target,
            linear_bias=None if bias is None else bias.reshape(shape),
            weight=self.weight,
            reduction=self.reduction,
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
            options=self.options,
        )

    def extra_repr(self) -> str:
        names = ("out_features", "reduction", "ignore_index", "label_smoothing", "options")
        shown = {name: getattr(self, name) for name in names}
        shown = {"in_features": self.linear.in_features, "num_classes": self.num_classes, **shown}
        shown["bias"] = self.linear.bias is not None
        order = ("in_features", "num_classes", "out_features", "bias", *names[1:])
        return ", ".join(f"{name}={shown[name]}" for name in order)
