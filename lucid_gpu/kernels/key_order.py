"""Row numbers in order, equal ones in the order in which they stand: CUDA C."""

from __future__ import annotations

from itertools import product
from math import isqrt
from typing import Any

import numpy as np

from lucid_gpu import dtypes as dt
from lucid_gpu.device import device
from lucid_gpu.devices import backend, device_of
from lucid_gpu.devices.copies import row_major
from lucid_gpu.kernels.dispatch import by_device
from lucid_gpu.kernels.rows import WARP
from lucid_gpu.launch import Kernel
from lucid_gpu.launch.launchers import launcher_of

__all__ = ["INSTANCES", "in_order", "places_in_order"]

THREADS = 256  # one for each digit
FEW = 2048  # keys that are put in order by counting, in one launch, on any GPU
COMPARED = 1 << 19  # pairs a multiprocessor compares in the time of about two launches
TILE = 4 * THREADS  # keys that a block takes in turn
BLOCKS = 256  # each reads the counts of all
LARGEST = 2**31 - 1  # up to which keys and their places have 32 bits

_SIZES = "long long rows, long long skip"
_few = Kernel(
    "key_order.cu", "key_order_few",
    f"const K* keys, S* sorted, int count, {_SIZES}", template="K, S", threads=THREADS,
)  # fmt: skip
_counts = Kernel(
    "key_order.cu", "key_order_counts",
    f"const K* keys, int* counts, long long count, long long run, {_SIZES}, int shift",
    template="K, S, FIRST", threads=THREADS,
)  # fmt: skip
_move = Kernel(
    "key_order.cu", "key_order_move",
    "const K* keys, const int* counts, S* sorted, long long count, long long run, "
    f"{_SIZES}, int shift",
    template="K, S, FIRST", threads=THREADS,
)  # fmt: skip


def in_order(keys: Any, rows: int, skip: int, where: device) -> Any:
    """The keys sorted, and where each was; equal keys keep their order.

    `few` keys are put in order by counting, more of them by a radix sort of the bits that ``rows``
    has, two launches for 8 bits.

    Parameters
    ----------
    keys : array of int32 or int64, shape (n,), row-major, of at least one
    rows : int
    skip : int
        This key, and all outside ``[0, rows)``, count as ``rows``.
    where : device

    Returns
    -------
    array of int32 (int64 where that is too small), shape (2, n)
    """
    count, empty = keys.size, backend(where).empty
    kind = dt.int32 if max(rows, count) <= LARGEST else dt.int64
    source = dt.from_numpy_dtype(keys.dtype)
    if count <= few(where):
        result = empty((2, count), kind, where)
        _few(-(-count // WARP), (keys, result, count, rows, skip), K=source, S=kind)
        return result
    run = -(-count // (BLOCKS * TILE)) * TILE
    blocks = -(-count // run)
    counts = empty((blocks, THREADS), dt.int32, where)
    moved = count * kind.itemsize
    for shift in range(0, rows.bit_length(), 8):
        way: dict[str, Any] = {"K": source, "S": kind, "FIRST": shift == 0}
        result = empty((2, count), kind, where)
        sizes = (count, run, rows, skip, shift)
        _counts(blocks, (keys, counts, *sizes), reads=count * source.itemsize, **way)
        _move(blocks, (keys, counts, result, *sizes), writes=2 * moved, **way)
        keys, source = result, kind
    return keys


def few(where: device) -> int:
    """How many keys are put in order by comparing all with all: 8319 on 132 multiprocessors."""
    return max(FEW, isqrt(launcher_of(where).processors * COMPARED))


@by_device
def places_in_order(keys: Any, rows: int) -> tuple[Any, Any]:
    """Integers of ``[0, rows)``, shape (n,), sorted, and where each was; equal ones in order."""
    where = device_of(keys)
    if not keys.size:
        return keys, keys
    ordered, places = in_order(row_major(keys), rows, -1, where)
    return ordered, places


@places_in_order.on_host
def _places_in_order(keys: Any, rows: int) -> tuple[Any, Any]:
    order = np.argsort(keys, kind="stable")
    return keys[order], order


def _instances() -> list[tuple[Kernel, dict[str, Any]]]:
    """Every kernel with every type."""
    instances: list[tuple[Kernel, dict[str, Any]]] = []
    for k, s in product((dt.int32, dt.int64), repeat=2):
        firsts = (True, False) if k is s else (True,)
        instances.append((_few, {"K": k, "S": s}))
        for kernel in (_counts, _move):
            instances += [(kernel, {"K": k, "S": s, "FIRST": first}) for first in firsts]
    return instances


INSTANCES = _instances()
STACK = {"key_order_few": 0, "key_order_counts": 0, "key_order_move": 0}  # nothing spills
