"""The NumPy executor: a plan as a straight line of ufunc calls over blocks that stay in cache.

For each structure of plan one Python function is generated, in which every op writes into scratch
with ``out=``. Small plans run in one call; larger ones in blocks, which threads take from a shared
counter. Values smaller than the iteration space (a bias, a scale) are computed once, before.
"""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from lucid_gpu.devices.pool import aligned, pool
from lucid_gpu.dtypes import dtype
from lucid_gpu.fusion import native_loops, special, threads
from lucid_gpu.fusion.layout import walk_of
from lucid_gpu.fusion.optable import TABLE
from lucid_gpu.fusion.plan import Plan, Shape
from lucid_gpu.fusion.program import Instruction

BLOCK_BYTES = 128 * 1024  # of the widest value of a plan: a block's scratch stays in the L2 cache
SHARED_BLOCK_BYTES = 512 * 1024  # with several threads: the GIL changes hands less often
SINGLE = 64 * 1024  # elements up to which a plan runs in one call on the calling thread


def _count(shape: Sequence[int]) -> int:
    n = 1
    for extent in shape:
        n *= extent
    return n


# --- layout: fewer dimensions, and the blocks ----------------------------------------------------


class Layout(NamedTuple):
    """The collapsed iteration space.

    ``groups`` are ranges of the plan's dimensions that became one; ``index`` gives each block's
    slices; ``shapes`` each block's shape.
    """

    groups: tuple[tuple[int, int], ...]
    shape: Shape
    index: list[tuple[slice, ...]]
    shapes: list[Shape]


def _padded(shape: Shape, rank: int) -> Shape:
    return (1,) * (rank - len(shape)) + shape


def collapse(shape: Shape, operands: Sequence[tuple[Shape, Any]]) -> tuple[tuple[int, int], ...]:
    """Join neighbouring dimensions that every operand walks as one.

    Parameters
    ----------
    operands : sequence of (shape, strides)
        Shapes padded to the rank of ``shape``; strides None for row-major.
    """
    walks = [walk_of(shape, own, strides) for own, strides in operands]
    groups: list[tuple[int, int]] = []
    last = -1  # the dimension before this one that is longer than 1
    for k, extent in enumerate(shape):
        joined = extent == 1 or last < 0 or all(w[last] == w[k] * extent for w in walks)
        if groups and joined:
            groups[-1] = (groups[-1][0], k + 1)
        else:
            groups.append((k, k + 1))
        if extent != 1:
            last = k
    return tuple(groups)


def layout_of(shape: Shape, operands: Sequence[tuple[Shape, Any]], block: int) -> Layout:
    """Collapse, then cut into blocks of about ``block`` elements along the leading dimensions."""
    groups = collapse(shape, operands)
    small = tuple([_count(shape[a:b]) for a, b in groups]) or (1,)
    k = 0
    while k < len(small) - 1 and _count(small[k + 1 :]) > block:
        k += 1
    step = max(1, block // max(_count(small[k + 1 :]), 1))
    index: list[tuple[slice, ...]] = []
    shapes: list[Shape] = []
    for outer in itertools.product(*[range(n) for n in small[:k]]):
        for low in range(0, small[k], step):
            high = min(low + step, small[k])
            lead = [slice(i, i + 1) for i in outer]
            index.append((*lead, slice(low, high), *[slice(None)] * (len(small) - k - 1)))
            shapes.append((1,) * k + (high - low, *small[k + 1 :]))
    return Layout(groups, small, index, shapes)


# --- code ---------------------------------------------------------------------------------------


class _Writer:
    """Generates the two functions of a plan: ``once`` (small values) and ``block``."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.total = _count(plan.shape)
        self.once: list[str] = []
        self.lines: list[str] = []
        self.names: list[str] = []
        self.scratch: list[dtype] = []
        self.free: dict[dtype, list[int]] = {}
        self.owner: dict[int, int] = {}  # instruction -> scratch number
        self.small: dict[str, tuple[dtype, Shape]] = {}
        self.sliced: dict[str, Shape] = {}  # arrays that are cut into blocks
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
        return _count(ins.shape) < self.total or (self.total == 1 and ins.op == "constant")

    def _direct_stores(self) -> dict[int, int]:
        """Values computed straight into an output."""
        direct: dict[int, int] = {}
        if self.plan.reduction is not None:
            return direct
        for number, store in enumerate(self.plan.stores):
            ins = self.plan.instructions[store.index]
            computed = ins.op not in ("load", "constant", "scalar") and not self.is_small(ins)
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
        if ins.op == "load":
            name = f"a{ins.value}"
            if not self.is_small(ins):
                self.sliced[name] = ins.shape
            elif ins.shape and _count(ins.shape) > 1:
                self.sliced[name] = ins.shape
            return name
        if ins.op == "constant":
            return f"k{ins.value}"
        if ins.op == "scalar":
            return f"x{ins.value}"
        operands = [self.names[a] for a in ins.args]
        if self.is_small(ins):
            return self._compute_once(i, ins, operands)
        late = ins.op in TABLE and TABLE[ins.op].reads_late
        if late or i in self.direct:
            target = self._target(i, ins)
            self._release(i, ins)
        else:
            self._release(i, ins)
            target = self._target(i, ins)
        self.lines.append(_call(ins, operands, target))
        return target

    def _compute_once(self, i: int, ins: Instruction, operands: list[str]) -> str:
        name = f"h{i}"
        self.small[name] = (ins.dtype, ins.shape)
        self.once.append(f"{name} = empty({ins.shape!r}, {_dtype_name(ins.dtype)})")
        self.once.append(_call(ins, operands, name))
        if ins.shape and _count(ins.shape) > 1:
            self.sliced[name] = ins.shape
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
        name = self.names[index]
        reduction = self.plan.reduction
        if reduction is None:
            if self.direct.get(index) != number:
                self.lines.append(f"special.cast({name}, o{number})")


def _dtype_name(d: dtype) -> str:
    return f"dtypes[{d.name!r}]"


def _call(ins: Instruction, operands: list[str], out: str) -> str:
    if ins.op == "narrow":
        return f"special.round_through({operands[0]}, {_dtype_name(ins.value)}, {out})"
    one, zero = f"one_{ins.dtype.name}", f"zero_{ins.dtype.name}"
    text = TABLE[ins.op].numpy.format(*operands, out=out, one=one, zero=zero)
    return text.replace("np.", "")  # a global is found faster than an attribute


_namespace: dict[str, Any] = {"np": np, "special": special}


def _fill_namespace() -> None:
    from lucid_gpu import dtypes as dt

    _namespace["dtypes"] = {d.name: d.numpy for d in dt.ALL}
    for d in dt.ALL:
        _namespace[f"one_{d.name}"] = np.array(1, d.numpy)
        _namespace[f"zero_{d.name}"] = np.array(0, d.numpy)
    for op in TABLE.values():
        for name in re.findall(r"np\.(\w+)", op.numpy):
            _namespace[name] = getattr(np, name)


_fill_namespace()
_codes: dict[Any, Any] = {}


def _number(value: Any, d: dtype) -> Any:
    """A Python number as a 0-d array, which ufuncs take faster than numbers or NumPy scalars."""
    if d.category == 1 and isinstance(value, int):
        bits = d.itemsize * 8
        value &= (1 << bits) - 1
        if d.is_signed and value >> (bits - 1):
            value -= 1 << bits
    return np.array(value, d.numpy)


class Executable:
    """A plan ready to run on NumPy arrays."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.total = _count(plan.shape)
        code = _codes.get(plan.key)
        if code is None:
            code = _codes[plan.key] = _generate(plan)
        self.code = code
        self.spare: list[list[Any]] = []
        numbers = [_number(v, d) for v, d in plan.constants]
        self.once = code.make_once(*numbers) if code.make_once else None
        self.block = code.make_block(*numbers)
        self.native = self._native(numbers)

    def _native(self, numbers: Sequence[Any]) -> native_loops.Kernel | None:
        """The same block as a table of NumPy's loops, where all are ufuncs on plain layouts."""
        plan, code = self.plan, self.code
        if plan.reduction is not None or not self.total:
            return None
        if any(load.strides is not None and _count(load.shape) > 1 for load in plan.loads):
            return None
        fixed = {f"k{i}": number for i, number in enumerate(numbers)}
        fixed.update({k: v for k, v in _namespace.items() if k.startswith(("one_", "zero_"))})
        arrays: dict[str, tuple[dtype, Shape]] = {}  # in the order in which they are given
        arrays.update({f"a{i}": (v.dtype, v.shape) for i, v in enumerate(plan.loads)})
        arrays.update({f"x{i}": (d, ()) for i, (_, d) in enumerate(plan.scalars)})
        arrays.update(code.small)
        arrays.update({f"o{i}": (v.dtype, v.shape) for i, v in enumerate(plan.stores)})
        scratch = {f"s{i}": d.numpy for i, d in enumerate(code.scratch)}
        types = {name: d.numpy for name, (d, _) in arrays.items()}
        types.update(scratch)
        types.update({name: number.dtype for name, number in fixed.items()})
        rows = self._rows(arrays)
        if rows is None:
            return None
        return native_loops.build(code.lines, types, fixed, [*arrays], [*scratch], rows)

    def _rows(self, arrays: Mapping[str, tuple[dtype, Shape]]) -> native_loops.Rows | None:
        """One row after another: of the flat space, or of a matrix that a vector is spread over."""
        rank = len(self.plan.shape)
        wide = {n: (d, s) for n, (d, s) in arrays.items() if _count(s) > 1 or self.total == 1}
        if all(_count(s) == self.total for _, s in wide.values()):
            return native_loops.flat_rows(self.total, {n: d.itemsize for n, (d, _) in wide.items()})
        padded = {n: (d.itemsize, _padded(s, rank)) for n, (d, s) in wide.items()}
        groups = collapse(self.plan.shape, [(s, None) for _, s in padded.values()])
        if len(groups) != 2:
            return None
        cut = groups[0][1]
        count, width = _count(self.plan.shape[:cut]), _count(self.plan.shape[cut:])
        if not native_loops.NARROWEST <= width <= native_loops.WIDEST:
            return None
        moves = {}
        for name, (item, shape) in padded.items():
            own = _count(shape[cut:])
            down = own * item if _count(shape[:cut]) == count else 0
            moves[name] = (down, item if own == width else 0)
        return native_loops.Rows(count, width, moves)

    @property
    def source(self) -> str:
        text: str = self.code.source
        return text

    def __call__(self, arrays: Sequence[Any], scalars: Sequence[Any]) -> list[Any]:
        """Run on the arrays of ``plan.loads`` and the numbers of ``plan.scalars``."""
        plan = self.plan
        outs = [pool.empty(s.shape, s.dtype.numpy) for s in plan.stores]
        if not self.total:
            for out in outs:
                out[...] = 0
            return outs
        if scalars:
            scalars = [_number(v, d) for v, (_, d) in zip(scalars, plan.scalars, strict=True)]
        if self.native is not None:
            small = threads.run_quietly(self.once, *arrays, *scalars) if self.once else ()
            self.native(([*arrays, *scalars, *small, *outs], self.total))
        elif self.code.layout is None:
            threads.run_quietly(self._run_whole, arrays, scalars, outs)
        else:
            self._run_blocks(arrays, scalars, outs)
        return outs

    def _run_whole(self, arrays: Sequence[Any], scalars: Sequence[Any], outs: list[Any]) -> None:
        code = self.code
        small = self.once(*arrays, *scalars) if self.once else ()
        try:
            scratch = self.spare.pop()
        except IndexError:  # none left by an earlier run, or another thread took it
            scratch = _scratch(code.scratch, self.plan.shape)
        values = self.block(*arrays, *scalars, *small, *outs, *scratch)
        if self.plan.reduction is not None:
            self._finish(values, outs)
        self.spare.append(scratch)

    def _finish(self, values: Sequence[Any], outs: list[Any]) -> None:
        assert self.plan.reduction is not None
        axes = self.plan.reduction.axes
        for value, out in zip(values, outs, strict=True):
            full = np.broadcast_to(value, self.plan.shape)
            special.cast(np.add.reduce(full, axis=axes, keepdims=True, dtype=value.dtype), out)

    def _run_blocks(self, arrays: Sequence[Any], scalars: Sequence[Any], outs: list[Any]) -> None:
        code, layout = self.code, self.code.layout
        small = threads.run_quietly(self.once, *arrays, *scalars) if self.once else ()
        fixed: dict[str, Any] = {}
        for prefix, values in (("a", arrays), ("x", scalars), ("o", outs)):
            fixed.update({f"{prefix}{i}": v for i, v in enumerate(values)})
        fixed.update(zip(code.small_names, small, strict=True))
        reduction = self.plan.reduction
        walk = [
            (place, fixed[name].reshape(shape), wide)
            for place, (name, shape, wide) in enumerate(code.cut)
        ]
        rest = [fixed[name].reshape(()) for name in code.uncut]  # one element each
        parts: list[Any] = [None] * len(layout.index)
        counter = itertools.count()
        block = self.block

        def work() -> None:
            scratch: list[Any] = []
            current: Shape | None = None
            arena = _arena()
            for number in counter:
                if number >= len(layout.index):
                    return
                index, shape = layout.index[number], layout.shapes[number]
                if shape != current:
                    scratch, current = arena.views(code.scratch, shape), shape
                cut = [
                    array[index]
                    if wide is None
                    else array[tuple([s if w else ALL for s, w in zip(index, wide, strict=True)])]
                    for _, array, wide in walk
                ]
                values = block(*cut, *rest, *scratch)
                if reduction is not None:
                    parts[number] = [
                        np.add.reduce(
                            np.broadcast_to(v, shape), axis=code.axes, keepdims=True, dtype=v.dtype
                        )
                        for v in values
                    ]

        if len(layout.index) == 1:
            threads.run_quietly(work)
        else:
            threads.team.run(work)
        if reduction is not None:
            self._combine(parts, outs)

    def _combine(self, parts: list[Any], outs: list[Any]) -> None:
        """Add the blocks' partial sums in the blocks' order, whoever computed them."""
        code, layout = self.code, self.code.layout
        keep = tuple([1 if i in code.axes else n for i, n in enumerate(layout.shape)])
        for number, out in enumerate(outs):
            total = np.zeros(keep, parts[0][number].dtype)
            if total.size == 1:
                stacked = np.array([p[number].reshape(()) for p in parts])
                total[...] = np.add.reduce(stacked)
            else:
                for index, part in zip(layout.index, parts, strict=True):
                    where = tuple(
                        [ALL if i in code.axes else s for i, s in enumerate(index)]
                    )
                    total[where] += part[number]
            special.cast(total.reshape(out.shape), out)


ALL = slice(None)


class _Arena(threading.local):
    """A thread's scratch memory, shared by all plans."""

    def __init__(self) -> None:
        self.memory: list[Any] = []

    def views(self, types: Sequence[dtype], shape: Shape) -> list[Any]:
        count = _count(shape)
        result = []
        for i, d in enumerate(types):
            nbytes = count * d.itemsize
            if i == len(self.memory):
                self.memory.append(aligned(0))
            if self.memory[i].nbytes < nbytes:
                self.memory[i] = aligned(nbytes)
            result.append(self.memory[i][:nbytes].view(d.numpy).reshape(shape))
        return result


_arena_of_thread = _Arena()


def _arena() -> _Arena:
    return _arena_of_thread


def _scratch(types: Sequence[dtype], shape: Shape) -> list[Any]:
    count = _count(shape)
    return [aligned(count * d.itemsize).view(d.numpy).reshape(shape) for d in types]


class _Code(NamedTuple):
    """What is shared by all plans of one structure."""

    source: str
    make_once: Any
    make_block: Any
    scratch: tuple[dtype, ...]
    layout: Layout | None
    cut: list[tuple[str, Shape, tuple[bool, ...] | None]]
    uncut: list[str]
    small_names: list[str]
    axes: tuple[int, ...]
    lines: list[str]
    small: dict[str, tuple[dtype, Shape]]  # values computed once: type and shape


def _generate(plan: Plan) -> _Code:
    writer = _Writer(plan)
    writer.write()
    constants = ", ".join(f"k{i}" for i in range(len(plan.constants)))
    arrays = [f"a{i}" for i in range(len(plan.loads))]
    scalars = [f"x{i}" for i in range(len(plan.scalars))]
    small = [line.split(" = ")[0] for line in writer.once if line.startswith("h")]
    outs = [] if plan.reduction is not None else [f"o{i}" for i in range(len(plan.stores))]
    scratch = [f"s{i}" for i in range(len(writer.scratch))]
    layout, cut, uncut, axes = None, [], [], ()
    inputs = arrays + scalars + small
    parameters = inputs + [f"o{i}" for i in range(len(plan.stores))] + scratch
    if _count(plan.shape) > SINGLE:
        layout, cut, axes = _lay_out(plan, writer)
        named = [name for name, _, _ in cut]
        uncut = [name for name in inputs if name not in named]
        parameters = named + uncut + scratch
    body = list(writer.lines)
    if plan.reduction is not None:
        values = ", ".join(writer.names[s.index] for s in plan.stores)
        body.append(f"return ({values},)")
    block = _function("block", constants, parameters, body)
    once = ""
    if writer.once:
        once = _function("once", constants, arrays + scalars, [*writer.once, f"return ({', '.join(small)},)"])
    space = dict(_namespace, empty=np.empty)
    exec(compile(block + once, f"<{plan.name}>", "exec"), space)
    del outs
    return _Code(
        block + once,
        space.get("make_once"),
        space["make_block"],
        tuple(writer.scratch),
        layout,
        cut,
        uncut,
        small,
        axes,
        writer.lines,
        {name: writer.small[name] for name in small},
    )


def _function(name: str, constants: str, parameters: list[str], body: list[str]) -> str:
    lines = [f"def make_{name}({constants}):", f"    def {name}({', '.join(parameters)}):"]
    lines += [f"        {line}" for line in body or ["pass"]]
    return "\n".join([*lines, f"    return {name}", ""])


def _lay_out(plan: Plan, writer: _Writer) -> Any:
    """Blocks for a large plan, and how each array is cut."""
    rank = len(plan.shape)
    operands: list[tuple[str, Shape, Any]] = []
    for name, shape in writer.sliced.items():
        strides = plan.loads[int(name[1:])].strides if name[0] == "a" else None
        if strides is not None:
            strides = (0,) * (rank - len(shape)) + tuple(strides)
        operands.append((name, _padded(shape, rank), strides))
    reduced = plan.reduction.axes if plan.reduction is not None else ()
    for i, store in enumerate(plan.stores):
        operands.append((f"o{i}", _padded(store.shape, rank), None))
    widest = max([ins.dtype.itemsize for ins in plan.instructions] or [1])
    block = BLOCK_BYTES if threads.team.count == 1 else SHARED_BLOCK_BYTES
    layout = layout_of(plan.shape, [(s, t) for _, s, t in operands], block // widest)
    cut: list[tuple[str, Shape, tuple[bool, ...] | None]] = []
    for name, shape, _ in operands:
        if name[0] == "o" and plan.reduction is not None:
            continue
        own = tuple([_count(shape[a:b]) for a, b in layout.groups]) or (1,)
        wide = tuple([m == n for m, n in zip(own, layout.shape, strict=True)])
        cut.append((name, own, None if all(wide) else wide))
    axes = tuple([i for i, (a, _) in enumerate(layout.groups)
                  if any(d in reduced and plan.shape[d] > 1 for d in range(a, layout.groups[i][1]))])
    return layout, cut, axes
