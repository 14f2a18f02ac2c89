"""The walk on a CPU, without Python between the steps.

All steps' values lie in memory that is there from the start, so that each step is the same loops
and the same product on pointers moved by a constant (`lucid_gpu.fusion.native_steps`). Sequences
know nothing of one another: each thread walks with its part of them, from end to end.

States lie in the order of the walk, each step's rows behind those of the step before. Where
sequences begin, their first states follow the rows of the others; where some end, their rows stay.
So the states before a step are always rows without a gap, and nothing is ever copied.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple

from lucid_gpu.devices import threads
from lucid_gpu.devices.blocks import share
from lucid_gpu.devices.copies import write
from lucid_gpu.devices.loops import address
from lucid_gpu.devices.pool import pool
from lucid_gpu.dtypes import dtype
from lucid_gpu.fusion import Eager, blocked, foreach
from lucid_gpu.fusion.costs import costs_of
from lucid_gpu.fusion.native_loops import Kernel
from lucid_gpu.fusion.native_steps import Product, panels_of, recorded
from lucid_gpu.fusion.realize import plan_for
from lucid_gpu.launch.observers import debug, observers
from lucid_gpu.ops.recurrent_cells import Cell, Weights
from lucid_gpu.ops.recurrent_walk import Walk, split
from lucid_gpu.tensor import Tensor, _tensor

__all__ = ["NativeWalk", "suits"]

ALONE = 4_000_000  # multiplications up to which waking a thread costs more than it does
FEWEST = 8  # sequences of a thread


def suits(cell: Cell, x: Tensor, weights: Weights) -> bool:
    """Whether the loops are to be had, and nobody wants to see the steps one by one."""
    seen = observers or debug or Eager.on
    if (
        seen
        or not costs_of(x.device).walks_blocks
        or weights.projection is not None
        or 0 in x.shape
    ):
        return False
    return all(_kernel(cell, x.dtype, there) is not None for there in (True, False))


class _Traced(NamedTuple):
    """A kernel, the operands that it reads in its order, and which results it writes.

    A result that is an earlier one has that one's number.
    """

    kernel: Kernel
    reads: list[int]
    results: list[int]


@cache
def _kernel(cell: Cell, d: dtype, there: bool) -> _Traced | None:
    """Of a step there or back."""
    n = cell.states
    count = 3 * cell.gates + n
    if not there:
        forward = _kernel(cell, d, True)
        assert forward is not None
        count = n + cell.cotangents + 1 + len(forward.results) - n
    inputs = foreach.stand_ins([d] * count)
    tensors = [_tensor(e) for e in inputs]
    made = cell.after(tensors) if there else cell.before(tensors)
    distinct = list({id(t): t for t in made}.values())
    number = {id(t): i for i, t in enumerate(distinct)}
    plan, leaves = plan_for([t._expr for t in distinct])
    kernel = blocked.Executable(plan).native
    if kernel is None:
        return None
    position_of = {e.leaves[0]: i for i, e in enumerate(inputs)}
    reads = [position_of[leaves[load.leaf]] for load in plan.loads]
    return _Traced(kernel, reads, [number[id(t)] for t in made])


class Run(NamedTuple):
    """Steps of equally many rows: where those of the first one begin."""

    rows: int
    steps: int
    row: int  # among the rows of x
    after: int  # among the states: those that the step makes
    before: int  # and those from which it comes


class _Order(NamedTuple):
    """How states lie: the runs; where first and last states of which sequences are."""

    runs: list[Run]
    starts: list[tuple[slice, slice]]  # of the sequences, of the memory
    finals: list[tuple[slice, slice]]


@lru_cache(256)
def _order(sizes: tuple[int, ...], reverse: bool) -> _Order:
    runs, starts, finals = [], [], []
    before = at = rows_before = row = 0
    row = sum(sizes) if reverse else 0
    for rows, steps in _groups(sizes[::-1] if reverse else sizes):
        if rows > rows_before:
            starts.append((slice(rows_before, rows), slice(at, at + rows - rows_before)))
            at += rows - rows_before
        elif rows < rows_before:
            finals.append((slice(rows, rows_before), slice(before + rows, before + rows_before)))
        runs.append(Run(rows, steps, row - rows if reverse else row, at, before))
        row += -rows * steps if reverse else rows * steps
        before, at, rows_before = at + (steps - 1) * rows, at + steps * rows, rows
    finals.append((slice(0, rows_before), slice(before, before + rows_before)))
    return _Order(runs, starts, finals)


def _groups(sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Rows and steps of each run; the first step after some end goes alone: behind it is a gap."""
    before = 0
    for rows, equal in itertools.groupby(sizes):
        steps = len(list(equal))
        if rows < before and steps > 1:
            yield rows, 1
            steps -= 1
        yield rows, steps
        before = rows


# How an operand goes from step to step: with the rows of x, the states after or before; or not.
_X, _AFTER, _BEFORE, _STAYS = range(4)


class NativeWalk(Walk):
    """As `Walk`, for NumPy."""

    def empty(self, *shape: int) -> Any:
        return pool.empty(shape, self.dtype.numpy)

    def goes_back_from(self, start: list[Any]) -> bool:
        """They were copied."""
        return True

    def forward(self, x: Any, start: list[Any], weights: Weights) -> list[Any]:
        cell, n = self.cell, self.cell.gates
        traced = _kernel(cell, self.dtype, True)
        assert traced is not None
        self.order = _order(self.sizes, self.reverse)
        rows, batch, width = len(x), self.sizes[0], x.shape[1] // n
        bias = self.xp.zeros(x.shape[1], x.dtype) if weights.bias is None else weights.bias
        self.states = [self.empty(rows + batch, width) for _ in start]
        for memory, first in zip(self.states, start, strict=True):
            for some, at in self.order.starts:
                memory[at] = first[some]
        r = self.empty(batch, x.shape[1])
        made = [(m, _AFTER) for m in self.states]
        count = len(set(traced.results)) - len(made)
        size, kind = (rows, _X) if self.recorded else (batch, _STAYS)
        made += [(self.empty(size, width), kind) for _ in range(count)]
        self.kept = [made[k] for k in traced.results[cell.states :]]
        inputs = [
            *[(part, _X) for part in split(x, n)],
            *[(part, _STAYS) for part in split(r, n)],
            *[(memory, _BEFORE) for memory in self.states],
            *[(part, _STAYS) for part in split(self.xp.broadcast_to(bias, r.shape), n)],
        ]
        factors = [(self.states[0], _BEFORE), (weights.w.T, None), (r, _STAYS)]
        self._go(traced, inputs, made, factors, True)
        finals = [self.empty(batch, width) for _ in start]
        for memory, final in zip(self.states, finals, strict=True):
            for some, at in self.order.finals:
                final[some] = memory[at]
        return [self._in_x(self.states[0], "after"), *finals]

    def states_before(self) -> Any:
        if len(self.order.runs) == 1 and not self.reverse:
            return self.states[0][: self.shape[0]]
        return self._in_x(self.states[0], "before")

    def _in_x(self, memory: Any, which: str) -> Any:
        """States in the order of the rows of x."""
        out = self.empty(self.shape[0], memory.shape[1])
        for run in self.order.runs:
            at, count = getattr(run, which), run.rows * run.steps
            states = memory[at : at + count].reshape(run.steps, run.rows, -1)
            first = run.row
            if self.reverse:
                states, first = states[::-1], run.row - count + run.rows
            out[first : first + count].reshape(states.shape)[...] = states
        return out

    def back(self, weights: Weights, cotangents: list[Any]) -> tuple[Any, Any, Any, list[Any]]:
        cell, n = self.cell, self.cell.gates
        traced = _kernel(cell, self.dtype, False)
        assert traced is not None
        to_r = self.empty(*self.shape)
        to_x = self.empty(*self.shape) if cell.apart else to_r
        to_states = [self.empty(*self.states[0].shape) for _ in range(cell.cotangents)]
        for k, memory in enumerate(to_states):
            for some, at in self.order.finals:
                memory[at] = cotangents[1 + k][some] if k < cell.states else 0
        inputs: list[tuple[Any, int]] = [
            *[(memory, _BEFORE) for memory in self.states],
            *[(memory, _AFTER) for memory in to_states],
            (cotangents[0], _X),
            *self.kept,
        ]
        gates = [*split(to_r, n), *(split(to_x, n) if cell.apart else ())]
        results = [*[(part, _X) for part in gates], *[(m, _BEFORE) for m in to_states[1:]]]
        first = dict(zip(traced.results[::-1], results[::-1], strict=True))
        made = [first[k] for k in sorted(first)]
        factors = [(to_r, _X), (weights.w, None), (to_states[0], _BEFORE)]
        self._go(traced, inputs, made, factors, False)
        for k, (part, _) in zip(traced.results, results, strict=True):
            if part is not first[k][0]:  # a gate has the same gradient for x and for r
                part[...] = first[k][0]
        to_start = [self.empty(self.sizes[0], self.states[0].shape[1]) for _ in to_states]
        for memory, first in zip(to_states, to_start, strict=True):
            for some, at in self.order.starts:
                first[some] = memory[at]
        if cell.direct == 0:
            to_start[0] += to_start.pop()
        return to_x, to_r, to_start, []

    def _panels(self, matrix: Any, rows: int) -> Any:
        """A matrix cut into panels of columns, (panels, k, width), to multiply so many rows."""
        k, n = matrix.shape
        count = panels_of(rows, k, n)
        view = matrix.reshape(k, count, n // count).swapaxes(0, 1)
        if view.flags.c_contiguous:
            return view
        panels = self.empty(*view.shape)
        write(panels, view)
        return panels

    def _go(
        self,
        traced: _Traced,
        inputs: list[tuple[Any, int]],
        made: list[tuple[Any, int]],
        factors: list[tuple[Any, Any]],
        there: bool,
    ) -> None:
        """Walk with parts of the sequences on each thread."""
        operands = [*[inputs[k] for k in traced.reads], *made]
        batch, width = self.sizes[0], made[0][0].shape[1]
        moves = tuple([array.strides for array, _ in operands])
        runs = self.order.runs if there else self.order.runs[::-1]
        (a, _), (b, _), (out, _) = factors
        k, m = b.shape
        parts = _parts(batch, self.shape[0] * k * m)
        panels = self._panels(b, parts[0][1])
        count, strides = len(panels), (a.strides[0], out.strides[0])
        feet = [(a, factors[0][1]), (panels, _STAYS), (out, factors[2][1])]
        bases = [
            (address(array), 0 if array is panels else array.strides[0], kind)
            for array, kind in (*operands, *feet)
        ]

        def work(waiting: Iterator[tuple[int, int]]) -> None:
            for low, high in waiting:
                for run in runs:
                    rows = min(high, run.rows) - low
                    if rows <= 0:
                        continue
                    at, move = _starts_and_steps(run, low, self.reverse, there)
                    *leaps, over_a, _, over_out = [move[kind] * s for _, s, kind in bases]
                    product = Product(rows, k, m, count, strides, (over_a, over_out))
                    step = recorded(traced.kernel, width, moves, tuple(leaps), product, there)
                    step.run([p + at[kind] * s for p, s, kind in bases], rows, run.steps)

        share(parts, work)


def _starts_and_steps(
    run: Run, low: int, reverse: bool, there: bool
) -> tuple[list[int], list[int]]:
    """The rows where each kind of operand begins, and by how many it moves."""
    at = [run.row, run.after, run.before, 0]
    move = [-run.rows if reverse else run.rows, run.rows, run.rows, 0]
    if not there:
        at = [a + m * (run.steps - 1) for a, m in zip(at, move, strict=True)]
        move = [-m for m in move]
    return [a + low for a in at], move


def _parts(batch: int, multiplications: int) -> list[tuple[int, int]]:
    """The sequences of each thread."""
    count = min(threads.team.count, batch // FEWEST) if multiplications > ALONE else 1
    each = -(-batch // max(count, 1))
    return [(low, min(low + each, batch)) for low in range(0, batch, each)]
