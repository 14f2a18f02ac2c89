"""A matrix product and a block of loops, step after step, without the interpreter between them.

NumPy's matmul is a ufunc too: its compiled loop takes the extents and strides of matrices where
others take a count. So a step of a recurrent layer is a table as those of `native_loops`, of the
product, the rows of the block, and entries that move all pointers on by a constant; the walk along
a sequence is that table, as often as there are steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from lucid_gpu.devices.blas import UNPACKED
from lucid_gpu.devices.loops import POINTER, TABLE, address, loop_of, walk
from lucid_gpu.fusion.native_loops import WORDS, Kernel, Rows, Table, adding, repeated

__all__ = ["Operand", "Product", "Steps", "panels_of"]

NARROWEST, WIDEST = 32, 64  # columns of a panel
VECTOR = 16  # columns that a processor takes at once


class Operand(NamedTuple):
    """Where a matrix lies in the first step, and how many bytes it moves with each step."""

    pointer: int
    move: int


class Product(NamedTuple):
    """Of a matrix ``(m, k)`` and panels ``(panels, k, n / panels)``, as `panels_of` counts them.

    ``rows`` are the bytes from row to row of the first matrix and of the result.
    """

    m: int
    k: int
    n: int
    panels: int
    rows: tuple[int, int]
    item: int

    def arguments(self) -> tuple[list[int], list[int]]:
        """Extents and strides as matmul's loop takes them."""
        (a, out), item, width = self.rows, self.item, self.n // self.panels
        row = width * item
        extents = [self.panels, self.m, self.k, width]
        return extents, [0, self.k * row, row, a, item, row, item, out, item]


def panels_of(m: int, k: int, n: int) -> int:
    """Into how many dense panels of columns a matrix ``(k, n)`` is cut to multiply ``m`` rows.

    Narrow products take half the time of a wide one for which OpenBLAS copies the matrix, at each
    step again, into the order that suits it. Rows of a panel follow one another: those of a matrix
    that is wide by a power of two would share few places of the cache.
    """
    most = range(1, n // NARROWEST + 1)
    found = [p for p in most if n % p == 0 and m * k * (n // p) <= UNPACKED]
    best = [p for p in found if n // p <= WIDEST and n // p % VECTOR == 0]
    return (best or found or [1])[0]


class Steps:
    """A product and a kernel over some rows, again and again.

    Parameters
    ----------
    kernel : Kernel
        Gives the block.
    rows : Rows
        How the block's names move within a step.
    product_first : bool
    """

    def __init__(self, kernel: Kernel, rows: Rows, product_first: bool) -> None:
        kinds = (kernel.statements, kernel.loops, kernel.types, kernel.fixed)
        self.kernel = Kernel(*kinds, kernel.given, kernel.scratch, rows)
        self.product_first = product_first
        kind = kernel.types[kernel.given[0]].char
        loop = loop_of(np.matmul, f"{kind}{kind}->{kind}")
        assert loop is not None
        self.loop = loop
        self.spare: list[_Chain] = []

    def __call__(
        self,
        operands: Sequence[Operand],
        factors: Sequence[Operand],
        product: Product,
        rows: int,
        steps: int,
    ) -> None:
        """Go so many steps.

        Parameters
        ----------
        operands : sequence of Operand
            In the order of the kernel's ``given``.
        factors : sequence of Operand
            Both of the product, and its result.
        product : Product
        rows, steps : int
        """
        try:
            chain = self.spare.pop()
        except IndexError:  # another thread has it
            chain = _Chain(self)
        chain.point(operands, factors, product, rows)
        chain.run(steps)
        self.spare.append(chain)


class _Chain:
    """One thread's table of a step."""

    def __init__(self, steps: Steps) -> None:
        self.block = block = Table(steps.kernel)
        self.positions, self.factors = np.zeros(3, POINTER), np.zeros(3, POINTER)
        self.moves = np.zeros(3, POINTER)
        self.extents, self.strides = np.zeros(4, POINTER), np.zeros(9, POINTER)
        self.names = np.zeros(len(block.bases), POINTER)
        self.block_moves = np.zeros(len(block.slots), POINTER)
        self.rows = repeated(block.row, steps.kernel.rows.number)
        self.kept: list[Any] = [steps]
        kept, zeros = self.kept, np.zeros(3, POINTER)
        loop, data = steps.loop
        extents, strides = address(self.extents), address(self.strides)
        multiply = adding(self.positions, zeros, self.factors, kept)  # matmul's loop moves them
        multiply += [loop, address(self.factors), extents, strides, data]
        walk_rows = [TABLE, address(self.rows), 0, 0, 0]
        words = multiply + walk_rows if steps.product_first else walk_rows + multiply
        words += adding(self.positions, self.moves, self.positions, kept)
        words += adding(block.arguments, self.block_moves, block.arguments, kept)
        self.step = np.array(words, POINTER)
        self.row_count = (len(multiply) if steps.product_first else 0) + 2
        self.many = repeated(self.step, 1)

    def point(
        self,
        operands: Sequence[Operand],
        factors: Sequence[Operand],
        product: Product,
        rows: int,
    ) -> None:
        """Let the first step read and write there."""
        block = self.block
        pointers, moves = zip(*operands, strict=True)
        block.point(pointers)
        self.names[: block.given] = moves
        self.names.take(block.slots, out=self.block_moves, mode="wrap")
        self.block_moves -= block.increments * rows
        self.positions[:], self.moves[:] = zip(*factors, strict=True)
        self.extents[:], self.strides[:] = product.arguments()
        self.step[self.row_count] = rows

    def run(self, steps: int) -> None:
        if len(self.many) < steps * WORDS:
            self.many = repeated(self.step, steps)
        walk(self.many, steps)
