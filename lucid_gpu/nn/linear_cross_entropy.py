"""Cross entropy of a linear layer's scores."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from lucid_gpu.ops.cross_entropy import cross_entropy
from lucid_gpu.ops.matmul import linear
from lucid_gpu.tape.overrides import overridable
from lucid_gpu.tensor import Tensor

__all__ = ["LinearCrossEntropyOptions", "linear_cross_entropy"]


@dataclass(frozen=True)
class LinearCrossEntropyOptions:
    """How PyTorch cuts a batch into chunks; taken by `linear_cross_entropy` and without effect."""

    allow_retain_graph: bool = False
    batch_chunk_size: int | None = None
    chunking_method: str | None = "auto"
    acc_policy: str = "auto"
    acc_dtype: Any = None


@overridable
def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: LinearCrossEntropyOptions | None = None,
) -> Tensor:
    """``cross_entropy(linear(input, linear_weight, linear_bias), target)``.

    Parameters
    ----------
    input : Tensor, shape (features,) or (n, features)
    linear_weight : Tensor, shape (classes, features) or (classes, d1, ..., features)
    target : Tensor of int64, shape (), (n,) or (n, d1, ...)
        Or probabilities, of the scores' shape.
    linear_bias : Tensor, optional, shape (classes,) or (classes, d1, ...)
    weight, reduction, ignore_index, label_smoothing
        See `cross_entropy`.
    options : LinearCrossEntropyOptions, optional
        Taken and without effect.

    Raises
    ------
    RuntimeError
        If shapes do not fit each other.
    """
    _check_shapes(input, linear_weight, linear_bias)
    classes, positions = linear_weight.shape[0], tuple(linear_weight.shape[1:-1])
    shape = (*input.shape[:-1], classes, *positions)
    if ignore_index is not None and tuple(target.shape) == shape:
        raise RuntimeError("ignore_index cannot be specified when target contains probabilities")
    rows = math.prod((classes, *positions))
    bias = None if linear_bias is None else linear_bias.reshape(rows)
    scores = linear(input, linear_weight.reshape(rows, input.shape[-1]), bias)
    skipped = -100 if ignore_index is None else ignore_index
    return cross_entropy(scores.reshape(shape), target, weight, skipped, reduction, label_smoothing)


def _check_shapes(input: Tensor, linear_weight: Tensor, linear_bias: Tensor | None) -> None:
    if input.ndim not in (1, 2):
        raise RuntimeError(f"expected input with dimensionality 1 or 2, got {input.ndim}")
    if linear_weight.ndim < 2:
        raise RuntimeError(
            f"expected linear_weight with dimensionality at least 2, got {linear_weight.ndim}"
        )
    if input.shape[-1] != linear_weight.shape[-1]:
        raise RuntimeError(
            "expected equal input and linear_weight last dimensions (in_features), got "
            f"{input.shape[-1]} and {linear_weight.shape[-1]}, respectively"
        )
    expected = tuple(linear_weight.shape[:-1])
    if linear_bias is not None and tuple(linear_bias.shape) != expected:
        raise RuntimeError(f"expected linear_bias shape {expected}, got {tuple(linear_bias.shape)}")
    if len(expected) > 1 and input.ndim == 1:
        raise RuntimeError(
            f"K-dimensional loss defined by linear_weight shape {tuple(linear_weight.shape)} "
            f"requires batched input, (N, {input.shape[-1]}), got unbatched input with shape "
            f"{tuple(input.shape)}"
        )
