"""The kernels that ops run by, one by one, while a fused one is compiled: what is compiled ahead.

Of every row of the op table those on contiguous float32 arrays, and with a number in the place of
an operand; conversions from and to the other common types; reductions along rows and columns. What
else a program meets (other types, other layouts) is compiled when it is met.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from lucid_gpu import dtypes as dt
from lucid_gpu.core.layout import Shape
from lucid_gpu.core.program import Instruction
from lucid_gpu.device import device
from lucid_gpu.dtypes import dtype
from lucid_gpu.fusion.cuda_elementwise import elementwise
from lucid_gpu.fusion.cuda_reduction import reduction
from lucid_gpu.fusion.cuda_source import work_of
from lucid_gpu.fusion.op_by_op import Operand, op_plan
from lucid_gpu.fusion.optable import TABLE, Op
from lucid_gpu.fusion.plan import Load, Plan, Reduction, Store
from lucid_gpu.fusion.reduction_table import TABLE as REDUCTIONS
from lucid_gpu.fusion.typing_rules import types_of
from lucid_gpu.launch.compiling import Text

CONVERTED = (dt.float16, dt.bfloat16, dt.float64, dt.int64, dt.bool)  # from and to float32
SHAPE = (1 << 12,)  # sizes are arguments: any multiple of a pack has this source
SUMMED: tuple[tuple[Shape, tuple[int, ...]], ...] = (  # the second in blocks, which are added up
    *(((16, 512), (0,)), ((4096, 512), (0,))),  # columns
    *(((512, 512), (1,)), ((8, 1 << 20), (1,))),  # rows
    *(((8, 512), (0, 1)), ((4096, 4096), (0, 1))),  # all
)
_WHERE = device("cuda", 0)


def table_kernels() -> Iterator[Text]:
    """What kernels of one op are compiled from.

    Yields
    ------
    Text
    """
    for plan in (*_elementwise(), *_conversions(), *_reductions()):
        work = work_of(plan)
        kernel = elementwise(work, 1) if work.fold is None else reduction(work)
        yield Text(kernel.name, kernel.source, kernel.cooperative, contract=False)


def _elementwise() -> Iterator[Plan]:
    for row in TABLE.values():
        if row.name in ("cast", "identity") or row.planned_as is not None:
            continue
        try:
            types, result = types_of(row, [(d, 1, False) for d in _operand_types(row)])
        except (TypeError, RuntimeError):  # not of floats
            continue
        for kinds in _kinds(row):
            operands = [
                Operand(kind, position, d, () if kind == "scalar" else SHAPE)
                for position, (kind, d) in enumerate(zip(kinds, types, strict=True))
            ]
            yield _plan(operands, Instruction(row.name, (), result, SHAPE, False))


def _operand_types(row: Op) -> list[dtype]:
    """The types of a row's operands."""
    if row.rule == "draw":
        return [dt.int64] * 3 + [dt.float32] * (row.arity - 3)
    return [dt.bool] * (row.rule == "select") + [dt.float32] * (row.arity - (row.rule == "select"))


def _kinds(row: Op) -> Iterator[tuple[str, ...]]:
    """Which operands are arrays and which are numbers."""
    if row.rule == "draw":
        yield ("index",) + ("scalar",) * (row.arity - 1)
        return
    for kinds in itertools.product(("load", "scalar"), repeat=row.arity):
        if "load" in kinds and (row.rule != "select" or kinds[0] == "load"):
            yield kinds


def _conversions() -> Iterator[Plan]:
    for d in CONVERTED:
        for one, other in ((d, dt.float32), (dt.float32, d)):
            operand = Operand("load", 0, one, SHAPE)
            yield _plan([operand], Instruction("cast", (), other, SHAPE, False))
            if one is dt.float32 and d.compute is not d:  # as 16 bits are stored
                yield op_plan(_WHERE, [operand], None, SHAPE, d, [None])[0]
                yield _plan([operand], Instruction("narrow", (), one, SHAPE, False, d))


def _plan(operands: Sequence[Operand], ins: Instruction) -> Plan:
    return op_plan(_WHERE, operands, ins, SHAPE, ins.dtype, [None] * len(operands))[0]


def _reductions() -> Iterator[Plan]:
    for row in REDUCTIONS.values():
        d = dt.bool if row.ufunc in ("logical_or", "logical_and") else dt.float32
        for shape, axes in SUMMED:
            kept = tuple([n for i, n in enumerate(shape) if i not in axes])
            stores = [Store(0, kind, kept, i) for i, kind in enumerate(row.types(d))]
            yield Plan.part(
                _WHERE, shape, [Instruction("load", (), d, shape, False, 0)], stores,
                loads=[Load(0, d, shape, None)], divisors=(1 if row.divides else None,),
                reduction=Reduction(axes, (row.name,), (kept,)),
            )  # fmt: skip
