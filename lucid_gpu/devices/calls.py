"""NumPy's loops in a fixed order, recorded once and run many times without the interpreter.

Where a kernel works on a few hundred numbers at a time (one head of attention, one row to be
normalised), calling NumPy costs more than the arithmetic, and two threads wait for each other's
interpreter lock between the calls. So the calls are recorded, on arrays that stand for memory, and
`lucid_gpu.devices.loops` walks the record.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from lucid_gpu.devices.loops import POINTER, TABLE, address, loop_of, walk
from lucid_gpu.devices.pool import aligned

__all__ = ["Calls"]

_SPAN = 40  # bits of an offset inside one operand; above them stands the operand's number
_WORD = POINTER.itemsize


class _Standing:
    """What NumPy makes an array of that must never be read."""

    def __init__(
        self, number: int, shape: Sequence[int], strides: Sequence[int], kind: np.dtype[Any]
    ) -> None:
        self.__array_interface__ = {
            "data": ((number + 1) << _SPAN, False),
            "shape": tuple(shape),
            "strides": tuple(strides),
            "typestr": kind.str,
            "version": 3,
        }


class _Part(NamedTuple):
    """Some calls of one loop."""

    loop: tuple[int, int]  # and its data
    places: Any  # standing addresses, a row a call
    numbers: Any  # counts, then steps, a row a call
    counts: int  # how many of these are counts


class Calls:
    """Loops of one type, float32 unless another is named, in a fixed order.

    A run goes through them ``repeats`` times; after each, every given operand moves on by its
    ``move``, in bytes. It does so for ``groups`` of repeats; after each of these, operands move on
    by their ``leap`` too. Runs let go of the GIL, and threads may run one sequence at once.
    """

    def __init__(self, kind: str = "f") -> None:
        self.kind = np.dtype(kind)
        self.parts: list[_Part] = []
        self.moves: list[int] = []  # of the given operands, which come first
        self.leaps: list[int] = []
        self.own: list[Any] = []  # bytes of scratch, and constants
        self.spare: list[_Table] = []

    def operand(
        self, shape: Sequence[int], strides: Sequence[int], move: int = 0, leap: int = 0
    ) -> Any:
        """Memory whose address comes with each run; all such operands are declared first.

        Strides inside it are not negative.
        """
        assert not self.own and min(strides) >= 0
        self.moves.append(move)
        self.leaps.append(leap)
        return np.asarray(_Standing(len(self.moves) - 1, shape, strides, self.kind))

    def scratch(self, *shape: int) -> Any:
        """Memory of its own for each thread."""
        return self._own(self.kind.itemsize * prod(shape), shape)

    def constant(self, value: Any) -> Any:
        """Numbers that are known now."""
        array = np.array(value, self.kind, order="C")
        return self._own(array, array.shape)

    def _own(self, memory: Any, shape: Sequence[int]) -> Any:
        self.own.append(memory)
        dense = [self.kind.itemsize * prod(shape[i + 1 :]) for i in range(len(shape))]
        return np.asarray(_Standing(len(self.moves) + len(self.own) - 1, shape, dense, self.kind))

    def __call__(self, ufunc: np.ufunc, *arrays: Any) -> None:
        """A loop along one line; the last array is written. Single elements are spread."""
        steps = [0 if a.size == 1 else _step(a) for a in arrays]
        count = max([a.size for a in arrays])
        self._add(ufunc, [[address(a) for a in arrays]], [[count, *steps]], 1)

    def rows(self, ufunc: np.ufunc, *arrays: Any, first: Any = 0, count: Any = None) -> None:
        """A loop along each row of matrices, or the part of it from ``first`` on.

        Columns are spread over the rows; where only a column is written, the rows are reduced to
        it. ``first`` and ``count`` are numbers, or one for each row.
        """
        wide = max([a.shape[-1] for a in arrays if a.ndim])
        number = np.arange(max([len(a) for a in arrays if a.ndim]), dtype=POINTER)
        places, steps = [], []
        for a in arrays:
            down, along = a.strides if a.ndim else (0, 0)
            along = 0 if a.ndim == 0 or a.shape[1] == 1 else along
            places.append(address(a) + number * down + np.multiply(first, along))
            steps.append(np.full(len(number), along))
        counts = np.broadcast_to(wide if count is None else count, number.shape)
        taken = counts > 0
        self._add(ufunc, np.stack(places, 1)[taken], np.stack([counts, *steps], 1)[taken], 1)

    def matmul(self, a: Any, b: Any, out: Any) -> None:
        """A product of matrices."""
        steps = [0, 0, 0, *a.strides, *b.strides, *out.strides]
        places = [[address(a), address(b), address(out)]]
        self._add(np.matmul, places, [[1, *a.shape, b.shape[1], *steps]], 4)

    def _add(self, ufunc: np.ufunc, places: Any, numbers: Any, counts: int) -> None:
        found = loop_of(ufunc, f"{self.kind.char * ufunc.nin}->{self.kind.char}")
        assert found is not None
        if len(places):
            standing, numbers = np.array(places, POINTER), np.array(numbers, POINTER)
            self.parts.append(_Part(found, standing, numbers, counts))

    def run(self, places: Sequence[int], repeats: int, groups: int = 1) -> None:
        """Run on the operands at these addresses, and on the places after them."""
        try:
            table = self.spare.pop()
        except IndexError:  # none left by an earlier run, or another thread took it
            table = _Table(self)
        table.run(places, repeats, groups)
        self.spare.append(table)


def _step(a: Any) -> int:
    assert a.ndim == 1 or a.flags.c_contiguous
    return int(a.strides[0]) if a.ndim == 1 else a.itemsize


def _words(part: _Part, arguments: int, numbers: int) -> Any:
    """A part's entries in a table: loop, arguments, counts, steps, data."""
    (calls, width), wide = part.places.shape, part.numbers.shape[1]
    result = np.empty((calls, 5), POINTER)
    row = np.arange(calls) * _WORD
    result[:, 0], result[:, 4] = part.loop
    result[:, 1] = arguments + row * width
    result[:, 2] = numbers + row * wide
    result[:, 3] = result[:, 2] + part.counts * _WORD
    return result


class _Table:
    """One thread's table: the entries with its pointers and its scratch memory."""

    def __init__(self, calls: Calls) -> None:
        given = len(calls.moves)
        self.memory = [aligned(own) if isinstance(own, int) else own for own in calls.own]
        places = [0] * given + [address(memory) for memory in self.memory]
        self.places = np.array(places, POINTER)
        self.given = self.places[:given]
        # arguments of calls with a given operand stand before the others: only they change
        moving = [part for part in calls.parts if part.places.min() >> _SPAN <= given]
        still = [part for part in calls.parts if part.places.min() >> _SPAN > given]
        standing = np.concatenate([part.places.reshape(-1) for part in moving + still])
        base, offsets = (standing >> _SPAN) - 1, standing & ((1 << _SPAN) - 1)
        self.arguments = self.places[base] + offsets
        count = sum([part.places.size for part in moving])
        self.base, self.offsets, self.moving = base[:count], offsets[:count], self.arguments[:count]
        rest = [0] * len(calls.own)
        self.moves = np.array(calls.moves + rest, POINTER)[self.base]
        self.leaps = np.array(calls.leaps + rest, POINTER)[self.base]
        self.numbers = np.concatenate([p.numbers.reshape(-1) for p in moving + still])
        words, pointers, numbers = {}, address(self.arguments), address(self.numbers)
        for part in moving + still:
            words[id(part)] = _words(part, pointers, numbers)
            pointers += part.places.nbytes
            numbers += part.numbers.nbytes
        onward = self._addition(self.moves)
        self.once = np.concatenate([*[words[id(part)] for part in calls.parts], [onward]])
        self.again = [TABLE, address(self.once), len(self.once), 0, 0]
        self.leap = self._addition(self.leaps)
        self.many: dict[tuple[int, int], Any] = {}

    def _addition(self, amounts: Any) -> list[int]:
        """An entry that adds amounts to the moving arguments."""
        add = loop_of(np.add, f"{POINTER.char * 2}->{POINTER.char}")
        assert add is not None
        to = address(self.arguments)
        words = [to, address(amounts), to, len(amounts), _WORD, _WORD, _WORD]
        self.memory.append(np.array(words, POINTER))
        at = address(self.memory[-1])
        return [add[0], at, at + 3 * _WORD, at + 4 * _WORD, add[1]]

    def run(self, places: Sequence[int], repeats: int, groups: int) -> None:
        self.given[:] = places
        self.places.take(self.base, out=self.moving, mode="wrap")
        self.moving += self.offsets
        table = self.many.get((repeats, groups))
        if table is None:
            if len(self.many) > 8:
                self.many.clear()
            table = np.array((self.again * repeats + self.leap) * groups, POINTER)
            self.many[repeats, groups] = table
        walk(table, (repeats + 1) * groups)
