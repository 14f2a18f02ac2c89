"""One expression applied to many tensors of any shapes, in place: the optimizers' update.

The rule is traced once on stand-ins; the kernel's blocks then run over all tensors, so that a
hundred small parameters cost one launch and the threads share their sum, not each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from lucid_gpu.core.program import Instruction, intern, load_program
from lucid_gpu.core.value import Cell, Expr, merge
from lucid_gpu.device import CPU, device
from lucid_gpu.devices import owners
from lucid_gpu.dtypes import dtype
from lucid_gpu.fusion import blocks
from lucid_gpu.fusion.plan import Plan
from lucid_gpu.fusion.realize import executor

_STAND_IN = (blocks.SINGLE + 1,)  # a shape that is always run in blocks


class Update(NamedTuple):
    """A traced rule.

    Attributes
    ----------
    plan : Plan
        Of the stand-ins.
    read : tuple of int
        The column each of the plan's loads reads.
    numbers : tuple of (int or None, number)
        For each of the plan's scalars, which of the numbers of a run it is, or its value.
    """

    plan: Plan
    read: tuple[int, ...]
    numbers: tuple[tuple[int | None, Any], ...]


def stand_ins(types: Sequence[dtype], where: device = CPU) -> list[Expr]:
    """Values without arrays, to trace a rule on; one for each column of tensors."""
    programs = [load_program(d, _STAND_IN, False, False, where) for d in types]
    return [Expr(program, (Cell(None),), None, _STAND_IN) for program in programs]


def number_stand_ins(count: int, d: dtype, where: device) -> list[Expr]:
    """Values without dimensions for numbers that each run is given."""
    one = Instruction("scalar", (), d, (), False, 0)
    return [Expr(intern((one,), 1, where), (Cell(None),), None, ()) for _ in range(count)]


def traced(inputs: Sequence[Expr], values: Sequence[Expr], numbers: Sequence[Expr] = ()) -> Update:
    """What a rule made of stand-ins, as something to run.

    Parameters
    ----------
    inputs : sequence of Expr
        The stand-ins, one a column.
    values : sequence of Expr
        What the rule made of them; ``values[i]`` overwrites the i-th column.
    numbers : sequence of Expr
        The stand-ins of numbers.
    """
    leaves = values[0].leaves
    patterns: list[Any] = [None]
    for value in values[1:]:
        leaves, pattern = merge(leaves, value.leaves)
        patterns.append(pattern)
    column_of = {e.leaves[0]: i for i, e in enumerate(inputs)}
    number_of = {e.leaves[0]: i for i, e in enumerate(numbers)}
    leaf_of = {column_of[cell]: i for i, cell in enumerate(leaves) if cell in column_of}
    over = tuple([leaf_of.get(i) for i in range(len(values))])
    plan = Plan([v.program for v in values], patterns, values[0].shape, over=over)
    plan.executable = executor(plan)
    read = tuple([column_of[leaves[load.leaf]] for load in plan.loads])
    cells = [leaves[leaf] for leaf, _ in plan.scalars]
    return Update(plan, read, tuple([(number_of.get(cell), cell.array) for cell in cells]))


def run(update: Update, columns: Sequence[Sequence[Any]], numbers: Sequence[Any] = ()) -> None:
    """Compute a rule's values for every row of arrays and write them over the first columns.

    Parameters
    ----------
    columns : sequence of sequences of arrays
        Row-major arrays; those written come first, then those only read.
    numbers : sequence of numbers
        As `traced` was given stand-ins.
    """
    plan, read = update.plan, update.read
    scalars = [value if i is None else numbers[i] for i, value in update.numbers]
    owner = owners[type(columns[0][0])]
    if owner.records:
        own_columns = [list(column) for column in columns]
        owner.call(plan.name, plan.executable.over_rows, own_columns, read, scalars)
        return
    plan.executable.over_rows(columns, read, scalars)
