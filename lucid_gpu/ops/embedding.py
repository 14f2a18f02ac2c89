"""Rows of a table, looked up by number."""

from __future__ import annotations

from typing import Any

from lucid_gpu.devices import room, xp_of
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
        Where a number in ``input`` is not a row.
    """
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
    xp = xp_of(weight)
    if index.size and bool((index < 0).any() | (index >= rows).any()):
        bad = index[(index < 0) | (index >= rows)].ravel()[0]
        raise IndexError(
            f"index out of range in self: embedding was asked for row {int(bad)} of a weight with "
            f"{rows} rows"
        )
    return _take_rows(xp, weight, index, padding_idx)


def _take_rows(xp: Any, weight: Tensor, index: Any, skip: int | None) -> Tensor:
    rows = weight.shape[0]
    return record(
        "EmbeddingBackward0",
        weight.array.take(index, axis=0),
        (weight,),
        lambda node, g: (_sum_rows(xp, g, index, rows, skip),),
    )


def _sum_rows(xp: Any, g: Tensor, index: Any, rows: int, skip: int | None) -> Tensor:
    """Add the rows of ``g`` to the rows they were taken from: the adjoint of `_take_rows`."""
    here, flat = room(g.device), index.reshape(-1)
    values = g.array.reshape(flat.size, g.shape[-1])
    kept = None if skip is None else index != skip
    if kept is not None:
        flat, values = flat[kept.reshape(-1)], values[kept.reshape(-1)]
    total = here.empty((rows, g.shape[-1]), g.dtype, g.device)
    total[...] = 0
    if flat.size and here.type == "cpu":
        _add_runs(xp, total, flat, values.astype(g.dtype.compute.numpy, copy=False))
    elif flat.size:
        here.add_at(total, flat, values)

    def vjp(node: Any, gg: Tensor) -> tuple[Tensor]:
        taken = _take_rows(xp, gg, index, None)
        return (taken if kept is None else taken * from_array(kept[..., None], None, gg.device),)

    return record("EmbeddingDenseBackward0", total, (g,), vjp)


def _add_runs(xp: Any, total: Any, index: Any, values: Any) -> None:
    """``total[index] += values`` by sorting: six times as fast as ``add.at`` on a CPU."""
    order = index.argsort(kind="stable")
    index = index[order]
    starts = xp.flatnonzero(xp.concatenate(([True], index[1:] != index[:-1])))
    total[index[starts]] = xp.add.reduceat(values[order], starts, axis=0)
