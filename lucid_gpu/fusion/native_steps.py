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

from lucid_gpu.devices.loops import POINTER, address, loop_of, walker
from lucid_gpu.fusion.native_loops import WORDS, Kernel, Rows, Table, adding, repeated

__all__ = ["Operand", "Product", "Steps"]

UNPACKED = 1_000_000  # multiplications up to which OpenBLAS reads both matrices where they lie
NARROWEST = 32  # columns of a product


class Operand(NamedTuple):
    """Where a matrix lies in the first step, and how many bytes it moves with each step."""

    pointer: int
    move: int


class Product(NamedTuple):
    """Of a matrix ``(m, k)`` and a matrix ``(k, n)``, with the bytes from row to row.

    Several narrow products take half the time of a wide one for which OpenBLAS copies the second
    matrix, at each step again, into the order that suits it.
    """

    m: int
    k: int
    n: int
    rows: tuple[int, int, int]
    item: int

    def arguments(self) -> tuple[list[int], list[int]]:
        """Extents and strides as matmul's loop takes them."""
        parts, (a, b, out), item = self.parts(), self.rows, self.item
        n = self.n // parts
        return [parts, self.m, self.k, n], [0, n * item, n * item, a, item, b, item, out, item]

    def parts(self) -> int:
        """Into how many products of equally many columns it is cut."""
        least = -(-self.m * self.k * self.n // UNPACKED)
        most = self.n // NARROWEST
        return next((p for p in range(least, most + 1) if not self.n % p), 1)


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
        self.call, self.walk = walker()
        self.positions, self.factors = np.zeros(3, POINTER), np.zeros(3, POINTER)
        self.moves = np.zeros(3, POINTER)
        self.extents, self.strides = np.zeros(4, POINTER), np.zeros(9, POINTER)
        self.names = np.zeros(len(block.bases), POINTER)
        self.block_moves = np.zeros(len(block.slots), POINTER)
        self.rows = repeated(self.walk, block.row, steps.kernel.rows.number)
        self.kept: list[Any] = [steps]
        kept, zeros = self.kept, np.zeros(3, POINTER)
        loop, data = steps.loop
        extents, strides = address(self.extents), address(self.strides)
        multiply = adding(self.positions, zeros, self.factors, kept)  # matmul's loop moves them
        multiply += [loop, address(self.factors), extents, strides, data]
        walk_rows = [self.walk, address(self.rows), 0, 0, 0]
        words = multiply + walk_rows if steps.product_first else walk_rows + multiply
        words += adding(self.positions, self.moves, self.positions, kept)
        words += adding(block.arguments, self.block_moves, block.arguments, kept)
        self.step = np.array(words, POINTER)
        self.row_count = (len(multiply) if steps.product_first else 0) + 2
        self.many = repeated(self.walk, self.step, 1)

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
            self.many = repeated(self.walk, self.step, steps)
        self.call(address(self.many), steps)
