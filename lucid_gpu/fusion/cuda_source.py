"""From a plan to CUDA C.

What one element costs is written once, as the device function ``element``; a kernel around it says
how threads walk the elements: `lucid_gpu.fusion.cuda_elementwise` and
`lucid_gpu.fusion.cuda_reduction`. Sizes, strides and numbers are arguments, so plans that differ in
nothing else share one compiled kernel.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from lucid_gpu.core.layout import Shape, walk_of
from lucid_gpu.core.program import Instruction
from lucid_gpu.dtypes import dtype
from lucid_gpu.fusion.optable import TABLE
from lucid_gpu.fusion.plan import Plan
from lucid_gpu.fusion.reduction_table import TABLE as REDUCTIONS
from lucid_gpu.fusion.reduction_table import Row
from lucid_gpu.launch.source import c_type as c_type
from lucid_gpu.launch.source import complete as complete

THREADS = 256  # of a block


class Fold(NamedTuple):
    """What becomes of the values of a reduction.

    Attributes
    ----------
    axes : tuple of int
    rows : tuple of Row
        How each value is reduced.
    results : tuple of (int, int, dtype)
        What is stored: a value, the number of a result of its row, the type it is stored as.
    divisors : tuple of int or None
        For each value, the constant that its results are divided by.
    tail : Work or None
        What is computed of the results.
    sources : tuple of int or None
        For each load of the tail, the result it is, or None for an array.
    width : int
        See `lucid_gpu.fusion.plan.Reduction`.
    """

    axes: tuple[int, ...]
    rows: tuple[Row, ...]
    results: tuple[tuple[int, int, dtype], ...]
    divisors: tuple[int | None, ...]
    tail: Work | None
    sources: tuple[int | None, ...]
    width: int


class Work(NamedTuple):
    """What a kernel computes: a plan with its loads' strides spread over the whole shape.

    ``loads`` holds each load's type and walk (strides in elements, 0 where it broadcasts),
    ``indices`` the walks of values that are their own place in a row-major array, ``stores`` the
    number of the instruction stored and the type it is stored as; of a reduction, which ``fold``
    describes, the values reduced, then those stored as they are.
    """

    name: str
    shape: Shape
    instructions: tuple[Instruction, ...]
    loads: tuple[tuple[dtype, Shape], ...]
    stores: tuple[tuple[int, dtype], ...]
    scalars: tuple[dtype, ...]
    constants: tuple[dtype, ...]
    indices: tuple[Shape, ...] = ()
    fold: Fold | None = None

    @property
    def operations(self) -> int:
        """How many instructions compute something."""
        return sum([_WEIGHTS.get(i.op, 1) for i in self.instructions])

    @property
    def walks(self) -> list[Shape]:
        """How the loads, then the indices, walk the space."""
        return [walk for _, walk in self.loads] + list(self.indices)


_DRAW = 16  # of a random number: a quarter of the ten rounds
_WEIGHTS = dict.fromkeys(("load", "index", "scalar", "constant"), 0) | {
    name: _DRAW for name, op in TABLE.items() if op.rule == "draw"
}


class Size(NamedTuple):
    """A parameter whose value follows from the plan's shape; ``form`` is in `struct`'s letters."""

    declaration: str
    form: str
    values: tuple[int, ...]


class Kernel(NamedTuple):
    """A source and how to launch it.

    ``aligned`` says, for each load and then each store, of how many bytes its address must be a
    multiple. Arguments are loads, stores, scalars, constants, sizes, in this order. A reduction
    whose outputs are cut into chunks has, after its stores, arrays of ``partials`` bytes and the
    counters of blocks (`Launcher.counters`).
    """

    name: str
    source: str
    grid: tuple[int, int]
    block: tuple[int, int]
    sizes: tuple[Size, ...]
    aligned: tuple[int, ...]
    cooperative: bool = False
    partials: tuple[int, ...] = ()


def work_of(plan: Plan) -> Work:
    """Read a plan. Byte strides that are not whole elements count as row-major (see `ragged`)."""
    alone = len(set(plan.ops) - {"cast"}) == 1 and plan.reduction is None
    work = _elementwise_work(plan)._replace(
        name=f"{plan.name}_kernel" if alone else plan.name  # lucid_abs is a device function
    )
    return work if plan.reduction is None else _with_fold(work, plan)


def _elementwise_work(plan: Plan) -> Work:
    loads = []
    for load in plan.loads:
        strides = None
        if load.strides is not None and not ragged(load):
            strides = tuple([s // load.dtype.itemsize for s in load.strides])
        loads.append((load.dtype, walk_of(plan.shape, load.shape, strides)))
    return Work(
        plan.name,
        plan.shape,
        plan.instructions,
        tuple(loads),
        tuple([(s.index, s.dtype) for s in plan.stores]),
        tuple([d for _, d in plan.scalars]),
        tuple([d for _, d in plan.constants]),
        tuple([walk_of(plan.shape, own, None) for own in plan.indices]),
    )


def numbers_of(plan: Plan) -> list[Any]:
    """The constants of a plan's kernel: its own, what it divides by, those of its tail."""
    numbers = [value for value, _ in plan.constants]
    numbers += [d for d in plan.divisors if d is not None]
    return numbers + ([] if plan.tail is None else [v for v, _ in plan.tail.plan.constants])


def _with_fold(work: Work, plan: Plan) -> Work:
    """All scalars and constants are numbered together, so that each part can read them all."""
    assert plan.reduction is not None
    rows = tuple([REDUCTIONS[name] for name in plan.reduction.rows])
    values = tuple([(root, plan.instructions[root].dtype) for root in _roots(plan)])
    wholes = tuple([(s.index, s.dtype) for s in plan.wholes])
    constants, divisors = list(work.constants), []
    for (_, d), divisor in zip(values, plan.divisors, strict=True):
        divisors.append(None if divisor is None else len(constants))
        constants += [] if divisor is None else [d]
    numbers = [i for i, row in enumerate(rows) for _ in row.results]
    results = [(i, s.result, s.dtype) for i, s in zip(numbers, plan.stores, strict=True)]
    tail: Work | None = None
    sources: tuple[int | None, ...] = ()
    scalars = work.scalars
    if plan.tail is not None:
        own, sources = _elementwise_work(plan.tail.plan), plan.tail.sources
        first = {"scalar": len(scalars), "constant": len(constants)}
        scalars += own.scalars
        constants += own.constants
        moved = [
            ins._replace(value=ins.value + first[ins.op]) if ins.op in first else ins
            for ins in own.instructions
        ]
        tail = own._replace(instructions=tuple(moved), scalars=scalars, constants=tuple(constants))
    axes, _, _, width = plan.reduction
    fold = Fold(axes, rows, tuple(results), tuple(divisors), tail, sources, width)
    return work._replace(
        stores=values + wholes, scalars=scalars, constants=tuple(constants), fold=fold
    )


def _roots(plan: Plan) -> list[int]:
    """The instruction each value is."""
    assert plan.reduction is not None
    roots, at = [], 0
    for name in plan.reduction.rows:
        roots.append(plan.stores[at].index)
        at += len(REDUCTIONS[name].results)
    return roots


def ragged(load: object) -> bool:
    """Has a load strides that are not whole elements? Such an array is copied before it is read."""
    strides, size = load.strides, load.dtype.itemsize  # type: ignore[attr-defined]
    return strides is not None and any(s % size for s in strides)


# --- one element --------------------------------------------------------------------------------


def _formula(ins: Instruction, operands: Sequence[str]) -> str:
    kind = c_type(ins.dtype)
    if ins.op == "narrow":
        return f"lucid_cast<{kind}>(lucid_cast<{c_type(ins.value)}>({operands[0]}))"
    return re.sub(r"\bT\b", kind, TABLE[ins.op].cuda.format(*operands))


def element_function(work: Work, name: str = "element") -> str:
    """The device function that computes one element."""
    names: list[str] = []
    lines: list[str] = []
    parameters = [""] * (len(work.loads) + len(work.indices))
    for i, ins in enumerate(work.instructions):
        if ins.op == "load":
            parameters[ins.value] = f"const {c_type(ins.dtype)} v{i}"
            names.append(f"v{i}")
        elif ins.op == "index":
            parameters[len(work.loads) + ins.value] = f"const long long v{i}"
            names.append(f"v{i}")
        elif ins.op in ("scalar", "constant"):
            names.append(f"{ins.op[0].replace('s', 'x')}{ins.value}")
        else:
            formula = _formula(ins, [names[a] for a in ins.args])
            lines.append(f"    const {c_type(ins.dtype)} v{i} = {formula};  // {ins.op}")
            names.append(f"v{i}")
    parameters += _number_parameters(work)
    for number, (index, d) in enumerate(work.stores):
        parameters.append(f"{c_type(d)}& r{number}")
        same = work.instructions[index].dtype is d
        value = names[index] if same else f"lucid_cast<{c_type(d)}>({names[index]})"
        lines.append(f"    r{number} = {value};")
    head = _signature(f"LUCID_FN void {name}(", parameters)
    return "\n".join([head, "{", *lines, "}"])


def _number_parameters(work: Work) -> list[str]:
    numbers = [f"const {c_type(d)} x{i}" for i, d in enumerate(work.scalars)]
    return numbers + [f"const {c_type(d)} c{i}" for i, d in enumerate(work.constants)]


def call_element(
    work: Work, loads: Sequence[str], results: Sequence[str], name: str = "element"
) -> str:
    """A call of ``element``: ``results`` and ``loads``, which indices follow, are expressions."""
    numbers = [f"x{i}" for i in range(len(work.scalars))]
    numbers += [f"c{i}" for i in range(len(work.constants))]
    return f"{name}({', '.join([*loads, *numbers, *results])});"


# --- a kernel's text ----------------------------------------------------------------------------


def _signature(start: str, parameters: Sequence[str]) -> str:
    """A declaration, broken into lines of at most 100 columns."""
    whole = start + ", ".join(parameters) + ")"
    if len(whole.splitlines()[-1]) <= 100:
        return whole
    lines, line = [start], "   "
    for i, parameter in enumerate(parameters):
        end = ")" if i == len(parameters) - 1 else ","
        if len(line) + len(parameter) + 2 > 100:
            lines.append(line)
            line = "   "
        line += f" {parameter}{end}"
    return "\n".join([*lines, line])


def _broken(line: str) -> list[str]:
    """A line broken behind commas where it is longer than 100 columns."""
    lines = []
    deeper = " " * (len(line) - len(line.lstrip()) + 4)
    while len(line) > 100 and ", " in line[:99].lstrip():
        at = line.rindex(", ", 0, 100) + 1
        lines.append(line[:at])
        line = deeper + line[at + 1 :]
    return [*lines, line]


def write(
    work: Work,
    comment: str,
    lines: Sequence[str],
    sizes: Sequence[Size],
    stores: Sequence[dtype],
    includes: Sequence[str] = (),
    arrays: Sequence[str] | None = None,
    functions: Sequence[str] = (),
) -> str:
    """The source of a kernel: what it includes, its functions, and the walk around them."""
    kinds = {ins.dtype for ins in work.instructions} | {d for d, _ in work.loads}
    headers = ["complex.cuh" if any(d.is_complex for d in kinds) else "elementwise.cuh"]
    instructions = list(work.instructions)
    if work.fold is not None and work.fold.tail is not None:
        instructions += work.fold.tail.instructions
    rows = [TABLE[ins.op] for ins in instructions if ins.op in TABLE]
    headers += dict.fromkeys(row.header for row in rows if row.header)
    parameters = list(arrays or ())
    if arrays is None:
        parameters = [
            f"const {c_type(d)}* __restrict__ a{i}" for i, (d, _) in enumerate(work.loads)
        ]
        parameters += [f"{c_type(d)}* __restrict__ o{i}" for i, d in enumerate(stores)]
    parameters += _number_parameters(work)
    parameters += [f"const {size.declaration}" for size in sizes]
    head = f'extern "C" __global__ void __launch_bounds__({THREADS})\n{work.name}('
    return "\n".join(
        [
            *[f'#include "{name}"' for name in [*headers, *includes]],
            "",
            *[f"{function}\n" for function in functions or [element_function(work)]],
            f"// {comment}",
            _signature(head, parameters),
            "{",
            *[part for line in lines for part in _broken(f"    {line}")],
            "}",
            "",
        ]
    )
