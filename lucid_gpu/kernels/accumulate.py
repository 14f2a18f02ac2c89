"""What a ufunc accumulates along rows, on the host: many rows side by side.

`numpy.ufunc.accumulate` waits for each result before it starts on the next. Here blocks of rows are
turned, so that a step of all of them is one call of a compiled loop
(`lucid_gpu.devices.recording`). The arithmetic and its order are the same, and so is every bit.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from lucid_gpu.devices import threads
from lucid_gpu.devices.blocks import each
from lucid_gpu.devices.loops import address, available, has_loop
from lucid_gpu.devices.recording import Recording

__all__ = ["accumulate"]

ROWS = 32  # side by side
BLOCK = 1 << 15  # bytes of a turned block, which stays in cache
FEWEST = 1 << 14  # elements: below it NumPy's own way is as good
MANY = 64  # columns from which on NumPy's own way adds slices


def accumulate(ufunc: np.ufunc, x: Any, dim: int, out: Any = None) -> Any:
    """``ufunc.accumulate(x, dim)`` for arrays of NumPy.

    Parameters
    ----------
    ufunc : numpy.ufunc
        Of two operands.
    x : array of at least one dimension, any strides
    dim : int, not negative
    out : array, optional
        Of x's shape and type, any strides.

    Returns
    -------
    array, of x's shape and type
    """
    if not _applies(ufunc, x, dim):
        return ufunc.accumulate(x, dim, x.dtype, out)
    moved = np.moveaxis(x, dim, -1)
    rows = np.ascontiguousarray(moved).reshape(-1, x.shape[dim])
    direct = out is not None and moved is rows and out.flags.c_contiguous
    y = out.reshape(rows.shape) if direct else np.empty_like(rows)
    share = ROWS * -(-len(rows) // (ROWS * threads.team.count))
    each(
        [slice(first, first + share) for first in range(0, len(rows), share)],
        lambda part: _of_rows(ufunc, rows[part], y[part]),
    )
    result = np.moveaxis(y.reshape(moved.shape), -1, dim)
    if out is None or direct:
        return result
    out[...] = result
    return out


def _applies(ufunc: np.ufunc, x: Any, dim: int) -> bool:
    kind = x.dtype.char
    return (
        x.size >= FEWEST
        and ROWS * x.shape[dim] <= x.size
        and abs(x.strides[dim]) < MANY * x.itemsize
        and (kind in "fd" or (kind == "l" and ufunc in (np.maximum, np.minimum)))
        and has_loop(ufunc, f"{kind}{kind}->{kind}")
        and available()
    )


def _of_rows(ufunc: np.ufunc, x: Any, y: Any) -> None:
    whole = len(x) // ROWS
    if whole:
        _recorded(ufunc, x.dtype.char, x.shape[1]).run([address(x), address(y)], whole)
    ufunc.accumulate(x[whole * ROWS :], 1, out=y[whole * ROWS :])


@functools.lru_cache(maxsize=32)
def _recorded(ufunc: np.ufunc, kind: str, columns: int) -> Recording:
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
