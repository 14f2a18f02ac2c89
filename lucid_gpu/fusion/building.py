"""Pending values, built: the program of an op on values, of arrays, numbers and draws."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from lucid_gpu.core.planning import steps
from lucid_gpu.core.program import (
    FORBIDDEN,
    INFERENCE,
    SHARED,
    WRITTEN,
    Assembly,
    Instruction,
    Program,
    Shape,
    axes_of,
    changed_load,
    constant_program,
    constant_value,
    derived,
    expand_pattern,
    intern,
    leaf_of,
    marked,
    numbers_seen,
    relocate,
)
from lucid_gpu.core.value import ALWAYS, Cell, Expr, Like, give, merge
from lucid_gpu.device import device
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
from lucid_gpu.fusion.costs import costs_of
from lucid_gpu.fusion.optable import TABLE, Op
from lucid_gpu.tape import modes
from lucid_gpu.tape.modes import state

if TYPE_CHECKING:
    from lucid_gpu.tensor import Tensor


class MustStore(Exception):
    """Operands must be stored before the op can be applied to them.

    Attributes
    ----------
    operands : sequence of Expr
    """

    def __init__(self, operands: Sequence[Expr]) -> None:
        self.operands = operands


def of_constant(number: Any, d: dtype, shape: tuple[int, ...], where: device) -> Expr:
    """A tensor full of one number, which takes no memory until something needs its bytes."""
    return Expr(constant_program(number, d, shape, where, made_here()), (), None, shape)


def of_number(number: Any, d: dtype, shape: tuple[int, ...], where: device) -> Expr:
    """A tensor filled with a number that a user gave: one that changes from step to step is an
    argument.
    """
    text, number = constant_value(number)
    if not _is_argument(_filled, (d, len(shape), where), shape, text, number):
        return of_constant(number, d, shape, where)
    parts = [Instruction("scalar", (), d, (), False, 0)]
    if shape:
        parts.append(Instruction("identity", (0,), d, shape, False))
    return Expr(intern(parts, 1, where, made_here()), (Cell(number),), None, shape)


def zeros_like(value: Expr) -> Expr:
    """A tensor full of zeros, of the shape and type of another one."""
    program = value.program
    key = (program, modes.watchers and made_here())
    zeros = _zeros.get(key)
    if zeros is None:
        made = of_number(0, program.dtype, value.shape, program.device)
        zeros = _zeros[key] = made.program
    return Expr(zeros, (), None, value.shape)


_zeros: dict[tuple[Program, int], Program] = derived("zeros like a program's value")
_filled: dict[Any, Any] = derived("numbers that filled tensors, by type, rank and device")


def reshaped_uniform(value: Expr, shape: tuple[int, ...]) -> Expr | None:
    """A pending value that reads no array, all of whose elements are equal, in another shape.

    None for any other value.
    """
    program, axes = value.program, axes_of(shape, shape)
    reshaped = _uniform.get((program, axes))
    if reshaped is None:
        reshaped = _uniform[program, axes] = _reshaped(program, axes) or False
    return Expr(reshaped, value.leaves, None, shape) if reshaped else None


_uniform: dict[tuple[Program, Shape], Program | Literal[False]] = derived(
    "uniform values, reshaped"
)


def _reshaped(program: Program, axes: Shape) -> Program | None:
    if not program.independent or program.marks:
        return None
    assembly = Assembly()
    index: list[int] = []
    for ins in program.instructions:
        if ins.op in ("load", "index", "boundary") or ins.shape not in ((), program.axes):
            return None
        args = tuple([index[a] for a in ins.args])
        index.append(assembly.append(ins._replace(args=args, shape=axes if ins.shape else ())))
    root = index[-1]
    if not program.axes:
        root = assembly.append(Instruction("identity", (root,), program.dtype, axes, False))
    return intern(assembly.extract(root), program.leaves, program.device)


def of_index(shape: tuple[int, ...], where: device) -> Expr:
    """Each element's own number, counted row by row: int64 that no memory holds."""
    one = Instruction("index", (), int64, shape, False)
    return Expr(intern((one,), 0, where, made_here()), (), None, shape)


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
    axes = axes_of(shape, shape)
    key = (op, d, axes, where, made_here(), tuple([constant_value(n)[0] for n in numbers]))
    program = _draws.get(key)
    if program is None:
        work = Assembly()
        operands = [work.append(Instruction("index", (), int64, axes, False))]
        for leaf in (0, 1):
            operands.append(work.append(Instruction("scalar", (), int64, (), False, leaf)))
        for n in numbers:  # two that are equal are one instruction
            kind = int64 if isinstance(n, int) else d
            number = Instruction("constant", (), kind, (), False, constant_value(n))
            operands.append(work.append(number))
        work.append(Instruction(op.name, tuple(operands), d, axes, False))
        program = _draws[key] = intern(work.instructions, 2, where, made_here())
    return Expr(program, (Cell(stream[0]), Cell(stream[1])), None, shape)


_draws: dict[tuple[Op, dtype, Shape, device, int, tuple[str, ...]], Program] = derived("draws")


def made_here() -> int:
    """The mark of tensors made in the present mode."""
    return INFERENCE if modes.watchers and state.off is modes.INFERENCE else 0


# --- building -----------------------------------------------------------------------------------


def build(
    op: Op,
    operands: Sequence[Any],
    mode: modes.Mode,
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
    values, shapes, oldest = [], [], ALWAYS
    for o in operands:
        if isinstance(o, Expr):
            values.append(o)
            shapes.append(o.shape)
            if o.since < oldest:
                oldest = o.since
    if not values:
        if op.name in _OF_NUMBERS:
            host = device("cpu")
            numbers = [of_constant(o, scalar_type(o), (), host) for o in operands]
            return build(op, numbers, mode, to, shape, scheduled)
        raise TypeError(
            f"{op.name}(): argument 'input' (position 1) must be Tensor, not "
            f"{type(operands[0]).__name__}"
        )
    if scheduled and (oldest < steps.fresh or scheduler.waiting):
        old = scheduler.old(values, modes.NEEDS[mode])
        if old:
            raise MustStore(old)
    first = values[0]
    program: Program = first.program
    leaves: tuple[Cell, ...] = first.leaves
    turns = scheduler.TURNS if state.task is None else costs_of(program.device).turns
    space = first.shape
    axes = None if shape is None else axes_of(shape, shape)
    key: list[object] = [program, op, mode, to, axes, scheduled, turns]
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
            mark, leaves = _scalar_mark(first, op, position, operand, leaves)
            key += mark
            marks.append(mark)
    made = _applied.get(tuple(key))
    if made is None:
        one_device(op.name, values)
    if len(values) > 1 or shape is not None:
        space = shape_of(tuple(shapes), op.name, shape)
    if made is None:
        made = _derived(op, marks, len(leaves), mode, to, axes, scheduled, turns)
        _applied[tuple(key)] = made
    if not isinstance(made, Program):
        pending = [o for o in values if not o.program.is_load]
        raise MustStore(scheduler.stored_first(made, pending))
    return Expr(made, leaves, (op, *operands), space)


# Or why an operand must be an array first.
_applied: dict[tuple[object, ...], Program | scheduler.Cut] = derived("ops on a program")


# Exponents that are never arguments: they, or those of the gradients, make roots, whose values at
# -0 and minus infinity are not those of powers.
ROOTS = frozenset([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5])


_OF_NUMBERS = ("add", "sub", "mul", "div")  # PyTorch takes two numbers for these


def _scalar_mark(
    first: Expr, op: Op, position: int, value: Any, leaves: tuple[Cell, ...]
) -> tuple[Any, tuple[Cell, ...]]:
    """A number beside a value as a part of the program, or as one leaf more."""
    kind = type(value)
    text, value = constant_value(value)
    power = op.name in ("pow", "root")
    refusable = kind is int and (power or not fits(value))
    seen, place = numbers_seen(first.program), (op, position)
    if refusable or not _is_argument(seen, place, first.shape, (text, kind), value, power):
        return ("number", text, kind, value), leaves
    return ("slot", len(leaves), kind, scalar_type(value)), (*leaves, Cell(value))


def _is_argument(
    seen: dict[Any, Any],
    place: Any,
    shape: Shape,
    number: Any,
    value: Any,
    exponent: bool = False,
) -> bool:
    """Whether a number that is met at a place is an argument of the kernel: see `scheduler.stays`.

    ``number`` tells it from others; ``seen`` has those of each place and shape, and the first one's
    step, and for the place those that were the first in their shape.
    """
    slot = place, shape
    changes = slot not in seen and not exponent
    changes = changes and scheduler.changes_with_shape(number, seen.setdefault(place, set()))
    first, known = seen.setdefault(slot, (state.step, set()))
    if value == 0 or value == 1:  # they make ops simpler
        return False
    if exponent and value in ROOTS:
        return False
    if not changes and scheduler.stays(number, first, known, exponent):
        return False
    if not exponent:
        seen[slot] = _CHANGING
    return True


_CHANGING: Any = (-1, frozenset())  # no step, and no numbers: all are arguments


def _derived(
    op: Op, marks: Any, leaves: int, mode: Any, to: Any, axes: Any, scheduled: bool, turns: int
) -> Program | scheduler.Cut:
    """The program of an op on programs, or why `scheduler.cut` says that there is to be none."""
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
    recorded = modes.NEEDS[mode]
    if op.name in SUMS:
        operands = [sum_as_stored(assembly, o) if type(o) is int else o for o in operands]
    root = emit(assembly, op, operands, recorded, to, axes)
    made = assembly.instructions[root]
    if made.op in ("load", "boundary") or (made.needs_grad and root in operands):
        # ``x * 1`` is a tensor of its own: x may be written, and has a gradient of its own. So may
        # ``x.exp() * 1``, where the gradient of the exponential reads what it gave.
        root = emit(assembly, op, operands, recorded, to, axes, plainly=True)
    instructions = assembly.extract(root)
    if scheduled and any(not p.is_load for p in programs):
        why = scheduler.cut(instructions, leaves, turns)
        if why is not None:
            return why
    marks_of_result = SHARED if any(p.marks & SHARED for p in programs) else 0
    if mode is modes.INFERENCE:
        marks_of_result |= INFERENCE
    return intern(instructions, leaves, programs[0].device, marks_of_result)


def one_device(name: str, values: Sequence[Expr | Like]) -> device:
    """The device all operands are on; a 0-d CPU operand may join any."""
    where = values[0].program.device
    for value in values[1:]:
        there = value.program.device
        if there != where:
            raise RuntimeError(
                f"Expected all tensors to be on the same device, but found at least two devices, "
                f"{where} and {there}! {name} got "
                + " and ".join(f"{list(v.shape)} on {v.program.device}" for v in values)
                + "; move one with .to(...)"
            )
    return where


def boundary(inner: Expr, node: Any, output: int = 0) -> Expr:
    """The same value, whose gradient goes to ``node`` instead of through ``inner``."""
    wrapped, kept = boundary_of(inner.program)
    leaves = inner.leaves
    if kept is not None:
        leaves = tuple([leaves[i] for i in kept])
    return Expr(wrapped, (*leaves, Cell(None, node, output)), None, inner.shape)


def boundary_of(program: Program) -> tuple[Program, tuple[int, ...] | None]:
    """Return the program of a value without its marks for grad, under a new mark, and the leaves
    that stay, None for all in order.
    """
    pair = boundaries.get(program)
    if pair is None:
        pair = boundaries[program] = _boundary(program)
    return pair


_inner: dict[Program, Program] = derived("programs inside of boundaries")
boundaries: dict[Program, tuple[Program, Shape | None]] = derived("boundaries around programs")


def _boundary(program: Program) -> tuple[Program, tuple[int, ...] | None]:
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
    root = Instruction("boundary", (index[-1],), program.dtype, program.axes, True, len(kept))
    assembly.append(root)
    wrapped = intern(assembly.instructions, len(kept) + 1, program.device, program.marks)
    return wrapped, None if kept == [*range(program.leaves)] else tuple(kept)


def _inside(program: Program) -> Program:
    """The program whose value a boundary marks."""
    inner = _inner.get(program)
    if inner is None:
        known, where = program.instructions[:-1], program.device
        shared = program.marks & SHARED
        inner = _inner[program] = intern(known, program.leaves - 1, where, shared)
    return inner


def mark_dependent(tensor: Tensor) -> None:
    """Have a realized `tensor` be one that would require grad, had it been recorded."""
    value = tensor._expr
    if value.program.dtype.category >= 2:
        loads = changed_load(value.program, needs_grad=None)
        give(tensor, Expr(loads, value.leaves, None, value.shape))


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


def set_apart(gradient: Tensor) -> None:
    """Have a `gradient` that is not recorded hold no part of the graph it came from."""
    value = before = gradient._expr
    if not value.program.independent:
        value = without_grad(value)
    leaves = value.leaves
    for cell in leaves:
        node = cell.node
        if node is not None and node._edges:  # it leads further than to a leaf of the graph
            leaves = _without_nodes(leaves)
            break
    if leaves is not value.leaves or value.made_by is not None:
        value = Expr(value.program, leaves, None, value.shape)
    if value is not before:
        give(gradient, value)


def without_grad(value: Expr) -> Expr:
    """The same value as a constant for gradients (`Tensor.detach`)."""
    program = value.program
    if program.independent:
        return value
    if program.is_load:
        loads = changed_load(program, needs_grad=False, marks=program.marks & ~FORBIDDEN)
        return Expr(loads, (value.leaves[0].twin(),), None, value.shape)
    if program.is_boundary and program.root.args[0] == len(program.instructions) - 2:
        return Expr(_inside(program), value.leaves[:-1], None, value.shape)  # the node is not held
    same = build(TABLE["identity"], [value], modes.OFF, shape=value.shape, scheduled=False)
    if program.marks:
        same.program = marked(same.program, program.marks)
    return same
