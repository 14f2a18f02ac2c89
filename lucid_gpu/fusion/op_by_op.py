"""A plan cut into its ops: plans of one op each, whose kernels every program shares.

They give the bits that the plan's own kernel gives. Each op computes in the type it has in the
plan, so a value of 16 bits stays float32 between ops where the kernel would not round it; and a
generated kernel contracts nothing (`Text.contract`). Numbers become arguments, so that ``x * 2``
and ``x * 3`` are one op. A reduction is cut off what feeds it only where it then still adds in the
same order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from lucid_gpu.core.layout import Shape
from lucid_gpu.core.program import Instruction
from lucid_gpu.device import device
from lucid_gpu.dtypes import dtype
from lucid_gpu.fusion.cuda_reduction import geometry
from lucid_gpu.fusion.cuda_source import ragged, work_of
from lucid_gpu.fusion.plan import Load, Plan, Reduction, Store
from lucid_gpu.fusion.reduction_table import TABLE


class Part(NamedTuple):
    """One op of a plan.

    Attributes
    ----------
    plan : Plan
        Of this op alone.
    reads : tuple of int
        The value that each of its loads is; see `Cut`.
    numbers : tuple of int
        The number that each of its scalars is.
    writes : tuple of int
        The values that its stores are.
    last : tuple of int
        The values that no later part reads.
    """

    plan: Plan
    reads: tuple[int, ...]
    numbers: tuple[int, ...]
    writes: tuple[int, ...]
    last: tuple[int, ...] = ()


class Cut(NamedTuple):
    """A plan as its ops.

    Values are numbered: first the arrays of ``plan.all_loads``, then what the parts write. So are
    numbers: those of ``plan.all_scalars``, then `constants`.
    """

    parts: tuple[Part, ...]
    results: tuple[int, ...]  # the value that each of ``plan.all_stores`` is


def constants(plan: Plan) -> list[object]:
    """The constants of a plan and of its tail, as parts number them."""
    numbers = [value for value, _ in plan.constants]
    return numbers + ([] if plan.tail is None else [value for value, _ in plan.tail.plan.constants])


def cut(plan: Plan, packed: bool) -> Cut | None:
    """The ops of a plan, or None where they would not give the bits of the plan's own kernel.

    Parameters
    ----------
    packed : bool
        Whether the plan's own kernel moves several elements by one access.
    """
    writer = _Writer(plan)
    arrays = list(range(len(plan.loads)))
    known = writer.elementwise(plan, arrays, 0, len(plan.all_scalars))
    if plan.reduction is None:
        results = [writer.stored(known[s.index], s.dtype, plan.shape) for s in plan.stores]
        return writer.finish(results)
    reduced = writer.reductions(known, packed)
    if reduced is None:
        return None
    if plan.tail is None:
        wholes = [writer.stored(known[s.index], s.dtype, plan.shape) for s in plan.wholes]
        return writer.finish(wholes + reduced)
    own, at = plan.tail.plan, iter(range(len(plan.loads), len(plan.all_loads)))
    arrays = [next(at) if s is None else reduced[s] for s in plan.tail.sources]
    first = len(plan.all_scalars) + len(plan.constants)
    known = writer.elementwise(own, arrays, len(plan.scalars), first)
    results = [writer.stored(known[s.index], s.dtype, own.shape) for s in own.stores]
    return writer.finish(reduced + results)


class Operand(NamedTuple):
    """What an op reads: a value (``load``), a number (``scalar``) or each element's ``index``."""

    op: str
    number: int
    dtype: dtype
    shape: Shape


def op_plan(
    where: device,
    operands: Sequence[Operand],
    ins: Instruction | None,
    shape: Shape,
    d: dtype,
    lies: Sequence[Shape | None],
) -> tuple[Plan, list[int], list[int]]:
    """The plan of one op, the values it reads and the numbers it takes.

    Parameters
    ----------
    ins : Instruction or None
        None where the operand is stored as it is.
    shape, d
        Of what is stored.
    lies : sequence of strides or None
        How each value lies in memory; None for row-major.
    """
    distinct = list(dict.fromkeys(operands))
    tables: dict[str, list[Operand]] = {"load": [], "scalar": [], "index": []}
    instructions = []
    for operand in distinct:
        table = tables[operand.op]
        table.append(operand)
        op, _, kind, own = operand
        instructions.append(Instruction(op, (), kind, own, False, len(table) - 1))
    if ins is not None:
        args = tuple([distinct.index(operand) for operand in operands])
        instructions.append(ins._replace(args=args, needs_grad=False))
    plan = Plan.part(
        where, shape, instructions, [Store(len(instructions) - 1, d, shape)],
        loads=[_load(one, lies) for one in tables["load"]],
        indices=[one.shape for one in tables["index"]],
        scalars=[one.dtype for one in tables["scalar"]],
    )  # fmt: skip
    reads, numbers = ([one.number for one in tables[op]] for op in ("load", "scalar"))
    return plan, reads, numbers


def _load(operand: Operand, lies: Sequence[Shape | None]) -> Load:
    return Load(0, operand.dtype, operand.shape, lies[operand.number])


def _load_of(operand: Operand) -> Instruction:
    return Instruction("load", (), operand.dtype, operand.shape, False, 0)


class _Writer:
    """Collects the parts of a plan."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.parts: list[Part] = []
        self.lies: list[Shape | None] = [
            None if ragged(load) else load.strides for load in plan.all_loads
        ]
        self.taken = set(range(len(self.lies)))  # the caller's arrays, and those of results

    def elementwise(
        self, plan: Plan, arrays: Sequence[int], scalar: int, constant: int
    ) -> list[Operand]:
        """What each instruction of a plan is; ``scalar`` and ``constant`` number its first ones."""
        known: list[Operand] = []
        for ins in plan.instructions:
            op, args, d, shape, _, value = ins
            if op == "load":
                known.append(Operand(op, arrays[value], d, plan.loads[value].shape))
            elif op in ("scalar", "constant"):
                first = scalar if op == "scalar" else constant
                known.append(Operand("scalar", first + value, d, ()))
            elif op == "index":
                known.append(Operand(op, value, d, plan.indices[value]))
            elif op == "identity":  # the ops that follow broadcast by themselves
                known.append(known[args[0]])
            else:
                (number,) = self.computed([known[a] for a in args], ins, shape, d)
                known.append(Operand("load", number, d, shape))
        return known

    def stored(self, operand: Operand, d: dtype, shape: Shape) -> int:
        """A value as an array of its own, of a type and shape."""
        op, number, *_ = operand
        if op != "load" or operand[2:] != (d, shape) or number in self.taken:
            (number,) = self.computed([operand], None, shape, d)
        self.taken.add(number)
        return number

    def reductions(self, known: Sequence[Operand], packed: bool) -> list[int] | None:
        """The results of the plan's reduction, each of its rows reduced alone."""
        plan = self.plan
        assert plan.reduction is not None
        if not packed:
            return None
        axes, rows, shapes, _ = plan.reduction
        wanted = geometry(work_of(plan), True)
        results: list[int] = []
        divisors = plan.divisors or (None,) * len(rows)
        for row, shape, divisor in zip(rows, shapes, divisors, strict=True):
            stores = plan.stores[len(results) : len(results) + len(TABLE[row].results)]
            alone = Reduction(axes, (row,), (shape,), wanted.width)
            for operand, instructions in self.reducible(known, stores[0].index):
                part = Plan.part(
                    plan.device, plan.shape, instructions,
                    [store._replace(index=len(instructions) - 1) for store in stores],
                    loads=[self.load(operand)], reduction=alone, divisors=(divisor,),
                )  # fmt: skip
                if geometry(work_of(part), True) == wanted:
                    results += self.add(part, [operand.number], [])
                    break
            else:
                return None
        return results

    def reducible(
        self, known: Sequence[Operand], index: int
    ) -> Iterator[tuple[Operand, list[Instruction]]]:
        """Arrays that hold an instruction's value, and what has to be computed of each.

        Of a value that 16 bits hold, the second one has 16 bits: as many neighbors are taken at
        once as where the plan's own kernel reads the like.
        """
        operand, ins = known[index], self.plan.instructions[index]
        if operand.op == "load":
            yield operand, [_load_of(operand)]
        if ins.op == "cast" and known[ins.args[0]].op == "load":
            operand = known[ins.args[0]]
        elif ins.op == "narrow":
            number = self.stored(operand, ins.value, operand.shape)
            operand = Operand("load", number, ins.value, operand.shape)
        else:
            return
        yield operand, [_load_of(operand), Instruction("cast", (0,), ins.dtype, ins.shape, False)]

    def computed(
        self, operands: Sequence[Operand], ins: Instruction | None, shape: Shape, d: dtype
    ) -> tuple[int, ...]:
        """Add the part of an instruction, or of none where an operand is stored as it is."""
        part, reads, numbers = op_plan(self.plan.device, operands, ins, shape, d, self.lies)
        return self.add(part, reads, numbers)

    def load(self, operand: Operand) -> Load:
        return _load(operand, self.lies)

    def add(self, plan: Plan, reads: Sequence[int], numbers: Sequence[int]) -> tuple[int, ...]:
        writes = tuple(range(len(self.lies), len(self.lies) + len(plan.stores)))
        self.lies += [None] * len(writes)
        self.parts.append(Part(plan, tuple(reads), tuple(numbers), writes))
        return writes

    def finish(self, results: Sequence[int]) -> Cut:
        """The parts that lead to results, with the values that are no longer needed after each."""
        read = set(results)
        parts = []
        for part in reversed(self.parts):
            if read.isdisjoint(part.writes):
                continue
            last = {*part.reads, *part.writes} - read
            read |= last
            parts.append(part._replace(last=tuple(last)))
        return Cut(tuple(reversed(parts)), tuple(results))
