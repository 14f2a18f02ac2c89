"""Pending values: a program together with the arrays it reads.

Every tensor's value is an `Expr`. A realized value is an expression whose program is one load and
whose only leaf is the `Cell` holding the array. Expressions are immutable, so a reader never sees a
value change: what changes a tensor gives the tensor another expression.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from lucid_gpu.device import device
from lucid_gpu.devices import capturing
from lucid_gpu.dtypes import dtype, int64, scalar_type
from lucid_gpu.fusion import scheduler
from lucid_gpu.fusion.assembling import (
    SUMS,
    Number,
    Slot,
    as_stored,
    emit,
    fits,
    shape_of,
    sum_as_stored,
)
from lucid_gpu.fusion.optable import TABLE, Op
from lucid_gpu.fusion.program import (
    FORBIDDEN,
    INFERENCE,
    SHARED,
    WRITTEN,
    Assembly,
    Instruction,
    Program,
    bound,
    bound_shape,
    changed_load,
    constant_program,
    constant_value,
    expand_pattern,
    first_numbers,
    general_shape,
    intern,
    leaf_of,
    load_program,
    marked,
    numbers_seen,
    relocate,
    strides_at,
    when_forgotten,
)
from lucid_gpu.fusion.scheduler import ALWAYS
from lucid_gpu.launch.planning import steps
from lucid_gpu.tape import modes
from lucid_gpu.tape.modes import state


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

    _storage: Any = None
    values: list[Any] | None = None


class Follows:
    """In place of a variable's storage: counts the writes of another one while that is there.

    Attributes
    ----------
    tensor : Tensor or None
        The one on that, once ``x.data = y`` gave it other memory and so another variable: backward
        reads what it has then, as in PyTorch.
    """

    __slots__ = ("find", "tensor")

    def __init__(self, find: Callable[[], Any], tensor: Any = None) -> None:
        self.find, self.tensor = find, tensor

    @property
    def version(self) -> int:
        """How often that was written, 0 where it is not there."""
        return getattr(self.find(), "version", 0)

    @property
    def writer(self) -> str:
        """The op that wrote it last."""
        writer: str = self.find().writer
        return writer


def version_of(variable: Any) -> int:
    """How often a variable was written; or a tensor, which is one for those who keep it."""
    storage = variable._storage
    return 0 if storage is None else storage.version


class Saved:
    """What a node saved: it knows when that was written since.

    Attributes
    ----------
    program : Program
        Has the tensor's type and shape.
    variable : Variable or Tensor
        The tensor itself where the node keeps that.
    version : int
        How often that had been written before.
    tensor : Tensor or None
        The tensor, if it is kept; of an output of the node, which holds that, another of its value.
    output : int or None
        Which output of the node it is.
    only : (sequence of int, Tensor) or None
        The inputs for whose gradients alone PyTorch's op saves it; others read what it had then.
    """

    program: Program
    variable: Any
    version: int
    tensor: Any = None  # these three are those of most
    output: int | None = None
    only: Any = None

    @property
    def written(self) -> bool:
        """Whether it was written since."""
        return version_of(self.variable) != self.version

    def refusal(self, reader: Any, maker: str | None) -> RuntimeError:
        """The error of going backward now; ``maker`` names the node that it is an output of."""
        like, name, storage = self.program, reader.name(), self.variable._storage
        which = (
            f"saved by {name}"
            if maker is None
            else f"which is output {self.output or 0} of {maker}"
        )
        return RuntimeError(
            "one of the variables needed for gradient computation has been modified by an inplace "
            f"operation: [{like.dtype.name} tensor of shape {list(like.shape)}], {which}, is "
            f"at version {storage.version}; expected version {self.version} instead. "
            f"{storage.writer} wrote it after {name} had saved it. Write the change "
            "out of place (x = x + 1), or change a clone."
        )


class _Values(weakref.WeakSet[Any]):
    """A set that is nearly always empty, and often asked whether it is."""

    def __bool__(self) -> bool:
        return bool(self.data)  # type: ignore[attr-defined]  # the live ones


# Pending values whose tensor was written, and what was replaced.
written_values = _Values()


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

    borrowed = False
    leads = True  # to its node at once; a view's is found when somebody asks
    variable: Variable | None = None
    version = 0
    sharers: list[Any] | None = None
    home: Any = None  # a weak reference to the storage that knows this leaf, and all its twins
    apart: Any = None  # a weak reference to the twin without a node that gradients read
    source: Any = None  # what will give the array: see `LateCell`
    result: int | None = None  # which result of a reduction that is

    def __init__(self, array: Any, node: Any = None, output: int = 0) -> None:
        self.array = array
        self.node = node
        self.output = output  # which output of the node the leaf is
        if capturing.recorder is not None:
            recorder = capturing.capturing()
            if recorder is not None:
                recorder.leaf_made(self)

    @property
    def filled(self) -> bool:
        """Is this more than a place where a gradient passes?"""
        return self.array is not None

    def twin(self, node: Any = None, output: int = 0) -> Cell:
        """Another leaf on the same array."""
        if capturing.recorder is not None:
            _seen(self)
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
        elif len(sharers) > 8 and len(sharers) & (len(sharers) - 1) == 0:
            sharers[:] = [r for r in sharers if r() is not None]
        sharers.append(weakref.ref(other))
        other.sharers = sharers
        return other

    def again(self) -> Cell:
        """A leaf that takes this one's place, which others may go on reading."""
        if capturing.recorder is not None:
            _seen(self)
        node, output = self.node, self.output
        other = self._beside(node, output) if self.source else Cell(self.array, node, output)
        other.variable = self.variable
        return other

    def _beside(self, node: Any, output: int) -> Cell:
        """Return another leaf for the array that this one waits for."""
        raise NotImplementedError

    def moved(self, array: Any) -> Cell:
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
        return self.__dict__["array"]


def _seen(leaf: Cell) -> None:
    recorder = capturing.capturing()
    if recorder is not None:
        recorder.note_read(leaf)


_NOWHERE = Cell(None)  # where only a gradient passed


class Expr:
    """A program and its leaves.

    ``made_by`` is the op and the operands it was applied to. It keeps no arrays alive that
    ``leaves`` does not; it says which tensors lie inside the region, so that a hook on one of them
    can be honored. ``node`` is the region's autograd node, made when first asked for. ``variable``
    and ``version`` are those of the tensor that has this value, if anybody asked (`mark_of`);
    ``also`` is what a composition saves in PyTorch: see `lucid_gpu.fusion.saving`.
    """

    __slots__ = (
        *("__weakref__", "also", "leaves", "made_by", "node", "program", "since", "variable"),
        "version",
    )
    also: tuple[Any, ...]
    variable: Variable | None
    version: int  # where there is a variable

    def __init__(
        self, program: Program, leaves: tuple[Cell, ...], made_by: tuple[Any, ...] | None
    ) -> None:
        self.program = program
        self.leaves = leaves
        self.made_by = made_by
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

    def __init__(self, tensor: Any, loads: Program, leaf: Cell, version: int) -> None:
        self.tensor, self.loads, self.leaf = weakref.ref(tensor), loads, leaf
        self.version = version
        self.found: Expr | None = None
        self.made_by = self.node = self.variable = None
        self.also = ()
        self.since = ALWAYS

    def read(self) -> Expr:
        """The value, which the storage will protect from the next write."""
        if self.found is None:
            value = self.found = Expr(self.loads, (self.leaf,), None)
            tensor = self.tensor()
            if tensor is not None and tensor._expr is self:
                tensor._expr = value
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


def variable_on(storage: Any) -> Variable:
    """A variable whose writes a storage counts."""
    variable = Variable()
    variable._storage = storage
    return variable


def counted(value: Expr, storage: Any) -> Variable:
    """Have the present value of a tensor on a storage be seen to be written when that counts one.

    Returns
    -------
    Variable
        The tensor's.
    """
    holder: Any = value.leaves[0] if value.program.is_load else value
    variable: Variable | None = holder.variable
    if variable is not None and variable._storage is None:
        variable._storage = storage
    elif variable is None or variable._storage is not storage:
        variable = holder.variable = Variable()  # another tensor may have this value too
        variable._storage = storage
    if holder is value and variable.values is None:
        variable.values = [weakref.ref(value)]
    holder.version = storage.version
    return variable


def ended(value: Expr, storage: Any) -> Variable:
    """The variable that a tensor on a storage has after a write, which had a value of its own.

    It is another one where regions may be built on the pending value of this: they are to look.
    """
    holder: Any = value.leaves[0] if value.program.is_load else value
    variable: Variable | None = holder.variable
    if holder is value or holder.leads:
        node = holder.node
        if node is not None and node.result is not None:
            written_values.add(node)
    if variable is None or variable._storage is not storage:
        return variable_on(storage)
    if variable.values is None:
        return variable
    pending = [value for r in variable.values if (value := r()) is not None]
    if not pending:
        variable.values = None
        return variable
    written_values.update(pending)
    return variable_on(storage)


def taken(value: Expr, variable: Variable, version: int) -> None:
    """Have a value be what a tensor holds from now on, of this variable and version."""
    holder: Any = value.leaves[0] if value.program.is_load else value
    before: Variable | None = holder.variable
    holder.variable, holder.version = variable, version
    if holder is value:
        variable.values = [weakref.ref(value)]
    if before is None:
        return
    node = value.node if holder is value else holder.node if holder.leads else None
    if node is not None:
        node.lies_in(before, variable)
    if value.also:
        move(value.also, before, variable)


def move(entries: Sequence[Any], before: Variable, variable: Variable) -> None:
    """Have what was saved of a value be of the variable of the tensor that holds it from now on."""
    for entry in entries:
        if type(entry) is Saved and entry.variable is before:
            entry.variable, entry.version = variable, version_of(variable)


def carry(before: Expr, value: Expr) -> None:
    """Have a value that takes another's place in a tensor be of the variable that was saved."""
    old: Any = before.leaves[0] if before.program.is_load else before
    new: Any = value.leaves[0] if value.program.is_load else value
    variable: Variable | None = old.variable
    if variable is None or type(variable._storage) is Follows or new is old:
        return
    new.variable, new.version = variable, old.version
    if new is value:
        variable.values = [*(variable.values or ()), weakref.ref(value)]


def is_written(value: Expr | Cell) -> bool:
    """Whether the tensor that had this value was written in place since."""
    holder: Any = value
    if isinstance(value, Expr) and value.program.is_load:
        holder = value.leaves[0]
    variable: Variable | None = holder.variable
    return variable is not None and version_of(variable) != holder.version


def saved(value: Expr) -> Saved:
    """What who saves a value is to keep of it, if not the value."""
    program = value.program
    holder: Any = value.leaves[0] if program.is_load else value
    variable: Variable | None = holder.variable
    if variable is None:
        variable, holder.version = Variable(), 0
        holder.variable = variable
        if holder is value:
            variable.values = [weakref.ref(holder)]
    entry = Saved()  # as `saved_as` does
    entry.program, entry.variable, entry.version = program, variable, holder.version
    return entry


def saved_as(program: Program, variable: Any, version: int) -> Saved:
    """What is saved of a variable, beside its version."""
    entry = Saved()
    entry.program, entry.variable, entry.version = program, variable, version
    return entry


def reread(value: Expr) -> Expr:
    """The same value for an op that replaces it: what that op saves stays good."""
    copy = Expr(value.program, value.leaves, value.made_by)
    copy.node, copy.since, copy.also = value.node, value.since, value.also
    return copy


class MustStore(Exception):
    """Operands must be stored before the op can be applied to them.

    Attributes
    ----------
    operands : sequence of Expr
    """

    def __init__(self, operands: Sequence[Expr]) -> None:
        self.operands = operands


def merge(a: tuple[Cell, ...], b: tuple[Cell, ...]) -> tuple[tuple[Cell, ...], Any]:
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


def of_array(
    array: Any, d: dtype, where: device, needs_grad: bool = False, node: Any = None
) -> Expr:
    """The expression of a realized array."""
    strides = None if array.flags.c_contiguous else array.strides
    marks = made_here() if modes.watchers else 0
    program = load_program(d, array.shape, strides, needs_grad, where, marks, True)
    return Expr(program, (Cell(array, node),), None)


def of_constant(number: Any, d: dtype, shape: tuple[int, ...], where: device) -> Expr:
    """A tensor full of one number, which takes no memory until something needs its bytes."""
    return Expr(constant_program(number, d, shape, where, made_here()), (), None)


def of_number(number: Any, d: dtype, shape: tuple[int, ...], where: device) -> Expr:
    """A tensor filled with a number that a user gave: one that changes from step to step is an
    argument.
    """
    text, number = constant_value(number)
    slot = d, shape, where
    firsts = None if slot in _filled else _first_filled.setdefault((d, len(shape), where), set())
    if not _is_argument(_filled, slot, text, number, firsts):
        return of_constant(number, d, shape, where)
    parts = [Instruction("scalar", (), d, (), False, 0)]
    if shape:
        parts.append(Instruction("identity", (0,), d, shape, False))
    return Expr(intern(parts, 1, where, made_here()), (Cell(number),), None)


_filled: dict[Any, Any] = {}
_first_filled: dict[Any, set[Any]] = {}
when_forgotten += [_filled.clear, _first_filled.clear]


def reshaped_uniform(value: Expr, shape: tuple[int, ...]) -> Expr | None:
    """A pending value that reads no array, all of whose elements are equal, in another shape.

    None for any other value.
    """
    program = value.program
    reshaped: Any = program.next.get((reshaped_uniform, shape))
    if reshaped is None:
        form, like = program.form, (reshaped_uniform, general_shape(shape, shape))
        reshaped = form.next.get(like)
        if reshaped is None:
            reshaped = form.next[like] = _reshaped(form, like[1]) or NOT_UNIFORM
        if reshaped is not NOT_UNIFORM:
            reshaped = bound(reshaped.form, shape, program.strides)
        program.next[reshaped_uniform, shape] = reshaped
    return None if reshaped is NOT_UNIFORM else Expr(reshaped, value.leaves, None)


NOT_UNIFORM: Any = object()  # remembered in place of a program


def _reshaped(program: Program, shape: tuple[int, ...]) -> Program | None:
    if not program.independent or program.marks:
        return None
    assembly = Assembly()
    index: list[int] = []
    for ins in program.instructions:
        if ins.op in ("load", "index", "boundary") or ins.shape not in ((), program.shape):
            return None
        args = tuple([index[a] for a in ins.args])
        index.append(assembly.append(ins._replace(args=args, shape=shape if ins.shape else ())))
    root = index[-1]
    if not program.shape:
        root = assembly.append(Instruction("identity", (root,), program.dtype, shape, False))
    return intern(assembly.extract(root), program.leaves, program.device)


def of_index(shape: tuple[int, ...], where: device) -> Expr:
    """Each element's own number, counted row by row: int64 that no memory holds."""
    one = Instruction("index", (), int64, shape, False)
    return Expr(intern((one,), 0, where, made_here()), (), None)


def drawn(
    op: Op,
    d: dtype,
    shape: tuple[int, ...],
    where: device,
    stream: tuple[int, int],
    numbers: tuple[Any, ...],
) -> Expr:
    """Random numbers, made where they are used: a row ``draw`` of the table on the index.

    Parameters
    ----------
    stream : pair of int
        Seed and number of the draw, which are arguments of the kernel.
    numbers : tuple
        The row's other operands, part of the program: int64, or real numbers of type ``d``.
    """
    key = (op, d, shape, where, made_here(), tuple([constant_value(n)[0] for n in numbers]))
    program = _draws.get(key)
    if program is None:
        work = Assembly()
        operands = [work.append(Instruction("index", (), int64, shape, False))]
        for leaf in (0, 1):
            operands.append(work.append(Instruction("scalar", (), int64, (), False, leaf)))
        for n in numbers:  # two that are equal are one instruction
            kind = int64 if isinstance(n, int) else d
            number = Instruction("constant", (), kind, (), False, constant_value(n))
            operands.append(work.append(number))
        work.append(Instruction(op.name, tuple(operands), d, shape, False))
        program = _draws[key] = intern(work.instructions, 2, where, made_here())
    return Expr(program, (Cell(stream[0]), Cell(stream[1])), None)


_draws: dict[Any, Program] = {}
when_forgotten.append(_draws.clear)


def made_here() -> int:
    """The mark of tensors made in the present mode."""
    return INFERENCE if modes.watchers and state.off is modes.INFERENCE else 0


# --- building -----------------------------------------------------------------------------------


def build(
    op: Op,
    operands: Sequence[Any],
    grad: bool,
    to: dtype | None = None,
    shape: tuple[int, ...] | None = None,
    scheduled: bool = True,
) -> Expr:
    """Apply an op to expressions and Python numbers.

    ``scheduled`` is whether operands are stored by the rules of `lucid_gpu.fusion.scheduler`.

    Raises
    ------
    MustStore
        If an operand has to be an array first: store it and try again.
    """
    values = []
    for o in operands:
        if isinstance(o, Expr):
            values.append(o)
    if not values:
        if op.name in _OF_NUMBERS:
            host = device("cpu")
            numbers = [of_constant(o, scalar_type(o), (), host) for o in operands]
            return build(op, numbers, grad, to, shape, scheduled)
        raise TypeError(
            f"{op.name}(): argument 'input' (position 1) must be Tensor, not "
            f"{type(operands[0]).__name__}"
        )
    if scheduled and state.task is None:
        old = scheduler.old(values, grad)
        if old:
            raise MustStore(old)
    first = values[0]
    program: Program = first.program
    leaves: tuple[Cell, ...] = first.leaves
    turns = scheduler.turns_in(program.device)
    key: list[Any] = [op, grad, to, shape, scheduled, turns]
    marks: list[Any] = []
    for position, operand in enumerate(operands):
        if operand is first:
            key.append(None)
            marks.append((first.program, None))
        elif isinstance(operand, Expr):
            leaves, pattern = merge(leaves, operand.leaves)
            key += (operand.program, pattern)
            marks.append((operand.program, pattern))
        else:
            mark, leaves = _scalar_mark(program, op, position, operand, leaves)
            key += mark
            marks.append(mark)
    derived = program.next.get(tuple(key))
    if derived is None:
        derived = _derive(op, marks, len(leaves), grad, to, shape, scheduled, turns)
        program.next[tuple(key)] = derived
    if type(derived) is not Program:
        pending = [o for o in values if not o.program.is_load]
        raise MustStore(scheduler.stored_first(derived, pending))
    return Expr(derived, leaves, (op, *operands))


# Exponents that are never arguments: they, or those of the gradients, make roots, whose values at
# -0 and minus infinity are not those of powers.
ROOTS = frozenset([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5])
_OF_NUMBERS = ("add", "sub", "mul", "div")  # PyTorch takes two numbers for these


def _scalar_mark(
    program: Program, op: Op, position: int, value: Any, leaves: tuple[Cell, ...]
) -> tuple[Any, tuple[Cell, ...]]:
    """A number as a part of the program, or as one leaf more."""
    kind = type(value)
    text, value = constant_value(value)
    power = op.name in ("pow", "root")
    refusable = kind is int and (power or not fits(value))
    seen, slot, firsts = numbers_seen(program), (op, position), None
    if slot not in seen and not power:
        firsts = first_numbers(program).setdefault(slot, set())
    if refusable or not _is_argument(seen, slot, (text, kind), value, firsts, power):
        return ("number", text, kind, value), leaves
    return ("slot", len(leaves), kind, scalar_type(value)), (*leaves, Cell(value))


def _is_argument(
    seen: dict[Any, Any],
    slot: Any,
    number: Any,
    value: Any,
    firsts: set[Any] | None,
    exponent: bool = False,
) -> bool:
    """Whether a number that is met at a place is an argument of the kernel: see `scheduler.stays`.

    ``number`` tells it from others; ``seen`` has those of each place, and the first one's step;
    ``firsts`` those that were the first at such a place in other shapes, where this one is.
    """
    first, known = seen.setdefault(slot, (state.step, set()))
    if value == 0 or value == 1:  # they make ops simpler
        return False
    if exponent and value in ROOTS:
        return False
    changes = firsts is not None and scheduler.changes_with_shape(number, firsts)
    if not changes and scheduler.stays(number, first, known, exponent):
        return False
    if not exponent:
        seen[slot] = _CHANGING
    return True


_CHANGING: Any = (-1, frozenset())  # no step, and no numbers: all are arguments


def _derive(
    op: Op,
    marks: Sequence[Any],
    leaf_count: int,
    grad: bool,
    to: dtype | None,
    shape: tuple[int, ...] | None,
    scheduled: bool,
    turns: int,
) -> Any:
    """The program of an op on programs, or why `scheduler.cut` says that there is to be none.

    It is derived once for their forms.
    """
    parts = [m for m in marks if type(m[0]) is Program]
    programs = [m[0] for m in parts]
    space, general = programs[0].shape, None
    if len(programs) > 1 or shape is not None:
        one_device(op.name, programs)
        space = shape_of([p.shape for p in programs], op.name, shape)
    if shape is not None:
        general = general_shape(shape, shape)
    forms = tuple([(m[0].form, m[1]) if type(m[0]) is Program else m for m in marks])
    key = (op, forms, leaf_count, grad, to, general, scheduled, turns)
    known = programs[0].form.next
    derived = known.get(key)
    if derived is None:
        derived = known[key] = _derived(*key)
    return _bound(derived, space, parts) if type(derived) is Program else derived


def _bound(form: Program, space: tuple[int, ...], parts: Iterable[Any]) -> Program:
    """The program of a form, made of programs and their patterns."""
    strides = form.strides
    if form.strided:
        known = strides_at(parts)
        strides = tuple([known.get(i) for i in range(form.leaves)])
    return bound(form, bound_shape(form.shape, space), strides)


def remember(program: Program, key: Any, follows: Program) -> None:
    """Have `following` or `following_pair` find a program under this key of `Program.next`."""
    program.next[key] = follows
    program.form.next[_general(key)] = follows.form


def _general(key: Any) -> Any:
    """The key of the forms: the second of four is a program."""
    if len(key) < 4:
        return key
    op, other, pattern, grad = key
    return op, other.form, pattern, grad


def following(program: Program, key: Any) -> Program | None:
    """What follows from a program by an op and numbers, where that is known of the form."""
    form: Program | None = program.form.next.get(key)
    if form is not None:
        program.next[key] = form = _bound(form, program.shape, ((program, None),))
    return form


def following_pair(program: Program, key: Any) -> Program | None:
    """The same by an op on two values; the key has the op, the other program and its pattern."""
    form: Program | None = program.form.next.get(_general(key))
    if form is not None:
        op, other, pattern, _ = key
        space = program.shape
        if other.shape != space:
            space = shape_of([space, other.shape], op.name)
        program.next[key] = form = _bound(form, space, ((program, None), (other, pattern)))
    return form


def _derived(
    op: Op, marks: Any, leaves: int, grad: Any, to: Any, shape: Any, scheduled: bool, turns: int
) -> Any:
    programs = [m[0] for m in marks if isinstance(m[0], Program)]
    assembly = Assembly()
    operands: list[Any] = []
    for mark in marks:
        if mark[0] == "number":
            operands.append(Number(mark[3]))
        elif mark[0] == "slot":
            operands.append(Slot(mark[1], mark[3]))
        else:
            part, pattern = mark
            index = assembly.include(part, expand_pattern(pattern, part.leaves))
            operands.append(as_stored(assembly, index) if part.marks & WRITTEN else index)
    recorded = False if grad is modes.INFERENCE else grad
    if op.name in SUMS:
        operands = [sum_as_stored(assembly, o) if type(o) is int else o for o in operands]
    root = emit(assembly, op, operands, recorded, to, shape)
    made = assembly.instructions[root]
    if made.op in ("load", "boundary") or (made.needs_grad and root in operands):
        # ``x * 1`` is a tensor of its own: x may be written, and has a gradient of its own. So may
        # ``x.exp() * 1``, where the gradient of the exponential reads what it gave.
        root = emit(assembly, op, operands, recorded, to, shape, plainly=True)
    instructions = assembly.extract(root)
    if scheduled and any(not p.is_load for p in programs):
        why = scheduler.cut(instructions, leaves, turns)
        if why is not None:
            return why
    marks_of_result = SHARED if any(p.shared for p in programs) else 0
    if grad is modes.INFERENCE:
        marks_of_result |= INFERENCE
    return intern(instructions, leaves, programs[0].device, marks_of_result).form


def one_device(name: str, programs: Sequence[Program]) -> device:
    """The device all operands are on; a 0-d CPU operand may join any."""
    where = programs[0].device
    for program in programs[1:]:
        if program.device != where:
            raise RuntimeError(
                f"Expected all tensors to be on the same device, but found at least two devices, "
                f"{where} and {program.device}! {name} got "
                + " and ".join(f"{list(p.shape)} on {p.device}" for p in programs)
                + "; move one with .to(...)"
            )
    return where


def boundary(inner: Expr, node: Any, output: int = 0) -> Expr:
    """The same value, whose gradient goes to ``node`` instead of through ``inner``."""
    program = inner.program
    pair = program.next.get("boundary")
    if pair is None:
        pair = program.next["boundary"] = _boundary_of(program)
    wrapped, kept = pair
    leaves = inner.leaves
    if kept is not None:
        leaves = tuple([leaves[i] for i in kept])
    return Expr(wrapped, (*leaves, Cell(None, node, output)), None)


def _boundary_of(program: Program) -> tuple[Program, tuple[int, ...] | None]:
    """The same of a form, bound."""
    form = program.form
    pair = form.gradients.get(_boundary)
    if pair is None:
        pair = form.gradients[_boundary] = _boundary(form)
    wrapped, kept = pair
    strides = program.strides if kept is None else [program.strides[i] for i in kept]
    return bound(wrapped.form, program.shape, (*strides, None)), kept


def _boundary(program: Program) -> tuple[Program, tuple[int, ...] | None]:
    """A program's value without its marks for grad, under a new mark; and the leaves that stay
    (None for all, in order).
    """
    assembly = Assembly()
    index: list[int] = []
    kept: list[int] = []
    for ins in program.instructions:
        args = tuple([index[a] for a in ins.args])
        if ins.op == "boundary":
            index.append(args[0])
            continue
        ins = ins._replace(args=args, needs_grad=False)
        leaf = leaf_of(ins)
        if leaf is not None:
            if leaf not in kept:
                kept.append(leaf)
            ins = relocate(ins, range(len(index)), {leaf: kept.index(leaf)})
        index.append(assembly.append(ins))
    root = Instruction("boundary", (index[-1],), program.dtype, program.shape, True, len(kept))
    assembly.append(root)
    wrapped = intern(assembly.instructions, len(kept) + 1, program.device, program.marks)
    return wrapped, None if kept == [*range(program.leaves)] else tuple(kept)


def _inside(program: Program) -> Program:
    """The program whose value a boundary marks."""
    inner: Program | None = program.next.get("inside")
    if inner is None:
        form = program.form
        inside = intern(form.instructions[:-1], form.leaves - 1, form.device, form.shared)
        inner = program.next["inside"] = bound(inside.form, program.shape, program.strides[:-1])
    return inner


def dependent(value: Expr) -> Expr:
    """A realized value as one that would require grad, had it been recorded."""
    if value.program.dtype.category < 2:
        return value
    return Expr(changed_load(value.program, needs_grad=None), value.leaves, None)


def _without_nodes(leaves: Sequence[Cell]) -> tuple[Cell, ...]:
    """Twins of leaves, distinct as those are: the twin that others read may be among them."""
    result: list[Cell] = []
    taken = {c for c in leaves if c.node is None}
    for leaf in leaves:
        if leaf.node is not None:
            twin = leaf.without_node()
            leaf = leaf.twin() if twin in taken else twin
            taken.add(leaf)
        result.append(leaf)
    return tuple(result)


def apart(value: Expr) -> Expr:
    """The value of a gradient that is not recorded; it holds no part of the graph it came from."""
    if not value.program.independent:
        value = without_grad(value)
    for cell in value.leaves:
        node = cell.node
        if node is not None and node._edges:  # it leads further than to a leaf of the graph
            return Expr(value.program, _without_nodes(value.leaves), None)
    return value if value.made_by is None else Expr(value.program, value.leaves, None)


def without_grad(value: Expr) -> Expr:
    """The same value as a constant for gradients (`Tensor.detach`)."""
    program = value.program
    if program.independent:
        return value
    if program.is_load:
        root = program.root
        loads = load_program(
            root.dtype,
            root.shape,
            root.value[1],
            False,
            program.device,
            program.marks & ~FORBIDDEN,
            program.free,
        )
        return Expr(loads, (value.leaves[0].twin(),), None)
    if program.is_boundary and program.root.args[0] == len(program.instructions) - 2:
        return Expr(_inside(program), value.leaves[:-1], None)  # the node is not held
    same = build(TABLE["identity"], [value], False, shape=program.shape, scheduled=False)
    if program.marks:
        same.program = marked(same.program, program.marks)
    return same
