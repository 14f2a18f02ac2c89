"""A block's ufunc calls without the interpreter between them.

This module records the calls of a generated block (`lucid_gpu.devices.recording`). What goes away
is the interpreter and, with it, the lock that made two threads wait for each other. So blocks can
be as small as the L1 cache: a row of the iteration space is one repeat of the recording.

Where this cannot work (the C file was not compiled, an op that is not a ufunc, a type without such
loops) `build` says None, and the plan runs as ordinary Python. ``LUCID_NATIVE_LOOPS=0`` says so
too.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from lucid_gpu.devices import threads
from lucid_gpu.devices.blocks import share
from lucid_gpu.devices.caches import caches
from lucid_gpu.devices.loops import OWN, Own, addresses, available, loop_of
from lucid_gpu.devices.recording import NoLoopError, Recording
from lucid_gpu.tape.native import core

WIDTH = 2048  # elements of a row where the iteration space is flat, or fewer: see `row_bytes`
LONG = 5  # calls for each array from which a call's own cost counts more than where rows lie
LONG_WIDTH = 4096
NARROWEST, WIDEST = 64, 8192  # elements of a row given by the shape: wider ones are cut
SHORTEST = 4096  # elements of a period of rows: each costs a table's pointers anew
CHUNK_ELEMENTS = 256 * 1024  # drawn at once: each turn costs 30 us
SHARES = 2  # of each thread, at least: another may be slower
ALONE = 1536 * 1024  # elements times ufuncs up to which waking a thread costs more than it does
EXTREMA = (np.maximum, np.minimum)  # NumPy's loops of them are vectorized over arrays only


def row_bytes(long: bool) -> int:
    """What the rows of all arrays take: they stay in the L1 cache, long ones in the L2 cache."""
    first, second = caches()
    return second // 8 if long else first * 2 // 3


def pieces(width: int) -> int:
    """Into how many equal parts a row is cut that is wider than `WIDEST`."""
    return next(n for n in range(-(-width // WIDEST), width + 1) if width % n == 0) if width else 1


class Statement(NamedTuple):
    """One ufunc call of a block: names of operands, and of what it writes."""

    ufunc: Any
    operands: tuple[str, ...]
    out: str


@functools.lru_cache(maxsize=512)
def parse(lines: tuple[str, ...]) -> list[Statement] | None:
    """The generated lines as statements; None where one is not a plain ufunc call."""
    result = []
    for line in "; ".join(lines).split("; "):
        match = re.fullmatch(r"([\w.]+)\((.*)\)", line)
        if match is None:
            return None
        *operands, out = [a.strip().removeprefix("out=") for a in match[2].split(",")]
        ufunc: Any = getattr(np, match[1], None)
        if match[1] == "copyto":
            ufunc, operands, out = OWN["cast"], [out], operands[0]
        elif match[1].startswith("special."):
            ufunc = OWN.get(match[1].removeprefix("special."))
        if not isinstance(ufunc, (np.ufunc, Own)):
            return None
        result.append(Statement(ufunc, tuple(operands), out))
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


class Block(NamedTuple):
    """The calls of a generated block, and the names in them.

    Attributes
    ----------
    statements : list of Statement
    types : mapping of str to numpy.dtype
        Of every name.
    fixed : mapping of str to 0-d array
        Names with a value of their own.
    inputs : list of str
        Names whose arrays come with each run, in order.
    scratch : list of str
    once : list of Statement or None
        What makes the inputs that are small values; None where that is more than ufuncs.
    sizes : mapping of str to int
        The elements of each input.
    """

    statements: Sequence[Statement]
    types: Mapping[str, np.dtype[Any]]
    fixed: Mapping[str, Any]
    inputs: Sequence[str]
    scratch: Sequence[str]
    once: Sequence[Statement] | None
    sizes: Mapping[str, int]

    def declare(self, recording: Recording, rows: Rows, leaps: Sequence[int] | None = None) -> Any:
        """The operands of the inputs, each as a line of a row."""
        result = {}
        for i, name in enumerate(self.inputs):
            kind, (move, step) = self.types[name], rows.moves.get(name, (0, 0))
            shape, strides = ((rows.width,), (step,)) if step else ((1,), (kind.itemsize,))
            leap = 0 if leaps is None else leaps[i]
            result[name] = recording.operand(shape, strides, move, leap, kind)
        return result

    def record(self, recording: Recording, names: dict[str, Any], width: int) -> None:
        """The calls on a row; ``names`` are the inputs."""
        for name in self.scratch:
            names[name] = recording.scratch(width, kind=self.types[name])
        spread = {n for s in self.statements if s.ufunc in EXTREMA for n in s.operands}
        read = {n for s in self.statements for n in s.operands}
        for name, number in self.fixed.items():
            if name in read:
                # extrema are three times as fast with a row of the number
                value = np.full(width, number) if name in spread else number
                names[name] = recording.constant(value, number.dtype)
        for s in self.statements:
            recording(s.ufunc, *[names[n] for n in s.operands], names[s.out])


class Kernel:
    """A block over rows; made by `build`."""

    def __init__(self, block: Block, rows: Rows) -> None:
        self.block = block
        self.rows = rows
        self.recording = Recording()
        block.record(self.recording, block.declare(self.recording, rows), rows.width)
        self.chunk = max(1, min(CHUNK_ELEMENTS // rows.width, rows.number))
        self.whole = rows.number * rows.width
        short = self.whole * len(block.statements) <= ALONE and rows.number <= self.chunk
        self.at_once = short and not rows.period

    @cached_property
    def walk(self) -> Any:
        """The same in C, for spaces that are walked at once, with what makes its small values.

        None where it cannot be.
        """
        block, rows, own = self.block, self.rows, self.recording.operands[self.recording.inputs :]
        if core is None or not self.at_once or block.once is None:
            return None
        if any(move < 0 or step < 0 for move, step in rows.moves.values()):
            return None
        types, made = block.types, [s.out for s in block.once]
        read = {n for s in block.once for n in s.operands}
        written = {s.out for s in block.statements}
        given = [name for name in block.inputs if name not in made]
        if not _TYPES.issuperset([types[n].char for n in {*given, *made, *read} - written]):
            return None  # small values are made of whole numbers too
        numbers = [n for n in block.fixed if n in read]
        order = [*given, *made, *[*range(len(own))], *numbers]  # names, and the recording's own
        if len(order) > core.MOST_OPERANDS:
            return None
        place = {name: i for i, name in enumerate(order)}
        memory: list[Any] = []
        memory += [(block.sizes[n] * types[n].itemsize, rows.moves.get(n, (0, 0))[0]) for n in made]
        memory += [(o.content, 0) if isinstance(o.content, int) else o.content for o in own]
        memory += [np.asarray(block.fixed[n]) for n in numbers]
        once = [self._call_once(s, place) for s in block.once]
        if None in once:
            return None
        named = [*block.inputs, *range(len(own))]
        calls = [
            (loop, data, tuple([place[named[i]] for i in operands]), *rest)
            for loop, data, operands, *rest in self.recording.calls()
        ]
        inputs = tuple([(types[n].char, *rows.moves.get(n, (0, 0))) for n in given])
        return core.Walk(inputs, tuple(memory), tuple(once), tuple(calls), rows.width)

    def _call_once(self, s: Statement, place: Mapping[Any, int]) -> tuple[Any, ...] | None:
        """A call that makes a small value, as `core.Walk` takes it; None where it is no line."""
        names, types, sizes = (*s.operands, s.out), self.block.types, self.block.sizes
        kinds, count = "".join([types[n].char for n in names]), sizes[s.out]
        found = loop_of(s.ufunc, f"{kinds[:-1]}->{kinds[-1]}")
        if found is None or any(sizes.get(n, 1) not in (1, count) for n in names):
            return None
        whole = [types[n].itemsize if sizes.get(n, 1) == count else 0 for n in names]
        return (*found, tuple([place[n] for n in names]), (0,) * len(names), tuple(whole), count)

    def __call__(self, *jobs: tuple[Sequence[Any], int]) -> None:
        """Run over flat arrays; a job is the arrays of the inputs and their number of elements."""
        if len(jobs) == 1 and self.at_once:
            arrays, count = jobs[0]
            rows, rest = divmod(count, self.rows.width)
            if rows <= self.rows.number:
                self.recording.run(addresses(arrays), rows, 1, rest)
                return
        self.run([(addresses(arrays), count) for arrays, count in jobs])

    def bound(self, arrays: Sequence[Any], count: int) -> Callable[[], Any]:
        """What runs over these arrays again."""
        at = addresses(arrays)
        rows, rest = divmod(count, self.rows.width)
        if self.at_once and rows <= self.rows.number:
            run = functools.partial(self.recording.run, at, rows, 1, rest)
        else:
            run = functools.partial(self.run, [(at, count)])
        run.__dict__["arrays"] = arrays  # to whose memory the addresses lead
        return run

    def run(self, jobs: Sequence[tuple[list[int], int]]) -> None:
        """The same with the arrays' addresses."""
        width = self.rows.width
        tasks: list[tuple[list[int], int, int]] = []  # addresses, first row, elements
        total = sum([count for _, count in jobs])
        alone = total * len(self.block.statements) <= ALONE or threads.team.count == 1
        if alone and len(jobs) > 1 and all(count <= width for _, count in jobs):
            self.recording.run_each(jobs)
            return
        fair = -(-total // width // (threads.team.count * SHARES))
        chunk = self.chunk if alone else min(self.chunk, fair)
        step = max(chunk, 1) * width
        for pointers, count in jobs:
            if self.rows.period:
                runs = self.rows.runs(max(chunk, 1))
                tasks += [(pointers, row, rows * width) for row, rows in runs]
                continue
            starts = range(0, count, step)
            tasks += [(pointers, at // width, min(step, count - at)) for at in starts]
        share(tasks, self._work, alone, products=False)

    def _work(self, tasks: Any) -> None:
        width = self.rows.width
        for pointers, row, count in tasks:
            at = self._at_row(pointers, row) if row else pointers
            rows, rest = divmod(count, width)
            self.recording.run(at, rows, 1, rest)

    def _at_row(self, pointers: Sequence[int], row: int) -> list[int]:
        """Where the row of the arrays begins."""
        rows, names = self.rows, self.block.inputs
        periods, row = divmod(row, rows.period) if rows.period else (0, row)
        return [
            at + periods * rows.leaps.get(name, 0) + row * rows.moves.get(name, (0, 0))[0]
            for at, name in zip(pointers, names, strict=True)
        ]


_TYPES = frozenset("fd?")


def build(
    lines: Sequence[str],
    types: Mapping[str, np.dtype[Any]],
    fixed: Mapping[str, Any],
    inputs: Sequence[str],
    scratch: Sequence[str],
    rows: Rows,
    once: Sequence[str] = (),
    sizes: Mapping[str, int] = {},
) -> Kernel | None:
    """A kernel of generated lines, or None where they cannot be walked; see `Block`."""
    if not available() or not lines or not rows.number:
        return None
    statements = parse(tuple(lines))
    if statements is None:
        return None
    for s in statements:
        kinds = "".join([types[name].char for name in (*s.operands, s.out)])
        if not _TYPES.issuperset(kinds[:1] if s.ufunc is OWN["cast"] else kinds):
            return None
    try:
        before = [] if not once else parse(tuple(once))
        return Kernel(Block(statements, types, fixed, inputs, scratch, before, sizes), rows)
    except NoLoopError:
        return None
