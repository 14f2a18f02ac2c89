"""In-place writes to memory that several tensors share, with their histories.

PyTorch rebases the base onto the write and regenerates the views' history from it. Here every
other tensor on the memory gets, at once, a node that says which of its elements the write replaced:
their gradient goes to the written value, that of the rest to what the tensor was before.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lucid_gpu import dtypes as dt
from lucid_gpu.devices import xp_of
from lucid_gpu.fusion.expression import Cell, Expr
from lucid_gpu.ops.indexing import getitem_parsed, place, with_values
from lucid_gpu.ops.record import record
from lucid_gpu.ops.reductions import expand_lazily
from lucid_gpu.storage import owner_of
from lucid_gpu.tensor import LEAF_IN_PLACE, Overwritten, Tensor, _tensor, from_array


def write_with_history(target: Tensor, value: Tensor, name: str) -> None:
    """Write ``value`` into ``target``'s memory and record it for every tensor that shares it.

    Raises
    ------
    RuntimeError
        Where a leaf that requires grad shares the memory.
    """
    storage = target._memory()
    others = relatives(target)
    if target._viewed_without_grad and any(t.requires_grad for t in (value, *others)):
        raise RuntimeError(
            "A view was created in no_grad mode and is being modified inplace with grad mode "
            "enabled. Given that this use case is ambiguous and error-prone, it is forbidden. You "
            "can clarify your code by moving both the view and the inplace either both inside the "
            "no_grad block (if you don't want the inplace to be tracked) or both outside (if you "
            "want the inplace to be tracked)."
        )
    for other in others:
        if other.requires_grad and other.is_leaf:
            raise RuntimeError(
                f"a view of {LEAF_IN_PLACE} {name} writes a view of a leaf of shape "
                f"{list(other.shape)}; do it under lucid_gpu.no_grad()."
            )
    array = target._cell().array
    replaced = target._expr
    source = value.array
    marks = {id(other): _overlap(array, other._cell().array) for other in others}
    before = [(other, _history(other)) for other in others if marks[id(other)] is not None]
    target._protect_readers(storage, name)
    array[...] = source
    storage.version += 1
    for other, old in before:
        _rebase(other, old, value, marks[id(other)])
    if value.requires_grad:
        node, output = value._edge()
        _point(target, node, output)
    elif target.requires_grad:
        _point(target, Overwritten(replaced), 0)


def relatives(tensor: Tensor) -> list[Tensor]:
    """The other views of its base: they share its history, not only its memory."""
    storage = tensor._storage
    if storage is None:
        return []
    return [t for t in storage.others(tensor) if t._family is tensor._family]


def share_history(written: Tensor) -> None:
    """Let the other views of a tensor know the node of a write that has already happened."""
    array = written._cell().array
    for other in relatives(written):
        mark = _overlap(array, other._cell().array)
        if mark is not None:
            _rebase(other, _history(other), written, mark)


def _overlap(written: Any, other: Any) -> Any:
    """For each element of ``other``: which element of ``written`` it is, or -1; None for none."""
    owner = owner_of(written)
    item = written.itemsize
    start = _address(owner)
    table = np.full(owner.nbytes // item, -1, np.int64)
    _laid(table, written, start)[...] = np.arange(written.size).reshape(written.shape)
    found = np.array(_laid(table, other, start))
    return found if (found >= 0).any() else None


def _address(array: Any) -> int:
    if hasattr(array, "data") and hasattr(array.data, "ptr"):
        return int(array.data.ptr)
    return int(array.__array_interface__["data"][0])


def _laid(table: Any, array: Any, start: int) -> Any:
    """A table of the owner's elements, seen through an array's shape and strides."""
    first = (_address(array) - start) // array.itemsize
    strides = [s // array.itemsize * table.itemsize for s in array.strides]
    return np.lib.stride_tricks.as_strided(table[first:], array.shape, strides)


def _rebase(other: Tensor, old: Tensor, value: Tensor, mark: Any) -> None:
    if not (old.requires_grad or value.requires_grad):
        return
    xp = xp_of(other)
    hit = mark >= 0
    replaced = from_array(xp.asarray(hit), dt.bool, other.device)
    source = xp.asarray(mark[hit])
    joined = record(
        "CopySlices", other.array, (old, value), _rebase_vjp, dtype=other.dtype,
        replaced=replaced, source=source, shape=tuple(value.shape),
    )  # fmt: skip
    _point(other, *joined._edge())


def _history(tensor: Tensor) -> Tensor:
    """A tensor for what this one's gradient went to until now; its value is not to be read."""
    expr = tensor._expr
    cell = expr.leaves[0]
    return _tensor(Expr(expr.program, (Cell(cell.array, cell.node, cell.output),), None))


def _point(tensor: Tensor, node: Any, output: int) -> None:
    """Give a realised tensor a new history, its memory staying where it is."""
    tensor.detach_()
    tensor._attach(node, output)


def _rebase_vjp(node: Any, g: Tensor) -> Any:
    index = (node.replaced.array,)
    g_old = g_value = None
    if node.needs_input_grad[0]:
        count = (int(node.replaced.sum()),)
        g_old = with_values(g, index, expand_lazily(g.new_zeros(()), count))
    if node.needs_input_grad[1]:
        size = int(np.prod(node.shape))
        g_value = place(getitem_parsed(g, index), (node.source,), (size,)).reshape(node.shape)
    return g_old, g_value
