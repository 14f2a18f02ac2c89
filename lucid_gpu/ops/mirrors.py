"""Tensors that show memory conjugated or negated: `conj`, `_neg_view`, and views of what they give.

As in PyTorch they are views: a write through one reaches the memory, and a write to the memory is
seen through it. Unlike PyTorch's they have arrays of their own, computed when they are read, so
that no kernel ever sees the marks; see `lucid_gpu.storage.Mirror`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from lucid_gpu.core.owner import CONJUGATED, NEGATED, Mirror, Storage
from lucid_gpu.core.program import INFERENCE, SHARED, marked
from lucid_gpu.core.saved import counted, ended
from lucid_gpu.core.value import Cell, Expr, give
from lucid_gpu.fusion import building
from lucid_gpu.fusion.building import boundary, without_grad
from lucid_gpu.fusion.optable import TABLE
from lucid_gpu.fusion.region import edge_of
from lucid_gpu.tape.modes import OFF, no_grad
from lucid_gpu.tensor import Tensor, _mark_shared, _tensor, apply, becomes_pending


def bits_of(tensor: Tensor) -> int:
    """How a tensor shows its memory: 0 as it is, else `CONJUGATED`, `NEGATED` or both."""
    storage = tensor._storage
    mirror = None if storage is None else storage.mirror
    return 0 if mirror is None else mirror.bits


def in_memory(tensor: Tensor) -> Tensor:
    """The elements as they lie in memory: the tensor itself, or what it shows."""
    storage = tensor._storage
    mirror = None if storage is None else storage.mirror
    return tensor if mirror is None else mirror.raw


def is_batched(tensor: Tensor) -> bool:
    """Whether a tensor stands for the examples of a batch and has no memory of its own."""
    wrapper = tensor._wrapper
    return wrapper is not None and wrapper.level.batches


def refuse_bits(tensor: Tensor, sentence: str) -> None:
    """Raise a sentence, with what the tensor is in it, where memory is shown by bits."""
    bits = bits_of(tensor)
    if bits:
        conjugate, negative = "conjugate view tensors", "tensors with negative bit set"
        raise RuntimeError(sentence.format(conjugate if bits & CONJUGATED else negative))


def showing(storage: Storage) -> Iterator[Tensor]:
    """The living tensors that show a memory conjugated or negated."""
    for reference in storage.mirrors or ():
        mirror = reference()
        if mirror is not None:
            yield from _members(mirror)


def _members(mirror: Mirror) -> list[Tensor]:
    tensors = mirror.others(None)
    return [t for t in tensors if t._storage is not None and t._storage.mirror is mirror]


def _rows(bits: int, category: int) -> list[Any]:
    """The rows of the op table that turn elements; truth values have no sign."""
    wanted = (("conj_physical", bits & CONJUGATED), ("neg", bits & NEGATED and category))
    return [TABLE[name] for name, bit in wanted if bit]


def turned(tensor: Tensor, bits: int) -> Tensor:
    """The elements conjugated, negated or both, as new ones."""
    for row in _rows(bits, tensor.dtype.category):
        tensor = apply(row, tensor)
    return tensor


def _shown(value: Expr, bits: int, inference: int) -> Expr:
    """Stored elements conjugated, negated or both, pending also where ops are computed at once."""
    for row in _rows(bits, value.program.dtype.category):
        value = building.build(row, [value], OFF, scheduled=False)
    if value.program.marks & INFERENCE != inference:
        marks = value.program.marks ^ INFERENCE
        value = Expr(marked(value.program, marks), value.leaves, value.made_by, value.shape)
    return value


def show(input: Tensor, seen: Tensor, bits: int) -> Tensor:
    """A view of what ``input`` lies in, recorded, as these bits show it.

    Parameters
    ----------
    seen : Tensor
        The view's elements as they lie in memory, with its history.
    """
    memory = in_memory(input)._memory()
    program = input._expr.program
    raw = _tensor(without_grad(seen._expr)) if bits else seen
    raw._storage = memory
    memory.add(raw)
    memory.add_cell(raw._expr.leaves[0])
    counted(raw._expr, memory)
    if in_memory(input)._expr.program.marks & SHARED:
        _mark_shared(raw)
    if not bits:
        return raw
    result = _tensor(_shown(raw._expr, bits, program.marks & INFERENCE))
    result._storage = Mirror(raw, bits)
    result._storage.add(result)
    if seen.requires_grad:
        result._attach(*seen._edge())
    counted(result._expr, result._storage)
    return result


@contextmanager
def renewed(storage: Storage) -> Iterator[None]:
    """Around a write to a memory: tensors that show it read it anew, when they are next read."""
    aside = [_put_aside(tensor) for tensor in showing(storage)]
    mirrors, storage.mirrors = storage.mirrors, None  # a write within finds none
    try:
        yield
    finally:
        storage.mirrors = [r for r in mirrors or () if r() is not None] or None
        for renew in aside:
            renew()


def _put_aside(tensor: Tensor) -> Callable[[], None]:
    """Let go of the value of a tensor that shows a memory; the result gives it another."""
    value, storage = tensor._expr, tensor._memory()
    program, mirror = value.program, storage.mirror
    ended(value, storage)
    cell, inference = None, program.marks & INFERENCE
    if program.needs_grad:
        known = program.is_load or program.is_boundary
        cell = value.leaves[-1].again() if known else Cell(None, *edge_of(value))
        cell.array = None
    give(tensor, building.of_constant(0, program.dtype, value.shape, program.device))

    def renew() -> None:
        value = _shown(mirror.raw._load(), mirror.bits, inference)
        give(tensor, value if cell is None else with_history(value, cell))
        counted(tensor._expr, storage)
        becomes_pending(tensor)

    return renew


def with_history(value: Expr, cell: Any) -> Expr:
    """A pending value whose gradient goes where a leaf without an array says."""
    held = boundary(value, None)
    return Expr(held.program, (*held.leaves[:-1], cell), None, held.shape)


def write(target: Tensor, value: Tensor, storage: Storage, name: str) -> None:
    """Write a value, which is not recorded, through a tensor that shows a memory."""
    mirror = storage.mirror
    raw: Tensor = mirror.raw
    if storage is not mirror:  # `.data`, which counts its own writes
        storage.count(name)
        raw = raw.data
    with no_grad(), renewed(raw._memory()):
        raw._write(turned(_tensor(without_grad(value._expr)), mirror.bits), name)
