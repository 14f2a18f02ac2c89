"""Values of tensors: a program, the leaves that it reads, and a shape.

Every tensor's value is an `Expr`. A realized value is an expression whose program is one load and
whose only leaf is the `Cell` holding the array. Expressions are immutable, so a reader never sees a
value change: what changes a tensor gives the tensor another expression.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from lucid_gpu.core.planning import steps
from lucid_gpu.core.program import OF_PLACE, Pattern, Program, Shape, derived, order_in, spend
from lucid_gpu.device import device
from lucid_gpu.dtypes import dtype
from lucid_gpu.tape import watched

if TYPE_CHECKING:
    from lucid_gpu.core.node import Node
    from lucid_gpu.core.owner import Storage
    from lucid_gpu.tensor import Tensor

# What `Expr.since` is in place of a step's number.
COMPUTED = -1  # a kernel has computed it: older than all
LEAF_WRITTEN = -2  # a leaf of the graph that was written in place: a recorded op stores it first
ALWAYS = sys.maxsize  # no kernel has to compute it: never old


# Who adds a weak reference to a list that is so long forgets the dead first.
DUE = frozenset([1 << n for n in range(4, 48)])


class Array(Protocol):
    """An array of NumPy or CuPy."""

    @property
    def strides(self) -> tuple[int, ...]: ...


class Variable:
    """A tensor as those see it who saved its value: they hear that it was written or replaced.

    It is referred to by the pending value that a tensor has and by the leaf that stores that, each
    beside the ``version`` whose contents they are. Views and `detach` have their own, on one
    storage. A write ends one that a pending value has had, and the tensor gets another.

    Attributes
    ----------
    _storage : Storage, Follows or None
        Counts the writes; None while there was none.
    values : list of weak references to Expr, or None
        The pending value that it has had, and detached copies: regions are built on these.
    """

    _storage: Any = None  # or what else has a version and a writer
    values: list[weakref.ref[Expr]] | None = None


class Like(NamedTuple):
    """What a value looks like; it holds no array.

    Attributes
    ----------
    program : Program
    shape : tuple of int
    """

    program: Program
    shape: Shape

    @property
    def dtype(self) -> dtype:
        """The type of the elements."""
        return self.program.dtype

    @property
    def device(self) -> device:
        """Where they are."""
        return self.program.device


class Cell:
    """A leaf: an array, or the place where a gradient leaves a fused region, or both.

    Attributes
    ----------
    array : numpy.ndarray, cupy.ndarray, number or None
        The buffer; a Python number for a scalar argument; None where only a gradient passes.
    node : Node or None
        Where the gradient of this leaf goes.
    borrowed : bool
        The array is another tensor's memory: copy it before writing or lending it.
    sharers : list of weak references to Cell, or None
        All leaves on this very array, made by `twin`: who writes the array gives them a copy.
    variable : Variable or None
        The tensor's that holds this array, where somebody may save it: a write is seen there.
    version : int
        How often that had been written when this leaf was made.
    """

    __slots__ = ("__dict__", "__weakref__", "array", "node", "output", "variable", "version")
    variable: Variable | None
    version: int
    borrowed = False
    leads = True  # to its node at once; a view's is found when somebody asks
    sharers: list[weakref.ref[Cell]] | None = None
    home: weakref.ref[Storage] | None = None  # which knows this leaf, and all its twins
    apart: weakref.ref[Cell] | None = None  # the twin without a node that gradients read
    source: Any = None  # what will give the array: see `LateCell`
    result: int | None = None  # which result of a reduction that is

    def __init__(self, array: Any, node: Node | None = None, output: int = 0) -> None:
        self.array = array
        self.node: Any = node  # read where there is one
        self.output = output  # which output of the node the leaf is
        self.variable, self.version = None, 0
        if watched.by is not None:
            watched.by.made(self)

    @property
    def filled(self) -> bool:
        """Is this more than a place where a gradient passes?"""
        return self.array is not None

    def twin(self, node: Node | None = None, output: int = 0) -> Cell:
        """Another leaf on the same array."""
        if watched.by is not None:
            watched.by.twinned(self)
        other = self._beside(node, output) if self.source else Cell(self.array, node, output)
        if self.home is not None:
            storage = self.home()
            if storage is not None:
                storage.add_cell(other)
        sharers = self.sharers
        if sharers is None:  # nearly always; else as `_shares_with` does
            self.sharers = other.sharers = [weakref.ref(self), weakref.ref(other)]
            if self.borrowed:
                other.borrowed = True
            return other
        return self._shares_with(other)

    def _shares_with(self, other: Cell) -> Cell:
        if self.borrowed:
            other.borrowed = True
        sharers = self.sharers
        if sharers is None:
            sharers = self.sharers = [weakref.ref(self)]
        elif len(sharers) in DUE:
            sharers[:] = [r for r in sharers if r() is not None]
        sharers.append(weakref.ref(other))
        other.sharers = sharers
        return other

    def again(self) -> Cell:
        """A leaf that takes this one's place, which others may go on reading."""
        if watched.by is not None:
            watched.by.twinned(self)
        node, output = self.node, self.output
        other = self._beside(node, output) if self.source else Cell(self.array, node, output)
        other.variable = self.variable
        return other

    def _beside(self, node: Node | None, output: int) -> Cell:
        """Return another leaf for the array that this one waits for."""
        raise NotImplementedError

    def moved(self, array: Array) -> Cell:
        """A leaf that takes this one's place, on another array of the same values."""
        return Cell(array, self.node, self.output).of(self)

    def of(self, other: Cell | Expr) -> Cell:
        """This leaf, as another place of a value: a write to its variable is one to both."""
        self.variable, self.version = mark_of(other)
        return self

    def without_node(self) -> Cell:
        """A twin that leads to no graph: one for all who read it so."""
        if not self.filled:
            return _NOWHERE
        twin: Cell | None = None if self.apart is None else self.apart()
        if twin is None:
            twin = self.twin()
            self.apart = weakref.ref(twin)
        return twin

    def readers(self) -> list[Cell]:
        """All living leaves on this array, this one first."""
        if self.sharers is None:
            return [self]
        others = [c for r in self.sharers if (c := r()) is not None and c is not self]
        return [self, *[c for c in others if c.array is self.array]]


class LateCell(Cell):
    """A leaf whose array is not there yet: it comes when somebody reads it.

    Until then the instance has no ``array``, but a ``source``.
    """

    filled = True

    def fill(self) -> None:
        """Set ``array`` and let go of the source, unless another thread did."""
        raise NotImplementedError

    def __getattr__(self, name: str) -> Any:
        if name != "array":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        self.fill()
        return self.array


_NOWHERE = Cell(None)  # where only a gradient passed


class Expr:
    """A program, its leaves and the shape of its value.

    ``made_by`` is the op and the operands it was applied to. It keeps no arrays alive that
    ``leaves`` does not; it says which tensors lie inside the region, so that a hook on one of them
    can be honored. ``node`` is the region's autograd node, made when first asked for. ``variable``
    and ``version`` are those of the tensor that has this value, if anybody asked (`mark_of`);
    ``also`` is what a composition saves in PyTorch: see `lucid_gpu.fusion.saving`.
    """

    __slots__ = (
        *("__weakref__", "also", "leaves", "made_by", "node", "program", "shape", "since"),
        *("variable", "version"),
    )
    also: tuple[Any, ...]
    variable: Variable | None
    version: int  # where there is a variable

    def __init__(
        self,
        program: Program,
        leaves: tuple[Cell, ...],
        made_by: tuple[Any, ...] | None,
        shape: Shape,
    ) -> None:
        self.program = program
        self.leaves = leaves
        self.made_by = made_by
        self.shape = shape
        self.node: Any = None
        self.variable = None
        self.also = ()
        self.since = ALWAYS if program.is_load or not leaves else steps.count


class Unread(Expr):
    """The value of a tensor whose memory was written, until somebody asks for it.

    Its leaf is nobody's before, so that the next write need not look at it.

    Attributes
    ----------
    tensor : weak reference to Tensor
    loads : Program
        Of the tensor as it was before the write.
    leaf : Cell
        What it reads its memory through from now on.
    version : int
        How often the memory had been written when it was last read.
    """

    __slots__ = ("found", "leaf", "loads", "tensor")

    def __init__(self, tensor: Tensor, before: Expr, leaf: Cell, version: int) -> None:
        self.tensor, self.loads, self.leaf = weakref.ref(tensor), before.program, leaf
        self.version, self.shape = version, before.shape
        self.found: Expr | None = None
        self.made_by = self.node = self.variable = None
        self.also = ()
        self.since = ALWAYS

    def read(self) -> Expr:
        """The value, which the storage will protect from the next write."""
        if self.found is None:
            value = self.found = Expr(self.loads, (self.leaf,), None, self.shape)
            tensor = self.tensor()
            if tensor is not None and tensor._expr is self:
                give(tensor, value)
                tensor._is_read(self.version)
                self.found = tensor._expr
        assert self.found is not None
        return self.found

    @property
    def program(self) -> Program:  # type: ignore[override]
        """Of the value, perhaps with another history."""
        return self.read().program

    @property
    def leaves(self) -> tuple[Cell, ...]:  # type: ignore[override]
        """The leaf."""
        return self.read().leaves


def give(tensor: Tensor, value: Expr) -> None:
    """Make `value` the value of `tensor`."""
    tensor._expr = value


def load_as(tensor: Tensor, program: Program, leaf: Cell | None = None) -> None:
    """Have `tensor` read its array, or that of another `leaf`, by `program`."""
    value = tensor._expr
    give(tensor, Expr(program, (leaf,) if leaf else value.leaves, None, value.shape))


def strides_read(value: Expr) -> tuple[Shape, ...]:
    """Return the strides, in bytes, of the arrays of a value's leaves that are not row-major."""
    return tuple(map(_STRIDES, map(value.leaves.__getitem__, value.program.strided)))


_STRIDES = attrgetter("array.strides")


def order_of(value: Expr) -> tuple[int, ...] | None:
    """Return how a value lies in memory once it is computed: see `order_in`."""
    program = value.program
    if not program.laid:
        return None
    strides = strides_read(value)
    key = (program, value.shape, strides)
    if key not in _orders:
        _orders[key] = order_in(program, value.shape, strides)
        spend(OF_PLACE)
    return _orders[key]


_orders: dict[tuple[Program, Shape, tuple[Shape, ...]], Shape | None] = derived(
    "orders in which values lie"
)


def order_among(values: Sequence[Expr]) -> tuple[int, ...] | None:
    """Return how values lie that one kernel computes: as the first that has an order."""
    return next((order for v in values if (order := order_of(v)) is not None), None)


def strides_of(value: Expr) -> tuple[int, ...] | None:
    """Return the strides, in bytes, of the array of a realized value; None where row-major."""
    if not value.program.strided:
        return None
    strides: tuple[int, ...] = value.leaves[0].array.strides
    return strides


def requires_grad(base: Expr) -> bool:
    """Whether the value of a tensor that views no other requires grad; that does not read it."""
    program: Program = base.loads if type(base) is Unread else base.program
    return program.needs_grad


def mark_of(value: Expr | Cell) -> tuple[Variable, int]:
    """The variable whose value this is, made now if nobody has asked before, and its version."""
    holder: Any = value
    if isinstance(value, Expr) and value.program.is_load:
        holder = value.leaves[0]
    variable: Variable | None = holder.variable
    if variable is None:
        variable, holder.version = Variable(), 0
        holder.variable = variable
        if isinstance(holder, Expr):
            variable.values = [weakref.ref(holder)]
    return variable, holder.version


def merge(a: tuple[Cell, ...], b: tuple[Cell, ...]) -> tuple[tuple[Cell, ...], Pattern]:
    """Join two operands' leaves.

    Returns
    -------
    leaves, pattern
        ``pattern`` says where ``b``'s leaves went: None for "to the same places", a number for a
        single leaf, else a tuple.
    """
    if a is b:
        return a, None
    if len(b) == 1:
        if b[0] not in a:
            return a + b, len(a)
        return a, None if len(a) == 1 else a.index(b[0])
    if a == b:
        return a, None
    pattern = []
    leaves = a
    for cell in b:
        if cell in leaves:
            pattern.append(leaves.index(cell))
        else:
            pattern.append(len(leaves))
            leaves = (*leaves, cell)
    return leaves, tuple(pattern)
