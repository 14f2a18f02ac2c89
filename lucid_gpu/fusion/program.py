"""Programs: what a pending expression computes, without saying on which arrays.

A `Program` is a straight line of `Instruction`s over numbered leaves, the last but not always the
only use of which is its root. Programs are interned: equal programs are one object, and what
follows from a program (the program of ``a * b``, its gradient, its plan) is kept on it. So shapes,
dtypes and devices are checked once a program, and building an op afterwards is one look-up.

Programs that differ in extents and strides alone have a *form* in common: a program over stand-ins,
from which all of them are bound (`bound`). What is derived is derived of forms, so a shape that was
never seen before derives nothing. A stand-in says which of the root's axes it is, counted from the
right: 2 is the last. 0 and 1 stand for themselves, as they broadcast and multiply differently; and
True stands for strides. Whoever derives something of a form may ask whether extents are equal, 0 or
1, and nothing else; anything that depends on how large they are is part of the key under which it
is kept, or found when the form is bound.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from lucid_gpu.device import device
from lucid_gpu.dtypes import dtype, when_default_changes
from lucid_gpu.fusion.layout import (
    dense_order,
    in_order,
    order_of,
    result_strides,
    row_major,
    walk_of,
)
from lucid_gpu.launch.planning import made


def _bytes() -> int:
    """64 MiB, or LUCID_PLAN_BYTES."""
    wish = os.environ.get("LUCID_PLAN_BYTES", "")
    if wish and not wish.isdigit():
        raise ValueError(f"LUCID_PLAN_BYTES is a number of bytes; got {wish!r}")
    return int(wish) if wish else 64 << 20


BYTES = _bytes()  # that tables of programs and plans take before they start anew; as counted here:
OF_PROGRAM, OF_PLACE, OF_INSTRUCTION = 600, 8, 350

Shape = tuple[int, ...]
Strides = tuple[Any, ...]  # of each leaf: see `Program`

SHARED, WRAPPED, SPARSE, INFERENCE, FORBIDDEN, WRITTEN = 1, 2, 4, 8, 16, 32  # marks of a program


class Instruction(NamedTuple):
    """One step of a program.

    ``op`` names a row of the op table, or is one of: ``load`` (``value`` is the leaf's number, its
    strides in bytes, None for row-major, and whether nobody chose these), ``scalar`` (a Python
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


def bound_shape(general: Shape, space: Shape) -> Shape:
    """The shape that stand-ins mean."""
    return tuple([space[1 - n] if n > 1 else n for n in general])


def bound_instruction(ins: Instruction, to: Program) -> Instruction:
    """An instruction of a form as the program has it."""
    op, args, d, general, needs_grad, value = ins
    if op == "load" and value[1]:
        value = value[0], to.strides[value[0]], value[2]
    return Instruction(op, args, d, bound_shape(general, to.shape), needs_grad, value)


def bound_instructions(known: Sequence[Instruction], to: Program) -> tuple[Instruction, ...]:
    """The instructions of a form as the program has them."""
    return _kept([bound_instruction(ins, to) for ins in known])


class _Later:
    """A field of a program that is made of its form's when somebody asks for it, which few do.

    It is no data descriptor: what was made is found in the program itself. A `__getattr__` of the
    class would slow down every other field.
    """

    def __init__(self, bind: Callable[[Any, Program], Any]) -> None:
        self.bind = bind

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, program: Program, owner: type) -> Any:
        value = program.__dict__[self.name] = self.bind(getattr(program.form, self.name), program)
        return value


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
        different objects. The bits are ``shared``, ``wrapped`` and, for a
        leaf that holds coordinates and values instead of an array, sparse; ``inference``, which
        bars nothing; forbidden, for a view whose history was lost (`ops.views.ViewCell`); and
        written, for a 16-bit value that was written in place: ops read it as it will be stored.
    barred : int
        The marks that bar the straight path.
    form : Program
        The same over stand-ins for extents and strides: see this module.
    strides : tuple
        For each leaf the strides of its array, in bytes; None for row-major.
    strided : bool
        Whether some are not None.
    laid : bool
        Whether ``order`` depends on how the arrays lie.
    length : int
        How many instructions it has.
    backward : bool
        Of a form: derived as a gradient. A kernel's name says so.
    inference : bool
        The tensor was made in inference mode.
    needs_grad : bool
    free : bool or tuple of int
        Of a load: the array lies in an order that nobody chose, as what a convolution gives. A
        tuple is the order in which PyTorch's lies, where that is not row-major.
    order : tuple of int or None
        The dimensions of the value as they lie in memory once it is computed, outermost first, as
        PyTorch has it; None for row-major.
    independent : bool
        Depends on nothing that requires grad, recorded or not: false also for what a
        `Function.forward` computes on its way from inputs that require grad.
    plain : bool
        One load of a row-major array, without marks, of what does not require grad.
    shared : bool
        Reads memory that others can write without our knowing.
    wrapped : bool
        The tensor also holds a value of a level (a tangent, a batch): see `tape.levels`.
    region : object or None
        What the autograd nodes of this program have in common (`lucid_gpu.fusion.region.Facts`).
    next : dict
        Programs of ops applied to this one, by (op, other operands, leaf pattern, grad mode).
    """

    __slots__ = (
        "__dict__",  # of the two below
        "__weakref__",
        "backward",
        "barred",
        "bound",
        "device",
        "dtype",
        "form",
        "free",
        "gradients",
        "independent",
        "inference",
        "is_boundary",
        "is_load",
        "laid",
        "leaves",
        "length",
        "marks",
        "needs_grad",
        "next",
        "order",
        "plain",
        "plan",
        "region",
        "scalars_seen",
        "shape",
        "shared",
        "stored",
        "strided",
        "strides",
        "wrapped",
    )
    bound: dict[Any, Program]  # of a form: by shape and strides
    instructions: tuple[Instruction, ...] = _Later(bound_instructions)  # type: ignore[assignment]
    root: Instruction = _Later(bound_instruction)  # type: ignore[assignment]

    def __init__(
        self,
        instructions: tuple[Instruction, ...],
        leaves: int,
        where: device,
        marks: int,
    ) -> None:
        self.root = root = instructions[-1]
        self.instructions = instructions
        self.length = len(instructions)
        self.leaves = leaves
        self.device = where
        self.marks = marks
        self.barred = marks & ~(INFERENCE | WRITTEN)
        self.inference = bool(marks & INFERENCE)
        self.shared = bool(marks & SHARED)
        self.wrapped = bool(marks & WRAPPED)
        self.is_load = root.op == "load"  # the value of a realized tensor
        self.is_boundary = root.op == "boundary"
        self.dtype = root.dtype
        self.needs_grad = root.needs_grad is True
        self.independent = root.needs_grad is False
        self.backward = False
        self.free = self.is_load and root.value[2]
        loads = [i.value for i in instructions if i.op == "load"]
        known = {leaf: strides for leaf, strides, _ in loads if strides}
        self.strided = bool(known)
        self.plain = self.is_load and not (known or self.free or marks or self.needs_grad)
        self.laid = any(_is_laid(strides, free) for _, strides, free in loads)
        self.order: tuple[int, ...] | None = None
        self._begin(self, root.shape, tuple([known.get(leaf) for leaf in range(leaves)]))
        self.bound = {} if self.laid else {(self.shape, self.strides): self}

    def _begin(self, form: Program, shape: Shape, strides: Strides) -> None:
        self.form = form
        self.shape = shape
        self.strides = strides
        self.next: dict[Any, Any] = {}
        self.gradients: dict[Any, Any] = {}
        self.scalars_seen: dict[Any, tuple[int, set[Any]]] | None = None  # see `numbers_seen`
        self.plan: Any = None
        self.region: Any = None
        self.stored: Program | None = None  # the program of this value once it is an array

    def bind(self, shape: Shape, strides: Strides) -> Program:
        """Make the program of this form for a shape and strides; see `bound`."""
        program = Program.__new__(Program)
        program.leaves = self.leaves
        program.length = self.length
        program.device = self.device
        program.marks = self.marks
        program.barred = self.barred
        program.inference = self.inference
        program.shared = self.shared
        program.wrapped = self.wrapped
        program.is_load = self.is_load
        program.is_boundary = self.is_boundary
        program.dtype = self.dtype
        program.needs_grad = self.needs_grad
        program.independent = self.independent
        program.free = self.free
        program.strided = self.strided
        program.plain = self.plain
        program.laid = self.laid
        program._begin(self, shape, strides)
        # stand-ins for strides lie nowhere
        known = self.laid and True not in strides
        program.order = order_of_result(program.instructions) if known else None
        return program

    def __repr__(self) -> str:
        return f"Program({listing(self.instructions)})"


_programs: dict[Any, Program] = {}
_instructions: dict[Instruction, Instruction] = {}  # each once: programs have most in common
_alive: weakref.WeakSet[Program] = weakref.WeakSet()  # forms, and programs that were forgotten
_lock = threading.RLock()


def intern(
    instructions: Sequence[Instruction], leaves: int, where: device, marks: int = 0
) -> Program:
    """The one program with these instructions."""
    shape = instructions[-1].shape
    shapes: dict[Shape, Shape] = {(): ()}
    strides: list[Any] = [None] * leaves
    general = []
    for ins in instructions:
        own = shapes.get(ins.shape)
        if own is None:
            own = shapes[ins.shape] = general_shape(ins.shape, shape)
        if ins.op == "load" and ins.value[1] is not None:
            leaf, strides[leaf], free = ins.value
            ins = ins._replace(shape=own, value=(leaf, True, free))
        general.append(ins if own == ins.shape else ins._replace(shape=own))
    form = _form(tuple(general), leaves, where, marks)
    return bound(form, shape, tuple(strides))


def general_shape(own: Shape, space: Shape) -> Shape:
    """A shape that broadcasts to another one, with stand-ins for extents."""
    extents = []
    for axis, n in enumerate(own, len(space) - len(own)):
        if n > 1 and n != space[axis]:
            raise ValueError(f"{own} does not broadcast to {space}")
        extents.append(n if n < 2 else len(space) - axis + 1)
    return tuple(extents)


def bound(form: Program, shape: Shape, strides: Strides) -> Program:
    """The program of this form for a shape, and for the strides of its leaves' arrays."""
    if form.strided:  # a leaf that it does not read makes no difference
        strides = tuple([s if reads else None for s, reads in zip(strides, form.strides)])
    key = (shape, strides)
    program = form.bound.get(key)
    if program is None:
        spend(OF_PROGRAM)
        program = form.bound.setdefault(key, form.bind(shape, strides))
    return program


def expand_pattern(pattern: Any, count: int) -> Sequence[int]:
    """A pattern of `lucid_gpu.fusion.expression.merge` as leaf numbers."""
    if pattern is None:
        return range(count)
    return (pattern,) if isinstance(pattern, int) else pattern


def strides_at(parts: Iterable[tuple[Program, Any]]) -> dict[int, tuple[int, ...]]:
    """The strides of leaves that are not row-major, after these patterns."""
    result: dict[int, tuple[int, ...]] = {}
    for program, pattern in parts:
        if program.strided:
            places = expand_pattern(pattern, program.leaves)
            result |= {i: s for i, s in zip(places, program.strides, strict=True) if s}
    return result


def _form(instructions: tuple[Instruction, ...], leaves: int, where: device, marks: int) -> Program:
    key = (instructions, leaves, where, marks)
    form = _programs.get(key)
    if form is None:
        with _lock:
            own = _kept(instructions, OF_PROGRAM)
            form = _programs.setdefault((own, *key[1:]), Program(own, leaves, where, marks))
            _alive.add(form)
        made("programs")
    return form


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


when_forgotten: list[Callable[[], None]] = []  # empties of tables that hold programs


def forget() -> None:
    """Empty the tables. Programs in use stay valid; equal ones made later are new objects."""
    with _lock:
        kept.count = 0
        for empty in when_forgotten:
            empty()
        _programs.clear()
        _instructions.clear()
        _loads.clear()
        _constants.clear()
        for form in tuple(_alive):
            if form.form is form:
                _alive.update(form.bound.values())  # a tensor may hold one
                form.bound.clear()
        for program in tuple(_alive):
            program.next.clear()
            program.gradients.clear()
            program.scalars_seen = program.plan = program.region = program.stored = None
        _numbers_seen.clear()


def forget_numbers() -> None:
    """Let every Python number be the first at its place again."""
    for seen in _numbers_seen.values():
        seen.clear()


when_default_changes.append(forget)


def load_program(
    d: dtype,
    shape: tuple[int, ...],
    strides: tuple[int, ...] | None,
    needs_grad: bool | None,
    where: device,
    marks: int = 0,
    free: bool | tuple[int, ...] = False,
) -> Program:
    """The program of a realized array: one load of leaf 0."""
    strides = strides or None
    free = free if strides is not None or type(free) is tuple else False
    key = (d, shape, strides, needs_grad, where, marks, free)
    program = _loads.get(key)
    if program is None:
        steps = None if strides is None else True
        like = (d, general_shape(shape, shape), steps, needs_grad, where, marks, free)
        form = _loads.get(like)
        if form is None:
            one = Instruction("load", (), d, like[1], needs_grad, (0, steps, free))
            form = _loads[like] = intern((one,), 1, where, marks).form
        program = _loads[key] = bound(form.form, shape, (strides,))
    return program


def loads_of(program: Program) -> tuple[Program, Program]:
    """The programs of row-major arrays of a program's shape and type, not recorded and recorded."""
    pair: tuple[Program, Program] | None = program.next.get("loads")
    if pair is None:
        d, shape, where = program.dtype, program.shape, program.device
        plain = load_program(d, shape, None, False, where)
        pair = plain, load_program(d, shape, None, True, where) if d.category >= 2 else plain
        program.next["loads"] = pair
    return pair


def both_of_load(program: Program) -> tuple[Program, Program]:
    """The programs of an array that lies as a load's, not recorded and recorded, without marks."""
    d, shape, (_, strides, free) = program.dtype, program.shape, program.root.value
    where = program.device
    plain = load_program(d, shape, strides, False, where, 0, free)
    if d.category < 2:
        return plain, plain
    return plain, load_program(d, shape, strides, True, where, 0, free)


def changed_load(load: Program, **changes: Any) -> Program:
    """A load with other ``strides``, ``needs_grad``, ``marks`` or ``free``: see `load_program`."""
    root = load.root
    _, strides, free = root.value
    own = {"strides": strides, "needs_grad": root.needs_grad, "marks": load.marks, "free": free}
    return load_program(root.dtype, root.shape, where=load.device, **(own | changes))


def constant_program(
    number: Any, d: dtype, shape: tuple[int, ...], where: device, marks: int
) -> Program:
    """The program of a tensor full of one number: it reads no leaf."""
    value = constant_value(number)
    key = (value[0], d, shape, where, marks)
    program = _constants.get(key)
    if program is None:
        instructions = [Instruction("constant", (), d, (), False, value)]
        if shape:
            instructions.append(Instruction("identity", (0,), d, shape, False))
        program = _constants[key] = intern(instructions, 0, where, marks)
    return program


def numbers_seen(program: Program) -> dict[Any, tuple[int, set[Any]]]:
    """Which Python numbers have met the value of a program, or one like it, and since which step.

    One is like it whose last op is the same and works on the results of the same ops. A loop whose
    state begins as zeros runs other programs in its first turn than in its second, and the number
    that changes from turn to turn should not be new to these again.
    """
    seen = program.scalars_seen
    if seen is None:
        seen = program.scalars_seen = _numbers_like(program, program.shape)
    return seen


def first_numbers(program: Program) -> dict[Any, set[Any]]:
    """Which Python numbers have met values like a program's, of any extents, as the first ones."""
    return _numbers_like(program, None)


def _numbers_like(program: Program, shape: Shape | None) -> dict[Any, Any]:
    form = program.form
    root = form.root
    operands = tuple([_kind(form.instructions[a]) for a in root.args])
    space = len(program.shape) if shape is None else shape
    like = (_kind(root), operands, root.dtype, space, program.device)
    return _numbers_seen.setdefault(like, {})


def _kind(ins: Instruction) -> str:
    return "leaf" if ins.op in ("load", "constant", "identity", "index") else ins.op


_numbers_seen: dict[Any, dict[Any, Any]] = {}
_loads: dict[Any, Program] = {}
_constants: dict[Any, Program] = {}


def _is_laid(strides: tuple[int, ...] | None, free: bool | tuple[int, ...]) -> bool:
    """Whether a load has an order other than row-major, or gaps, by choice or as PyTorch's."""
    return type(free) is tuple or (strides is not None and not free)


def order_of_result(instructions: Sequence[Instruction]) -> tuple[int, ...] | None:
    """How the value of the last instruction lies in memory; see `Program.order`."""
    steps: list[tuple[int, ...]] = []
    for op, args, d, shape, _, value in instructions:
        if op == "load" and type(value[2]) is tuple:
            own = in_order(shape, value[2])
        elif op == "load" and value[1] and not value[2]:
            own = tuple([step // d.itemsize for step in value[1]])
        elif op == "identity" and value is SPREAD:
            own = walk_of(shape, instructions[args[0]].shape, steps[args[0]])
        elif args and op != "boundary":
            if value is VALUES_FIRST:
                args = (*args[1:], args[0])
            elif value is VALUES_ALONE:
                args = args[1:]
            own = result_strides(shape, [(instructions[a].shape, steps[a]) for a in args])
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
    twin: Program | None = program.next.get(("marked", marks))
    if twin is None:
        form = program.form
        own = _form(form.instructions, form.leaves, form.device, marks)
        twin = bound(own, program.shape, program.strides)
        program.next["marked", marks] = twin
    return twin


def constant_value(number: Any) -> tuple[str, Any]:
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
