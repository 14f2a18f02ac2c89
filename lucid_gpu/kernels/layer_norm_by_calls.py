"""Rows of float32 normalised by recorded calls: some rows at a time, which stay in the L1 cache.

The formulas are those of `lucid_gpu.kernels.layer_norm_on_host`; a call of NumPy on a row costs a
few nanoseconds here and half a microsecond there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from lucid_gpu.devices.blas import UNSHARED
from lucid_gpu.devices.loops import address
from lucid_gpu.devices.pool import pool
from lucid_gpu.devices.recording import Recording
from lucid_gpu.kernels.layer_norm import Statistics, Wanted
from lucid_gpu.kernels.row_blocks import each

__all__ = ["applies", "gradients", "normalised"]

FEWEST = 1 << 13  # elements
WIDEST = 2048  # columns; where rows are longer rounding counts
ROWS = 16  # computed together
CHUNK = (
    256 * 1024
)  # elements that a thread takes in turn: two threads cost more than they gain below


def applies(*arrays: Any) -> bool:
    """Whether rows, shape (rows, columns), are of the kind computed here."""
    x = arrays[0]
    return (
        x.size >= FEWEST
        and x.shape[1] <= WIDEST
        and all(a.dtype == np.float32 and a.flags.c_contiguous for a in arrays)
    )


def normalised(x: Any, weight: Any, bias: Any, eps: float, rms: bool) -> tuple[Any, Statistics]:
    """As `lucid_gpu.kernels.layer_norm_on_host.normalised`."""
    rows = len(x)
    y = pool.empty(x.shape, x.dtype)
    mean, rstd = (np.empty((rows, 1), np.float32) for _ in range(2))
    given = weight is not None, bias is not None

    def record(count: int) -> Recording:
        return _normalised(count, x.shape[1], eps, rms, given)

    _each_of_rows(record, x.shape, [x, y, mean, rstd], [weight, bias], 0)
    return y, Statistics(None if rms else mean, rstd)


def gradients(
    x: Any, g: Any, weight: Any, known: Statistics, wanted: Wanted, earlier: Any = None
) -> tuple[Any, Any, Any]:
    """As `lucid_gpu.kernels.layer_norm_on_host.gradients`."""
    rms = known.mean is None
    dx = pool.empty(x.shape, x.dtype) if wanted.x else x
    mean = known.rstd if rms else known.mean
    given = weight is not None, earlier is not None

    def record(count: int) -> Recording:
        return _gradients(count, x.shape[1], rms, given, wanted)

    rowwise = [x, g, dx, mean, known.rstd, x if earlier is None else earlier]
    sums = _each_of_rows(record, x.shape, rowwise, [weight], 2)
    found = sums[0] if len(sums) == 1 else [sum(p[1:], p[0]) for p in zip(*sums)]
    dweight, dbias = (one if wish else None for one, wish in zip(found, wanted[1:]))
    return dx if wanted.x else None, dweight, dbias


def _each_of_rows(
    record: Callable[[int], Recording],
    shape: tuple[int, int],
    rowwise: list[Any],
    along: list[Any],
    sums: int,
) -> list[list[Any]]:
    """Run a record over all rows; chunk by chunk what it added up, in so many vectors.

    ``along`` are vectors of a row's length, spread over the rows computed together.
    """
    rows, columns = shape
    chunk = max(CHUNK // columns // ROWS, 1) * ROWS
    spread = [None if a is None else _spread(a) for a in along]
    fixed = [0 if a is None else address(a) for a in spread]
    places = [(address(a), a.strides[0]) for a in rowwise]

    def work(first: int) -> list[Any]:
        added = [np.zeros(columns, np.float32) for _ in range(sums)]
        count = min(chunk, rows - first)
        whole = count // ROWS * ROWS
        for start, many, repeats in ((0, ROWS, whole // ROWS), (whole, count - whole, 1)):
            if many and repeats:
                at = [place + (first + start) * step for place, step in places]
                record(many).run([*at, *fixed, *[address(a) for a in added]], repeats)
        return added

    if chunk >= rows and ROWS * columns <= UNSHARED:
        return [work(0)]  # BLAS gives no part of so little to another thread
    return each(range(0, rows, chunk), work)


def _spread(vector: Any) -> Any:
    """Of the rows that are computed together the same for each."""
    result = np.empty((ROWS, len(vector)), np.float32)
    result[:] = vector
    return result


def _operands(calls: Recording, rows: int, columns: int, widths: str) -> list[Any]:
    """Operands: ``w`` a whole row each, ``1`` one number a row, ``=`` the same for all rows."""
    shapes = {"w": (columns, columns), "1": (1, 1), "=": (columns, 0), "+": (columns, 0)}
    made = []
    for kind in widths:
        width, move = shapes[kind]
        shape = (1 if kind == "+" else rows, width)
        made.append(calls.operand(shape, (4 * width, 4), 4 * move * rows))
    return made


@functools.lru_cache(maxsize=64)
def _normalised(
    rows: int, columns: int, eps: float, rms: bool, given: tuple[bool, bool]
) -> Recording:
    calls = Recording()
    x, y, mean, rstd, weight, bias = _operands(calls, rows, columns, "ww11==")
    squares = calls.scratch(rows, columns)
    share = calls.constant(np.full((columns, 1), 1 / columns))
    centred = x
    if not rms:
        centred = y
        calls.matmul(x, share, mean)
        calls.rows(np.subtract, x, mean, centred)
    calls(np.multiply, centred, centred, squares)
    calls.matmul(squares, share, rstd)
    calls(np.add, rstd, calls.constant(eps), rstd)
    calls(np.sqrt, rstd, rstd)
    calls(np.divide, calls.constant(1), rstd, rstd)
    calls.rows(np.multiply, centred, rstd, y)
    if given[0]:
        calls(np.multiply, y, weight, y)
    if given[1]:
        calls(np.add, y, bias, y)
    return calls


@functools.lru_cache(maxsize=64)
def _gradients(
    rows: int, columns: int, rms: bool, given: tuple[bool, bool], wanted: Wanted
) -> Recording:
    calls = Recording()
    operands = _operands(calls, rows, columns, "www11w=++")
    x, g, dx, mean, rstd, earlier, weight, dweight, dbias = operands
    centred, h, t = (calls.scratch(rows, columns) for _ in range(3))
    along, middle = calls.scratch(rows, 1), calls.scratch(rows, 1)
    part = calls.scratch(1, columns)
    share = calls.constant(np.full((columns, 1), 1 / columns))
    if rms:
        centred = x
    else:
        calls.rows(np.subtract, x, mean, centred)
    if wanted.bias:
        calls.matmul(calls.constant(np.ones((1, rows))), g, part)
        calls(np.add, dbias, part, dbias)
    if wanted.weight:
        calls(np.multiply, g, centred, t)
        calls.matmul(rstd.T, t, part)
        calls(np.add, dweight, part, dweight)
    if wanted.x:
        if given[0]:
            calls(np.multiply, g, weight, h)
        else:
            h = g
        calls(np.multiply, h, centred, t)
        calls.matmul(t, share, along)
        calls(np.multiply, along, rstd, along)
        calls(np.multiply, along, rstd, along)
        calls.rows(np.multiply, centred, along, t)
        if not rms:
            calls.matmul(h, share, middle)
            calls.rows(np.add, t, middle, t)
        calls(np.subtract, h, t, t)
        calls.rows(np.multiply, t, rstd, t if given[1] else dx)
        if given[1]:
            calls(np.add, earlier, t, dx)
    return calls
