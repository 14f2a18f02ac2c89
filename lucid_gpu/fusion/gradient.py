"""The gradient of a whole program, derived once and kept on it.

Reverse accumulation over a program's instructions with the formulas of the op table, done on
symbols: the result is again programs, so gradients are pending expressions like any other, fuse
with their neighbors and can be differentiated again.

Where an operand was broadcast, its cotangent must be summed before it goes on; such a sum is a
`Step`, run in order, whose result becomes one more leaf of the programs that follow.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from lucid_gpu import dtypes as dt
from lucid_gpu.fusion.assembling import Number, emit
from lucid_gpu.fusion.expression import expand_pattern
from lucid_gpu.fusion.optable import NONE, TABLE, ZERO
from lucid_gpu.fusion.program import (
    Assembly,
    Instruction,
    Program,
    constant_value,
    intern,
    leaf_of,
    relocate,
)
from lucid_gpu.fusion.scheduler import worth_storing

FROM_OPERANDS = {"div", "erfinv"}  # PyTorch saves the operands though the result would do
_NONE: Mapping[int, int] = {}


class Part(NamedTuple):
    """A program and which of the leaves at hand it reads, in its own order."""

    program: Program
    leaves: tuple[int, ...]


class Step(NamedTuple):
    """Sum the value of ``part`` to ``shape``, or store it; the result becomes the next leaf."""

    part: Part
    shape: tuple[int, ...]

    @property
    def stores(self) -> bool:
        return self.shape == self.part.program.shape


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
    summed : frozenset of Part
        What a step sums and is itself a result too, and reads no step's result.
    repeated : frozenset of Part
        What goes to several leaves and reads no step's result.
    beside : tuple of int
        Which results go to one leaf, read no step's result and have the cotangent's shape: one
        kernel computes them together with those.
    """

    steps: tuple[Step, ...]
    results: tuple[tuple[int, Part], ...]
    reads: frozenset[int]
    summed: frozenset[Part]
    repeated: frozenset[Part]
    beside: tuple[int, ...]


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

    def apply(self, name: str, *operands: Any, to: dt.dtype | None = None) -> Symbol:
        indices = [o.index if isinstance(o, Symbol) else Number(o) for o in operands]
        index = emit(self.work, TABLE[name], indices, self.grad, to)
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
    output_leaf: int | None = None,
    wanted: frozenset[int] | None = None,
    strides: tuple[int, ...] | None = None,
    replaced: Mapping[int, int] = _NONE,
) -> Gradient:
    """Derive the gradient of ``program`` for a cotangent given as a program.

    Parameters
    ----------
    pattern : pattern of `merge`
        Where the cotangent's leaves stand among ``leaf_count`` leaves in all.
    grad : bool
        Whether the gradient is itself to be differentiated.
    output_leaf : int, optional
        A leaf that holds the realized value of ``program``: formulas then read it instead of
        computing the output again.
    wanted : frozenset of int, optional
        The leaves whose cotangents are asked for (all that need one, by default).
    strides : tuple of int, optional
        In bytes, of the array of ``output_leaf``; None for row-major.
    replaced : mapping
        For leaves that formulas read elsewhere: as which leaves.
    """
    derivation = _Derivation(program, leaf_count, grad, output_leaf, wanted, strides)
    if replaced:
        derivation.read_elsewhere(replaced)
    return derivation.run(cotangent, pattern)


class _Derivation:
    def __init__(
        self,
        program: Program,
        leaf_count: int,
        grad: bool,
        output_leaf: int | None,
        wanted: frozenset[int] | None,
        strides: tuple[int, ...] | None,
    ) -> None:
        self.program = program
        self.grad = grad
        self.output_leaf = output_leaf
        self.wanted = frozenset(gradient_leaves(program)) if wanted is None else wanted
        self.work = Assembly()
        self.index: list[int] = []
        identity = range(program.leaves)
        for instruction in program.instructions:
            self.index.append(self.work.append(relocate(instruction, self.index, identity)))
        if output_leaf is not None:
            lies = (output_leaf, strides, strides is not None and program.order is None)
            self.index[-1] = self.work.append(program.root._replace(op="load", args=(), value=lies))
        self.operands = self.index  # as formulas read them
        self.leaf_count = leaf_count
        self.steps: list[Step] = []
        self.cotangents: dict[int, Symbol] = {}  # by instruction of the program
        self.unsummed: dict[tuple[int, tuple[int, ...]], Symbol] = {}  # ... and its spread shape
        self.results: dict[int, Symbol] = {}  # by leaf

    def read_elsewhere(self, replaced: Mapping[int, int]) -> None:
        """Have formulas read leaves, and what is spread out of them, as others."""
        self.operands = list(self.index)
        known = self.program.instructions
        for number, ins in enumerate(known):
            if ins.op == "load" and ins.value[0] in replaced:
                other = ins._replace(value=(replaced[ins.value[0]], None, False))
                self.operands[number] = self.work.append(other)
            elif ins.op == "identity" and known[ins.args[0]].shape != ins.shape:
                source = self.operands[ins.args[0]]
                if source != self.index[ins.args[0]]:
                    self.operands[number] = self.work.append(ins._replace(args=(source,)))

    def run(self, cotangent: Program, pattern: Any) -> Gradient:
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
        results = [(leaf, self.extract(s)) for leaf, s in sorted(self.results.items())]
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
        at_once = [p for p in computed if max(p.leaves, default=-1) < before_steps]
        summed = frozenset([s.part for s in self.steps]).intersection(at_once)
        repeated = frozenset([p for p in at_once if computed.count(p) > 1])
        apart = [p for p in at_once if p not in repeated and p.program.shape == root.shape]
        beside = [position for position, (_, p) in enumerate(results) if p in apart]
        return Gradient(tuple(self.steps), tuple(results), reads, summed, repeated, tuple(beside))

    def symbol(self, index: int) -> Symbol:
        return Symbol(self.work, index, self.grad)

    def extract(self, symbol: Symbol) -> Part:
        instructions = self.work.extract(symbol.index)
        used = sorted({leaf for ins in instructions if (leaf := leaf_of(ins)) is not None})
        positions = {leaf: i for i, leaf in enumerate(used)}
        index = range(len(instructions))
        compact = [relocate(ins, index, positions) for ins in instructions]
        program = intern(compact, len(used), self.program.device, int(self.program.shared))
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
        operands = [self.symbol(self.operands[a]) for a in ins.args]
        if self.operands is not self.index and ins.op in FROM_OPERANDS:
            y = self.symbol(self.work.append(ins._replace(args=tuple([o.index for o in operands]))))
        for position, argument in enumerate(ins.args):
            if not reaches[argument]:
                continue
            formula = TABLE[ins.op].vjp[position]
            if formula is ZERO or formula is NONE:
                continue
            part = _conjugated(formula, ins.dtype.is_complex, g, y, operands)
            if part is not None:
                self._accumulate(argument, part)

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
        if self.grad:
            return False
        operands = [self.program.instructions[a] for a in ins.args if reaches[a]]
        onward = [o for o in operands if o.shape == ins.shape]
        if len(onward) == len(operands) or all(_gradient_leaf(o) is not None for o in onward):
            return False
        again = self.work.extract(g.index)
        steps = sum([i.shape == ins.shape and i.op != "load" for i in again])
        return worth_storing(self.program.device, math.prod(ins.shape), steps)

    def _next_leaf(self, part: Symbol, shape: tuple[int, ...]) -> Symbol:
        step = Step(self.extract(part), shape)
        self.steps.append(step)
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
                zero = Instruction("constant", (), ins.dtype, (), False, constant_value(0.0))
                symbol = self.symbol(self.work.append(zero))
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
    """Leaves through which a gradient leaves the program, in order."""
    open_at = {len(program.instructions) - 1}
    leaves = set()
    for i in range(len(program.instructions) - 1, -1, -1):
        ins = program.instructions[i]
        if i not in open_at or not ins.needs_grad:
            continue
        leaf = _gradient_leaf(ins)
        if leaf is None:
            open_at.update(ins.args)
        else:
            leaves.add(leaf)
    return sorted(leaves)
