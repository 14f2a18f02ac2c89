"""Many tensors as one argument of a kernel, `lucid_rows` of `kernels/rows.cuh`.

Addresses and sizes travel as a kernel argument, so nothing is copied to the GPU first; as many
tensors as fit in the 4 KB of arguments every GPU takes share a launch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

ARGUMENT_BYTES = 4096  # of all arguments of a kernel, on every GPU
LONGEST = 1 << 30  # elements of a row; longer tensors are several rows

Row = tuple[int, ...]  # a size, then an address for each column


class Table(NamedTuple):
    """The argument that lists tensors: so many columns, so many rows at most."""

    columns: int
    rows: int

    @property
    def form(self) -> str:
        """In `struct`'s letters: addresses column by column, sizes, first blocks, rows in use."""
        return f"{self.columns * self.rows}Q{self.rows}i{self.rows}ii4x"

    @property
    def type(self) -> str:
        """In C."""
        return f"lucid_rows<{self.columns}, {self.rows}>"


def table_of(columns: int, others: int, widest: int = 8) -> Table:
    """The largest table that fits before so many other arguments, each aligned to its bytes.

    ``widest`` are the most bytes of one of them: 16 for complex128.
    """
    return Table(columns, (ARGUMENT_BYTES - widest * others - widest) // (8 * columns + 8))


def filled(
    table: Table, rows: Sequence[Row], tile: int, itemsizes: Sequence[int]
) -> Iterator[tuple[list[int], int, int]]:
    """The argument as often as rows fill it, with its blocks of ``tile`` elements, its elements.

    Parameters
    ----------
    itemsizes : sequence of int
        Of each column's elements.
    """
    n = table.rows
    if rows and max(rows)[0] > LONGEST:
        rows = [*_short(rows, itemsizes)]
    for start in range(0, len(rows), n):
        some = rows[start : start + n]
        unused = [0] * (n - len(some))
        sizes, *addresses = zip(*some)
        *first, blocks = accumulate([-(-size // tile) for size in sizes], initial=0)
        argument: list[int] = []
        for column in (*addresses, sizes, first):
            argument += column
            argument += unused
        argument.append(len(some))
        yield argument, blocks, sum(sizes)


def _short(rows: Sequence[Row], itemsizes: Sequence[int]) -> Iterator[Row]:
    for row in rows:
        size, *addresses = row
        if size <= LONGEST:
            yield row
            continue
        for at in range(0, size, LONGEST):
            places = [a + at * item for a, item in zip(addresses, itemsizes, strict=True)]
            yield (min(LONGEST, size - at), *places)
