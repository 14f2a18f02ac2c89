"""Who shares a memory, who may write it, and how often it was written."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

from lucid_gpu.core.value import DUE

if TYPE_CHECKING:
    from lucid_gpu.core.value import Array, Cell
    from lucid_gpu.tensor import Tensor

A = TypeVar("A", bound="Array")
# to the owner of memory that nobody outside holds: a leaf's, `Storage.owner`, the one of the count
IDLE_REFERENCES = 3


def _nothing() -> None:
    """What a dead weak reference gives."""


# The owner of memory that `Storage.lend` lent; the owner and idle references before.
Loan = tuple["Array | None", "Array | None", int]


class Storage:
    """Made when a tensor is first viewed, detached, written in place or handed out.

    Attributes
    ----------
    version : int
        Counts in-place writes; shared by all views.
    writer : str
        The op that wrote last.
    tensors : list of weak references
        Tensors on this memory.
    read : list of weak references
        Those of them that somebody may have read since the last write.
    cells : list of weak references
        The leaves through which it was read since, and their twins.
    recorded, unrecorded : int
        The numbers of the last write that gave views another history, and that took it.
    owner : array or None
        Set while others can write the memory (`from_numpy`, `Tensor.numpy`): they are gone when
        its reference count is down at ``idle_references``. Leaves and views that go away take
        references with them, so that those that there are do not count as idle.
    read_only : bool or str
        The memory belongs to an array that may not be written; or why else it may not.
    mirrors : list of weak references to Mirror, or None
        Records of tensors that show this memory conjugated or negated.
    mirror : Mirror or None
        This record, where it is one of those.
    lent_part : function
        Gives the array that somebody else lent, which may be a part of one of theirs, or None.
    uncounted : bool
        Whether there was somebody whose writes the version does not count (`.data`).
    """

    __slots__ = (
        *("__weakref__", "cells", "idle_references", "lent_part", "mirrors", "owner"),
        *("read", "read_only", "recorded", "tensors", "uncounted", "unrecorded", "version"),
        "writer",
    )
    mirror: Any = None  # which is a property of two kinds

    def __init__(self, tensor: Tensor, cells: Iterable[Cell]) -> None:
        self.version = self.recorded = self.unrecorded = 0
        self.writer = "an in-place op"
        self.mirrors: list[weakref.ref[Mirror]] | None = None
        own = weakref.ref(tensor)
        self.tensors: list[weakref.ref[Tensor]] = [own]
        self.read: list[weakref.ref[Tensor]] = [own]
        self.cells: list[weakref.ref[Cell]] = []
        for cell in cells:
            if cell.sharers is None:  # as `add_cell` does
                cell.home = weakref.ref(self)
                self.cells.append(weakref.ref(cell))
            else:
                self.add_cell(cell)
        self.owner: Array | None = None
        self.idle_references = 0
        self.read_only: bool | str = False
        self.uncounted = False
        self.lent_part: Callable[[], Array | None] = _nothing

    def count(self, name: str) -> None:
        """Count a write by the op ``name``."""
        self.version += 1
        self.writer = name

    def add(self, tensor: Tensor, cell: Cell | None = None) -> None:
        """Note a tensor on this memory, and its leaf."""
        own = weakref.ref(tensor)
        for references in (self.tensors, self.read):
            if len(references) in DUE:
                references[:] = [r for r in references if r() is not None]
            references.append(own)
        if cell is None:
            return
        if cell.sharers is None and cell.home is None and type(self) is Storage:
            cell.home = weakref.ref(self)  # as `add_cell` does
            self.cells.append(weakref.ref(cell))
        else:
            self.add_cell(cell)

    def forget(self, tensor: Tensor) -> None:
        """A tensor takes other memory: what is written or computed here is not its value."""
        self.tensors = [r for r in self.tensors if r() is not tensor]

    def add_cell(self, cell: Cell) -> None:
        """Note a leaf through which this memory is read, and the twins that it has.

        One that is borrowed lies, with its twins, on the memory of another record, its home.
        """
        own, cells = weakref.ref(self), self.cells
        if len(cells) in DUE:
            cells[:] = [r for r in cells if r() is not None]
        if cell.borrowed:
            cells.append(weakref.ref(cell))
            return
        for leaf in (cell,) if cell.sharers is None else cell.readers():
            if leaf.home is not own:
                leaf.home = own
                cells.append(weakref.ref(leaf))

    def tidy(self) -> None:
        """Forget leaves that are gone, and tensors while that costs little."""
        self.cells[:] = [r for r in self.cells if r() is not None]
        tensors = self.tensors
        while tensors and tensors[-1]() is None:
            tensors.pop()
        if tensors and tensors[0]() is None:
            tensors[:] = [r for r in tensors if r() is not None]

    def living(self, but: Tensor | None = None) -> Iterator[Tensor]:
        """The other living tensors on this memory, in the order in which they came."""
        for reference in self.tensors:
            tensor = reference()
            if tensor is not None and tensor is not but:
                yield tensor

    def others(self, tensor: Tensor | None) -> list[Tensor]:
        """Those, as a list."""
        tensors = self.tensors
        if len(tensors) == 1 and tensors[0]() is tensor:
            return []
        return [*self.living(tensor)]

    def lend(self, cell: Cell, forever: bool = False) -> Loan:
        """From now on somebody else can write the memory of a leaf.

        ``forever`` where no reference count tells that they are gone, but `take_back` may.
        """
        before, references = self.owner, self.idle_references
        self.owner = cell.array if cell.array.base is None else owner_of(cell.array)
        self.idle_references = -1 if forever else IDLE_REFERENCES
        return self.owner, before, references

    def take_back(self, loan: Loan) -> None:
        """They can no longer: the memory, unless it is another by now, is lent as it was before."""
        owner, before, references = loan
        if self.owner is owner:
            self.owner, self.idle_references = before, references

    def is_lent(self) -> bool:
        """Whether somebody outside can still write this memory."""
        if self.owner is None:
            return False
        if sys.getrefcount(self.owner) > self.idle_references:
            return True
        self.owner = None
        return False


class SameMemory(Storage):
    """Another record's memory with a count of writes of its own, as `.data` and `x.data = y` have.

    Attributes
    ----------
    memory : Storage
    """

    __slots__ = ("memory",)

    def __init__(self, memory: Storage, version: int = 0) -> None:
        self.memory: Storage = memory.memory if isinstance(memory, SameMemory) else memory
        self.version, self.writer = version, "an in-place op"
        self.recorded = self.unrecorded = 0
        self.uncounted = self.memory.uncounted = True

    def add_cell(self, cell: Cell) -> None:
        """Note a leaf through which the memory is read."""
        self.memory.add_cell(cell)


def _share(record: type[Storage], path: str, names: Sequence[str]) -> None:
    """Have a kind of record take fields from another one, which its attribute ``path`` is."""
    other = attrgetter(path)
    for name in names:

        def set_field(self: Storage, value: object, name: str = name) -> None:
            setattr(other(self), name, value)

        setattr(record, name, property(attrgetter(f"{path}.{name}"), set_field))


_OF_MEMORY = ("cells", "idle_references", "lent_part", "mirror", "mirrors", "owner", "read")
_share(SameMemory, "memory", (*_OF_MEMORY, "read_only", "tensors"))

CONJUGATED, NEGATED = 1, 2


class Mirror(Storage):
    """The record of tensors that show another's memory conjugated or negated (`ops.mirrors`).

    Their values are arrays of their own, computed when they are read, and anew after each write to
    the memory. What is written to them goes there.

    Attributes
    ----------
    raw : Tensor
        The same elements as they lie in the memory, apart from the graph.
    bits : int
        `CONJUGATED`, `NEGATED` or both.
    """

    __slots__ = ("bits", "raw")

    def __init__(self, raw: Tensor, bits: int) -> None:
        self.raw, self.bits = raw, bits
        self.tensors, self.read, self.cells, self.mirrors = [], [], [], None
        self.recorded = self.unrecorded = 0
        self.owner, self.idle_references, self.lent_part = None, 0, _nothing
        self.uncounted = False
        memory = raw._memory()
        known = memory.mirrors or []
        if len(known) in DUE:
            known = [r for r in known if r() is not None]
        memory.mirrors = [*known, weakref.ref(self)]

    @property
    def mirror(self) -> Mirror:
        return self


_share(Mirror, "raw._storage", ("read_only", "version", "writer"))


def owner_of(array: A) -> A:
    """The array that owns a view's memory."""
    while isinstance(base := getattr(array, "base", None), type(array)):
        array = base
    return array
