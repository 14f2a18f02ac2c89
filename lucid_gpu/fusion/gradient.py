"""The gradient of a whole program, derived once a program.

Reverse accumulation over a program's instructions with the formulas of the op table, done on
symbols: the result is again programs, so gradients are pending expressions like any other, fuse
with their neighbors and can be differentiated again.

Where an operand was broadcast, its cotangent must be summed before it goes on; such a sum is a
`Step`, run in order, whose result becomes one more leaf of the programs that follow.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

from lucid_gpu import dtypes as dt
from lucid_gpu.core.layout import repeated
from lucid_gpu.core.program import (
    SHARED,
    VALUES_ALONE,
    VALUES_FIRST,
    Assembly,
    Instruction,
    Pattern,
    Program,
    Shape,
    constant_value,
    derived,
    expand_pattern,
    extents_at,
    intern,
    leaf_of,
    relocate,
)
from lucid_gpu.fusion.assembling import Number, emit
from lucid_gpu.fusion.optable import NONE, RESULT, TABLE, ZERO
from lucid_gpu.fusion.scheduler import is_large, shared_parts, sums_at_once, worth_storing

FROM_OPERANDS = {"div", "erfinv"}  # PyTorch saves the operands though the result would do


class Part(NamedTuple):
    """A program and which of the leaves at hand it reads, in its own order."""

    program: Program
    leaves: tuple[int, ...]


class Step(NamedTuple):
    """Sum the value of ``part`` over ``dims``, or store it where there are none.

    The result, with the region's ``axes``, becomes the next leaf.
    """

    part: Part
    axes: Shape
    dims: tuple[int, ...]
    stores: bool


class Gradient(NamedTuple):
    """How to get the cotangents of a program's leaves from that of its root.

    Attributes
    ----------
    steps : tuple of Step
    results : tuple of (int, Part)
        Leaf number and the program of its cotangent, over the program's leaves, those of the
        incoming cotangent, and the results of the steps.
    reads : frozenset of int
        The program's own leaves (and ``output_leaf``) whose values are needed.
    shared : list of (frozenset of Part, int)
        What is stored before the rest, once so many nodes read it (`scheduler.shared_parts`). It
        reads no step's result.
    beside : tuple of int
        Which results go to one leaf, read no step's result and have the cotangent's shape: one
        kernel computes them together with those.
    at_once : bool
        Whether sums do not wait (`scheduler.sums_at_once`).
    """

    steps: tuple[Step, ...]
    results: tuple[tuple[int, Part], ...]
    reads: frozenset[int]
    shared: list[tuple[frozenset[Part], int]]
    beside: tuple[int, ...]
    at_once: bool


class Elsewhere:
    """What formulas read in place of values that tensors no longer have.

    Attributes
    ----------
    leaves : dict of int to int
        For a leaf of the program: as which leaf.
    values : list of (Program, places, int)
        For the value of a program on leaves at these places: as which leaf.
    compositions : list of Composed
        See `lucid_gpu.fusion.saving`: what they computed on the way follows.
    missing : frozenset of int
        The leaves of which no value was kept.
    """

    def __init__(self) -> None:
        self.leaves: dict[int, int] = {}
        self.values: list[tuple[Program, tuple[int, ...], int]] = []
        self.compositions: list[Any] = []
        self.missing: frozenset[int] = frozenset()


class Symbol:
    """An instruction of a program being assembled, with the operators formulas are written in."""

    __slots__ = ("grad", "index", "work")

    def __init__(self, work: Assembly, index: int, grad: bool) -> None:
        self.work = work
        self.index = index
        self.grad = grad

    @property
    def instruction(self) -> Instruction:
        return self.work.instructions[self.index]

    @property
    def dtype(self) -> dt.dtype:
        return self.instruction.dtype

    def apply(
        self, name: str, *operands: Any, to: dt.dtype | None = None, value: Any = None
    ) -> Symbol:
        """A row of the op table on symbols and numbers; ``value`` as in `Instruction`."""
        indices = [o.index if isinstance(o, Symbol) else Number(o) for o in operands]
        index = emit(self.work, TABLE[name], indices, self.grad, to, value=value)
        return Symbol(self.work, index, self.grad)

    def __getattr__(self, name: str) -> Any:
        if name in TABLE:
            return lambda *others: self.apply(name, self, *others)
        raise AttributeError(name)

    def __neg__(self) -> Symbol:
        return self.apply("neg", self)

    def __add__(self, other: Any) -> Symbol:
        return self.apply("add", self, other)

    def __radd__(self, other: Any) -> Symbol:
        return self.apply("add", other, self)

    def __sub__(self, other: Any) -> Symbol:
        return self.apply("sub", self, other)

    def __rsub__(self, other: Any) -> Symbol:
        return self.apply("sub", other, self)

    def __mul__(self, other: Any) -> Symbol:
        return self.apply("mul", self, other)

    def __rmul__(self, other: Any) -> Symbol:
        return self.apply("mul", other, self)

    def __truediv__(self, other: Any) -> Symbol:
        return self.apply("div", self, other)

    def __rtruediv__(self, other: Any) -> Symbol:
        return self.apply("div", other, self)

    def __and__(self, other: Any) -> Symbol:
        return self.apply("logical_and", self, other)

    def __eq__(self, other: object) -> Any:
        return self.apply("eq", self, other)

    def __hash__(self) -> int:
        return hash((id(self.work), self.index))

    def __lt__(self, other: Any) -> Symbol:
        return self.apply("lt", self, other)

    def __le__(self, other: Any) -> Symbol:
        return self.apply("le", self, other)

    def __gt__(self, other: Any) -> Symbol:
        return self.apply("gt", self, other)

    def __ge__(self, other: Any) -> Symbol:
        return self.apply("ge", self, other)

    def pick(self, a: Any, b: Any) -> Symbol:
        """``a`` where this condition holds, else ``b``."""
        return self.apply("where", self, a, b)

    def pass_on(self, a: Any, b: Any) -> Symbol:
        """`pick`, lying as the values do and not as the condition, where they differ."""
        return self.apply("where", self, a, b, value=VALUES_FIRST)

    def fill(self, a: Any, b: Any) -> Symbol:
        """`pick`, lying as the values do, whatever the condition's order is."""
        return self.apply("where", self, a, b, value=VALUES_ALONE)

    def cast(self, to: dt.dtype) -> Symbol:
        return self if self.dtype is to else self.apply("cast", self, to=to)

    def number(self) -> Any:
        """The Python number this symbol is, or None."""
        instruction = self.instruction
        return instruction.value[1] if instruction.op == "constant" else None


def gradient_of(
    program: Program,
    cotangent: Program,
    pattern: Any,
    leaf_count: int,
    grad: bool,
    output: tuple[int, bool, bool | tuple[int, ...]] | None = None,
    wanted: frozenset[int] | None = None,
    elsewhere: Elsewhere | None = None,
    space: Shape = (),
) -> Gradient:
    """Derive the gradient of ``program`` for a cotangent given as a program.

    Parameters
    ----------
    pattern : pattern of `merge`
        Where the cotangent's leaves stand among ``leaf_count`` leaves in all.
    grad : bool
        Whether the gradient is itself to be differentiated.
    output : (int, bool, bool or tuple of int), optional
        A leaf that holds the realized value of ``program``, whether its array is strided, and the
        `Program.free` of its load: formulas then read it instead of computing the output again.
    wanted : frozenset of int, optional
        The leaves whose cotangents are asked for (all that need one, by default).
    elsewhere : Elsewhere, optional
        What formulas read in place of values inside the program.
    space : tuple of int
        The shape of the value, which decides what is stored (`scheduler.worth_storing`).
    """
    large: frozenset[Shape] = frozenset()
    if is_large(space):
        own = {i.shape for i in program.instructions}
        large = frozenset([axes for axes in own if is_large(extents_at(axes, space))])
    if elsewhere is not None:
        derivation = _Derivation(program, leaf_count, grad, output, wanted, large)
        derivation.read_elsewhere(elsewhere)
        return derivation.run(cotangent, pattern)
    key = (program, cotangent, pattern, leaf_count, grad, output, wanted, large)
    gradient = _gradients.get(key)
    if gradient is None:
        derivation = _Derivation(program, leaf_count, grad, output, wanted, large)
        gradient = _gradients[key] = derivation.run(cotangent, pattern)
    return gradient


_Stored = tuple[int, bool, bool | Shape] | None
_Leaves = frozenset[int] | None
_gradients: dict[
    tuple[Program, Program, Pattern, int, bool, _Stored, _Leaves, frozenset[Shape]], Gradient
] = derived("gradients")


class _Derivation:
    def __init__(
        self,
        program: Program,
        leaf_count: int,
        grad: bool,
        output: tuple[int, bool, Any] | None,
        wanted: frozenset[int] | None,
        large: frozenset[Shape],
    ) -> None:
        self.program = program
        self.grad = grad
        self.output_leaf = None if output is None else output[0]
        self.large = large
        self.wanted = frozenset(gradient_leaves(program)) if wanted is None else wanted
        self.work = Assembly()
        self.index: list[int] = []
        identity = range(program.leaves)
        for instruction in program.instructions:
            self.index.append(self.work.append(relocate(instruction, self.index, identity)))
        if output is not None:
            value = output[0], output[1] or None, output[2]
            load = program.root._replace(op="load", args=(), value=value)
            self.index[-1] = self.work.append(load)
        self.operands = self.index  # as formulas read them
        self.missing: frozenset[int] = frozenset()
        self.inner: set[int] = set()  # what PyTorch's ops do not make a tensor of
        self.leaf_count = leaf_count
        self.steps: list[Step] = []
        self.cotangents: dict[int, Symbol] = {}  # by instruction of the program
        self.unsummed: dict[tuple[int, tuple[int, ...]], Symbol] = {}  # ... and its spread shape
        self.results: dict[int, Symbol] = {}  # by leaf

    def read_elsewhere(self, elsewhere: Elsewhere) -> None:
        """Have formulas read other leaves, and what follows from them inside of compositions."""
        known, self.missing = self.program.instructions, elsewhere.missing
        plain = list(self.index)
        if self.output_leaf is not None:
            plain[-1] = self.work.index[relocate(known[-1], plain, range(self.program.leaves))]
        number_of = {index: number for number, index in enumerate(plain)}

        def at(part: Program, places: tuple[int, ...]) -> int | None:
            return number_of.get(self.work.include(part, places))

        self.operands = list(self.index)
        for part, places, leaf in elsewhere.values:
            number = at(part, places)
            if number is not None:
                self.operands[number] = self._load(leaf, known[number])
        roots: dict[int, bool] = {}
        for composition in elsewhere.compositions:
            number = at(composition.program, composition.places)
            if number is not None:
                roots[number] = composition.output
                ends = {at(*operand) for operand in composition.saved}
                self.inner |= self._between(number, ends)
        for number, ins in enumerate(known):
            if self.operands[number] != self.index[number]:
                continue
            spread = ins.op == "identity" and known[ins.args[0]].shape != ins.shape
            if ins.op == "load" and ins.value[0] in elsewhere.leaves:
                self.operands[number] = self._load(elsewhere.leaves[ins.value[0]], ins)
            elif spread or number in self.inner:
                self.operands[number] = self._again(number)
        self.inner |= {number for number, saved in roots.items() if not saved}

    def _operands_elsewhere(
        self, ins: Instruction, i: int, y: Symbol
    ) -> tuple[Symbol, list[Symbol]]:
        """The result of an op and its operands as its formula reads them."""
        known, before = self.program.instructions, [self.symbol(self.index[a]) for a in ins.args]
        inside = i in self.inner
        if ins.op == "div" and known[ins.args[0]].op in ("constant", "scalar") and not inside:
            return y, before  # PyTorch saves the reciprocal
        operands = [self.symbol(self.operands[a]) for a in ins.args]
        if not (ins.op in FROM_OPERANDS or inside) or [*map(hash, operands)] == [
            *map(hash, before)
        ]:
            return y, operands
        first = ins.args[0]
        same = self.operands[first] == self.index[first]
        if ins.op == "div" and same and not self._is_kept(first):
            if self.grad and known[ins.args[1]].needs_grad:  # it would be differentiated by both
                raise RuntimeError(
                    "div: its divisor was given other values by x.data = y since, and its dividend "
                    "was not kept, so that its gradient cannot be differentiated again; set x.data "
                    "before the forward pass, or leave create_graph=True out"
                )
            return y * before[1] / operands[1], operands
        return self.symbol(self._again(i)), operands

    def _is_kept(self, number: int) -> bool:
        """Return whether values were kept of all leaves that instruction `number` is made of."""
        known, stack = self.program.instructions, [number]
        while stack and self.missing:
            ins = known[stack.pop()]
            if ins.op == "load" and ins.value[0] in self.missing:
                return False
            stack += ins.args
        return True

    def _load(self, leaf: int, like: Instruction) -> int:
        needs = like.needs_grad or self.grad  # what is there may have begun to require grad
        load = like._replace(op="load", args=(), needs_grad=needs, value=(leaf, None, False))
        return self.work.append(load)

    def _between(self, root: int, ends: Collection[int | None]) -> set[int]:
        """The instructions that lead from the operands of a composition to its result."""
        known, inner = self.program.instructions, set()
        stack = list(known[root].args)
        while stack:
            number = stack.pop()
            if number not in inner and number not in ends and known[number].op != "load":
                inner.add(number)
                stack += known[number].args
        return inner

    def _again(self, number: int) -> int:
        """The instruction on what its operands are read as."""
        ins = self.program.instructions[number]
        args = tuple([self.operands[a] for a in ins.args])
        if args == tuple([self.index[a] for a in ins.args]):
            return self.index[number]
        return self.work.append(ins._replace(args=args))

    def run(self, cotangent: Program, pattern: Any) -> Gradient:
        """Send the cotangent through all instructions, the last first."""
        leaf = expand_pattern(pattern, cotangent.leaves)
        start = self.symbol(self.work.include(cotangent, leaf))
        root = self.program.root
        if start.dtype is not root.dtype:
            start = start.cast(root.dtype)
        instructions = self.program.instructions
        reaches = self._reaches_wanted()
        self.cotangents[len(instructions) - 1] = start
        for i in range(len(instructions) - 1, -1, -1):
            if reaches[i]:
                g = self._cotangent_of(i)
                if g is not None:
                    self._pull(instructions[i], i, g, reaches)
        self._fill_with_zeros(reaches)
        return self._gradient()

    def _gradient(self) -> Gradient:
        """What was derived, as programs, and what one kernel of them can compute."""
        symbols, root = self.results, self.program.root
        leaves = [leaf for leaf in gradient_leaves(self.program) if leaf in symbols]
        results = [(leaf, self.extract(symbols[leaf])) for leaf in leaves]
        parts = [s.part for s in self.steps] + [p for _, p in results]
        reads = frozenset(
            leaf
            for part in parts
            for position, leaf in enumerate(part.leaves)
            if position in _loads(part.program)
            and (leaf < self.program.leaves or leaf == self.output_leaf)
        )
        computed = [p for _, p in results if not p.program.is_load]
        before_steps = self.leaf_count - len(self.steps)
        early = [p for p in computed if max(p.leaves, default=-1) < before_steps]
        summed = frozenset([s.part for s in self.steps]).intersection(early)
        of_many = frozenset([p for p in early if computed.count(p) > 1])
        of_one = [p for p in early if p not in of_many and p.program.axes == root.shape]
        beside = [position for position, (_, p) in enumerate(results) if p in of_one]
        sums = [s.stores for s in self.steps].count(False)
        where = self.program.device
        shared = [] if self.grad else shared_parts(of_many, summed, where)
        at_once = not self.grad and sums_at_once(sums, where)
        return Gradient(tuple(self.steps), tuple(results), reads, shared, tuple(beside), at_once)

    def symbol(self, index: int) -> Symbol:
        return Symbol(self.work, index, self.grad)

    def extract(self, symbol: Symbol) -> Part:
        instructions = self.work.extract(symbol.index)
        used = sorted({leaf for ins in instructions if (leaf := leaf_of(ins)) is not None})
        positions = {leaf: i for i, leaf in enumerate(used)}
        index = range(len(instructions))
        compact = [relocate(ins, index, positions) for ins in instructions]
        program = intern(compact, len(used), self.program.device, self.program.marks & SHARED)
        if len(instructions) > len(used) + 2:  # fewer are also found in forward passes
            program.backward = True
        return Part(program, tuple(used))

    def _reaches_wanted(self) -> list[bool]:
        """For each instruction: does a gradient have to go through it?"""
        result: list[bool] = []
        for ins in self.program.instructions:
            leaf = _gradient_leaf(ins)
            if not ins.needs_grad:
                result.append(False)
            elif leaf is not None:
                result.append(leaf in self.wanted)
            else:
                result.append(any(result[a] for a in ins.args))
        return result

    def _pull(self, ins: Instruction, i: int, g: Symbol, reaches: list[bool]) -> None:
        leaf = _gradient_leaf(ins)
        if leaf is not None:
            earlier = self.results.get(leaf)
            self.results[leaf] = g if earlier is None else earlier + g
            return
        if self._worth_storing(ins, g, reaches):
            g = self._next_leaf(g, ins.shape)
        y = self.symbol(self.index[i])
        read = ins._replace(args=tuple([self._shown(a) for a in ins.args]))
        if self.operands is self.index:
            operands = [self.symbol(self.index[a]) for a in read.args]
        else:
            y, operands = self._operands_elsewhere(read, i, y)
        known = self.program.instructions
        for position, argument in enumerate(ins.args):
            if not reaches[argument]:
                continue
            op = TABLE[ins.op]
            formula = op.vjp[position]
            if formula is NONE:
                continue
            part = None
            if formula is not ZERO:
                part = _conjugated(formula, ins.dtype.is_complex, g, y, operands)
            if part is None:
                part = self._zero(ins.dtype)
            tie = op.ties[position] if op.ties is not None and self.grad else None
            if tie is not None:
                part = part.apply(tie.row, part, y if tie.to == RESULT else operands[tie.to])
            if part.dtype is not known[argument].dtype and ins.op != "cast":
                part = self._widened(part, known[argument].dtype)
            self._accumulate(argument, part)

    def _widened(self, part: Symbol, d: dt.dtype) -> Symbol:
        """The gradient of one number beside 16 bits, as it is computed, before it is summed."""
        same = part.instruction
        return self.symbol(self.work.append(Instruction("cast", (part.index,), d, *same[3:5])))

    def _shown(self, number: int) -> int:
        """What a formula reads of an operand: gradients of the formula are not tied once more."""
        ins = self.program.instructions[number]
        return ins.args[0] if ins.op == "operand" else number

    def _zero(self, d: dt.dtype) -> Symbol:
        """The number 0 as a gradient: what is computed of it may be NaN, as in PyTorch."""
        zero = Instruction("constant", (), d, (), False, constant_value(0.0))
        return self.symbol(self.work.append(zero))

    def _accumulate(self, argument: int, part: Symbol) -> None:
        target = self.program.instructions[argument]
        if part.dtype is not target.dtype:
            part = part.cast(target.dtype)
        shape = part.instruction.shape
        if shape == target.shape:
            earlier = self.cotangents.get(argument)
            self.cotangents[argument] = part if earlier is None else earlier + part
        else:
            earlier = self.unsummed.get((argument, shape))
            self.unsummed[argument, shape] = part if earlier is None else earlier + part

    def _cotangent_of(self, i: int) -> Symbol | None:
        """What has come together for an instruction; what was spread alike is summed together."""
        total = self.cotangents.pop(i, None)
        for key in [key for key in self.unsummed if key[0] == i]:
            part = self._sum_to(self.unsummed.pop(key), self.program.instructions[i].shape)
            total = part if total is None else total + part
        return total

    def _sum_to(self, part: Symbol, shape: tuple[int, ...]) -> Symbol:
        """Broadcast the other way: a sum, whose result is a new leaf."""
        if len(part.instruction.shape) <= len(shape) and part.instruction.shape != shape:
            facing = zip(part.instruction.shape[::-1], shape[::-1], strict=False)
            ones = [m for m, n in facing if m != n]
            if all(m == 1 for m in ones):  # smaller than its operand: a constant spread out
                return self.spread(part, shape)
        return self._next_leaf(part, shape)

    def _worth_storing(self, ins: Instruction, g: Symbol, reaches: list[bool]) -> bool:
        """Whether a cotangent that is summed for one operand and goes on to another is stored."""
        if self.grad or ins.shape not in self.large:
            return False
        operands = [self.program.instructions[a] for a in ins.args if reaches[a]]
        onward = [o for o in operands if o.shape == ins.shape]
        if len(onward) == len(operands) or all(_gradient_leaf(o) is not None for o in onward):
            return False
        again = self.work.extract(g.index)
        steps = sum([i.shape == ins.shape and i.op != "load" for i in again])
        return worth_storing(self.program.device, steps)

    def _next_leaf(self, part: Symbol, shape: tuple[int, ...]) -> Symbol:
        full, extracted = part.instruction.shape, self.extract(part)
        self.steps.append(Step(extracted, shape, repeated(full, shape), shape == full))
        needs = self.grad and part.instruction.needs_grad
        load = Instruction("load", (), part.dtype, shape, needs, (self.leaf_count, None, False))
        self.leaf_count += 1
        return self.symbol(self.work.append(load))

    def spread(self, part: Symbol, shape: tuple[int, ...]) -> Symbol:
        index = emit(self.work, TABLE["identity"], [part.index], self.grad, shape=shape)
        return self.symbol(index)

    def _fill_with_zeros(self, reaches: list[bool]) -> None:
        """Leaves reached only through ops of zero gradient get zeros, as in PyTorch."""
        for i, ins in enumerate(self.program.instructions):
            leaf = _gradient_leaf(ins)
            if leaf is None or not reaches[i]:
                continue
            symbol = self.results.get(leaf)
            if symbol is None:
                symbol = self._zero(ins.dtype)
            if symbol.instruction.shape != ins.shape:
                symbol = self.spread(symbol, ins.shape)
            self.results[leaf] = symbol


def _conjugated(formula: Any, is_complex: bool, g: Symbol, y: Symbol, operands: Any) -> Any:
    """For a holomorphic op the cotangent is ``conj(f'(x)) * g``; formulas give ``f'(x) * g``."""
    if not is_complex:
        return formula(g, y, *operands)
    turned = formula(g.apply("conj_physical", g), y, *operands)
    return None if turned is None else turned.apply("conj_physical", turned)


def _gradient_leaf(ins: Instruction) -> int | None:
    return None if ins.op == "scalar" else leaf_of(ins)


def _loads(program: Program) -> frozenset[int]:
    """Leaves whose values are read (a boundary's leaf only receives a gradient)."""
    return frozenset(
        leaf
        for ins in program.instructions
        if ins.op in ("load", "scalar") and (leaf := leaf_of(ins)) is not None
    )


def gradient_leaves(program: Program) -> list[int]:
    """Leaves through which a gradient leaves the program.

    They are in the order in which their gradients are complete if ops go backward one by one, the
    last first: hooks of leaves are called in it, as in PyTorch.
    """
    instructions = program.instructions
    uses = {len(instructions) - 1: 1}
    passing = []
    for i in range(len(instructions) - 1, -1, -1):  # users come after what they read
        if i in uses and _passes_on(instructions[i]):
            passing.append(instructions[i].args)
            for a in instructions[i].args:
                uses[a] = uses.get(a, 0) + 1
    leaves: list[int] = []
    for arguments in [(len(instructions) - 1,), *passing]:
        for a in arguments:
            uses[a] -= 1
            leaf = _gradient_leaf(instructions[a])
            if leaf is not None and instructions[a].needs_grad and not uses[a]:
                leaves.append(leaf)
    return leaves


def _passes_on(ins: Instruction) -> bool:
    """Whether gradients go through an instruction to its operands."""
    return bool(ins.needs_grad) and _gradient_leaf(ins) is None
