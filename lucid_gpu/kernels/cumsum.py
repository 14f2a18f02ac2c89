"""Running sums along a dimension, forwards or backwards: CUDA C and the NumPy twin."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from lucid_gpu import dtypes as dt
from lucid_gpu.device import device
from lucid_gpu.devices import backend
from lucid_gpu.devices.copies import row_major
from lucid_gpu.devices.pool import pool
from lucid_gpu.devices.threads import run_quietly
from lucid_gpu.dtypes import dtype
from lucid_gpu.kernels.accumulate import accumulate
from lucid_gpu.kernels.dispatch import by_device
from lucid_gpu.kernels.vector_width import BYTES, vector_width
from lucid_gpu.launch import Kernel

__all__ = ["INSTANCES", "cumsum"]

THREADS = 256
SHORT = 1024  # elements up to which a row is one warp's
BLOCKS = 1024  # that keep a large GPU busy; not read from the device: it decides rounding
LONGEST_ROW = 4096  # places that one block takes in turn where there are too few blocks
LONGEST_COLUMN = 256  # places that one thread takes in turn

_rows = Kernel(
    "cumsum.cu", "cumsum_rows",
    "const From* x, To* y, const A* before, long long rows, long long length, long long chunk",
    template="From, To, A, WIDTH, WARPS, REVERSE", threads=THREADS,
)  # fmt: skip
_row_totals = Kernel(
    "cumsum.cu", "cumsum_rows_totals",
    "const From* x, A* totals, long long length, long long chunk",
    template="From, A, WIDTH, REVERSE", threads=THREADS,
)  # fmt: skip
_columns = Kernel(
    "cumsum.cu", "cumsum_columns",
    "const From* x, To* y, const A* before, long long outer, long long length, long long inner, "
    "long long chunk",
    template="From, To, A, WIDTH, REVERSE, TOTALS", threads=THREADS,
)  # fmt: skip


@by_device
def cumsum(x: Any, dim: int, to: dtype, where: device, reverse: bool = False) -> Any:
    """Sums of all elements up to each (with ``reverse``: from each on) along a dimension.

    Parameters
    ----------
    x : array of at least one dimension, any strides
    dim : int, not negative
    to : dtype
        Of the result. 16-bit floats are added in float32, integers in int64. Complex numbers
        take an x of the same type.
    where : device
    reverse : bool

    Returns
    -------
    array, of x's shape
    """
    y = backend(where).new(x.shape, to.numpy)
    if not x.size:
        return y
    shape = prod(x.shape[:dim]), x.shape[dim], prod(x.shape[dim + 1 :])
    x, result = row_major(x), y
    if to.is_complex:  # two columns of real numbers
        to = dt.float32 if to is dt.complex64 else dt.float64
        x, y = x.reshape(-1).view(to.numpy), y.reshape(-1).view(to.numpy)
        shape = (*shape[:2], 2 * shape[2])
    (_scan_rows if shape[2] == 1 else _scan_columns)(x, y, shape, to, where, reverse)
    return result


@cumsum.on_meta
def _cumsum_shape(x: Any, dim: int, to: dtype, where: device, reverse: bool = False) -> Any:
    return backend(where).empty(x.shape, to, where)


@cumsum.on_host
def _cumsum(x: Any, dim: int, to: dtype, where: device, reverse: bool = False) -> Any:
    y = pool.empty(x.shape, to.numpy)
    if x.size:
        run_quietly(_accumulate, x, y, dim, to, reverse)
    return y


def _accumulate(x: Any, y: Any, dim: int, to: dtype, reverse: bool) -> None:
    wide = _wide(to)
    sums = y if wide is to else pool.empty(x.shape, wide.numpy)
    if x.dtype != sums.dtype:
        sums[...] = x
        x = sums
    order = (*[slice(None)] * dim, slice(None, None, -1 if reverse else 1))
    accumulate(np.add, x[order], dim, sums[order])
    if sums is not y:
        y[...] = sums


def _wide(to: dtype) -> dtype:
    """The type sums are kept in."""
    return dt.int64 if to.category < 2 else to.compute


def _scan_rows(
    x: Any, y: Any, shape: tuple[int, int, int], to: dtype, where: device, reverse: bool
) -> None:
    rows, length, _ = shape
    width = vector_width(length, where, x, y)
    chunk = _chunk(length, rows, LONGEST_ROW, THREADS * width)
    chunks = -(-length // chunk)
    types: dict[str, Any] = {"From": dt.from_numpy_dtype(x.dtype), "A": _wide(to)}
    before = None
    if chunks > 1:
        new, wide = backend(where).new, _wide(to).numpy
        totals, before = new((rows, chunks), wide), new((rows, chunks), wide)
        _row_totals(
            (rows, chunks), (x, totals, length, chunk), WIDTH=width, REVERSE=reverse, **types
        )
        _scan_rows(totals, before, (rows, chunks, 1), _wide(to), where, False)
    warps = 1 if length <= SHORT else THREADS // 32
    together = THREADS // 32 // warps
    _rows(
        (-(-rows // together), chunks), (x, y, before, rows, length, chunk),
        threads=(32 * warps, together),
        From=types["From"], To=to, A=types["A"], WIDTH=width, WARPS=warps, REVERSE=reverse,
    )  # fmt: skip


def _scan_columns(
    x: Any, y: Any, shape: tuple[int, int, int], to: dtype, where: device, reverse: bool
) -> None:
    outer, length, inner = shape
    width = vector_width(inner, where, x, y)
    blocks = -(-outer * inner // (width * THREADS))
    chunk = _chunk(length, blocks, LONGEST_COLUMN, 1)
    chunks = -(-length // chunk)
    types: dict[str, Any] = {"From": dt.from_numpy_dtype(x.dtype), "To": to, "A": _wide(to)}
    before = None
    if chunks > 1:
        new, size = backend(where).new, (outer, chunks, inner)
        totals, before = [new(size, _wide(to).numpy) for _ in "12"]
        _columns(
            (blocks, chunks), (x, totals, None, *shape, chunk),
            From=types["From"], To=types["A"], A=types["A"],
            WIDTH=width, REVERSE=reverse, TOTALS=True,
        )  # fmt: skip
        _scan_columns(totals, before, (outer, chunks, inner), types["A"], where, False)
    _columns(
        (blocks, chunks), (x, y, before, *shape, chunk),
        **types, WIDTH=width, REVERSE=reverse, TOTALS=False,
    )  # fmt: skip


def _chunk(length: int, blocks: int, shortest: int, multiple: int) -> int:
    """How many places are summed in turn, so that there are enough blocks."""
    chunks = min(BLOCKS // blocks, length // shortest)
    if chunks <= 1:
        return length
    return -(-length // (chunks * multiple)) * multiple


def _instances() -> list[tuple[Kernel, dict[str, Any]]]:
    """Every kernel with every type, both ways of float32."""
    instances: list[tuple[Kernel, dict[str, Any]]] = []
    pairs = [(d, d) for d in (dt.float32, dt.float64, dt.float16, dt.bfloat16, dt.int64)]
    for d, to in [*pairs, (dt.bool, dt.int64)]:
        widest = BYTES // to.itemsize
        ways = [(1, False), (widest, True)] if d is dt.float32 else [(widest, True)]
        for width, reverse in ways:
            way: dict[str, Any] = {"From": d, "A": _wide(to), "WIDTH": width, "REVERSE": reverse}
            instances += [(_rows, way | {"To": to, "WARPS": warps}) for warps in (1, THREADS // 32)]
            instances.append((_row_totals, way))
            instances.append((_columns, way | {"To": to, "TOTALS": False}))
            instances.append((_columns, way | {"To": _wide(to), "TOTALS": True}))
    return instances


INSTANCES = _instances()
STACK = {"cumsum_rows": 0, "cumsum_rows_totals": 0, "cumsum_columns": 0}  # nothing spills
