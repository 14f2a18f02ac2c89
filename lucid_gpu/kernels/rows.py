"""How rows are given to the threads of a GPU: what the row families choose at a launch.

A row is a run of contiguous elements (`Rows`); along any other dimension a line of elements that
stand apart (`Lines`). `kernels/line.cuh` has the other half.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

from lucid_gpu.devices import backend_of_array
from lucid_gpu.launch import Kernel
from lucid_gpu.launch.kernel import Function
from lucid_gpu.launch.launcher import Extent

ACCESS = 16  # bytes a thread loads or stores at once
WARP = 32
SHORT = 1024  # elements up to which a warp, or a part of one, takes a row
HELD = 128  # bytes of a row a thread keeps in registers; its block has up to 1024 threads
SMALL_BLOCK = 128  # threads of blocks whose warps work apart
LONGEST = (1 << 31) - (1 << 16)  # elements that an int counts, with a step of a block beyond them


class Lines(NamedTuple):
    """An array seen as lines along one dimension: ``outer * inner`` of ``columns`` elements."""

    outer: int
    columns: int
    inner: int

    @property
    def number(self) -> int:
        return self.outer * self.inner


def counted(elements: int) -> int:
    """The elements of a line, which kernels count in an ``int``.

    Raises
    ------
    RuntimeError
        If there are more than `LONGEST`.
    """
    if elements > LONGEST:
        raise RuntimeError(
            f"a kernel takes lines of at most {LONGEST} elements along the dimension it computes "
            f"over, got {elements}; compute parts of it"
        )
    return elements


def lines_along(shape: Sequence[int], axis: int) -> Lines:
    """The lines of a row-major array along an axis; RuntimeError if they are too long."""
    return Lines(prod(shape[:axis]), counted(shape[axis]), prod(shape[axis + 1 :]))


class Group(NamedTuple):
    """The threads that hold one row in registers.

    Attributes
    ----------
    width : int
        Elements of an access.
    lanes : int
        Threads, where they are part of a warp; 0 for a whole block.
    items : int
        Accesses a thread makes.
    threads : int
        Of a block.
    """

    width: int
    lanes: int
    items: int
    threads: int

    def blocks(self, rows: int) -> int:
        """Blocks for a number of rows, one group each."""
        together = self.threads // self.lanes if self.lanes else 1
        return -(-rows // together)

    def grid(self, rows: int) -> Extent:
        """The same as a grid."""
        return (self.blocks(rows), 1, 1)


class Grouped(NamedTuple):
    """A kernel whose groups are parts of warps, and the same for whole blocks.

    They differ in the registers that the compiler may give a thread.
    """

    apart: Kernel
    together: Kernel

    def of(self, lanes: int) -> Kernel:
        return self.apart if lanes else self.together

    def instance(self, group: Group, **template: Any) -> Function:
        """The kernel for a group, and for more template arguments."""
        own = {"W": group.width, "LANES": group.lanes, "ITEMS": group.items}
        return self.of(group.lanes).instance(**template, **own)


def grouped(source: str, name: str, declaration: str, template: str, threads: int) -> Grouped:
    """`Grouped` of a device function; ``threads`` is the most a whole block has."""
    return Grouped(
        Kernel(source, name, declaration, template, SMALL_BLOCK),
        Kernel(source, name, declaration, template, threads),
    )


def power_of_two(n: int) -> int:
    """The least power of two that is not below ``n``."""
    return 1 << max(n - 1, 0).bit_length()


def width_of(columns: int, addresses: Sequence[int], itemsize: int) -> int:
    """The widest access that every row is aligned for: a power of two that divides ``columns``."""
    bits = 0
    for a in addresses:
        bits |= a
    width = ACCESS // itemsize
    while width > 1 and (columns % width or bits % (width * itemsize)):
        width //= 2
    return width


@functools.lru_cache(maxsize=1024)
def held(columns: int, width: int, itemsize: int, arrays: int = 1) -> Group | None:
    """The threads that keep ``arrays`` rows of this length in registers; None for longer ones."""
    packs = -(-columns // width)
    room = HELD // itemsize // arrays if itemsize < 8 else HELD // 2 // itemsize // arrays
    most = max(min(room // width, (16 if itemsize == 4 else 8) // arrays), 1)
    lanes = min(power_of_two(packs), WARP)
    items = power_of_two(-(-packs // lanes))
    if columns <= SHORT and items <= most:
        return Group(width, lanes, items, SMALL_BLOCK)
    threads = min(max(power_of_two(-(-packs // 4)), SMALL_BLOCK), 1024)
    items = power_of_two(-(-packs // threads))
    return Group(width, 0, items, threads) if items <= most else None


def walkers(columns: int, width: int) -> tuple[int, int]:
    """Threads that walk a row (0 for a whole block, as in `Group`), and the threads of a block."""
    if columns <= SHORT:
        return min(power_of_two(-(-columns // width)), WARP), SMALL_BLOCK
    return 0, min(max(power_of_two(columns // (8 * width)), SMALL_BLOCK), 512)


def address(array: Any) -> int:
    """Where an array's first element lies."""
    backend = backend_of_array(array)
    assert backend is not None
    return backend.address(array)
