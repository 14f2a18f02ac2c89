"""What PyTorch's ops save for backward: writing that in place afterwards is refused.

Ours read the old value, which is whole; but a program must not be right because of how its ops were
fused. A region looks through its ops (`refusal`) only where some value has been written at all.

What is saved beside what a node keeps itself stands in ``also``, of nodes and of pending values:
a `Saved` for each value, the op's own result among them, and a `Composed` for what a composition
computes on its way.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any, NamedTuple

from lucid_gpu.core.node import FOLLOWS
from lucid_gpu.core.program import (
    Instruction,
    Program,
    Shape,
    constant_value,
    derived,
    intern,
    load_program,
)
from lucid_gpu.core.saved import Follows, Saved, is_written, saved, written_values
from lucid_gpu.core.value import Cell, Expr, mark_of
from lucid_gpu.device import CPU
from lucid_gpu.fusion.gradient import FROM_OPERANDS, gradient_of
from lucid_gpu.fusion.optable import TABLE, Op

__all__ = [
    "FROM_OPERANDS",
    "SAVE_ALL",
    "Composed",
    "Replacements",
    "Saved",
    "composed",
    "converted",
    "refusal",
    "replacements",
    "saved",
    "saved_leaves",
]

SAVE_ALL = {"pow", "sgn"}  # PyTorch saves operands and result where our formula needs fewer
RESULT_POSITION = -1  # in place of an operand's number
_NUMBERS = ("constant", "scalar")


class Composed(NamedTuple):
    """A composition that is one op in PyTorch: what of its own values is computed again of what it
    saved, once that was replaced by ``x.data = y``. It holds no value.

    Attributes
    ----------
    program : Program
        Of its result.
    places : tuple of int
        Where the leaves of that stand among those at hand.
    saved : tuple of (Program, tuple of int)
        The operands that PyTorch's op saves, and the places of theirs.
    output : bool
        Whether it saves its result.
    title : str or None
        PyTorch's name for the op's node.
    operands : tuple of (Program, tuple of int)
        Those that a gradient may go to, where there is a title.
    """

    program: Program
    places: tuple[int, ...]
    saved: tuple[tuple[Program, tuple[int, ...]], ...]
    output: bool
    title: str | None
    operands: tuple[tuple[Program, tuple[int, ...]], ...]

    @property
    def written(self) -> bool:
        """It saves nothing itself."""
        return False

    def within(self, own: Sequence[Any], leaves: Sequence[Any]) -> Composed:
        """The same, whose leaves stood among ``own``, for leaves that have all of these."""
        if own is leaves:
            return self
        at = [leaves.index(cell) for cell in own]
        saved = tuple([(p, tuple([at[i] for i in places])) for p, places in self.saved])
        return self._replace(places=tuple([at[i] for i in self.places]), saved=saved, operands=())


def composed(
    value: Expr,
    saved: Sequence[Expr],
    output: bool = False,
    title: str | None = None,
    operands: Sequence[Expr] = (),
) -> Composed:
    """The composition that ends in a pending value and saves these operands.

    ``operands`` are those that a gradient may go to, where they are others than ``saved``.
    """
    program, leaves = value.program, value.leaves
    read = []
    for operand in (*saved, *operands):
        own = operand.leaves
        read.append((operand.program, None if own == leaves else _places(own, leaves)))
    key = (program, output, title, len(saved), tuple(read))
    entry = _composed.get(key)
    if entry is None:
        every = tuple(range(len(leaves)))
        pairs = [(p, every if places is None else places) for p, places in read]
        held = tuple([pair for pair in pairs[: len(saved)] if pair[1] is not _ELSEWHERE])
        to = tuple(pairs[len(saved) :] or pairs)
        entry = _composed[key] = Composed(program, every, held, output, title, to)
    return entry


_ELSEWHERE = (-1,)  # the places of an operand that the program does not read


def _places(own: Sequence[Any], leaves: Sequence[Any]) -> tuple[int, ...]:
    return tuple([leaves.index(c) for c in own]) if all(c in leaves for c in own) else _ELSEWHERE


_Read = tuple[Program, Shape | None]  # an operand, and where its leaves stand, None for all
_composed: dict[tuple[Program, bool, str | None, int, tuple[_Read, ...]], Composed] = derived(
    "compositions that end in a program"
)
_saved_leaves: dict[tuple[Program, frozenset[int] | None, frozenset[int]], Shape] = derived(
    "leaves that ops save"
)


class Replacements(NamedTuple):
    """What inside a region was replaced by ``x.data = y`` since, in terms of its leaves.

    Attributes
    ----------
    leaves : dict of int to Tensor
        What stands for a leaf now.
    values : list of (Program, tuple of int, Tensor)
        Pending values: their programs, the places of their leaves, and what stands for them.
    compositions : list of Composed
    """

    leaves: dict[int, Any]
    values: list[tuple[Program, tuple[int, ...], Any]]
    compositions: list[Composed]


def _replaced(value: Expr | Cell) -> Any:
    """The tensor that had this value, if it was given another by ``x.data = y``."""
    storage = None if value.variable is None else value.variable._storage
    if type(storage) is not Follows:
        return None
    assert storage.tensor is not None
    now = storage.tensor._expr
    if isinstance(value, Expr) or not (value.filled and now.program.is_load):
        return storage.tensor
    same = now.leaves[0].array is value.array and now.program.needs_grad <= (value.node is not None)
    return None if same else storage.tensor


def replacements(
    made_by: tuple[Any, ...] | None, leaves: Sequence[Any], also: Sequence[Any]
) -> Replacements | None:
    """What was replaced inside a region, None where nothing was."""
    if not written_values:
        return None
    compositions = [entry for entry in also if type(entry) is Composed]
    replaced, seen = [], set()
    stack = [made_by]
    while stack:
        for operand in stack.pop() or ():
            if not isinstance(operand, Expr) or operand.program.is_load or operand in seen:
                continue
            seen.add(operand)
            stack.append(operand.made_by)
            if not all(cell in leaves for cell in operand.leaves):
                continue
            tensor = _replaced(operand)
            if tensor is not None:
                places = tuple([leaves.index(cell) for cell in operand.leaves])
                replaced.append((operand.program, places, tensor))
            for entry in operand.also:
                if type(entry) is Composed:
                    compositions.append(entry.within(operand.leaves, leaves))
    cells = {i: tensor for i, c in enumerate(leaves) if (tensor := _replaced(c)) is not None}
    return Replacements(cells, replaced, compositions) if cells or replaced else None


Kind = tuple[Any, Any]  # of an operand: its type, or None for a number; whether it needs a gradient

_saves: dict[Any, tuple[int, ...]] = {}


def saves(name: str, kinds: tuple[Kind, ...], d: Any) -> tuple[int, ...]:
    """Which operands PyTorch's op saves; -1 stands for the result, of type ``d``."""
    key = (name, kinds, d)
    positions = _saves.get(key)
    if positions is None:
        positions = _saves[key] = _derived(name, kinds, d)
    return positions


def _derived(name: str, kinds: tuple[Kind, ...], d: Any) -> tuple[int, ...]:
    n = len(kinds)
    if name not in TABLE or name in ("identity", "cast"):
        return ()
    if name == "pow" and kinds[1][0] is None:
        return (0,)
    if name == "div" and kinds[0][0] is None:
        return ()  # a reciprocal of PyTorch's own
    if name in SAVE_ALL and all(kind is not None for kind, _ in kinds):
        return (*range(n), RESULT_POSITION)
    reads = _read(name, kinds, d)
    if n > 1:  # PyTorch does not ask for whom it saves a result
        every = tuple([(kind, kind is not None and kind.category > 1) for kind, _ in kinds])
        reads |= _read(name, every, d) & {n}
    return tuple([RESULT_POSITION if leaf == n else leaf for leaf in sorted(reads)])


def _read(name: str, kinds: tuple[Kind, ...], d: Any) -> frozenset[int]:
    """The operands that the op's gradient reads; their number stands for the result."""
    n = len(kinds)
    operands = []
    for i, (kind, needs) in enumerate(kinds):
        if kind is None:
            operands.append(Instruction("constant", (), d, (), False, constant_value(2.0)))
        else:
            operands.append(Instruction("load", (), kind, (), bool(needs), (i, None, False)))
    root = Instruction(name, tuple(range(n)), d, (), True)
    program = intern([*operands, root], n, CPU)
    cotangent = load_program(d, (), False, False, CPU)
    output = None if name in FROM_OPERANDS else (n, False, False)
    return gradient_of(program, cotangent, n + 1, n + 2, False, output).reads


def _by(known: Sequence[Instruction], ins: Instruction, ends: Any) -> tuple[int, ...]:
    """What the op of an instruction saves; see `saved_leaves`."""
    operands = [known[a] for a in ins.args]
    needs = [o.needs_grad is True and not (o.op == "load" and o.value[0] in ends) for o in operands]
    kinds = [(None if o.op in _NUMBERS else o.dtype, n) for o, n in zip(operands, needs)]
    return saves(ins.op, tuple(kinds), ins.dtype)


def saved_leaves(
    program: Program, wanted: frozenset[int] | None = None, ends: frozenset[int] = frozenset()
) -> tuple[int, ...]:
    """The leaves that ops of a program save, each as an operand of its own.

    The number of leaves stands for the result, where the last op saves that. Ops that no gradient
    comes to, as below a comparison, are not asked, nor those that lead to none of the leaves
    ``wanted``, where that is given. Leaves ``ends`` take none: see `takes_none`.
    """
    key = (program, wanted, ends)
    saved = _saved_leaves.get(key)
    if saved is None:
        known, leaves = program.instructions, set()
        reached = {len(known) - 1}
        leads = None if wanted is None else _leading_to(known, wanted)
        for number in range(len(known) - 1, -1, -1):
            ins = known[number]
            if number not in reached or not ins.needs_grad:
                continue
            if leads is not None and number not in leads:
                continue
            reached.update(ins.args)
            for position in _by(known, ins, ends):
                if position == RESULT_POSITION:
                    if ins is program.root:
                        leaves.add(program.leaves)
                    continue
                operand = known[ins.args[position]]
                while operand.op == "identity" and known[operand.args[0]].shape != operand.shape:
                    operand = known[operand.args[0]]
                if operand.op == "load":
                    leaves.add(operand.value[0])
        saved = _saved_leaves[key] = tuple(sorted(leaves))
    return saved


def _leading_to(known: Sequence[Instruction], wanted: frozenset[int]) -> set[int]:
    """The numbers of the instructions whose gradient goes on to one of these leaves."""
    leads: set[int] = set()
    for number, ins in enumerate(known):
        if ins.op == "load":
            comes = ins.value[0] in wanted
        elif ins.op == "boundary":
            comes = ins.value in wanted
        else:
            comes = any(a in leads for a in ins.args)
        if comes and ins.needs_grad:
            leads.add(number)
    return leads


def saves_of(op: Op, operands: Sequence[Any], program: Program) -> tuple[int, ...]:
    """Which of these operands PyTorch's op saves; -1 stands for the result."""
    return saves(op.name, tuple(map(_kind, operands)), program.dtype)


def _kind(operand: Any) -> Kind:
    if not isinstance(operand, Expr):
        return None, False
    like = operand.program
    return like.dtype, like.needs_grad and not (like.is_load and takes_none(operand.leaves[0]))


def takes_none(leaf: Cell) -> bool:
    """Whether no gradient goes to a leaf: a view made under no_grad wants one for its base only."""
    return leaf.leads and leaf.node is not None and leaf.node.aside == FOLLOWS


def refusal(
    made_by: tuple[Any, ...] | None, root: Program, reached: Container[Any] | None = None
) -> Saved | None:
    """What an op inside a region saved and was written since.

    Parameters
    ----------
    made_by : tuple
        The region's last op and its operands.
    root : Program
        Of the region.
    reached : container of Node, optional
        Where a pass for some inputs comes to; by default it goes everywhere.
    """
    if made_by is None or not (written_values or converts(root)):
        return None
    seen: set[Expr] = set()
    known: dict[Expr, bool] = {}
    stack: list[tuple[Any, Program]] = [(made_by, root)]
    while stack:
        (op, *operands), program = stack.pop()
        for position in saves_of(op, operands, program):
            if position == RESULT_POSITION:
                continue
            operand = operands[position]
            if not isinstance(operand, Expr) or not is_written(operand):
                continue
            if not operand.program.is_load or _is_converted(operand, program):
                return saved(operand)
        for operand in operands:
            if not isinstance(operand, Expr) or operand in seen:
                continue
            inner = operand.program
            if inner.is_load or not inner.needs_grad or operand.made_by is None:
                continue
            seen.add(operand)
            if operand.node is not None and operand.node.observed:
                continue  # a region of its own, which says so itself
            if reached is not None and not _comes_to(operand, reached, known):
                continue
            node = operand.node
            if saves_result(operand):
                if node is not None and node.result is not None and node.result.written:
                    return node.result
                if is_written(operand):
                    return saved(operand)
            for entry in operand.also:
                if entry.written:
                    return entry
            stack.append((operand.made_by, inner))
    return None


def _comes_to(value: Expr, reached: Container[Any], known: dict[Expr, bool]) -> bool:
    """Whether a value's gradient goes on to what a pass comes to, or is asked for itself."""
    answer = known.get(value)
    if answer is None:
        answer = value.node in reached or any(cell.node in reached for cell in value.leaves)
        if not answer and value.made_by is not None:
            inner = [e for e in value.made_by[1:] if isinstance(e, Expr) and e.program.needs_grad]
            answer = any(_comes_to(e, reached, known) for e in inner)
        known[value] = answer
    return answer


def converts(program: Program) -> bool:
    """Whether a program converts one of its leaves."""
    known = program.instructions
    return any(ins.op == "cast" and known[ins.args[0]].op == "load" for ins in known)


def _is_converted(operand: Any, program: Program) -> bool:
    """Whether an operand is a leaf of another type than the op's result: the op converts it."""
    if not isinstance(operand, Expr) or not operand.program.is_load:
        return False
    return operand.program.dtype is not program.dtype


def converted(made_by: tuple[Any, ...] | None, root: Program) -> list[Saved]:
    """What is saved of leaves that ops inside a region convert and PyTorch's save unconverted."""
    if made_by is None or not converts(root):
        return []
    notes: list[Saved] = []
    seen: set[Expr] = set()
    stack: list[tuple[Any, Program]] = [(made_by, root)]
    while stack:
        (op, *operands), program = stack.pop()
        for position in saves_of(op, operands, program):
            if position != RESULT_POSITION and _is_converted(operands[position], program):
                notes.append(saved(operands[position]))
        for operand in operands:
            if isinstance(operand, Expr) and operand not in seen and operand.made_by is not None:
                seen.add(operand)
                stack.append((operand.made_by, operand.program))
    return notes


def saves_result(value: Expr) -> bool:
    """Whether the op that made a pending value saves it."""
    for entry in value.also:
        if type(entry) is Saved and entry.variable is mark_of(value)[0]:
            return True
    if value.made_by is None:
        return False
    program = value.program
    if value.made_by[0].name != program.root.op:  # ``y * 1`` saves nothing, whatever made y
        return False
    return program.leaves in saved_leaves(program)
