"""Many tensors as one argument of a kernel, `lucid_rows` of `kernels/rows.cuh`.

Addresses and sizes travel as a kernel argument, so nothing is copied to the GPU first; as many
tensors as fit in the 4 KB of arguments every GPU takes share a launch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

ARGUMENT_BYTES = 3584  # of the table of tensors; numbers have the rest of 4 KB

Row = tuple[int, ...]  # a size, then an address for each column


class Table(NamedTuple):
    """The argument that lists tensors: so many columns, so many rows at most."""

    columns: int
    rows: int

    @property
    def form(self) -> str:
        """In `struct`'s letters: addresses column by column, sizes, first blocks, rows in use."""
        padding = "4x" if self.rows % 2 == 0 else ""
        return f"{self.columns * self.rows}Q{self.rows}q{self.rows}ii{padding}"

    @property
    def type(self) -> str:
        """In C."""
        return f"lucid_rows<{self.columns}, {self.rows}>"


def table_of(columns: int) -> Table:
    """The largest table that fits."""
    return Table(columns, (ARGUMENT_BYTES - 8) // (8 * columns + 12))


def filled(table: Table, rows: Sequence[Row], tile: int) -> Iterator[tuple[list[int], int]]:
    """The argument, and the blocks of ``tile`` elements it asks for, as often as rows fill it."""
    n = table.rows
    for start in range(0, len(rows), n):
        some = rows[start : start + n]
        unused = [0] * (n - len(some))
        first, blocks = [], 0
        for size, *_ in some:
            first.append(blocks)
            blocks += -(-size // tile)
        values: list[int] = []
        for column in zip(*some):  # sizes, then addresses
            values += [*column, *unused]
        yield [*values[n:], *values[:n], *first, *unused, len(some)], blocks
