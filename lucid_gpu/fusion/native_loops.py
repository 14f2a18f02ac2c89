"""A block's ufunc calls without the interpreter between them.

This module finds the loops of a generated block (`lucid_gpu.devices.loops`) and lists them with
their argument pointers in a table, which is walked as a whole. What goes away is the interpreter
and, with it, the lock that made two threads wait for each other. So blocks can be as small as the
L1 cache.

A row of the iteration space is one pass over the table. The last entry adds to every argument
pointer its increment, by NumPy's own integer addition; a table of tables walks many rows.

Where this cannot work (the C file was not compiled, an op that is not a ufunc, a type without such
loops) `build` says None, and the plan runs as ordinary Python. ``LUCID_NATIVE_LOOPS=0`` says so
too.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from lucid_gpu.devices import threads
from lucid_gpu.devices.caches import caches
from lucid_gpu.devices.loops import POINTER, TABLE, address, addresses, available, loop_of, walk
from lucid_gpu.devices.pool import aligned

WIDTH = 2048  # elements of a row where the iteration space is flat, or fewer: see `row_bytes`
LONG = 5  # calls for each array from which a call's own cost counts more than where rows lie
LONG_WIDTH = 4096
NARROWEST, WIDEST = 64, 16384  # elements of a row given by the shape; else Python's blocks
SHORTEST = 4096  # elements of a period of rows: each costs a table's pointers anew
CHUNK_ELEMENTS = 256 * 1024  # taken at once from the shared counter: each turn costs 30 us
SHARES = 2  # of each thread, at least: another may be slower
ALONE = 1536 * 1024  # elements times ufuncs up to which waking a thread costs more than it does
EXTREMA = ("maximum", "minimum")  # NumPy's loops of them are vectorised over arrays only
WORDS = 5  # of an entry: loop, arguments, count, steps, data


def row_bytes(long: bool) -> int:
    """What the rows of all arrays take: they stay in the L1 cache, long ones in the L2 cache."""
    first, second = caches()
    return second // 8 if long else first * 2 // 3


class Statement(NamedTuple):
    """One ufunc call of a block: names of operands, and of what it writes."""

    ufunc: str
    operands: tuple[str, ...]
    out: str


def parse(lines: Sequence[str]) -> list[Statement] | None:
    """The generated lines as statements; None where one is not a plain ufunc call."""
    result = []
    for line in "; ".join(lines).split("; "):
        found = re.fullmatch(r"(\w+)\((.*)\)", line)
        if found is None or not isinstance(getattr(np, found[1], None), np.ufunc):
            return None
        *operands, out = [a.strip().removeprefix("out=") for a in found[2].split(",")]
        result.append(Statement(found[1], tuple(operands), out))
    return result


class Rows(NamedTuple):
    """How names move over the iteration space, about ``number`` rows of ``width`` elements.

    ``moves`` gives for a name its increment from row to row and its step inside a row, in bytes;
    names that are not in it are single elements. Where there is a ``period``, names begin again
    after so many rows, further on by their ``leap``.
    """

    number: int
    width: int
    moves: Mapping[str, tuple[int, int]]
    period: int = 0
    leaps: Mapping[str, int] = {}

    def runs(self, most: int) -> Iterator[tuple[int, int]]:
        """Runs of at most so many rows, none over the end of a period: their starts and lengths."""
        for first in range(0, self.number, self.period):
            for row in range(0, self.period, most):
                yield first + row, min(most, self.period - row)


def flat_rows(
    total: int,
    names: Mapping[str, int],
    scratch: int = 0,
    steps: Mapping[str, int] | None = None,
    calls: int = 0,
) -> Rows:
    """Rows of a flat space.

    Parameters
    ----------
    total : int
        Elements.
    names : mapping of str to int
        The item size of the arrays that run over the space.
    scratch : int
        Bytes of scratch memory an element takes.
    steps : mapping of str to int, optional
        Bytes from element to element of arrays that are strided.
    calls : int
        Of the block.
    """
    long = calls >= LONG * len(names)
    widest = LONG_WIDTH if long else WIDTH
    most = max(row_bytes(long) // (sum(names.values()) + scratch), NARROWEST)
    width = min(widest, total, 1 << most.bit_length() - 1)
    count = -(-total // width)
    if total % count == 0:
        width = total // count  # and no shorter row is left
    moves = {name: (width * step, step) for name, step in {**names, **(steps or {})}.items()}
    return Rows(total // width, width, moves)


class Kernel:
    """A block as a table of loops; made by `build`.

    Parameters
    ----------
    statements : list of Statement
    types : mapping of str to numpy.dtype
        Of every name.
    fixed : mapping of str to 0-d array
        Names with a value of their own.
    given : list of str
        Names whose arrays come with each run, in order.
    scratch : list of str
    rows : Rows
    """

    def __init__(
        self,
        statements: Sequence[Statement],
        loops: Sequence[tuple[int, int]],
        types: Mapping[str, np.dtype[Any]],
        fixed: Mapping[str, Any],
        given: Sequence[str],
        scratch: Sequence[str],
        rows: Rows,
    ) -> None:
        self.statements = statements
        self.loops = loops
        self.types = types
        self.fixed = dict(fixed)
        self.given = list(given)
        self.scratch = list(scratch)
        self.rows = rows
        self.chunk = max(1, min(CHUNK_ELEMENTS // rows.width, rows.number))
        self.spare: list[Table] = []
        self.whole = rows.number * rows.width
        short = self.whole * len(statements) <= ALONE and rows.number <= self.chunk
        self.at_once = short and not rows.period

    def __call__(self, *jobs: tuple[Sequence[Any], int]) -> None:
        """Run over flat arrays; a job is the arrays of ``given`` and their number of elements."""
        if len(jobs) == 1 and self.at_once and 0 <= jobs[0][1] - self.whole < self.rows.width:
            arrays, count = jobs[0]
            table = self._table()
            table.point(addresses(arrays))
            table.run(self.rows.number)
            if count > self.whole:
                table.run_tail(count - self.whole)  # which is where the rows ended
            self.spare.append(table)
            return
        self.run([(addresses(arrays), count) for arrays, count in jobs])

    def run(self, jobs: Sequence[tuple[list[int], int]]) -> None:
        """The same with the arrays' addresses."""
        width = self.rows.width
        tasks: list[tuple[list[int], int, int]] = []  # pointers, first row, elements
        total = sum([count for _, count in jobs])
        alone = total * len(self.statements) <= ALONE or threads.team.count == 1
        if alone and len(jobs) > 1 and all(count <= width for _, count in jobs):
            table = self._table()
            table.run_each(jobs)
            self.spare.append(table)
            return
        share = -(-total // width // (threads.team.count * SHARES))
        chunk = self.chunk if alone else min(self.chunk, share)
        step = max(chunk, 1) * width
        for pointers, count in jobs:
            if self.rows.period:
                runs = self.rows.runs(max(chunk, 1))
                tasks += [(pointers, row, rows * width) for row, rows in runs]
                continue
            starts = range(0, count, step)
            tasks += [(pointers, at // width, min(step, count - at)) for at in starts]
        if alone:
            self._work(iter(tasks))
            return
        counter = itertools.count()

        def shared() -> Any:
            for number in counter:  # threads share it: each number is drawn once
                if number >= len(tasks):
                    return
                yield tasks[number]

        threads.team.run(lambda: self._work(shared()))

    def _table(self) -> Table:
        try:
            return self.spare.pop()
        except IndexError:  # none left by an earlier run, or another thread took it
            return Table(self)

    def _work(self, tasks: Any) -> None:
        table = self._table()
        width = self.rows.width
        for pointers, row, count in tasks:
            table.point(pointers, row)
            rows, tail = divmod(count, width)
            if rows:
                table.run(rows)
            if tail:
                if rows:
                    table.point(pointers, row + rows)
                table.run_tail(tail)
        self.spare.append(table)


def repeated(table: Any, times: int) -> Any:
    """A table that walks another one so often."""
    return np.array([TABLE, address(table), len(table) // WORDS, 0, 0] * times, POINTER)


def adding(a: Any, b: Any, out: Any, kept: list[Any]) -> list[int]:
    """The words of an entry that adds integers; ``kept`` holds what they point to."""
    add = loop_of(np.add, f"{POINTER.char * 2}->{POINTER.char}")
    assert add is not None
    arguments = np.array([address(a), address(b), address(out)], POINTER)
    count, steps = np.array([len(out)], POINTER), np.array([POINTER.itemsize] * 3, POINTER)
    kept += [a, b, out, arguments, count, steps]
    return [add[0], address(arguments), address(count), address(steps), add[1]]


def spread_over_rows(statements: Sequence[Statement], fixed: Mapping[str, Any]) -> set[str]:
    """Numbers that stand in memory once an element: extrema are three times as fast with rows."""
    return {n for s in statements if s.ufunc in EXTREMA for n in s.operands if n in fixed}


class Table:
    """One thread's table: argument pointers, their increments, scratch memory."""

    def __init__(self, kernel: Kernel) -> None:
        rows, types = kernel.rows, kernel.types
        self.kept: list[Any] = [kernel]  # constants whose addresses stand in the table
        names = [*kernel.given, *kernel.scratch, *kernel.fixed]
        place = {name: i for i, name in enumerate(names)}
        self.bases = np.zeros(len(names), POINTER)
        self.given = len(kernel.given)
        self.memory = [aligned(rows.width * types[name].itemsize) for name in kernel.scratch]
        for name, block in zip(kernel.scratch, self.memory, strict=True):
            self.bases[place[name]] = address(block)
        for name, number in kernel.fixed.items():
            self.bases[place[name]] = address(number)
        slots = [n for s in kernel.statements for n in (*s.operands, s.out)]
        moves = {**{s: (0, types[s].itemsize) for s in kernel.scratch}, **rows.moves}
        for name in spread_over_rows(kernel.statements, kernel.fixed):
            self.kept.append(np.full(rows.width, kernel.fixed[name]))
            self.bases[place[name]] = address(self.kept[-1])
            moves[name] = (0, types[name].itemsize)
        self.slots = np.array([place[n] for n in slots], POINTER)
        self.increments = np.array([moves.get(n, (0, 0))[0] for n in slots], POINTER)
        self.steps = np.array([moves.get(n, (0, 0))[1] for n in slots], POINTER)
        self.period = rows.period
        self.leaps = np.array([rows.leaps.get(n, 0) for n in slots], POINTER)
        self.arguments = np.zeros(len(slots), POINTER)
        self.count = np.array([rows.width], POINTER)
        self._fill(kernel)

    def _fill(self, kernel: Kernel) -> None:
        size = POINTER.itemsize
        words: list[int] = []
        slot = 0
        for statement, (loop, data) in zip(kernel.statements, kernel.loops, strict=True):
            at = slot * size
            words += [
                loop,
                address(self.arguments) + at,
                address(self.count),
                address(self.steps) + at,
                data,
            ]
            slot += len(statement.operands) + 1
        words += adding(self.arguments, self.increments, self.arguments, self.kept)
        self.row = np.array(words, POINTER)
        self.entries = len(kernel.statements) + 1
        chunk = min(kernel.chunk, kernel.rows.number)
        self.many = repeated(self.row, chunk)

    def point(self, pointers: Sequence[int], row: int = 0) -> None:
        """Let the arguments start at a row of the arrays at ``pointers``."""
        self.bases[: self.given] = pointers
        self.bases.take(self.slots, out=self.arguments, mode="wrap")
        if row and self.period:
            periods, row = divmod(row, self.period)
            self.arguments += self.leaps * periods
        if row:
            self.arguments += self.increments * row

    def run(self, rows: int) -> None:
        if rows == 1:
            walk(self.row, self.entries)
        else:
            walk(self.many, rows)

    def run_each(self, jobs: Sequence[tuple[list[int], int]]) -> None:
        """Run jobs of one row or less: their arguments are found together."""
        bases = np.empty((len(jobs), len(self.bases)), POINTER)
        bases[:] = self.bases
        bases[:, : self.given] = [pointers for pointers, _ in jobs]
        before = int(self.count[0])
        for arguments, (_, width) in zip(bases.take(self.slots, axis=1), jobs, strict=True):
            self.arguments[:] = arguments
            self.count[0] = width
            walk(self.row, self.entries)
        self.count[0] = before

    def run_tail(self, width: int) -> None:
        before = int(self.count[0])
        self.count[0] = width
        walk(self.row, self.entries)
        self.count[0] = before


_TYPES = frozenset("fd?")


def build(
    lines: Sequence[str],
    types: Mapping[str, np.dtype[Any]],
    fixed: Mapping[str, Any],
    given: Sequence[str],
    scratch: Sequence[str],
    rows: Rows,
) -> Kernel | None:
    """A kernel of generated lines, or None where they cannot be walked; see `Kernel`."""
    if not available() or not lines or not rows.number:
        return None
    statements = parse(lines)
    if statements is None:
        return None
    loops = []
    for s in statements:
        kinds = [types[name].char for name in (*s.operands, s.out)]
        if not _TYPES.issuperset(kinds):
            return None
        found = loop_of(getattr(np, s.ufunc), f"{''.join(kinds[:-1])}->{kinds[-1]}")
        if found is None:
            return None
        loops.append(found)
    return Kernel(statements, loops, types, fixed, given, scratch, rows)
