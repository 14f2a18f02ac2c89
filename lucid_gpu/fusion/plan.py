"""Plans: what one kernel does, as both executors read it.

A plan is made once for a set of programs that are realized together and the extents and strides of
their values; what does not depend on these, its `Body`, once for the programs. It is canonical:
gradient marks are gone, equal values are computed once, 16-bit floats are widened when loaded,
numbers are separate from the structure, so that kernels are shared by all expressions of one shape
of work.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from operator import attrgetter
from typing import Any, NamedTuple

from lucid_gpu import dtypes as dt
from lucid_gpu.core.layout import row_major
from lucid_gpu.core.planning import made
from lucid_gpu.core.program import (
    Assembly,
    Instruction,
    Program,
    axes_of,
    constant_value,
    derived,
    expand_pattern,
    extents_at,
    live,
    spend,
)
from lucid_gpu.device import device
from lucid_gpu.dtypes import dtype
from lucid_gpu.fusion.optable import PLANNED_AS
from lucid_gpu.fusion.reduction_table import TABLE
from lucid_gpu.fusion.typing_rules import broadcast_shapes

Shape = tuple[int, ...]

OF_PLAN, OF_PLANNED = 6000, 700  # bytes, about, of a plan with its code, and of each instruction


# Ops that change nothing in types below a category (1 integers, 2 floats, 3 complex numbers).
_IDENTITY_BELOW = {"sign": 1, "sgn": 1, "conj_physical": 3} | dict.fromkeys(
    ("floor", "ceil", "round", "trunc"), 2
)


class Load(NamedTuple):
    """An array the kernel reads.

    ``strides`` are in bytes, None for row-major; ``free`` says that nobody chose them.
    """

    leaf: int
    dtype: dtype
    shape: Shape
    strides: tuple[int, ...] | None
    free: bool | tuple[int, ...] = False

    @property
    def layout(self) -> tuple[int, ...]:
        """The strides in bytes, also of a row-major array."""
        if self.strides is not None:
            return self.strides
        return row_major_strides(self.shape, self.dtype.itemsize)


class Store(NamedTuple):
    """An array the kernel writes: the value of instruction ``index``, converted to ``dtype``.

    Of a reduction, that value's result of number ``result`` in its row.
    """

    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody calls
    dtype: dtype
    shape: Shape
    result: int = 0


class Reduction(NamedTuple):
    """The values are reduced over ``axes``.

    ``rows`` names, for each value, its row of `lucid_gpu.fusion.reduction_table`; ``shapes`` what
    its results' shape is: that of the kept dimensions, with or without the reduced ones as 1.
    ``width`` is how many neighbors a GPU's thread takes at once, at most.
    """

    axes: tuple[int, ...]
    rows: tuple[str, ...]
    shapes: tuple[Shape, ...]
    width: int = 16


class Tail(NamedTuple):
    """What is computed of a reduction's results, element by element, by the same kernel.

    ``plan`` is an elementwise plan over the results' shape. ``sources`` says, for each of its
    loads, which of the reduction's stores it is, or None for an array that is read.
    """

    plan: Plan
    sources: tuple[int | None, ...]

    @property
    def loads(self) -> tuple[Load, ...]:
        """The arrays that are read."""
        return tuple([v for v, s in zip(self.plan.loads, self.sources, strict=True) if s is None])


class Body(NamedTuple):
    """What plans of the same programs have in common; shapes have axes: `lucid_gpu.core.program`.

    Attributes
    ----------
    roots : tuple of int
        The instructions that are stored or reduced.
    codes : dict
        What is generated of it, by what else that depends on.
    """

    instructions: tuple[Instruction, ...]
    roots: tuple[int, ...]
    loads: tuple[Load, ...]
    indices: tuple[Shape, ...]
    scalars: tuple[tuple[int, dtype], ...]
    constants: tuple[tuple[Any, dtype], ...]
    codes: dict[Any, Any]

    @property
    def key(self) -> Any:
        """The structure, by which generated code is shared: everything but the constants."""
        types = tuple([d for _, d in self.scalars]), tuple([d for _, d in self.constants])
        return self.instructions, tuple([load[1:] for load in self.loads]), self.indices, types


_ROW_MAJOR: Mapping[int, tuple[int, ...]] = {}
_bodies: dict[Any, Body] = derived("bodies of plans")


class Plan:
    """One kernel.

    Attributes
    ----------
    shape : tuple of int
        The iteration space: the shape of every stored value before a reduction.
    order : tuple of int or None
        How the dimensions of what is stored are to lie in memory; None for row-major, and where it
        does not matter.
    layouts : list of tuple of int
        For each of ``all_loads`` the strides in bytes that the kernel relies on.
    read, numbers : lists of int
        The leaves of ``all_loads`` and of ``all_scalars``.
    reduction : Reduction or None
        Over which axes the values are reduced, and how; the stores are the results.
    wholes : tuple of Store
        Values that a reduction's kernel also stores as they are.
    tail : Tail or None
        What is computed of the results.
    instructions : tuple of Instruction
        ``load`` (``value`` indexes ``loads``), ``index`` (``value`` indexes ``indices``),
        ``scalar`` (``value`` indexes ``scalars``),
        ``constant`` (``value`` indexes ``constants``), ``narrow`` (to the 16-bit float ``value``
        and back), ``cast`` to the instruction's dtype, or a row of the op table. The shape of an
        instruction may be smaller than the plan's: it broadcasts.
    loads, stores : tuples of Load and Store
    indices : tuple of tuples of int
        Shapes whose elements' own numbers the kernel uses; nothing is read for them.
    scalars : tuple of (leaf, dtype)
        Python numbers passed at each launch.
    constants : tuple of (number, dtype)
        Python numbers of this plan; not part of ``key``.
    over : tuple of int or None
        For each store, the load whose array it overwrites (`lucid_gpu.fusion.foreach`).
    body : Body
        What it has in common with the plans of other extents.
    """

    def __init__(
        self,
        programs: Sequence[Program],
        patterns: Sequence[Any],
        shape: Shape,
        lie: Mapping[int, tuple[int, ...]] = _ROW_MAJOR,
        order: tuple[int, ...] | None = None,
        reduction: Reduction | None = None,
        over: tuple[int | None, ...] = (),
        tail: Tail | None = None,
        divisors: Sequence[Any] = (),
        wholes: int = 0,
    ) -> None:
        self.device: device = programs[0].device
        self.shape = shape
        self.order = order if reduction is None else None
        self.backward = any(map(attrgetter("backward"), programs))
        key = (tuple(programs), tuple(patterns))
        known = _bodies.get(key)
        self.body = body = known or _Builder().body(*key)
        self.loads = tuple(
            [
                Load(leaf, d, extents_at(own, shape), lie[leaf] if steps else None, free)
                for leaf, d, own, steps, free in body.loads
            ]
        )
        self.indices = tuple([extents_at(own, shape) for own in body.indices])
        self.scalars, self.constants = body.scalars, body.constants
        self.reduction = reduction
        self.divisors = tuple(divisors)
        self.tail = tail
        types, count = [p.dtype for p in programs], len(programs) - wholes
        self.stores = self._stores(body.roots[:count], types[:count])
        self.wholes = tuple(
            [
                Store(r, d, self.shape)
                for r, d in zip(body.roots[count:], types[count:], strict=True)
            ]
        )
        self._complete(over)
        if known is None:
            _bodies[key] = body
            spend(OF_PLANNED * len(body.instructions))
            made("plans", self)

    @classmethod
    def part(
        cls,
        where: device,
        shape: Shape,
        instructions: Sequence[Instruction],
        stores: Sequence[Store],
        *,
        loads: Sequence[Load] = (),
        indices: Sequence[Shape] = (),
        scalars: Sequence[dtype] = (),
        reduction: Reduction | None = None,
        divisors: Sequence[Any] = (),
    ) -> Plan:
        """A plan given by its instructions, not by programs; its leaves are loads, then scalars."""
        self = cls.__new__(cls)
        self.device, self.shape, self.backward, self.order = where, shape, False, None
        self.stores = tuple(stores)
        self.loads, self.indices = tuple(loads), tuple(indices)
        self.scalars = tuple([(len(loads) + i, d) for i, d in enumerate(scalars)])
        self.reduction, self.divisors = reduction, tuple(divisors)
        self.constants, self.wholes, self.tail = (), (), None
        general = tuple([i._replace(shape=axes_of(i.shape, shape)) for i in instructions])
        self.body = Body(general, (), self.loads, self.indices, self.scalars, (), {})
        self._complete(())
        return self

    def _complete(self, over: tuple[int | None, ...]) -> None:
        """Set what follows from the rest, and count the bytes it takes."""
        self.over = tuple([self._load_of(leaf) for leaf in over])
        self.layouts = [load.layout for load in self.all_loads]
        self.read = [load.leaf for load in self.all_loads]
        self.numbers = [leaf for leaf, _ in self.all_scalars]
        self.executable: Any = None
        self.ready: Any = None  # runs it in C, once that is known to be the way: `core.native`
        self.turned: Any = None  # how `memory_order` has changed it
        spend(OF_PLAN)

    @cached_property
    def instructions(self) -> tuple[Instruction, ...]:
        """Those of the body for this plan's extents."""
        known = self.body.instructions
        return tuple([ins._replace(shape=self.shape_at(i)) for i, ins in enumerate(known)])

    def shape_at(self, index: int) -> Shape:
        """The shape of an instruction."""
        return extents_at(self.body.instructions[index].shape, self.shape)

    @property
    def key(self) -> Any:
        """All of it but the constants."""
        tail = None if self.tail is None else (self.tail.plan.key, self.tail.sources)
        own = self.device.type, self.shape, self.body.key, tuple([load[1:] for load in self.loads])
        return (*own, self.stores, self.wholes, self.reduction, self.over, self.turned, tail)

    def _stores(self, roots: Sequence[int], types: Sequence[dtype]) -> tuple[Store, ...]:
        if self.reduction is None:
            return tuple([Store(r, d, self.shape) for r, d in zip(roots, types, strict=True)])
        _, rows, shapes, _ = self.reduction
        return tuple(
            [
                Store(root, kind, shape, number)
                for root, d, row, shape in zip(roots, types, rows, shapes, strict=True)
                for number, kind in enumerate(TABLE[row].types(d))
            ]
        )

    def _load_of(self, leaf: int | None) -> int | None:
        return next((i for i, load in enumerate(self.loads) if load.leaf == leaf), None)

    @property
    def ops(self) -> tuple[str, ...]:
        """Names of the ops computed, in order."""
        quiet = ("load", "index", "scalar", "constant", "narrow", "identity")
        names = [i.op for i in self.body.instructions if i.op not in quiet]
        if self.reduction is not None:
            names += dict.fromkeys(self.reduction.rows)
        return tuple(names) + (() if self.tail is None else self.tail.plan.ops)

    @property
    def name(self) -> str:
        """A name a profiler shows usefully."""
        names = [op for op in self.ops if op != "cast"]
        kept = names if len(names) <= 6 else _telling(names)
        return "lucid_" + "_".join(kept or ["copy"]) + "_bwd" * self.backward

    @property
    def all_loads(self) -> tuple[Load, ...]:
        """The arrays the kernel reads, those of the tail last."""
        return self.loads if self.tail is None else self.loads + self.tail.loads

    @property
    def all_scalars(self) -> tuple[tuple[int, dtype], ...]:
        """The numbers passed at each launch, those of the tail last."""
        return self.scalars if self.tail is None else self.scalars + self.tail.plan.scalars

    @property
    def all_stores(self) -> tuple[Store, ...]:
        """The arrays the kernel writes: values as they are, results, those of the tail."""
        if self.tail is not None:
            return self.stores + self.tail.plan.stores
        return self.wholes + self.stores if self.wholes else self.stores

    @property
    def bytes_read(self) -> int:
        return sum(math.prod(load.shape) * load.dtype.itemsize for load in self.all_loads)

    @property
    def bytes_written(self) -> int:
        return sum(math.prod(store.shape) * store.dtype.itemsize for store in self.all_stores)


@functools.lru_cache(maxsize=1 << 12)
def row_major_strides(shape: Shape, itemsize: int) -> tuple[int, ...]:
    """The strides, in bytes, of a dense array whose last dimension is innermost."""
    return tuple([itemsize * step for step in row_major(shape)])


_PLAIN = frozenset(("add", "sub", "mul", "div", "neg", "square", "where", "identity"))


def _telling(names: Sequence[str]) -> list[str]:
    """The ops a kernel is known by, each once, and how many more there are."""
    distinct = list(dict.fromkeys(names))
    kept = sorted(distinct, key=lambda name: name in _PLAIN)[:5]
    return [*kept, f"and{len(names) - len(kept)}"]


class _Builder:
    """Brings programs into the plan's canonical form."""

    def __init__(self) -> None:
        self.work = Assembly()
        self.loads: list[Load] = []
        self.indices: list[Shape] = []
        self.scalars: list[tuple[int, dtype]] = []
        self.constants: list[tuple[Any, dtype]] = []
        self.known: dict[Any, int] = {}

    def body(self, programs: Sequence[Program], patterns: Sequence[Any]) -> Body:
        """What these programs compute."""
        pairs = zip(programs, patterns, strict=True)
        roots = [self.include(p, expand_pattern(pattern, p.leaves)) for p, pattern in pairs]
        instructions, roots = live(self.work.instructions, roots)
        # Loads, indices, scalars and constants are numbered by what these use.
        old: dict[str, list[Any]] = {
            "load": self.loads,
            "index": self.indices,
            "scalar": self.scalars,
            "constant": self.constants,
        }
        used: dict[str, list[Any]] = {op: [] for op in old}
        renamed = []
        for ins in instructions:
            if ins.op in used:
                table = used[ins.op]
                table.append(old[ins.op][ins.value])
                ins = ins._replace(value=len(table) - 1)
            renamed.append(ins)
        loads, indices, scalars, constants = map(tuple, used.values())
        return Body(tuple(renamed), tuple(roots), loads, indices, scalars, constants, {})

    def include(self, program: Program, leaf: Sequence[int]) -> int:
        index: list[int] = []
        for ins in program.instructions:
            index.append(self._translate(ins, [index[a] for a in ins.args], leaf))
        return index[-1]

    def put(self, op: str, args: Sequence[int], d: dtype, shape: Shape, value: Any = None) -> int:
        return self.work.append(Instruction(op, tuple(args), d, shape, False, value))

    def _named(self, op: str, table: list[Any], entry: Any, d: dtype, shape: Shape) -> int:
        key = (op, entry)
        number = self.known.get(key)
        if number is None:
            number = self.known[key] = len(table)
            table.append(entry[1] if op == "constant" else entry)
        return self.put(op, (), d, shape, number)

    def _constant(self, number: Any, d: dtype) -> int:
        entry = ((constant_value(number)[0], d), (number, d))
        return self._named("constant", self.constants, entry, d, ())

    def _translate(self, ins: Instruction, args: list[int], leaf: Sequence[int]) -> int:
        op, d, shape = PLANNED_AS.get(ins.op, ins.op), ins.dtype, ins.shape
        wide = d.compute
        if op == "load":
            number, strides, free = ins.value
            entry = Load(leaf[number], d, shape, strides, free)
            i = self._named("load", self.loads, entry, d, shape)
            return i if wide is d else self.put("cast", (i,), wide, shape)
        if op == "index":
            return self._named("index", self.indices, shape, d, shape)
        if op == "scalar":
            return self._named("scalar", self.scalars, (leaf[ins.value], wide), wide, ())
        if op == "constant":
            return self._constant(ins.value[1], wide)
        if op == "boundary":
            return args[0]
        if op == "identity":
            source = self.work.instructions[args[0]]
            if source.shape == shape:
                return args[0]
            args = list(source.args) if source.op == "identity" else args[:1]
            return self.put("identity", args, wide, shape)
        if op == "cast":
            i = args[0]
            if self.work.instructions[i].dtype is not wide:
                i = self.put("cast", (i,), wide, shape)
            return i if wide is d else self.put("narrow", (i,), wide, shape, d)
        if d.category < _IDENTITY_BELOW.get(op, 0):
            return args[0]
        if op == "pow":
            lowered = self._lower_pow(args, wide, shape)
            if lowered is not None:
                return lowered
        known = self.work.instructions
        if any(known[a].op == "identity" for a in args):
            return self._before_spreading(op, args, wide, shape)
        return self.put(op, args, wide, shape)

    def _before_spreading(self, op: str, args: Sequence[int], d: dtype, shape: Shape) -> int:
        """An op on what is spread out, done on what it is spread out from."""
        known = self.work.instructions
        args = [known[a].args[0] if known[a].op == "identity" else a for a in args]
        own = broadcast_shapes([known[a].shape for a in args], op)
        number = self.put(op, args, d, own)
        return number if own == shape else self.put("identity", (number,), d, shape)

    def _lower_pow(self, args: list[int], d: dtype, shape: Shape) -> int | None:
        """Small constant exponents become products; the others keep the general formula."""
        exponent = self.work.instructions[args[1]]
        if exponent.op != "constant" or d is dt.bool:
            return None
        x = args[0]
        n = self.constants[exponent.value][0]
        is_float = d.category >= 2
        if n == 1 and self.work.instructions[x].shape == shape:
            return x
        if n == 2:
            return self.put("square", (x,), d, shape)
        if n == 3:
            return self.put("mul", (self.put("square", (x,), d, shape), x), d, shape)
        if n == 0.5 and is_float:
            return self.put("sqrt", (x,), d, shape)
        if n == -1 and is_float:
            return self.put("reciprocal", (x,), d, shape)
        if n == -0.5 and d.category == 2:
            return self.put("rsqrt", (x,), d, shape)
        if n == -2 and is_float:
            return self.put("reciprocal", (self.put("square", (x,), d, shape),), d, shape)
        return None
