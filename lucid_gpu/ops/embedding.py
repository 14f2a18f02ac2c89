"""Rows of a table, looked up by number."""

from __future__ import annotations

from typing import Any

from lucid_gpu.devices import backend, xp_of
from lucid_gpu.kernels import bounds
from lucid_gpu.kernels.index_add import index_add
from lucid_gpu.ops.arguments import require_one_device, require_tensors
from lucid_gpu.ops.record import record, watch
from lucid_gpu.ops.wrapping import bared
from lucid_gpu.tape.door import op
from lucid_gpu.tape.modes import no_grad
from lucid_gpu.tape.rules import Batch, batching
from lucid_gpu.tensor import Tensor, from_array

__all__ = ["embedding"]


@op
def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """``weight[input]``, where the row ``padding_idx`` gets no gradient.

    Parameters
    ----------
    input : Tensor of int32 or int64, any shape
    weight : Tensor, shape (rows, features)
    padding_idx : int, optional
        Negative numbers count from the end.
    max_norm : float, optional
        Rows that are looked up and are longer are first shortened to this length, in place.
    norm_type : float
        Of ``max_norm``.
    scale_grad_by_freq : bool
        Divide a row's gradient by how often it is looked up.
    sparse : bool
        Whether the gradient of ``weight`` is a sparse tensor, of the rows that were looked up.

    Returns
    -------
    Tensor, shape (*input.shape, features)

    Raises
    ------
    IndexError
        If a number in ``input`` is not a row; on a GPU it is raised where the host next waits.
    AssertionError
        For a ``padding_idx`` that is not a row.
    RuntimeError
        For a weight that is not a matrix, and for ``sparse`` with ``scale_grad_by_freq``.
    """
    index = look_up("embedding", input, weight)
    shape = weight._expr.shape
    if len(shape) != 2:
        raise RuntimeError(f"'weight' must be 2-D, got shape {list(shape)}")
    rows = shape[0]
    if padding_idx is not None:
        if not -rows <= padding_idx < rows:
            raise AssertionError("Padding_idx must be within num_embeddings")
        padding_idx %= rows
    bounds.check(index, rows, 0, weight._expr.program.device, 0, bounds.no_row)
    if max_norm is not None:
        shorten_rows(input, weight, max_norm, norm_type)
    if sparse:
        sparse_rows = _take_rows_sparsely(weight, index, padding_idx, scale_grad_by_freq)
        watch(sparse_rows, input)
        return sparse_rows
    scale = None
    if scale_grad_by_freq:
        xp = xp_of(weight)
        counts = xp.bincount(index.reshape(-1), minlength=rows)[index]
        scale = from_array(
            (1.0 / counts).astype(weight.dtype.numpy)[..., None], None, weight.device
        )
    result: Tensor = _take_rows(weight, index, padding_idx, scale)
    watch(result, input)
    return result


@batching(embedding)
def _embedding_batched(
    level: Batch, f: Any, x: Tensor, weight: Tensor, *args: Any, **kwargs: Any
) -> Any:
    if level.holds(weight):
        return NotImplemented
    return level.wrap(f(level.value(x), weight, *args, **kwargs))


def look_up(op: str, input: Tensor, weight: Tensor) -> Any:
    """The array of row numbers, if it is one."""
    if not (isinstance(weight, Tensor) and isinstance(input, Tensor)):
        require_tensors(op, weight=weight, indices=input)
    require_one_device(op, weight, input)
    if input._expr.program.dtype.name not in ("int32", "int64"):
        raise RuntimeError(
            "Expected tensor for argument #1 'indices' to have one of the following scalar types: "
            f"Long, Int; but got {input.dtype} instead (while checking arguments for {op})"
        )
    return input.array


def shorten_rows(input: Tensor, weight: Tensor, max_norm: float, norm_type: float) -> None:
    """Scale the rows of ``weight`` that are looked up to at most ``max_norm``, in place.

    Tangents stay as they are: like gradients, they do not see this write.
    """
    wrapper = weight._wrapper
    if wrapper is not None and not wrapper.level.batches:
        with bared(weight, wrapper.level):
            shorten_rows(input, weight, max_norm, norm_type)
        return
    with no_grad():
        index = input.reshape(-1).long()
        rows = weight.detach().index_select(0, index).to(weight.dtype.compute)
        norms = rows.norm(norm_type, 1, keepdim=True)
        shorter = rows * (max_norm / (norms + 1e-7))
        weight.index_copy_(0, index, shorter.where(norms > max_norm, rows).to(weight.dtype))


@op
def _take_rows(weight: Tensor, index: Any, skip: int | None, scale: Tensor | None = None) -> Tensor:
    """Rows by number; ``scale`` is what their gradients are multiplied by."""
    rows = weight._expr.shape[0]
    return record(
        "EmbeddingBackward0",
        weight.array.take(index, axis=0),
        (weight,),
        lambda node, g: (_sum_rows(g if scale is None else g * scale, index, rows, skip),),
        dtype=weight._expr.program.dtype,
    )


def _take_rows_sparsely(weight: Tensor, index: Any, skip: int | None, scaled: bool) -> Tensor:
    """Rows by number, whose gradient lists them instead of adding them up."""
    size = tuple(weight.shape)

    def vjp(node: Any, g: Tensor) -> tuple[Tensor]:
        from lucid_gpu.sparse.gradients import listed_rows

        if scaled:
            raise RuntimeError(
                "embedding_backward: scale_grad_by_freq not supported with sparse gradients"
            )
        numbers = from_array(index.reshape(-1).astype("int64"), None, g.device)
        values = g.reshape(numbers.shape[0], size[1])
        if skip is not None:
            kept = numbers != skip
            numbers, values = numbers[kept], values[kept]
        return (listed_rows("EmbeddingSparseBackward0", numbers, values, size),)

    return record("EmbeddingBackward0", weight.array.take(index, axis=0), (weight,), vjp)


@op
def _sum_rows(g: Tensor, index: Any, rows: int, skip: int | None) -> Tensor:
    """Add the rows of ``g`` to the rows they were taken from: the adjoint of `_take_rows`."""
    program, columns = g._expr.program, g._expr.shape[-1]
    where = program.device
    total = backend(where).empty((rows, columns), program.dtype, where)
    total.fill(0)
    values = g.array.reshape(1, index.size, columns)
    index_add(total[None], index.reshape(-1), values, where, False, -1 if skip is None else skip)

    def vjp(node: Any, gg: Tensor) -> tuple[Tensor]:
        taken = _take_rows(gg, index, None)
        if skip is None:
            return (taken,)
        return (taken * from_array((index != skip)[..., None], None, gg.device),)

    return record("EmbeddingDenseBackward0", total, (g,), vjp)
