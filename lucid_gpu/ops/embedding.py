"""Rows of a table, looked up by number."""

from __future__ import annotations

from typing import Any

from lucid_gpu.devices import room
from lucid_gpu.kernels import bounds
from lucid_gpu.kernels.index_add import index_add
from lucid_gpu.ops.arguments import require_one_device, require_tensor
from lucid_gpu.ops.record import record
from lucid_gpu.tensor import Tensor, from_array

__all__ = ["embedding"]


def embedding(input: Tensor, weight: Tensor, padding_idx: int | None = None) -> Tensor:
    """``weight[input]``, where the row ``padding_idx`` gets no gradient.

    Parameters
    ----------
    input : Tensor of int32 or int64, any shape
    weight : Tensor, shape (rows, features)
    padding_idx : int, optional
        Negative numbers count from the end.

    Returns
    -------
    Tensor, shape (*input.shape, features)

    Raises
    ------
    IndexError
        Where a number in ``input`` is not a row; on a GPU it is raised where the host next waits.
    """
    require_tensor("embedding", "weight", 1, weight)
    require_tensor("embedding", "indices", 2, input)
    require_one_device("embedding", weight, input)
    if weight.ndim != 2:
        raise RuntimeError(f"'weight' must be 2-D, got shape {list(weight.shape)}")
    if input.dtype.name not in ("int32", "int64"):
        raise RuntimeError(
            "Expected tensor for argument #1 'indices' to have one of the following scalar types: "
            f"Long, Int; but got {input.dtype} instead (while checking arguments for embedding)"
        )
    rows, index = weight.shape[0], input.array
    if padding_idx is not None:
        if not -rows <= padding_idx < rows:
            raise AssertionError("Padding_idx must be within num_embeddings")
        padding_idx %= rows
    bounds.check(index, rows, 0, weight.device, 0, bounds.no_row)
    return _take_rows(weight, index, padding_idx)


def _take_rows(weight: Tensor, index: Any, skip: int | None) -> Tensor:
    rows = weight.shape[0]
    return record(
        "EmbeddingBackward0",
        weight.array.take(index, axis=0),
        (weight,),
        lambda node, g: (_sum_rows(g, index, rows, skip),),
    )


def _sum_rows(g: Tensor, index: Any, rows: int, skip: int | None) -> Tensor:
    """Add the rows of ``g`` to the rows they were taken from: the adjoint of `_take_rows`."""
    total = room(g.device).empty((rows, g.shape[-1]), g.dtype, g.device)
    total.fill(0)
    values = g.array.reshape(1, index.size, g.shape[-1])
    index_add(total[None], index.reshape(-1), values, g.device, False, -1 if skip is None else skip)

    def vjp(node: Any, gg: Tensor) -> tuple[Tensor]:
        taken = _take_rows(gg, index, None)
        if skip is None:
            return (taken,)
        return (taken * from_array((index != skip)[..., None], None, gg.device),)

    return record("EmbeddingDenseBackward0", total, (g,), vjp)
