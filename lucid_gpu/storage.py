"""Who shares a tensor's memory and how often it was written; how elements are kept, how many.

A `Size` says how many there are along each dimension. A `layout` keeps elements in one array
(`strided`) or as a list (`sparse_coo`); a `memory_format` is the order of those of one array.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from lucid_gpu.dtypes import printed

__all__ = [
    "CONJUGATED",
    "NEGATED",
    "Mirror",
    "SameMemory",
    "Size",
    "Storage",
    "channels_last",
    "channels_last_3d",
    "contiguous_format",
    "layout",
    "memory_format",
    "owner_of",
    "preserve_format",
    "sparse_bsc",
    "sparse_bsr",
    "sparse_coo",
    "sparse_csc",
    "sparse_csr",
    "strided",
]


# to the owner of memory that nobody outside holds: a leaf's, `Storage.owner`, the one of the count
IDLE_REFERENCES = 3
_size: Any = tuple.__new__  # of extents that are known to be numbers


def _nothing() -> None:
    """What a dead weak reference gives."""


class Loan(NamedTuple):
    """Memory that `Storage.lend` lent, and how it was lent before."""

    owner: Any
    owner_before: Any
    idle_references_before: int


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
    mirror: Any = None

    def __init__(self, tensor: Any, cells: Iterable[Any]) -> None:
        self.version = self.recorded = self.unrecorded = 0
        self.writer = "an in-place op"
        self.mirrors: list[Any] | None = None
        own = weakref.ref(tensor)
        self.tensors: list[Any] = [own]
        self.read: list[Any] = [own]
        self.cells: list[Any] = []
        for cell in cells:
            if cell.sharers is None:  # as `add_cell` does
                cell.home = weakref.ref(self)
                self.cells.append(weakref.ref(cell))
            else:
                self.add_cell(cell)
        self.owner: Any = None
        self.idle_references = 0
        self.read_only: bool | str = False
        self.uncounted = False
        self.lent_part: Any = _nothing

    def count(self, name: str) -> None:
        """Count a write by the op ``name``."""
        self.version += 1
        self.writer = name

    def add(self, tensor: Any, cell: Any = None) -> None:
        """Note a tensor on this memory, and its leaf."""
        own, tensors = weakref.ref(tensor), self.tensors
        count = len(tensors)
        if count > 8 and count & (count - 1) == 0:  # the dead are forgotten now and then
            tensors[:] = [r for r in tensors if r() is not None]
            self.read[:] = [r for r in self.read if r() is not None]
        tensors.append(own)
        self.read.append(own)
        if cell is None:
            return
        if cell.sharers is None and cell.home is None and type(self) is Storage:
            cell.home = weakref.ref(self)  # as `add_cell` does
            self.cells.append(weakref.ref(cell))
        else:
            self.add_cell(cell)

    def forget(self, tensor: Any) -> None:
        """A tensor takes other memory: what is written or computed here is not its value."""
        self.tensors = [r for r in self.tensors if r() is not tensor]

    def add_cell(self, cell: Any) -> None:
        """Note a leaf through which this memory is read, and the twins that it has.

        One that is borrowed lies, with its twins, on the memory of another record, its home.
        """
        own, cells = weakref.ref(self), self.cells
        count = len(cells)
        if count > 8 and count & (count - 1) == 0:
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

    def living(self, but: Any = None) -> Iterator[Any]:
        """The other living tensors on this memory, in the order in which they came."""
        for reference in self.tensors:
            tensor = reference()
            if tensor is not None and tensor is not but:
                yield tensor

    def others(self, tensor: Any) -> list[Any]:
        """Those, as a list."""
        tensors = self.tensors
        if len(tensors) == 1 and tensors[0]() is tensor:
            return []
        return [*self.living(tensor)]

    def lend(self, cell: Any, forever: bool = False) -> Loan:
        """From now on somebody else can write the memory of a leaf.

        ``forever`` where no reference count tells that they are gone, but `take_back` may.
        """
        before = self.owner, self.idle_references
        self.owner = owner_of(cell.array)
        self.idle_references = -1 if forever else IDLE_REFERENCES
        return Loan(self.owner, *before)

    def take_back(self, loan: Loan) -> None:
        """They can no longer: the memory, unless it is another by now, is lent as it was before."""
        if self.owner is loan.owner:
            self.owner, self.idle_references = loan.owner_before, loan.idle_references_before

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

    def add_cell(self, cell: Any) -> None:
        """Note a leaf through which the memory is read."""
        self.memory.add_cell(cell)


def _share(record: type[Storage], path: str, names: Sequence[str]) -> None:
    """Have a kind of record take fields from another one, which its attribute ``path`` is."""
    other = attrgetter(path)
    for name in names:

        def set_field(self: Any, value: Any, name: str = name) -> None:
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

    def __init__(self, raw: Any, bits: int) -> None:
        self.raw, self.bits = raw, bits
        self.tensors, self.read, self.cells, self.mirrors = [], [], [], None
        self.recorded = self.unrecorded = 0
        self.owner, self.idle_references, self.lent_part = None, 0, _nothing
        self.uncounted = False
        memory = raw._storage
        known = memory.mirrors or []
        if len(known) > 8 and len(known) & (len(known) - 1) == 0:
            known = [r for r in known if r() is not None]
        memory.mirrors = [*known, weakref.ref(self)]

    @property
    def mirror(self) -> Mirror:
        return self


_share(Mirror, "raw._storage", ("read_only", "version", "writer"))


def owner_of(array: Any) -> Any:
    """The array that owns a view's memory."""
    while isinstance(getattr(array, "base", None), type(array)):
        array = array.base
    return array


def _extent(n: Any, position: int) -> int:
    if isinstance(n, int) and not isinstance(n, bool):
        return n
    if hasattr(n, "__index__") and getattr(n, "ndim", 0) == 0:
        return n.__index__()
    raise TypeError(f"Size() takes an iterable of 'int' (item {position} is '{type(n).__name__}')")


class Size(tuple[int, ...]):
    """A tensor's shape: a tuple that prints as PyTorch's, and so do its parts and sums.

    Made of whole numbers: TypeError for others.
    """

    __slots__ = ()

    def __new__(cls, extents: Iterable[Any] = ()) -> Size:
        """One of the extents given, tensors of one integer among them."""
        return _size(cls, [_extent(n, i) for i, n in enumerate(extents)])

    def numel(self) -> int:
        """The product of the extents."""
        n = 1
        for extent in self:
            n *= extent
        return n

    if not TYPE_CHECKING:

        def __getitem__(self, at):
            part = tuple.__getitem__(self, at)
            return _size(Size, part) if type(at) is slice else part

        def __add__(self, other):
            if not isinstance(other, tuple):
                reflected = getattr(type(other), "__radd__", None)
                joined = NotImplemented if reflected is None else reflected(other, self)
                if joined is NotImplemented:
                    kind = type(other).__name__
                    raise TypeError(f"can only concatenate tuple (not {kind}) to torch.Size")
                return joined
            return Size(tuple.__add__(self, other))

        def __radd__(self, other):
            return Size(other + tuple(self)) if isinstance(other, tuple) else NotImplemented

        def __mul__(self, times):
            return _size(Size, tuple.__mul__(self, times))

        __rmul__ = __mul__

    def __repr__(self) -> str:
        return f"{printed()}.Size({list(self)})"


class layout:
    """A way of keeping elements, such as ``lucid_gpu.sparse_coo``."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"{printed()}.{self.name}"

    def __reduce__(self) -> str:
        return self.name


strided = layout("strided")
sparse_coo = layout("sparse_coo")
sparse_csr = layout("sparse_csr")
# for comparisons with `Tensor.layout`: no tensor has these
sparse_csc, sparse_bsr, sparse_bsc = map(layout, ("sparse_csc", "sparse_bsr", "sparse_bsc"))


class memory_format:
    """An order of elements, such as ``lucid_gpu.channels_last``.

    Attributes
    ----------
    name : str
    order : tuple of int or None
        Dimensions from the farthest to the nearest; None says that it depends on the tensor.
    """

    __slots__ = ("name", "order")

    def __init__(self, name: str, order: tuple[int, ...] | None) -> None:
        self.name, self.order = name, order

    def __repr__(self) -> str:
        return f"{printed()}.{self.name}"

    def __reduce__(self) -> str:
        return self.name


contiguous_format = memory_format("contiguous_format", None)
preserve_format = memory_format("preserve_format", None)
channels_last = memory_format("channels_last", (0, 2, 3, 1))
channels_last_3d = memory_format("channels_last_3d", (0, 2, 3, 4, 1))


def __getattr__(name: str) -> Any:
    """`TypedStorage` and `UntypedStorage`, which PyTorch has in this module."""
    from lucid_gpu.compat.module_names import imported

    kinds = dict.fromkeys(("TypedStorage", "UntypedStorage"), "lucid_gpu.ops.storages")
    return imported(globals(), name, kinds)
