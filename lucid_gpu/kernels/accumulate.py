"""What a ufunc accumulates along a dimension, on the host: many sums side by side.

`numpy.ufunc.accumulate` waits for each result before it starts on the next. Here a step of many
rows or columns is one call of a compiled loop (`lucid_gpu.devices.recording`): columns lie side by
side already, and blocks of rows are turned. The arithmetic and its order are the same, and so is
every bit.
"""

from __future__ import annotations

import functools
from itertools import product
from math import prod
from typing import Any

import numpy as np

from lucid_gpu.devices import threads
from lucid_gpu.devices.blocks import each, slices
from lucid_gpu.devices.loops import address, available, has_loop
from lucid_gpu.devices.pool import pool
from lucid_gpu.devices.recording import Recording

__all__ = ["accumulate"]

ROWS = 32  # side by side
BLOCK = 1 << 15  # bytes of a turned block, which stays in cache
FEWEST = 1 << 14  # elements: below it NumPy's own way is as good
WIDE = 8  # columns from which on they need not be turned
CALL, CALLS = 64, 256  # the same for calls from Python: side by side, and in all
STEPS = 1 << 9  # of columns, in a recording
COLUMNS = 1 << 12  # that a thread takes at a time
PART = 1 << 16  # elements a thread takes at least


def accumulate(ufunc: np.ufunc, x: Any, dim: int, out: Any = None) -> Any:
    """``ufunc.accumulate(x, dim)`` for arrays of NumPy.

    Parameters
    ----------
    ufunc : numpy.ufunc
        Of two operands.
    x : array of at least one dimension, any strides
    dim : int, not negative
    out : array, optional
        Of x's shape and type, any strides; it may be x.

    Returns
    -------
    array, of x's shape and type
    """
    kind, length = x.dtype.char, x.shape[dim]
    if x.size < FEWEST or not has_loop(ufunc, f"{kind}{kind}->{kind}"):
        return ufunc.accumulate(x, dim, x.dtype, out)
    if _are_wide(prod(x.shape[dim + 1 :]), x.size // length):
        return _along(_of_columns, ufunc, x, dim, out)
    if available() and ROWS * length <= x.size and _waits(ufunc, kind):
        return _along(_of_rows, ufunc, x, dim, out)
    return ufunc.accumulate(x, dim, x.dtype, out)


def _are_wide(inner: int, columns: int) -> bool:
    """Whether a step of the columns that lie side by side is worth a call."""
    if available():
        return inner >= WIDE
    return inner >= CALL and columns >= CALLS


def _waits(ufunc: np.ufunc, kind: str) -> bool:
    """Whether NumPy takes longer for a result than for fetching the next element."""
    return kind in "fd" or (kind == "l" and ufunc in (np.maximum, np.minimum))


def _along(way: Any, ufunc: np.ufunc, x: Any, dim: int, out: Any) -> Any:
    """Call ``way`` on arrays of shape (outer, length, inner)."""
    shape = prod(x.shape[:dim]), x.shape[dim], prod(x.shape[dim + 1 :])
    result = pool.empty(x.shape, x.dtype) if out is None else out
    y = result.reshape(shape)
    direct = np.may_share_memory(y, result)  # else it is a copy
    way(ufunc, x.reshape(shape), y)
    if not direct:
        result[...] = y.reshape(x.shape)
    return result


def _of_columns(ufunc: np.ufunc, x: Any, y: Any) -> None:
    outer, length, inner = x.shape
    share, wide = max(-(-outer // threads.team.count), PART // (length * inner)), COLUMNS
    if not available():  # many columns are one call, and threads would wait for each other
        share, wide = outer, inner

    def work(part: tuple[slice, slice]) -> None:
        groups, columns = part
        here, there = x[groups, :, columns], y[groups, :, columns]
        there[:, 0] = here[:, 0]
        for first in range(1, length, STEPS):
            steps = min(STEPS, length - first)
            calls = _columns_recorded(
                ufunc, x.dtype.char, steps, here.shape[2], here.strides, there.strides
            )
            calls.run([address(here[:, first:]), address(there[:, first - 1 :])], len(here))

    each([*product(slices(outer, share), slices(inner, wide))], work)


@functools.lru_cache(maxsize=64)
def _columns_recorded(
    ufunc: np.ufunc,
    kind: str,
    steps: int,
    columns: int,
    of_x: tuple[int, ...],
    of_y: tuple[int, ...],
) -> Recording:
    """``y[i + 1] = ufunc(y[i], x[i])``; arguments are numbers of rows, and strides."""
    calls = Recording(kind)
    x = calls.operand((steps, columns), of_x[1:], of_x[0])
    y = calls.operand((steps + 1, columns), of_y[1:], of_y[0])
    calls.rows(ufunc, y[:-1], x, y[1:])
    return calls


def _of_rows(ufunc: np.ufunc, x: Any, y: Any) -> None:
    _, length, inner = x.shape
    turned = np.ascontiguousarray(x.swapaxes(1, 2))
    rows = turned.reshape(-1, length)
    direct = inner == 1 and y.flags.c_contiguous
    result = y.reshape(rows.shape) if direct else np.empty_like(rows)
    share = ROWS * -(-len(rows) // (ROWS * threads.team.count))

    def work(part: slice) -> None:
        some, into = rows[part], result[part]
        whole = len(some) // ROWS
        if whole:
            calls = _rows_recorded(ufunc, x.dtype.char, length)
            calls.run([address(some), address(into)], whole)
        ufunc.accumulate(some[whole * ROWS :], 1, out=into[whole * ROWS :])

    each(slices(len(rows), share), work)
    if not direct:
        y[...] = result.reshape(turned.shape).swapaxes(1, 2)


@functools.lru_cache(maxsize=32)
def _rows_recorded(ufunc: np.ufunc, kind: str, columns: int) -> Recording:
    calls = Recording(kind)
    size = calls.kind.itemsize
    shape, strides = (ROWS, columns), (columns * size, size)
    x, y = [calls.operand(shape, strides, ROWS * columns * size) for _ in "xy"]
    if _spread(columns * size):
        calls.rows(np.positive, x.T[:1], y.T[:1])
        calls.rows(ufunc, y.T[:-1], x.T[1:], y.T[1:])
        return calls
    step = BLOCK // (ROWS * size)
    turned = calls.scratch(step + 1, ROWS)  # its first line is the last of the block before
    for first in range(0, columns, step):
        count = min(step, columns - first)
        block, here = turned[1 : count + 1], slice(first, first + count)
        _copy(calls, x[:, here], block.T)
        if first:
            calls.rows(ufunc, turned[:count], block, block)
        else:
            calls.rows(ufunc, block[:-1], block[1:], block[1:])
        calls(np.positive, block[-1], turned[0])
        _copy(calls, block.T, y[:, here])
    return calls


def _spread(stride: int) -> bool:
    """Whether rows that far apart lie in different lines of a cache of 4 KiB a way."""
    return len({row * stride % 4096 // 64 for row in range(ROWS)}) > ROWS // 2


def _copy(calls: Recording, a: Any, b: Any) -> None:
    """Along the longer side."""
    longer = a.shape[1] >= a.shape[0]
    calls.rows(np.positive, *((a, b) if longer else (a.T, b.T)))
