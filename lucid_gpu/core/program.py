"""Programs: what a pending expression computes, without saying on which arrays.

A `Program` is a straight line of `Instruction`s over numbered leaves, the last but not always the
only use of which is its root. Programs are interned: equal programs are one object, and what
follows from a program (the program of ``a * b``, its gradient) stands in one of the tables that
`derived` makes. So dtypes and devices are checked once a program, and building an op afterwards is
one look-up.

A program knows neither extents nor strides: those are the value's, so a shape that was never seen
before derives nothing. In their place stands for each axis of an instruction which of the root's it
is, counted from the right: 2 is the last. 0 and 1 stand for themselves, as they broadcast and
multiply differently; and True stands for strides. Whoever derives something of a program may ask
whether extents are equal, 0 or 1, and nothing else; anything that depends on how large they are has
them in the key under which it is kept.
"""

from __future__ import annotations

import functools
import os
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from types import EllipsisType
from typing import Any, NamedTuple, TypeVar

from lucid_gpu.core.layout import (
    dense_order,
    in_order,
    order_of,
    result_strides,
    row_major,
    walk_of,
)
from lucid_gpu.core.planning import made
from lucid_gpu.device import device
from lucid_gpu.dtypes import dtype, when_default_changes


def _bytes() -> int:
    """64 MiB, or LUCID_PLAN_BYTES."""
    wish = os.environ.get("LUCID_PLAN_BYTES", "")
    if wish and not wish.isdigit():
        raise ValueError(f"LUCID_PLAN_BYTES is a number of bytes; got {wish!r}")
    return int(wish) if wish else 64 << 20


BYTES = _bytes()  # that tables of programs and plans take before they start anew; as counted here:
OF_PROGRAM, OF_PLACE, OF_INSTRUCTION = 600, 8, 350

K = TypeVar("K")
V = TypeVar("V")
Shape = tuple[int, ...]
Number = bool | int | float | complex
Pattern = int | Shape | None  # see `lucid_gpu.core.value.merge`
# Those that were met at a place, an op and an operand of it, and since which step.
Numbers = dict[tuple[object, ...], tuple[int, set[object]]]

SHARED, WRAPPED, SPARSE, INFERENCE, FORBIDDEN, WRITTEN = 1, 2, 4, 8, 16, 32  # marks of a program


class Instruction(NamedTuple):
    """One step of a program; ``shape`` has axes of the root in place of extents.

    ``op`` names a row of the op table, or is one of: ``load`` (``value`` is the leaf's number, True
    for one that is strided, and whether nobody chose the strides), ``scalar`` (a Python
    number passed as a leaf), ``constant`` (``value`` is its repr and the number), ``index`` (each
    element's own number in its row-major shape, read from nowhere), ``boundary`` (the value of
    ``args[0]``, whose gradient goes to the leaf numbered ``value``).
    ``needs_grad`` is None for what would be True, were it recorded (see `Program.independent`).
    """

    op: str
    args: tuple[int, ...]
    dtype: dtype
    shape: tuple[int, ...]
    needs_grad: bool | None
    value: Any = None


@functools.lru_cache(1 << 13)
def extents_at(axes: Shape, space: Shape) -> Shape:
    """Return the extents that these axes of a space have."""
    return tuple([space[1 - n] if n > 1 else n for n in axes])


class Program:
    """An interned sequence of instructions; make one with `intern`.

    Attributes
    ----------
    instructions : tuple of Instruction
        In order of dependence; the last is the root.
    root : Instruction
        The last, whose value is the program's.
    leaves : int
        How many leaves an expression of this program has.
    marks : int
        What bars the straight path to ops on this program; equal programs of different marks are
        different objects. The bits are `SHARED`, which reads memory that others can write without
        our knowing; `WRAPPED`, of a tensor that also holds a value of a level (`tape.levels`);
        `SPARSE`, for a leaf that holds coordinates and values instead of an array; `INFERENCE`, of
        a tensor made in inference mode, which bars nothing; `FORBIDDEN`, for a view whose history
        was lost (`ops.views.ViewCell`); and `WRITTEN`, for a 16-bit value that was written in
        place: ops read it as it will be stored.
    barred : int
        The marks that bar the straight path.
    axes : tuple of int
        In place of the value's extents: see this module.
    strided : tuple of int
        The leaves whose arrays are not row-major.
    laid : bool
        Whether the order in which the value lies depends on how the arrays lie: see `order_of`.
    backward : bool
        Derived as a gradient. A kernel's name says so.
    needs_grad : bool
    free : bool or tuple of int
        Of a load: the array lies in an order that nobody chose, as what a convolution gives. A
        tuple is the order in which PyTorch's lies, where that is not row-major.
    independent : bool
        Depends on nothing that requires grad, recorded or not: false also for what a
        `Function.forward` computes on its way from inputs that require grad.
    region : object or None
        What the autograd nodes of this program have in common (`lucid_gpu.fusion.region.Facts`).
    plans : dict
        By the shape of the value, and the strides of the leaves that are strided.
    """

    __slots__ = (
        *("__weakref__", "axes", "backward", "barred", "device", "dtype", "free", "independent"),
        *("instructions", "is_boundary", "is_load", "laid", "leaves", "marks", "needs_grad"),
        *("plans", "region", "root", "stored", "strided"),
    )

    def __init__(
        self,
        instructions: tuple[Instruction, ...],
        leaves: int,
        where: device,
        marks: int,
    ) -> None:
        self.root = root = instructions[-1]
        self.instructions = instructions
        self.leaves = leaves
        self.device = where
        self.marks = marks
        self.barred = marks & ~(INFERENCE | WRITTEN)
        self.is_load = root.op == "load"  # the value of a realized tensor
        self.is_boundary = root.op == "boundary"
        self.dtype = root.dtype
        self.needs_grad = root.needs_grad is True
        self.independent = root.needs_grad is False
        self.backward = False
        self.free = self.is_load and root.value[2]
        self.axes = root.shape
        loads = [i.value for i in instructions if i.op == "load"]
        self.strided = tuple(sorted({leaf for leaf, strided, _ in loads if strided}))
        self.laid = any(_is_laid(strided, free) for _, strided, free in loads)
        self.plans: dict[Any, Any] = {}
        self.region: Any = None
        self.stored: Program | None = None  # the program of this value once it is an array

    def __repr__(self) -> str:
        return f"Program({listing(self.instructions)})"


tables: dict[str, dict[Any, Any]] = {}  # all that follows from programs, by what it is


def derived(what: str) -> dict[K, V]:
    """Return a table, empty and emptied by `forget`, of what follows from programs.

    Who derives something declares its table once, with types; keys begin with the program.
    """
    assert what not in tables
    table: dict[K, V] = {}
    tables[what] = table
    return table


_Key = tuple[tuple[Instruction, ...], int, device, int]
_programs: dict[_Key, Program] = derived("programs, each once")
_instructions: dict[Instruction, Instruction] = derived("instructions, which many have in common")
_alive: weakref.WeakSet[Program] = weakref.WeakSet()
_lock = threading.RLock()


def intern(
    instructions: Sequence[Instruction], leaves: int, where: device, marks: int = 0
) -> Program:
    """Return the one program with these instructions, whose shapes may have extents or axes."""
    shape = instructions[-1].shape
    shapes: dict[Shape, Shape] = {(): ()}
    general = []
    for ins in instructions:
        own = shapes.get(ins.shape)
        if own is None:
            own = shapes[ins.shape] = axes_of(ins.shape, shape)
        general.append(ins if own == ins.shape else ins._replace(shape=own))
    return _interned(tuple(general), leaves, where, marks)


@functools.lru_cache(1 << 13)
def axes_of(own: Shape, space: Shape) -> Shape:
    """Return a shape that broadcasts to another one with axes of that in place of extents."""
    axes = []
    for axis, n in enumerate(own, len(space) - len(own)):
        if n > 1 and n != space[axis]:
            raise ValueError(f"{own} does not broadcast to {space}")
        axes.append(n if n < 2 else len(space) - axis + 1)
    return tuple(axes)


def expand_pattern(pattern: Pattern, count: int) -> Sequence[int]:
    """A pattern of `lucid_gpu.core.value.merge` as leaf numbers."""
    if pattern is None:
        return range(count)
    return (pattern,) if isinstance(pattern, int) else pattern


def _interned(
    instructions: tuple[Instruction, ...], leaves: int, where: device, marks: int
) -> Program:
    key = (instructions, leaves, where, marks)
    program = _programs.get(key)
    if program is None:
        with _lock:
            own = _kept(instructions, OF_PROGRAM)
            program = _programs.setdefault((own, *key[1:]), Program(own, leaves, where, marks))
            _alive.add(program)
        made("programs")
    return program


def _kept(instructions: Sequence[Instruction], beside: int = 0) -> tuple[Instruction, ...]:
    """Instructions, each of which is kept once; so many bytes are spent ``beside``."""
    before = len(_instructions)
    own = tuple([_instructions.setdefault(i, i) for i in instructions])
    spend(beside + OF_PLACE * len(own) + OF_INSTRUCTION * (len(_instructions) - before))
    return own


def spend(count: int) -> None:
    """Count bytes that tables will keep; with too many, all start anew.

    What a loop then needs is made again within one step, from code and kernels that are kept. That
    costs less than the steps that filled the tables, so nothing tells what was used from what not.
    """
    with _lock:
        kept.count += count
        if kept.count > BYTES:
            forget()


class kept:
    """How many bytes the tables of programs and plans take, about."""

    count = 0


when_forgotten: list[Callable[[], None]] = []  # empties of other tables that hold programs


def forget() -> None:
    """Empty the tables. Programs in use stay valid; equal ones made later are new objects."""
    with _lock:
        kept.count = 0
        for empty in when_forgotten:
            empty()
        for table in tuple(tables.values()):  # which an import may add to
            table.clear()
        for program in tuple(_alive):
            program.plans.clear()
            program.region = program.stored = None


def forget_numbers() -> None:
    """Let every Python number be the first at its place again."""
    for seen in _numbers_seen.values():
        seen.clear()


when_default_changes.append(forget)


def load_program(
    d: dtype,
    shape: Shape,
    strided: bool,
    needs_grad: bool | None,
    where: device,
    marks: int = 0,
    free: bool | tuple[int, ...] = False,
) -> Program:
    """Return the program of a realized array, one load of leaf 0; ``shape`` may have axes."""
    free, axes = free if strided or type(free) is tuple else False, axes_of(shape, shape)
    key = (d, axes, strided, needs_grad, where, marks, free)
    program = _loads.get(key)
    if program is None:
        one = Instruction("load", (), d, axes, needs_grad, (0, strided or None, free))
        program = _loads[key] = _interned((one,), 1, where, marks)
    return program


def loads_of(program: Program) -> tuple[Program, Program]:
    """The programs of row-major arrays of a program's axes and type, not recorded and recorded."""
    pair = _row_major.get(program)
    if pair is None:
        pair = loads_of_type(program.dtype, program.axes, program.device)
        _row_major[program] = pair
    return pair


def loads_of_type(d: dtype, shape: Shape, where: device) -> tuple[Program, Program]:
    """The same of a type and a shape, which may have axes."""
    plain = load_program(d, shape, False, False, where)
    return plain, load_program(d, shape, False, True, where) if d.category >= 2 else plain


def both_of_load(program: Program) -> tuple[Program, Program]:
    """The programs of an array that lies as a load's, not recorded and recorded, without marks."""
    plain = changed_load(program, needs_grad=False, marks=0)
    return plain, changed_load(plain, needs_grad=True) if plain.dtype.category >= 2 else plain


def changed_load(
    load: Program,
    strided: bool | None = None,
    needs_grad: bool | None | EllipsisType = ...,
    marks: int | None = None,
    free: bool | tuple[int, ...] | None = None,
) -> Program:
    """Return a load like another one but for what is given: see `load_program`."""
    root = load.root
    return load_program(
        root.dtype,
        root.shape,
        bool(load.strided) if strided is None else strided,
        root.needs_grad if needs_grad is ... else needs_grad,
        load.device,
        load.marks if marks is None else marks,
        root.value[2] if free is None else free,
    )


def constant_program(number: Number, d: dtype, shape: Shape, where: device, marks: int) -> Program:
    """The program of a tensor full of one number: it reads no leaf."""
    value, axes = constant_value(number), axes_of(shape, shape)
    key = (value[0], d, axes, where, marks)
    program = _constants.get(key)
    if program is None:
        instructions = [Instruction("constant", (), d, (), False, value)]
        if axes:
            instructions.append(Instruction("identity", (0,), d, axes, False))
        program = _constants[key] = intern(instructions, 0, where, marks)
    return program


def numbers_seen(program: Program) -> Numbers:
    """Which Python numbers have met values of a program, or one like it, and since which step.

    One is like it whose last op is the same and works on the results of the same ops. A loop whose
    state begins as zeros runs other programs in its first turn than in its second, and the number
    that changes from turn to turn should not be new to these again.
    """
    seen = _numbers.get(program)
    if seen is None:
        root = program.root
        operands = tuple([_kind(program.instructions[a]) for a in root.args])
        like = (_kind(root), operands, root.dtype, len(program.axes), program.device)
        seen = _numbers[program] = _numbers_seen.setdefault(like, {})
    return seen


def _kind(ins: Instruction) -> str:
    return "leaf" if ins.op in ("load", "constant", "identity", "index") else ins.op


_Alike = tuple[str, tuple[str, ...], dtype, int, device]
_Free = bool | tuple[int, ...]
_numbers: dict[Program, Numbers] = derived("numbers that met a program")
_numbers_seen: dict[_Alike, Numbers] = derived("numbers that met programs that are alike")
_loads: dict[tuple[dtype, Shape, bool, bool | None, device, int, _Free], Program] = derived("loads")
_row_major: dict[Program, tuple[Program, Program]] = derived("loads of the same axes and type")
_constants: dict[tuple[str, dtype, Shape, device, int], Program] = derived("constants")
_marked: dict[tuple[Program, int], Program] = derived("programs with other marks")


def _is_laid(strided: bool | None, free: bool | tuple[int, ...]) -> bool:
    """Whether a load has an order other than row-major, or gaps, by choice or as PyTorch's."""
    return type(free) is tuple or (bool(strided) and not free)


def order_in(
    program: Program, space: Shape, strides: Sequence[tuple[int, ...]]
) -> tuple[int, ...] | None:
    """Return the dimensions of a value as they lie in memory once it is computed, outermost first,
    as PyTorch has it; None for row-major.

    Parameters
    ----------
    space : tuple of int
        The value's shape.
    strides : sequence of tuple of int
        Of the arrays of the leaves ``program.strided``, in bytes.
    """
    lie = dict(zip(program.strided, strides, strict=True))
    shapes = [extents_at(ins.shape, space) for ins in program.instructions]
    steps: list[tuple[int, ...]] = []
    for (op, args, d, _, _, value), shape in zip(program.instructions, shapes, strict=True):
        if op == "load" and type(value[2]) is tuple:
            own = in_order(shape, value[2])
        elif op == "load" and value[1] and not value[2]:
            own = tuple([step // d.itemsize for step in lie[value[0]]])
        elif op == "identity" and value is SPREAD:
            own = walk_of(shape, shapes[args[0]], steps[args[0]])
        elif args and op != "boundary":
            if value is VALUES_FIRST:
                args = (*args[1:], args[0])
            elif value is VALUES_ALONE:
                args = args[1:]
            own = result_strides(shape, [(shapes[a], steps[a]) for a in args])
        else:
            own = steps[args[0]] if args else row_major(shape)
        steps.append(own)
    if op == "load":
        return dense_order(shape, own, 1)
    if value is SPREAD:  # once it is stored
        own = result_strides(shape, [(shape, own)])
    return order_of(shape, own)


def marked(program: Program, marks: int) -> Program:
    """The same program with these marks."""
    if program.marks == marks:
        return program
    twin = _marked.get((program, marks))
    if twin is None:
        like = program.instructions, program.leaves, program.device, marks
        twin = _marked[program, marks] = _interned(*like)
    return twin


def constant_value(number: Number) -> tuple[str, Number]:
    """A constant as a value that tells -0.0 from 0.0 and True from 1, and equals itself."""
    return (repr(number), NAN if type(number) is float and number != number else number)


SPREAD = "spread"  # of an identity that broadcasts: PyTorch's is a view, which tells no order
VALUES_FIRST = "values first"  # of a where in a formula of a gradient: PyTorch's begins with these
VALUES_ALONE = "values alone"  # ... and is of these, then filled in place
NAN = float("nan")  # of all that are, the one that keys hold: they are told by identity


def leaf_of(ins: Instruction) -> int | None:
    """The leaf an instruction names, if any."""
    if ins.op == "load":
        number: int = ins.value[0]
        return number
    if ins.op in ("scalar", "boundary"):
        leaf: int = ins.value
        return leaf
    return None


def relocate(
    instruction: Instruction, index: Sequence[int], leaf: Sequence[int] | Mapping[int, int]
) -> Instruction:
    """The instruction with its operands and leaves renumbered."""
    op, args, d, shape, needs_grad, value = instruction
    if op == "load":
        number, strides, free = value
        return Instruction(op, (), d, shape, needs_grad, (leaf[number], strides, free))
    if op == "scalar" or op == "boundary":
        value = leaf[value]
    return Instruction(op, tuple([index[i] for i in args]), d, shape, needs_grad, value)


def live(
    instructions: Sequence[Instruction], roots: Sequence[int]
) -> tuple[tuple[Instruction, ...], list[int]]:
    """The instructions that some depend on, renumbered, and where these now stand."""
    wanted = set(roots)
    for i in range(max(roots), -1, -1):
        if i in wanted:
            wanted.update(instructions[i].args)
    if len(wanted) == len(instructions):
        return tuple(instructions), list(roots)
    index: dict[int, int] = {}
    kept: list[Instruction] = []
    for i in sorted(wanted):
        op, args, d, shape, needs_grad, value = instructions[i]
        index[i] = len(kept)
        args = tuple([index[a] for a in args])
        kept.append(Instruction(op, args, d, shape, needs_grad, value))
    return tuple(kept), [index[r] for r in roots]


class Assembly:
    """A program being put together: appends instructions, computing equal ones once."""

    def __init__(self, instructions: Sequence[Instruction] = ()) -> None:
        self.instructions: list[Instruction] = []
        self.index: dict[Instruction, int] = {}
        for instruction in instructions:
            self.append(instruction)

    def append(self, instruction: Instruction) -> int:
        number = self.index.get(instruction)
        if number is None:
            number = self.index[instruction] = len(self.instructions)
            self.instructions.append(instruction)
        return number

    def include(self, program: Program, leaf: Sequence[int] | None) -> int:
        """Append a whole program, its leaf ``i`` becoming ``leaf[i]``; returns its root."""
        leaf = range(program.leaves) if leaf is None else leaf
        if not self.instructions and leaf == range(program.leaves):
            self.instructions += program.instructions
            self.index.update({ins: i for i, ins in enumerate(program.instructions)})
            return len(self.instructions) - 1
        index: list[int] = []
        for instruction in program.instructions:
            index.append(self.append(relocate(instruction, index, leaf)))
        return index[-1]

    def extract(self, root: int) -> tuple[Instruction, ...]:
        """The instructions ``root`` depends on, renumbered, with ``root`` last."""
        return live(self.instructions, [root])[0]


def listing(instructions: Sequence[Instruction]) -> str:
    """One readable line an instruction."""
    lines = []
    for i, ins in enumerate(instructions):
        operands = ", ".join(f"v{a}" for a in ins.args)
        detail = ""
        if ins.op == "load":
            detail = f"leaf {ins.value[0]}" + ("" if ins.value[1] is None else " strided")
        elif ins.op in ("scalar", "boundary"):
            detail = f"leaf {ins.value}"
        elif ins.op == "constant":
            detail = ins.value[0]
        inner = ", ".join(part for part in (operands, detail) if part)
        lines.append(f"v{i} = {ins.op}({inner}) : {ins.dtype.name}{list(ins.shape)}")
    return "\n".join(lines)
