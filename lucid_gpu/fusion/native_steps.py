"""A matrix product and a block of loops, step after step, without the interpreter between them.

NumPy's matmul is a ufunc too: its compiled loop takes the extents and strides of matrices where
others take a count. So a step of a recurrent layer is recorded as a product and the rows of a
block; the walk along a sequence is that recording, as often as there are steps.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from lucid_gpu.devices.blas import UNPACKED
from lucid_gpu.devices.recording import Recording
from lucid_gpu.fusion.native_loops import Kernel, Rows

__all__ = ["Product", "panels_of", "recorded"]

NARROWEST, WIDEST = 32, 64  # columns of a panel
VECTOR = 16  # columns that a processor takes at once


class Product(NamedTuple):
    """Of a matrix ``(m, k)`` and panels ``(panels, k, n / panels)``, as `panels_of` counts them.

    ``rows`` are the bytes from row to row of the first matrix and of the result; ``leaps`` those by
    which they move from step to step.
    """

    m: int
    k: int
    n: int
    panels: int
    rows: tuple[int, int]
    leaps: tuple[int, int]


def panels_of(m: int, k: int, n: int) -> int:
    """Into how many dense panels of columns a matrix ``(k, n)`` is cut to multiply ``m`` rows.

    Narrow products take half the time of a wide one for which OpenBLAS copies the matrix, at each
    step again, into the order that suits it. Rows of a panel follow one another: those of a matrix
    that is wide by a power of two would share few places of the cache.
    """
    most = range(1, n // NARROWEST + 1)
    counts = [p for p in most if n % p == 0 and m * k * (n // p) <= UNPACKED]
    best = [p for p in counts if n // p <= WIDEST and n // p % VECTOR == 0]
    return (best or counts or [1])[0]


@lru_cache(512)
def recorded(
    kernel: Kernel,
    width: int,
    moves: tuple[tuple[int, int], ...],
    leaps: tuple[int, ...],
    product: Product,
    product_first: bool,
) -> Recording:
    """A step: the product once, and rows of the kernel's block as often as the run says.

    Parameters
    ----------
    kernel : Kernel
        Gives the block.
    width : int
        Elements of a row.
    moves : tuple of (int, int)
        For each of the block's inputs the bytes from row to row and from element to element.
    leaps : tuple of int
        The bytes by which they move from step to step.
    product : Product
    product_first : bool

    Returns
    -------
    Recording
        Its runs take the addresses of the block's inputs, of the product's first matrix, its
        panels, and its result.
    """
    block = kernel.block
    d = block.types[block.inputs[0]]
    recording = Recording(d)
    rows = Rows(product.m, width, dict(zip(block.inputs, moves, strict=True)))
    names = block.declare(recording, rows, leaps)
    m, k, n, panels, (down, down_out), (leap, leap_out) = product
    item, part = d.itemsize, n // panels
    a = recording.operand((m, k), (down, item), 0, leap)
    b = recording.operand((panels, k, part), (k * part * item, part * item, item))
    out = recording.operand((m, n), (down_out, item), 0, leap_out)

    def multiply() -> None:
        for i in range(panels):
            recording.matmul(a, b[i], out[:, i * part : (i + 1) * part], once=True)

    if product_first:
        multiply()
    block.record(recording, names, width)
    if not product_first:
        multiply()
    return recording
