"""Plans as Python source: a straight line of ufunc calls, every op writing into scratch.

The sibling of `cuda_source`. Values smaller than the iteration space (a bias, a scale) are computed
once, before the blocks.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any, NamedTuple

import numpy as np

from lucid_gpu.core.planning import made
from lucid_gpu.core.program import Instruction
from lucid_gpu.devices import threads
from lucid_gpu.dtypes import dtype
from lucid_gpu.fusion import special
from lucid_gpu.fusion.blocks import (
    SHARED_SUM_BYTES,
    SINGLE,
    SUM_BYTES,
    Layout,
    block_bytes,
    layout_of,
    padded,
)
from lucid_gpu.fusion.optable import TABLE
from lucid_gpu.fusion.plan import Plan, Shape
from lucid_gpu.fusion.reduction_table import TABLE as REDUCTIONS

ADDED = 1 << 20  # elements that one thread adds up sooner than two do
ROWS = 4096  # added up in one go: so few that rounding does not tell


class _Writer:
    """Generates the two functions of a plan: ``once`` (small values) and ``block``."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.total = math.prod(plan.shape)
        self.once: list[str] = []
        self.lines: list[str] = []
        self.names: list[str] = []
        self.scratch: list[dtype] = []
        self.free: dict[dtype, list[int]] = {}
        self.owner: dict[int, int] = {}  # instruction -> scratch number
        self.small: dict[str, tuple[dtype, int]] = {}  # type, and the instruction of that shape
        self.sliced: dict[str, None] = {}  # arrays that are cut into blocks
        self.last_use = self._last_uses()
        self.direct = self._direct_stores()

    def _last_uses(self) -> dict[int, int]:
        last: dict[int, int] = {}
        for i, ins in enumerate(self.plan.instructions):
            for a in ins.args:
                last[a] = i
        for store in self.plan.stores:
            last[store.index] = len(self.plan.instructions)
        return last

    def is_small(self, ins: Instruction) -> bool:
        return math.prod(ins.shape) < self.total or (self.total == 1 and ins.op == "constant")

    def _direct_stores(self) -> dict[int, int]:
        """Values computed straight into an output."""
        direct: dict[int, int] = {}
        if self.plan.reduction is not None:
            return direct
        for number, store in enumerate(self.plan.stores):
            ins = self.plan.instructions[store.index]
            is_input = ins.op in ("load", "index", "constant", "scalar")
            computed = not is_input and not self.is_small(ins)
            early = self._overwrites_early(number, store.index)
            if computed and not early and ins.dtype is store.dtype and store.index not in direct:
                direct[store.index] = number
        return direct

    def _overwrites_early(self, number: int, index: int) -> bool:
        """Would storing at once destroy an input that is read later?"""
        over = self.plan.over[number] if self.plan.over else None
        if over is None:
            return False
        for i, ins in enumerate(self.plan.instructions):
            if ins.op == "load" and ins.value == over:
                return self.last_use.get(i, -1) > index
        return False

    def write(self) -> None:
        for i, ins in enumerate(self.plan.instructions):
            self.names.append(self._value(i, ins))
        for number, store in enumerate(self.plan.stores):
            self._store(number, store.index)

    def _value(self, i: int, ins: Instruction) -> str:
        if ins.op in ("load", "index"):
            name = f"{'a' if ins.op == 'load' else 'i'}{ins.value}"
            if not self.is_small(ins) or math.prod(ins.shape) > 1:
                self.sliced[name] = None
            return name
        if ins.op == "constant":
            return f"k{ins.value}"
        if ins.op == "scalar":
            return f"x{ins.value}"
        operands = [self.names[a] for a in ins.args]
        if self.is_small(ins):
            return self._compute_once(i, ins, operands)
        if self._spreads(i, ins):
            return operands[0]
        late = ins.op in TABLE and TABLE[ins.op].reads_late
        late = late or i in self.direct
        if not late:
            self._release(i, ins)
        target = self._target(i, ins)
        steps = special.STEPS.get((ins.op, ins.dtype.name))
        if steps is None:
            self.lines.append(_call(ins, operands, target))
        else:
            self._steps(steps, ins.dtype, operands[0], target)
        if late:
            self._release(i, ins)
        return target

    def _spreads(self, i: int, ins: Instruction) -> bool:
        """Whether it only repeats a small value, as ufuncs do by themselves."""
        return (
            ins.op == "identity"
            and i not in self.direct
            and self.is_small(self.plan.instructions[ins.args[0]])
        )

    def _steps(self, steps: special.Steps, d: dtype, x: str, target: str) -> None:
        """As plain ufuncs, with two arrays of scratch that are free again afterwards."""
        spare = self.free.setdefault(d, [])
        while len(spare) < 2:
            spare.append(len(self.scratch))
            self.scratch.append(d)
        names = {"x": x, "out": target, "s0": f"s{spare[0]}", "s1": f"s{spare[1]}"}
        for ufunc, *arguments in steps:
            *operands, into = [names.get(a, a) for a in arguments]
            to = "out=" if ufunc in ("minimum", "maximum") else ""  # NumPy wants it said for these
            self.lines.append(f"{ufunc}({', '.join(operands)}, {to}{into})")

    def _compute_once(self, i: int, ins: Instruction, operands: list[str]) -> str:
        name = f"h{i}"
        self.small[name] = (ins.dtype, i)
        self.once.append(f"{name} = empty(z{i}, {_dtype_name(ins.dtype)})")
        self.once.append(_call(ins, operands, name))
        if ins.shape and math.prod(ins.shape) > 1:
            self.sliced[name] = None
        return name

    def _target(self, i: int, ins: Instruction) -> str:
        if i in self.direct:
            return f"o{self.direct[i]}"
        spare = self.free.get(ins.dtype)
        if spare:
            number = spare.pop()
        else:
            number = len(self.scratch)
            self.scratch.append(ins.dtype)
        self.owner[i] = number
        return f"s{number}"

    def _release(self, i: int, ins: Instruction) -> None:
        for a in set(ins.args):
            if self.last_use.get(a) == i and a in self.owner:
                number = self.owner.pop(a)
                self.free.setdefault(self.scratch[number], []).append(number)

    def _store(self, number: int, index: int) -> None:
        if self.plan.reduction is not None or self.direct.get(index) == number:
            return
        name, ins = self.names[index], self.plan.instructions[index]
        if self._spreads(index, ins):  # rounded before it is repeated
            name = self._rounded_once(number, name, ins.args[0])
        self.lines.append(f"special.cast({name}, o{number})")

    def _rounded_once(self, number: int, value: str, index: int) -> str:
        """A small value in the type it is stored in."""
        name = f"h{len(self.plan.instructions) + number}"
        shape, d = self.plan.instructions[index].shape, self.plan.stores[number].dtype
        self.small[name] = (d, index)
        self.once.append(f"{name} = empty(z{index}, {_dtype_name(d)})")
        self.once.append(f"special.cast({value}, {name})")
        if math.prod(shape) > 1:
            self.sliced[name] = None
        return name


def _dtype_name(d: dtype) -> str:
    return f"dtypes[{d.name!r}]"


def _call(ins: Instruction, operands: list[str], out: str) -> str:
    if ins.op == "narrow":
        return f"special.round_through({operands[0]}, {_dtype_name(ins.value)}, {out})"
    if ins.op == "pow" and ins.dtype.category == 1:  # NumPy refuses negative powers of integers
        return f"special.integer_power({operands[0]}, {operands[1]}, {out})"
    if ins.op == "pow" and operands[1][0] not in "kx":  # no number: NumPy may take a root for it
        return f"special.power({operands[0]}, {operands[1]}, {out})"
    if ins.op == "log1p" and ins.dtype.is_complex:
        return f"special.complex_log1p({operands[0]}, {out})"
    if ins.op == "logaddexp" and ins.dtype.is_complex:
        return f"special.complex_logaddexp({operands[0]}, {operands[1]}, {out})"
    one, zero = f"one_{ins.dtype.name}", f"zero_{ins.dtype.name}"
    text = TABLE[ins.op].numpy.format(*operands, out=out, one=one, zero=zero)
    return text.replace("np.", "")  # a global is found faster than an attribute


NAMESPACE: dict[str, Any] = {"__name__": __name__, "np": np, "special": special, **special.NUMBERS}


def _fill_namespace() -> None:
    from lucid_gpu import dtypes as dt

    NAMESPACE["dtypes"] = {d.name: d.numpy for d in dt.ALL}
    for d in dt.ALL:
        NAMESPACE[f"one_{d.name}"] = np.array(1, d.numpy)
        NAMESPACE[f"zero_{d.name}"] = np.array(0, d.numpy)
    NAMESPACE["empty"] = np.empty
    for op in TABLE.values():
        for name in re.findall(r"np\.(\w+)", op.numpy):
            NAMESPACE[name] = getattr(np, name)


_fill_namespace()


COLD = 2  # calls of a function before it is compiled


class Text:
    """A generated function: statements on named arrays, and what it returns."""

    def __init__(
        self, name: str, plan: str, constants: list[str], parameters: list[str], body: list[str]
    ) -> None:
        self.name = name
        self.plan = plan
        self.constants = constants
        self.parameters = parameters
        self.body = body
        self.values: list[str] | None = None  # names of what it returns
        self._make: Any = None

    @property
    def source(self) -> str:
        lines = [f"def make_{self.name}({', '.join(self.constants)}):"]
        lines += [f"    def {self.name}({', '.join(self.parameters)}):"]
        body = [*self.body]
        if self.values is not None:
            body.append(f"return ({', '.join(self.values)},)")
        lines += [f"        {line}" for line in body or ["pass"]]
        return "\n".join([*lines, f"    return {self.name}", ""])

    def compiled(self, numbers: Sequence[Any]) -> Callable[..., Any]:
        """The function, with these constants."""
        if self._make is None:
            space = dict(NAMESPACE)
            exec(compile(self.source, f"<{self.plan}>", "exec"), space)
            self._make = space[f"make_{self.name}"]
        function: Callable[..., Any] = self._make(*numbers)
        return function

    def run(self, numbers: Sequence[Any], arrays: Sequence[Any]) -> tuple[Any, ...] | None:
        """Run it line by line."""
        names = dict(zip(self.constants, numbers, strict=True))
        names.update(zip(self.parameters, arrays, strict=True))
        for line in self.body:
            exec(_compiled_line(line), NAMESPACE, names)
        return None if self.values is None else tuple([names[v] for v in self.values])


@functools.lru_cache(maxsize=4096)
def _compiled_line(line: str) -> CodeType:
    return compile(line, "<one line>", "exec")


class Function:
    """A generated function with its constants.

    Lines of different plans are often the same, and compiling a whole function takes as long as
    running it many times. So its first calls run it line by line.
    """

    def __init__(self, text: Text, numbers: Sequence[Any]) -> None:
        self.text = text
        self.numbers = numbers
        self.calls = 0
        self.compiled = None if text._make is None else text.compiled(numbers)

    def __call__(self, *arrays: Any) -> Any:
        if self.compiled is None:
            self.calls += 1
            if self.calls <= COLD:
                return self.text.run(self.numbers, arrays)
            self.compiled = self.text.compiled(self.numbers)
        return self.compiled(*arrays)


class Code(NamedTuple):
    """What is shared by all plans of one form, of few elements or of many.

    Attributes
    ----------
    sliced, uncut : lists of str
        The arrays that blocks are cut from, of many elements; what every block gets as it is.
    small : dict
        Values computed once: the type, and which instruction has the shape.
    sizes : list of int
        These instructions: ``once`` is told their shapes.
    """

    once: Text | None
    block: Text
    scratch: tuple[dtype, ...]
    sliced: list[str]
    uncut: list[str]
    lines: list[str]
    small: dict[str, tuple[dtype, int]]
    sizes: list[int]

    @property
    def source(self) -> str:
        return self.block.source + ("" if self.once is None else self.once.source)


def runs_whole(plan: Plan) -> bool:
    """Whether a plan runs in one call, not block by block."""
    return math.prod(plan.shape) <= SINGLE or _one_product(plan)


def generate(plan: Plan, whole: bool) -> Code:
    """Write the functions of a plan's form, which `runs_whole` or does not."""
    writer = _Writer(plan)
    writer.write()
    constants = [f"k{i}" for i in range(len(plan.constants))]
    arrays = [f"a{i}" for i in range(len(plan.loads))]
    arrays += [f"i{i}" for i in range(len(plan.indices))]
    scalars = [f"x{i}" for i in range(len(plan.scalars))]
    small = [line.split(" = ")[0] for line in writer.once if re.match(r"h\d+ = ", line)]
    outs = [] if plan.reduction is not None else [f"o{i}" for i in range(len(plan.stores))]
    scratch = [f"s{i}" for i in range(len(writer.scratch))]
    sliced, uncut = [*writer.sliced], []
    inputs = arrays + scalars + small
    parameters = inputs + outs + scratch
    if not whole:
        uncut = [name for name in inputs if name not in sliced]
        parameters = sliced + outs + uncut + scratch
    block = Text("block", plan.name, constants, parameters, writer.lines)
    if plan.reduction is not None:
        block.values = [writer.names[s.index] for s in plan.stores]
    once = None
    sizes = [*dict.fromkeys([writer.small[name][1] for name in small])]
    if writer.once:
        parameters = arrays + scalars + [f"z{index}" for index in sizes]
        once = Text("once", plan.name, constants, parameters, writer.once)
        once.values = small
    made("kernels", plan)
    return Code(
        once,
        block,
        tuple(writer.scratch),
        sliced,
        uncut,
        writer.lines,
        {name: writer.small[name] for name in small},
        sizes,
    )


def _one_product(plan: Plan) -> bool:
    """Whether it adds up the rows of one array, and BLAS does so sooner than blocks are cut."""
    if plan.reduction is None or len(plan.body.instructions) != 1 or len(plan.loads) != 1:
        return False
    (load,), (axes, names, *_) = plan.loads, plan.reduction
    rows = math.prod(plan.shape[: len(axes)])
    return (
        load.strides is None
        and load.shape == plan.shape
        and load.dtype.numpy.char in "fd"
        and axes == tuple(range(len(axes)))
        and len(axes) < len(plan.shape)
        and rows <= ROWS
        and math.prod(plan.shape) <= ADDED
        and all(REDUCTIONS[name].ufunc == "add" for name in names)
    )


def lay_out(plan: Plan, code: Code) -> tuple[Layout, list[Any], tuple[int, ...]]:
    """Blocks for a large plan, how each array is cut, and the axes of a block that are reduced."""
    rank = len(plan.shape)
    operands: list[tuple[str, Shape, Any]] = []
    for name in code.sliced:
        strides, number = None, int(name[1:])
        if name[0] == "a":
            _, _, shape, strides, _ = plan.loads[number]
        elif name[0] == "i":
            shape = plan.indices[number]
        else:
            shape = plan.shape_at(code.small[name][1])
        shape = padded(shape, rank)
        if strides is not None:  # one element of what it was expanded along
            strides = (0,) * (rank - len(strides)) + tuple(strides)
            shape = tuple([n if step else 1 for n, step in zip(shape, strides, strict=True)])
        operands.append((name, shape, strides))
    reduced = plan.reduction.axes if plan.reduction is not None else ()
    kept = tuple([1 if i in reduced else n for i, n in enumerate(plan.shape)])
    for i, store in enumerate(plan.stores):
        shape = kept if plan.reduction is not None else padded(store.shape, rank)
        operands.append((f"o{i}", shape, None))
    widest = max([ins.dtype.itemsize for ins in plan.body.instructions] or [1])
    alone = threads.team.count == 1
    if plan.reduction is None:
        block = block_bytes(alone)
    else:
        block = SUM_BYTES if alone else SHARED_SUM_BYTES
    layout = layout_of(plan.shape, [(s, t) for _, s, t in operands], block // widest)
    cut: list[tuple[str, Shape, tuple[bool, ...] | None]] = []
    for name, shape, _ in operands:
        if name[0] == "o" and plan.reduction is not None:
            continue
        own = tuple([math.prod(shape[a:b]) for a, b in layout.groups]) or (1,)
        wide = tuple([m == n for m, n in zip(own, layout.shape, strict=True)])
        cut.append((name, own, None if all(wide) else wide))
    axes = tuple(
        [
            i
            for i, (a, _) in enumerate(layout.groups)
            if any(d in reduced and plan.shape[d] > 1 for d in range(a, layout.groups[i][1]))
        ]
    )
    return layout, cut, axes
