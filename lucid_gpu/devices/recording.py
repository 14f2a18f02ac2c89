"""Calls of NumPy's ufuncs, recorded once and run many times: without the interpreter, or with it.

Where a kernel works on a few hundred numbers at a time (one head of attention, one row to be
normalized), calling NumPy costs more than the arithmetic, and two threads wait for each other's
interpreter lock between the calls. So the calls are recorded as data, on arrays that stand for
memory. Types and bounds are checked at that time. `_Native` writes a recording as a table of
machine words for the C file (`lucid_gpu.devices.loops`); where that was not compiled, or is
switched off, `_Calls` makes the same calls from Python and computes the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import prod
from typing import Any, NamedTuple

import numpy as np

from lucid_gpu.devices import blas
from lucid_gpu.devices.loops import (
    POINTER,
    TABLE,
    address,
    available,
    has_loop,
    loop_of,
    point,
    walk,
)
from lucid_gpu.devices.pool import aligned, pool

__all__ = ["Immediate", "NoLoopError", "Recording"]

_SPAN = 40  # bits of an offset inside one operand; above them stands the operand's number
_ZERO = 1 << _SPAN - 1  # the offset of an operand's first element: strides may be negative
_WORD = POINTER.itemsize
_EXTREMA = (np.maximum, np.minimum)
_TOGETHER = 1 << 21  # bytes of scratch memory of the repeats that `_Calls` makes at once


class NoLoopError(TypeError):
    """A ufunc is not computed in some types without converting them."""


class _Memory:
    """What NumPy makes an array of without looking at the memory."""

    def __init__(
        self, at: int, shape: Sequence[int], strides: Sequence[int], kind: np.dtype[Any]
    ) -> None:
        self.__array_interface__ = {
            "data": (at, False),
            "shape": tuple(shape),
            "strides": tuple(strides),
            "typestr": kind.str,
            "version": 3,
        }


class _Operand(NamedTuple):
    """Memory of a recording; ``content`` is None where its address comes with each run.

    Else it is the number of bytes of scratch memory, or an array of constants.
    """

    move: int  # bytes from repeat to repeat
    leap: int  # bytes from group to group
    content: Any


class _Reference(NamedTuple):
    """An argument of a call: elements ``offset`` bytes into the memory of an operand."""

    operand: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    kind: np.dtype[Any]

    def overlaps(self, other: _Reference) -> bool:
        """Whether both may share memory without being the same elements in the same order."""
        if self.operand != other.operand or self[1:4] == other[1:4]:
            return False
        (low, high), (first, last) = self._ends(), other._ends()
        return low <= last and first <= high

    def _ends(self) -> tuple[int, int]:
        """The offsets of the first and the last byte."""
        reach = [(n - 1) * s for n, s in zip(self.shape, self.strides, strict=True)]
        low = self.offset + sum([r for r in reach if r < 0])
        return low, self.offset + sum([r for r in reach if r > 0]) + self.kind.itemsize - 1


class _Step(NamedTuple):
    """One call: along a line, along rows, or a product of matrices. The last argument is written.

    ``first`` and ``count`` are None, or say which elements of each row are meant.
    """

    ufunc: np.ufunc
    types: str  # such as ``"ff->f"``
    arguments: Sequence[_Reference]
    first: Any = None
    count: Any = None


class Recording:
    """Calls in a fixed order, of float32 unless another type is named.

    A run makes the calls ``repeats`` times; for each repeat, an operand lies ``move`` bytes further
    on. It does so for ``groups`` of repeats, where operands begin ``leap`` bytes further on. Runs
    on NumPy's loops let go of the GIL, and threads may run one recording at once.

    No repeat reads what another one writes, nor does a group, unless some calls are made once a
    group. An operand with no ``move`` may be added to in each repeat, by one call that reads and
    writes it.
    """

    def __init__(self, kind: Any = "f") -> None:
        self.kind = np.dtype(kind)
        self.operands: list[_Operand] = []
        self.inputs = 0  # operands whose addresses come with each run; these come first
        self.lines: dict[int, tuple[Any, _Reference]] = {}  # whole operands, as arguments
        self.before: list[_Step] = []  # once a group, before the repeats
        self.steps: list[_Step] = []
        self.after: list[_Step] = []
        self.spare: list[_Native | _Calls] = []

    def operand(
        self,
        shape: Sequence[int],
        strides: Sequence[int],
        move: int = 0,
        leap: int = 0,
        kind: Any = None,
    ) -> Any:
        """Memory whose address comes with each run; all such operands are declared first."""
        if self.inputs < len(self.operands):
            raise ValueError("operands come before scratch memory and constants")
        self.inputs += 1
        return self._operand(_Operand(move, leap, None), shape, strides, self._kind(kind))

    def scratch(self, *shape: int, kind: Any = None) -> Any:
        """Memory of its own for each thread; a repeat finds anything in it."""
        d = self._kind(kind)
        return self._operand(_Operand(0, 0, d.itemsize * prod(shape)), shape, None, d)

    def constant(self, value: Any, kind: Any = None) -> Any:
        """Numbers that are known now."""
        array = np.array(value, self._kind(kind), order="C")
        return self._operand(_Operand(0, 0, array), array.shape, None, array.dtype)

    def _kind(self, kind: Any) -> np.dtype[Any]:
        return self.kind if kind is None else np.dtype(kind)

    def _operand(self, made: _Operand, shape: Any, strides: Any, kind: np.dtype[Any]) -> Any:
        if strides is None:
            strides = [kind.itemsize * prod(shape[i + 1 :]) for i in range(len(shape))]
        if sum([abs(s) * n for n, s in zip(shape, strides, strict=True)]) >= _ZERO:
            raise ValueError("an operand is too large to be recorded")
        self.operands.append(made)
        at = (len(self.operands) << _SPAN) + _ZERO
        array = np.asarray(_Memory(at, shape, strides, kind))
        if array.ndim < 2 or array.flags.c_contiguous:
            self.lines[id(array)] = array, _line(array)
        return array

    def __call__(self, ufunc: np.ufunc, *arrays: Any) -> None:
        """A call along one line; the last array is written. Single elements are spread."""
        arguments = [self.lines[id(a)][1] if id(a) in self.lines else _line(a) for a in arrays]
        count = arrays[-1].size
        if count == 1:  # a step of zero would mean a sum
            arguments = [a._replace(strides=(a.kind.itemsize,)) for a in arguments]
        for a in arguments:
            if a.shape[0] not in (1, count):
                raise ValueError(f"{a.shape[0]} elements are no line of {count}")
        out = arguments[-1]
        for other in arguments[:-1]:
            if other.operand == out.operand and other.overlaps(out):
                raise ValueError("a line is written over other elements of an argument")
        self._add(ufunc, arguments)

    def rows(self, ufunc: np.ufunc, *arrays: Any, first: Any = None, count: Any = None) -> None:
        """A call along each row of matrices, or the part of it from ``first`` on.

        Columns are spread over the rows; where only a column is written, it takes in the largest
        (or smallest) element of each row. ``first`` and ``count`` are numbers, or one for each row.
        """
        rows = max([len(a) for a in arrays if a.ndim])
        wide = max([a.shape[1] for a in arrays if a.ndim])
        arguments = []
        for a in arrays:
            shape = a.shape or (1, 1)
            if shape[0] not in (1, rows) or shape[1] not in (1, wide):
                raise ValueError(f"{a.shape} are no {rows} rows of {wide}")
            strides = [s if n > 1 else 0 for n, s in zip(shape, a.strides or (0, 0), strict=True)]
            arguments.append(_reference(a, (rows, wide), tuple(strides)))
        out = arguments[-1]
        reduced = wide > 1 and not out.strides[1]
        if reduced and (ufunc not in _EXTREMA or arguments[0] != out or out.kind.char not in "fd"):
            raise ValueError("rows are reduced to a column by maximum and minimum of floats only")
        if first is not None or count is not None:
            first = np.broadcast_to(0 if first is None else first, rows)
            count = np.broadcast_to(wide - first if count is None else count, rows)
            if (first < 0).any() or (count < 0).any() or (first + count > wide).any():
                raise ValueError(f"a part of a row ends outside of its {wide} elements")
        self._add(ufunc, arguments, first, count)

    def matmul(self, a: Any, b: Any, out: Any, once: bool = False) -> None:
        """A product of matrices; ``once``: once a group, before or after the repeats."""
        if (*a.shape, b.shape[1]) != (out.shape[0], b.shape[0], out.shape[1]):
            raise ValueError(f"no product of {a.shape} and {b.shape} is {out.shape}")
        arguments = [_reference(x, x.shape, x.strides) for x in (a, b, out)]
        self._add(blas.matmul, arguments, once=once)

    def _add(
        self,
        ufunc: np.ufunc,
        arguments: Sequence[_Reference],
        first: Any = None,
        count: Any = None,
        once: bool = False,
    ) -> None:
        kinds = "".join([a.kind.char for a in arguments])
        types = f"{kinds[:-1]}->{kinds[-1]}"
        if not has_loop(ufunc, types):
            raise NoLoopError(f"{ufunc.__name__} has no loop {types}")
        step = _Step(ufunc, types, arguments, first, count)
        if once:
            (self.after if self.steps else self.before).append(step)
        elif self.after:
            raise ValueError("repeated calls follow one another")
        else:
            self.steps.append(step)

    def calls(self) -> list[tuple[Any, ...]]:
        """What each step of a line calls: loop, data, operands, offsets, strides."""
        parts = [_part(step) for step in self.steps]
        return [(*p.loop, tuple(p.operands), tuple(p.offsets), tuple(p.numbers[1:])) for p in parts]

    @cached_property
    def length(self) -> int:
        """The elements of each call, where all run along lines of one length, else 0."""
        shapes = {s.arguments[-1].shape for s in (*self.before, *self.steps, *self.after)}
        return min(shapes)[0] if len(shapes) == 1 and len(min(shapes)) == 1 else 0

    def run(self, addresses: Sequence[int], repeats: int, groups: int = 1, rest: int = 0) -> None:
        """Run on the operands at these addresses, and on the memory after them.

        ``rest``: make the calls once more after that, on so many elements of each line.
        """
        if rest and not (groups == 1 and 0 < rest <= self.length):
            raise ValueError(f"{rest} elements of lines of {self.length or 'several lengths'}")
        runner = self._runner()
        runner.run(addresses, repeats, groups, rest)
        self.spare.append(runner)

    def run_each(self, jobs: Sequence[tuple[Sequence[int], int]]) -> None:
        """Run once for each of the jobs: addresses, and elements of each line."""
        if max([count for _, count in jobs]) > self.length:
            raise ValueError(f"a job of more than {self.length} elements")
        runner = self._runner()
        runner.run_each(jobs)
        self.spare.append(runner)

    def run_at(self, addresses: Any) -> None:
        """Run once at each row of an array of addresses, in that order."""
        if self.before or self.after:
            raise ValueError("some calls are made once a group")
        runner = self._runner()
        runner.run_at(addresses)
        self.spare.append(runner)

    def _runner(self) -> _Native | _Calls:
        try:
            return self.spare.pop()
        except IndexError:  # none left by an earlier run, or another thread took it
            return _Native(self) if available() else _Calls(self)


def _reference(a: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> _Reference:
    at = address(a)
    offset = (at & (1 << _SPAN) - 1) - _ZERO
    return _Reference((at >> _SPAN) - 1, offset, shape, strides, a.dtype)


def _line(a: Any) -> _Reference:
    """An array as a line of its elements; a single one is spread."""
    if a.ndim > 1 and not a.flags.c_contiguous:
        raise ValueError(f"{a.shape} with strides {a.strides} is no line")
    return _reference(a, (a.size,), (0 if a.size == 1 else a.strides[-1],))


# --- without the interpreter ----------------------------------------------------------------------


class _Part(NamedTuple):
    """A step as calls of one loop along one line each: what stands in the table about them.

    The first three are lists for one call, and arrays with a row a call for several.
    """

    operands: Any  # numbers, and offsets
    offsets: Any
    numbers: Any  # counts, then strides; one list for all calls where these are the same
    counts: int  # how many of the numbers are counts
    loop: tuple[int, int]  # and its data

    @property
    def calls(self) -> int:
        return 1 if type(self.offsets) is list else len(self.offsets)


def _part(step: _Step) -> _Part:
    loop = loop_of(step.ufunc, step.types)
    assert loop is not None
    arguments = step.arguments
    operands, offsets = [a.operand for a in arguments], [a.offset for a in arguments]
    if step.ufunc.signature is not None:
        a, b, out = arguments
        extents = [1, *a.shape, b.shape[1]]
        strides = [0, 0, 0, *a.strides, *b.strides, *out.strides]
        return _Part(operands, offsets, extents + strides, 4, loop)
    *rows, wide = arguments[-1].shape
    numbers: Any = [wide, *[a.strides[-1] for a in arguments]]
    if not rows:
        return _Part(operands, offsets, numbers, 1, loop)
    down = np.array([a.strides[0] for a in arguments], POINTER)
    of_rows = offsets + np.arange(rows[0], dtype=POINTER)[:, None] * down
    if step.count is not None:
        some = step.count > 0
        of_rows = (of_rows + step.first[:, None] * np.array(numbers[1:], POINTER))[some]
        numbers = np.repeat([numbers], len(of_rows), 0)
        numbers[:, 0] = step.count[some]
    return _Part(np.broadcast_to(operands, of_rows.shape), of_rows, numbers, 1, loop)


def _size(part: Any) -> int:
    return len(part) if type(part) is list else part.size


def _flat(parts: Sequence[Any]) -> Any:
    """Lists and arrays as one array."""
    if all(type(part) is list for part in parts):
        return np.array([word for part in parts for word in part], POINTER)
    return np.concatenate([np.asarray(part, POINTER).reshape(-1) for part in parts])


class _Native:
    """One thread's table of a recording, and its scratch memory.

    Entries of calls point to their arguments, which are one array. Those of calls with an operand
    that comes with a run stand before the others: only they change. Between repeats, NumPy's
    addition of integers moves them on; it is an entry of the table too.
    """

    def __init__(self, recording: Recording) -> None:
        self.memory = [
            aligned(o.content) if isinstance(o.content, int) else o.content
            for o in recording.operands[recording.inputs :]
        ]
        at = [0] * recording.inputs + [address(m) for m in self.memory]
        self.bases = np.array(at, POINTER)
        before, steps, after = [
            [part for part in map(_part, some) if part.calls]
            for some in (recording.before, recording.steps, recording.after)
        ]
        moved, still = _split(steps, recording.inputs)
        once, rest = _split(before + after, recording.inputs)
        parts = moved + once + still + rest
        self.operands = operands = _flat([p.operands for p in parts])
        self.offsets = offsets = _flat([p.offsets for p in parts])
        self.arguments = self.bases[operands] + offsets
        self.numbers = _flat([p.numbers for p in parts])
        self.length = np.array([recording.length], POINTER)  # of each line; or 0
        repeated = sum([_size(p.offsets) for p in moved])
        changing = repeated + sum([_size(p.offsets) for p in once])
        self.pointed = (
            self.bases,
            operands[:changing],
            offsets[:changing],
            self.arguments[:changing],
        )
        moves, leaps = np.array([o[:2] for o in recording.operands], POINTER).T
        self.moves, self.leaps = moves[operands[:changing]], leaps[operands[:changing]]
        self.moves[repeated:] = 0
        self.onward = np.empty_like(self.leaps)  # from a group's end to where the next begins
        self.repeats = -1
        self._write(recording, parts, [before, steps, after], repeated)

    def _write(
        self, recording: Recording, parts: list[_Part], phases: list[list[_Part]], repeated: int
    ) -> None:
        length = address(self.length) if recording.length else 0
        words, arguments, numbers = {}, address(self.arguments), address(self.numbers)
        for part in parts:
            words[id(part)] = _words(part, arguments, numbers, length)
            arguments += _size(part.offsets) * _WORD
            numbers += _size(part.numbers) * _WORD
        before, steps, after = [[words[id(part)] for part in some] for some in phases]
        self.row = _flat([*steps, self._addition(self.moves[:repeated])])
        self.entries = len(self.row) // 5
        again = [TABLE, address(self.row), self.entries, 0, 0]
        self.group = _flat([*before, again, *after, self._addition(self.onward)])
        self.times = sum([_size(w) for w in before]) + 3  # where the number of repeats stands
        self.plain = not recording.before and not recording.after

    def _addition(self, amounts: Any) -> list[int]:
        """An entry that adds amounts to the first arguments."""
        loop = loop_of(np.add, f"{POINTER.char * 2}->{POINTER.char}")
        assert loop is not None
        to = address(self.arguments)
        words = [to, address(amounts), to, len(amounts), _WORD, _WORD, _WORD]
        self.memory += [amounts, np.array(words, POINTER)]
        at = address(self.memory[-1])
        return [loop[0], at, at + 3 * _WORD, at + 4 * _WORD, loop[1]]

    def run(self, addresses: Sequence[int], repeats: int, groups: int, rest: int) -> None:
        point(addresses, *self.pointed)
        if groups == 1 and self.plain:
            if repeats:
                walk(self.row, self.entries, repeats)
            if rest:
                length, self.length[0] = self.length[0], rest
                walk(self.row, self.entries, 1)
                self.length[0] = length
            return
        if self.repeats != repeats:
            np.subtract(self.leaps, self.moves * repeats, self.onward)
            self.repeats = self.group[self.times] = repeats
        walk(self.group, len(self.group) // 5, groups)

    def run_each(self, jobs: Sequence[tuple[Sequence[int], int]]) -> None:
        for addresses, length in jobs:
            self.run(addresses, 0, 1, length)

    def run_at(self, addresses: Any) -> None:
        """All runs' entries are one table, with arguments of their own."""
        count, inputs = addresses.shape
        arguments = np.empty((count, len(self.arguments)), POINTER)
        for i, operand in enumerate(self.operands.tolist()):
            at = addresses[:, operand] if operand < inputs else self.bases[operand]
            np.add(at, self.offsets[i], arguments[:, i])
        table = np.empty((count, 5 * (self.entries - 1)), POINTER)
        onward = np.arange(count) * arguments.strides[0]
        onward += address(arguments) - address(self.arguments)
        for i, word in enumerate(self.row[:-5].tolist()):
            table[:, i] = word + onward if i % 5 == 1 else word
        walk(table, count * (self.entries - 1), 1)


def _split(parts: Sequence[_Part], inputs: int) -> tuple[list[_Part], list[_Part]]:
    """Calls with an operand that comes with a run, and those without."""
    changing: list[_Part] = []
    still: list[_Part] = []
    for part in parts:
        lowest = min(part.operands) if type(part.operands) is list else part.operands.min()
        (changing if lowest < inputs else still).append(part)
    return changing, still


def _words(part: _Part, arguments: int, numbers: int, length: int) -> Any:
    """A part's entries in a table: loop, arguments, counts, strides, data."""
    loop, data = part.loop
    after = part.counts * _WORD
    if part.calls == 1:
        return [loop, arguments, length or numbers, numbers + after, data]
    result = np.empty((part.calls, 5), POINTER)
    row = np.arange(part.calls) * _WORD
    own = numbers if type(part.numbers) is list else numbers + row * part.numbers.shape[1]
    result[:, 0], result[:, 4] = part.loop
    result[:, 1] = arguments + row * part.offsets.shape[1]
    result[:, 2], result[:, 3] = own, own + after
    return result


# --- with the interpreter -------------------------------------------------------------------------


class _Calls:
    """One thread's scratch memory for a recording that is made as calls of NumPy.

    The calls of many groups and repeats are one call of NumPy, on arrays with two more dimensions,
    as far as scratch memory suffices; so the interpreter's time counts less.
    """

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        inputs, operands = recording.inputs, recording.operands
        self.sizes = [o.content if isinstance(o.content, int) else 0 for o in operands]
        self.most = max(_TOGETHER // max(sum(self.sizes), 1), 1)  # repeats at once
        written = {s.arguments[-1].operand for s in recording.steps}
        self.sums = {n for n in written if n < inputs and not operands[n].move}
        touched = [n for s in recording.steps for n in {a.operand for a in s.arguments}]
        self.repeats_at_once = all(touched.count(n) == 1 for n in self.sums)
        once = recording.before or recording.after
        self.groups_at_once = not once and all(operands[n].leap for n in written if n < inputs)
        self.room = 0  # repeats, of all groups, for which there is scratch memory
        self.own: list[Any] = []
        self.views: dict[Any, Any] = {}  # of own memory
        self.masks: dict[int, Any] = {}

    def run(self, addresses: Sequence[int], repeats: int, groups: int, rest: int) -> None:
        recording = self.recording
        columns = _share(repeats, self.most) if self.repeats_at_once else 1
        rows = _share(groups, max(self.most // columns, 1)) if self.groups_at_once else 1
        for group in range(0, groups, rows):
            extents = min(rows, groups - group)
            self._make(recording.before, self._at(addresses, group, 0), (1, 1))
            for first in range(0, repeats, columns):
                at = self._at(addresses, group, first)
                self._make(recording.steps, at, (extents, min(columns, repeats - first)))
            self._make(recording.after, self._at(addresses, group, 0), (1, 1))
        if rest:
            self._make(recording.steps, self._at(addresses, 0, repeats), (1, 1), rest)

    def run_each(self, jobs: Sequence[tuple[Sequence[int], int]]) -> None:
        for addresses, length in jobs:
            self._make(self.recording.steps, addresses, (1, 1), length)

    def run_at(self, addresses: Any) -> None:
        for row in addresses.tolist():
            self._make(self.recording.steps, row, (1, 1))

    def _at(self, addresses: Sequence[int], group: int, repeat: int) -> list[int]:
        operands = self.recording.operands
        return [a + group * o.leap + repeat * o.move for a, o in zip(addresses, operands)]

    def _make(
        self,
        steps: Sequence[_Step],
        addresses: Sequence[int],
        extents: tuple[int, int],
        length: int | None = None,
    ) -> None:
        """Make the calls of some groups and repeats, on so many elements of each line."""
        if self.room < extents[0] * extents[1]:
            self.room, inputs = extents[0] * extents[1], self.recording.inputs
            self.own = [
                aligned(size * self.room) if size else o.content
                for o, size in zip(self.recording.operands[inputs:], self.sizes[inputs:])
            ]
            self.views = {}
        with np.errstate(all="ignore"):
            for step in steps:
                arrays = [self._view(a, addresses, extents) for a in step.arguments]
                if length is not None:
                    arrays = [a[..., :length] for a in arrays]
                if step.arguments[-1].operand in self.sums:
                    for repeat in range(extents[1]):
                        self._call(step, [a[:, repeat] for a in arrays])
                else:
                    self._call(step, arrays)

    def _view(self, a: _Reference, addresses: Sequence[int], extents: tuple[int, int]) -> Any:
        """An argument as an array whose first dimensions are those of the groups and repeats."""
        view, number = self.views.get((id(a), extents)), a.operand - self.recording.inputs
        if view is None:
            operand, size = self.recording.operands[a.operand], self.sizes[a.operand]
            at, outer = 0, (operand.leap, operand.move)
            if number < 0:
                at = addresses[a.operand]
            else:
                at, outer = address(self.own[number]), (size * extents[1], size)
            shape, strides = (*extents, *a.shape), (*outer, *a.strides)
            view = np.asarray(_Memory(at + a.offset, shape, strides, a.kind))
            if number >= 0:
                self.views[id(a), extents] = view
        return view

    def _call(self, step: _Step, arrays: Sequence[Any]) -> None:
        """A step as one call of NumPy, or one for each row: where rows build on earlier ones."""
        ufunc, arguments = step.ufunc, step.arguments
        mask: Any = True
        out = arguments[-1]
        if ufunc.signature is not None or len(out.shape) == 1:
            ufunc(*arrays[:-1], out=arrays[-1])
            return
        if step.first is not None:
            mask = self.masks.get(id(step))
            if mask is None:
                number = np.arange(out.shape[1]) - step.first[:, None]
                mask = self.masks[id(step)] = (number >= 0) & (number < step.count[:, None])
        if out.shape[1] > 1 and not out.strides[1]:
            _reduce(ufunc, arrays[1], arrays[-1][..., :1], mask)
        elif any(a.overlaps(out) for a in arguments[:-1]):
            by_row = zip(*[np.moveaxis(a, -2, 0) for a in arrays])
            if mask is True:  # a `where` of True takes as long as a short row
                for *read, row in by_row:
                    ufunc(*read, out=row)
            else:
                for part, (*read, row) in zip(mask, by_row, strict=True):
                    ufunc(*read, out=row, where=part)
        else:
            ufunc(*arrays[:-1], out=arrays[-1], where=mask)


def _reduce(ufunc: np.ufunc, rows: Any, column: Any, mask: Any) -> None:
    """Take the largest (or smallest) of each row into a column."""
    start = -np.inf if ufunc is np.maximum else np.inf
    ufunc(column, ufunc.reduce(rows, -1, keepdims=True, initial=start, where=mask), out=column)


class Immediate:
    """Makes the calls that a `Recording` records, at once; nothing is kept.

    For problems so small that a recording of their shape costs more than the arithmetic. Arrays may
    have leading dimensions, the same for all, over which the calls are repeated.
    """

    def __init__(self, lead: Sequence[int] = (), kind: Any = "f") -> None:
        self.lead, self.kind = tuple(lead), np.dtype(kind)

    def scratch(self, *shape: int) -> Any:
        return pool.empty((*self.lead, *shape), self.kind)

    def constant(self, value: Any) -> Any:
        return np.asarray(value, self.kind)

    def __call__(self, ufunc: np.ufunc, *arrays: Any) -> None:
        ufunc(*arrays[:-1], out=arrays[-1])

    def rows(self, ufunc: np.ufunc, *arrays: Any, first: Any = None) -> None:
        """As of a recording, where no row is written over what another one reads."""
        mask = True if first is None else np.arange(arrays[-1].shape[-1]) >= first[:, None]
        if ufunc in _EXTREMA and arrays[-1].shape[-1] < arrays[1].shape[-1]:
            _reduce(ufunc, arrays[1], arrays[-1], mask)
        else:
            ufunc(*arrays[:-1], out=arrays[-1], where=mask)

    def matmul(self, a: Any, b: Any, out: Any) -> None:
        blas.matmul(a, b, out)


def _share(count: int, most: int) -> int:
    """The parts of a count, none of more than ``most``, as equal as may be."""
    return -(-count // max(-(-count // most), 1)) or 1
