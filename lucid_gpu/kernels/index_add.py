"""Adding rows to rows by number, deterministically: CUDA C and the NumPy twin."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np

from lucid_gpu import dtypes as dt
from lucid_gpu.device import device
from lucid_gpu.devices import backend
from lucid_gpu.devices.copies import row_major, unspread
from lucid_gpu.devices.loops import address, available
from lucid_gpu.devices.recording import Recording
from lucid_gpu.devices.threads import run_quietly
from lucid_gpu.dtypes import dtype
from lucid_gpu.kernels import key_order
from lucid_gpu.kernels.dispatch import by_device
from lucid_gpu.kernels.vector_width import BYTES, vector_width
from lucid_gpu.launch import Kernel

__all__ = ["INSTANCES", "add_at", "flat_places", "index_add", "rows_of"]

THREADS = 256
LARGEST_GRID = 65535  # of y and z
WIDE = 8  # columns from which on a call a row is cheaper than a place an element
LEAST = 1024  # elements: with fewer a table is not worth it
BLOCK = 1 << 16  # elements whose places NumPy has in cache at a time

_SIZES = "long long count, int length, long long rows, long long columns, long long outer"
_pieces = Kernel(
    "index_add.cu", "index_add_pieces",
    f"const T* values, const K* sorted, T* out, A* edges, {_SIZES}",
    template="T, A, K, WIDTH, ADD", threads=THREADS,
)  # fmt: skip
_edges = Kernel(
    "index_add.cu", "index_add_edges",
    f"const A* edges, const K* sorted, T* out, {_SIZES}",
    template="T, A, K, ADD", threads=THREADS,
)  # fmt: skip


@by_device
def index_add(
    out: Any, keys: Any, values: Any, where: device, add: bool = True, skip: int = -1
) -> None:
    """``out[:, keys[i]] += values[:, i]`` for every ``i``, in place.

    The additions to a row are made in an order that depends on keys and shapes only: the same
    input gives the same bits. 16-bit floats are added in float32 and rounded once.

    Parameters
    ----------
    out : array of shape (outer, rows, columns), row-major
    keys : array of int32 or int64, shape (n,)
        Those outside ``[0, rows)`` are left out.
    values : array of out's type, shape (outer, n, columns)
    where : device
    add : bool
        False where ``out`` is known to hold zeros, which then need not be read.
    skip : int
        A row that gets nothing.
    """
    if not (out.size and values.size):
        return
    d = dt.from_numpy_dtype(out.dtype)
    if d.is_complex:  # two columns of real numbers
        d = dt.float32 if d is dt.complex64 else dt.float64
        out, values = (row_major(a).view(d.numpy) for a in (out, values))
    _launch(out, row_major(keys), row_major(values), d, where, add, skip)


def add_at(array: Any, index: tuple[Any, ...], values: Any, where: device) -> None:
    """``array[index] += values``, repeated positions adding up, in place.

    Parameters
    ----------
    array : row-major array that holds zeros
    index : tuple
        As NumPy takes it, in bounds; perhaps with an Ellipsis.
    values : array of array's type and of the shape ``array[index]`` has
    where : device
    """
    outer, rows, columns, keys = rows_of(index, array.shape, backend(where).xp)
    rows_of_values = values.reshape(outer, keys.size, columns)
    index_add(array.reshape(outer, rows, columns), keys, rows_of_values, where, False)


def rows_of(index: tuple[Any, ...], shape: tuple[int, ...], xp: Any) -> tuple[int, int, int, Any]:
    """An index as row numbers, the array seen as (outer, rows, columns).

    Whole dimensions before and after a run of index arrays stay whole; of any other index, and of
    masks, each element is a row.
    """
    parts = list(index)
    for at, part in enumerate(parts):
        if part is Ellipsis:
            missing = len(shape) - sum(_dimensions(p) for p in parts if p is not Ellipsis)
            parts[at : at + 1] = [slice(None)] * missing
            break
    places, plain = [], True
    for i, part in enumerate(parts):
        if isinstance(part, slice):
            plain = plain and part == slice(None)
        else:
            plain = plain and _is_number(part)
            places.append(i)
    first, last = places[0], places[-1] + 1
    if not plain or last - first != len(places):
        every = xp.arange(prod(shape)).reshape(shape)[index]
        return 1, prod(shape), 1, every.reshape(-1)
    keys = flat_places(parts[first:last], shape[first:last], xp)
    return prod(shape[:first]), prod(shape[first:last]), prod(shape[last:]), keys.reshape(-1)


_broadcast_shapes = functools.lru_cache(maxsize=1 << 10)(np.broadcast_shapes)


def flat_places(parts: Sequence[Any], shape: Sequence[int], xp: Any) -> Any:
    """Row-major numbers of the elements at index arrays, which broadcast; in bounds."""
    whole = _broadcast_shapes(*[getattr(part, "shape", ()) for part in parts])
    keys: Any = None
    step = 1
    for part, size in zip(parts[::-1], shape[::-1], strict=True):
        part = unspread(xp.asarray(part, "int64"))
        if xp is not np or (part.size and np.minimum.reduce(part, None) < 0):
            part = xp.where(part < 0, part + size, part)
        part = part * step if step > 1 else part
        keys = part if keys is None else keys + part
        step *= size
    return keys if keys.shape == whole else xp.broadcast_to(keys, whole)


def _dimensions(part: Any) -> int:
    if part is None or isinstance(part, bool):
        return 0
    return part.ndim if getattr(part, "dtype", None) == np.bool_ else 1


def _is_number(part: Any) -> bool:
    """Whether an index part is an integer or an array of them."""
    return type(part) is int or getattr(part, "dtype", np.bool_) != np.bool_


def _launch(
    out: Any, keys: Any, values: Any, d: dtype, where: device, add: bool, skip: int
) -> None:
    outer, rows, columns = out.shape
    in_order = key_order.in_order(keys, rows, skip, where)
    k = dt.from_numpy_dtype(in_order.dtype)
    width = vector_width(columns, where, values, out)
    packs = columns // width
    length = piece_length(keys.size, packs * outer)
    pieces = -(-keys.size // length)
    edges = backend(where).empty((outer, pieces, 2, columns), d.compute, where)
    sizes = (keys.size, length, rows, columns, outer)
    block = _block(packs, THREADS)
    deep = min(outer, LARGEST_GRID)
    touched = min(keys.size, rows) * outer * columns * d.itemsize
    _pieces(
        (-(-pieces // block[1]), min(-(-packs // block[0]), LARGEST_GRID), deep),
        (values, in_order, out, edges, *sizes),
        threads=block, writes=touched, T=d, A=d.compute, K=k, WIDTH=width, ADD=add,
    )  # fmt: skip
    if pieces > 1:
        block = _block(columns, 32)
        _edges(
            (pieces, min(-(-columns // block[0]), LARGEST_GRID), deep),
            (edges, in_order, out, *sizes),
            threads=block, reads=0, writes=0, T=d, A=d.compute, K=k, ADD=add,
        )  # fmt: skip


def _block(columns: int, most: int) -> tuple[int, int]:
    """Threads side by side, and slots of them."""
    x = min(1 << (columns - 1).bit_length(), most)
    return x, THREADS // x


def piece_length(count: int, packs: int) -> int:
    """How many sorted places one thread adds up: fewer where there are few threads."""
    return 16 if count * packs < 1 << 22 else 64


# --- on NumPy -------------------------------------------------------------------------------------


@index_add.on_meta
def _nothing_added(*_: Any, **__: Any) -> None:
    """Nothing is written."""


@index_add.on_host
def _index_add(
    out: Any, keys: Any, values: Any, where: device, add: bool = True, skip: int = -1
) -> None:
    if out.size and values.size:
        run_quietly(_add_blocks, out, keys, values, skip)


def _add_blocks(out: Any, keys: Any, values: Any, skip: int) -> None:
    outer, rows, columns = out.shape
    outside = keys.view(f"u{keys.itemsize}") >= rows  # negative ones, too
    if skip >= 0:
        outside |= keys == skip
    if np.logical_or.reduce(outside, None):
        keys, values = keys[~outside], values[:, ~outside]
    d = dt.from_numpy_dtype(out.dtype)
    total = out if d.compute is d else out.astype(d.compute.numpy)
    keys = keys.astype(np.int64, copy=False)
    tabled = columns >= WIDE and values.size > LEAST and available()
    add = _add_rows if tabled else _add_elements
    if outer > 1:  # rows of one long array
        keys = (np.arange(outer)[:, None] * rows + keys).reshape(-1)
    target, values = total.reshape(-1, columns), values.reshape(-1, columns)
    step = max(BLOCK // columns, 1)
    for start in range(0, keys.size, step):
        part = values[start : start + step].astype(total.dtype, copy=False)
        add(target, keys[start : start + step], np.ascontiguousarray(part))
    if total is not out:
        out[...] = total


def _add_elements(out: Any, keys: Any, values: Any) -> None:
    """By ``np.add.at`` on flat places, which for vectors is one compiled loop."""
    columns = out.shape[1]
    at = keys if columns == 1 else keys[:, None] * columns + np.arange(columns)
    np.add.at(out.reshape(-1), at.reshape(-1), values.reshape(-1))


def _add_rows(out: Any, keys: Any, values: Any) -> None:
    """Row after row, each by NumPy's compiled loop (`lucid_gpu.devices.recording`)."""
    addresses = np.empty((len(keys), 2), np.intp)
    addresses[:, 0] = address(out) + keys * out.strides[0]
    addresses[:, 1] = address(values) + np.arange(len(keys)) * values.strides[0]
    _row(out.shape[1], out.dtype).run_at(addresses)


@functools.lru_cache(maxsize=64)
def _row(columns: int, kind: Any) -> Recording:
    calls = Recording(kind)
    out, values = [calls.operand((columns,), (kind.itemsize,)) for _ in range(2)]
    calls(np.add, out, values, out)
    return calls


def _instances() -> list[tuple[Kernel, dict[str, Any]]]:
    """Every kernel with every type, and every way of float32."""
    instances: list[tuple[Kernel, dict[str, Any]]] = []
    for d in (dt.float32, dt.float64, dt.float16, dt.bfloat16, dt.int64):
        widest = BYTES // d.itemsize
        keys, flags = (
            ((dt.int32, dt.int64), (False, True)) if d is dt.float32 else ([dt.int32], [True])
        )
        for k, add in product(keys, flags):
            way: dict[str, Any] = {"T": d, "A": d.compute, "K": k, "ADD": add}
            instances += [(_edges, way), (_pieces, way | {"WIDTH": widest})]
    instances.append((_pieces, way | {"T": dt.float32, "A": dt.float32, "WIDTH": 1}))
    return instances


INSTANCES = _instances()
# Nothing spills, but for 16 bytes for sm_70, and 8 that CUDA 13.0 spills for sm_100.
STACK = {"index_add_pieces": 16, "index_add_edges": 0}
