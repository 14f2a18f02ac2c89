"""Rows of a table, looked up by number and summed, averaged or maximized in bags."""

from __future__ import annotations

import math
import warnings

from lucid_gpu.devices import xp_of
from lucid_gpu.dtypes import int32, int64, promote_types
from lucid_gpu.kernels import bounds
from lucid_gpu.ops.creation import arange, full
from lucid_gpu.ops.embedding import embedding, look_up
from lucid_gpu.tape.door import op
from lucid_gpu.tensor import Tensor, from_array

__all__ = ["embedding_bag"]


@op
def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """The sum, mean or maximum of the rows of each bag; zeros for an empty one.

    Parameters
    ----------
    input : Tensor of int32 or int64, shape (bags, length) or (n,)
    weight : Tensor, shape (rows, features)
    offsets : Tensor of integers, shape (bags,)
        Where each bag of a 1-D input begins, in order; the first is 0.
    max_norm, norm_type, scale_grad_by_freq, sparse
        See `lucid_gpu.nn.functional.embedding`.
    mode : {"mean", "sum", "max"}
    per_sample_weights : Tensor of input's shape, optional
        Factors of the rows, for sums.
    include_last_offset : bool
        Whether the last offset is where the last bag ends.
    padding_idx : int, optional
        A row that counts nowhere and gets no gradient.

    Returns
    -------
    Tensor, shape (bags, features)

    Raises
    ------
    ValueError, RuntimeError
        For shapes and settings that do not fit together.
    NotImplementedError
        For ``per_sample_weights`` in another mode than ``"sum"``.
    """
    if weight.dtype is int64 and input.is_floating_point():
        warnings.warn(
            "Argument order of nn.functional.embedding_bag was changed. Usage "
            "`embedding_bag(weight, input, ...)` is deprecated, and should now be "
            "`embedding_bag(input, weight, ...)`.",
            stacklevel=3,
        )
        input, weight = weight, input
    if per_sample_weights is not None and input.shape != per_sample_weights.shape:
        raise ValueError(
            f"embedding_bag: If per_sample_weights ({per_sample_weights.shape}) is not None, then "
            f"it must have the same shape as the input ({input.shape})"
        )
    if weight.ndim != 2:
        raise ValueError(f"weight has to be a 2D Tensor, but got Tensor of dimension {weight.ndim}")
    _check_mode(mode, scale_grad_by_freq, sparse, per_sample_weights)
    if per_sample_weights is not None and per_sample_weights.dtype is not weight.dtype:
        raise RuntimeError(
            "Expected tensor for argument #1 'weight' to have the same type as tensor for argument "
            f"#1 'per_sample_weights'; but type {weight.type()} does not equal "
            f"{per_sample_weights.type()} (while checking arguments for embedding_bag)"
        )
    if padding_idx is not None and not -len(weight) <= padding_idx < len(weight):
        raise RuntimeError(
            f"padding_idx must be within the number of embeddings, -{len(weight)} through "
            f"{len(weight) - 1}, but got {padding_idx}"
        )
    if offsets is not None and input.dtype is not offsets.dtype:
        common = promote_types(input.dtype, offsets.dtype)
        input, offsets = input.to(common), offsets.to(common)
    index = look_up("embedding_bag", input, weight)
    bounds.check(index, len(weight), 0, weight.device, 0, bounds.no_row_of_bag)
    numbers, offsets = _bags(input, offsets)
    include_last_offset = include_last_offset and input.ndim == 1
    if include_last_offset and not len(offsets):
        raise RuntimeError("include_last_offset: number of offset should be at least 1")
    lengths = (max_norm, norm_type)
    rows = embedding(numbers, weight, padding_idx, *lengths, scale_grad_by_freq, sparse)
    bags = len(offsets) - include_last_offset
    if bags:
        offsets = offsets[:bags]  # the last bag has what is left, wherever it is said to end
    bag = _bag_of(numbers, offsets)
    counted = None if padding_idx is None else numbers != padding_idx % weight.shape[0]
    if mode == "max":
        return _largest(rows, bag, offsets, counted, bags)
    if counted is not None:
        rows = rows.where(counted.unsqueeze(1), 0.0)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.reshape(-1, 1)
    if mode == "sum":
        return _summed(rows, bag, bags)
    rows = rows.to(rows.dtype.compute)  # float16 may hold neither the sums nor the counts
    total = _summed(rows, bag, bags)
    ones = full((len(numbers),), 1.0, dtype=rows.dtype, device=rows.device)
    counts = _summed(ones if counted is None else counted.to(rows.dtype), bag, bags)
    return (total / counts.clamp(min=1.0).unsqueeze(1)).to(weight.dtype)


def _check_mode(mode: str, scaled: bool, sparse: bool, weights: Tensor | None) -> None:
    if mode not in ("sum", "mean", "max"):
        raise ValueError("mode has to be one of sum, mean or max")
    if mode == "max" and scaled:
        raise ValueError("max mode does not support scaling the gradient by the frequency")
    if mode == "max" and sparse:
        raise ValueError("max mode does not support sparse weights")
    if weights is not None and mode != "sum":
        raise NotImplementedError(
            "embedding_bag: per_sample_weights was not None. per_sample_weights is only supported "
            f"for mode='sum' (got mode='{mode}'). Please open a feature request on GitHub."
        )


def _bags(input: Tensor, offsets: Tensor | None) -> tuple[Tensor, Tensor]:
    """The row numbers one after another, and where each bag begins."""
    if input.ndim == 2:
        if offsets is not None:
            raise ValueError(
                "if input is 2D, then offsets has to be None, as input is treated is a mini-batch "
                f"of fixed length sequences. However, found offsets of type {type(offsets)}"
            )
        bags, length = input.shape
        return input.reshape(-1), arange(bags, device=input.device) * length
    if input.ndim != 1:
        raise ValueError(
            f"input has to be 1D or 2D Tensor, but got Tensor of dimension {input.ndim}"
        )
    if offsets is None:
        raise ValueError("offsets has to be a 1D Tensor but got None")
    if offsets.ndim != 1:
        raise ValueError("offsets has to be a 1D Tensor")
    if offsets.dtype not in (int32, int64):
        raise RuntimeError(
            "Expected tensor for argument #1 'offsets' to have one of the following scalar types: "
            f"Long, Int; but got {offsets.dtype} instead (while checking arguments for "
            "embedding_bag)"
        )
    if offsets.device.type == "cpu" and len(offsets):
        _check_offsets(offsets.tolist(), len(input))
    return input, offsets


def _check_offsets(offsets: list[int], length: int) -> None:
    if offsets[0] != 0:
        raise RuntimeError(
            "offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from "
            f"position 0. However, got {offsets[0]}"
        )
    if offsets[-1] > length:
        raise RuntimeError(
            f"offsets[-1] can not be greater than input's length {length} but got offsets[-1] of "
            f"{offsets[-1]}"
        )
    if offsets != sorted(offsets):
        raise RuntimeError(f"embedding_bag: offsets must not decrease, got {offsets}")


def _bag_of(numbers: Tensor, offsets: Tensor) -> Tensor:
    """The bag of each position."""
    xp = xp_of(numbers)
    places = xp.searchsorted(offsets.array, xp.arange(len(numbers)), side="right") - 1
    return from_array(places, None, numbers.device)


def _summed(values: Tensor, bag: Tensor, bags: int) -> Tensor:
    """Sums of each bag; what follows the last one is left out."""
    empty = full((bags + 1, *values.shape[1:]), 0.0, dtype=values.dtype, device=values.device)
    return empty.index_add(0, bag, values)[:bags]


def _largest(
    rows: Tensor, bag: Tensor, offsets: Tensor, counted: Tensor | None, bags: int
) -> Tensor:
    """The maximum of each bag: bags side by side, the shorter ones filled up with -inf."""
    positions = arange(len(bag), device=bag.device) - offsets.index_select(0, bag)
    longest = int(positions.max()) + 1 if len(bag) else 1
    filled = full(
        (max(bags, len(offsets)) * longest, rows.shape[1]),
        -math.inf,
        dtype=rows.dtype,
        device=rows.device,
    )
    if counted is not None:
        rows = rows.where(counted.unsqueeze(1), -math.inf)
    filled = filled.index_copy(0, bag * longest + positions, rows)
    largest = filled.reshape(-1, longest, rows.shape[1])[:bags].max(1).values
    return largest.where(largest > -math.inf, 0.0)
