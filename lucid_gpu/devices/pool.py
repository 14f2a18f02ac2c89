"""A buffer pool for host memory.

Touching fresh pages of a large array costs more than the arithmetic on it (`bench/README.md`), so
buffers from `SMALLEST` bytes up are kept in size classes and handed out again.
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
import sys
import threading
import weakref
from collections.abc import Sequence
from pickle import PickleBuffer
from typing import Any, cast

import numpy as np

SMALLEST = 100 * 1024
_ALIGNMENT = 64


@functools.lru_cache(maxsize=1024)
def _size_class(nbytes: int) -> int:
    """Round up to an eighth of a power of two: at most 12.5 % is wasted."""
    step = max(1 << max(nbytes.bit_length() - 4, 0), 4096)
    return -(-nbytes // step) * step


def aligned(nbytes: int) -> Any:
    """Fresh bytes that start at a cache line: vector loads that straddle two take twice as long."""
    raw = np.empty(nbytes + _ALIGNMENT, np.uint8)
    offset = -raw.__array_interface__["data"][0] % _ALIGNMENT
    return raw[offset : offset + nbytes]


def wrapped(memory: Any, shape: Sequence[int], kind: np.dtype[Any]) -> Any:
    """Bytes as an array that NumPy takes for the first on its memory, as `Pool` hands out."""
    return np.ndarray(shape, kind, cast(Any, PickleBuffer(memory)))


def overflow(shape: Sequence[int], nbytes: int) -> Exception:
    """What to raise for a shape whose bytes, or strides, do not fit 64 bits."""
    if not nbytes and math.prod([n or 1 for n in shape[1:]]) > sys.maxsize:
        return RuntimeError("Stride calculation overflowed")
    return RuntimeError(f"Storage size calculation overflowed with sizes={list(shape)}")


class Pool:
    """Recycles host buffers.

    NumPy's views hold the first array of a memory that is itself no array. So the buffer is wrapped
    (in the standard library's thinnest wrapper), and when its one array dies, nobody sees the
    memory any more: the buffer is free.

    Parameters
    ----------
    limit : int
        Bytes kept while unused; beyond it the buffers unused for longest are given back.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.free: dict[int, list[PickleBuffer]] = {}
        self.held: dict[int, _Held] = {}  # by id
        self.free_bytes = 0
        self._lock = threading.RLock()  # a release may interrupt an allocation

    @property
    def used_bytes(self) -> int:
        """In buffers whose arrays live."""
        return sum([reference.size for reference in list(self.held.values())])

    def empty(self, shape: Sequence[int], storage: np.dtype[Any]) -> Any:
        """An uninitialized row-major array.

        Raises
        ------
        MemoryError
            If the memory is not to be had; buffers kept for reuse are given back first.
        RuntimeError
            If bytes or strides do not fit 64 bits.
        """
        nbytes = storage.itemsize
        for extent in shape:
            nbytes *= extent
        if nbytes < SMALLEST:
            try:
                return np.empty(shape, storage)
            except ValueError:  # NumPy counts the bytes without the extents of 0
                raise overflow(shape, nbytes) from None
        if nbytes > sys.maxsize:
            raise overflow(shape, nbytes)
        size = _size_class(nbytes)
        with self._lock:
            spare = self.free.get(size)
            if spare:
                buffer = spare.pop()
                self.free_bytes -= size
            else:
                buffer = self._fresh(size, shape, storage)
        array: Any = np.ndarray(shape, storage, cast(Any, buffer))
        reference = _Held(array, self._release)
        reference.buffer, reference.size = buffer, size
        self.held[id(reference)] = reference
        return array

    def empty_cache(self) -> None:
        """Give every unused buffer back to the system."""
        with self._lock:
            self.free.clear()
            self.free_bytes = 0

    def _fresh(self, size: int, shape: Sequence[int], storage: np.dtype[Any]) -> PickleBuffer:
        try:
            return PickleBuffer(aligned(size))
        except MemoryError:
            self.empty_cache()
            try:
                return PickleBuffer(aligned(size))
            except MemoryError:
                raise MemoryError(
                    f"out of memory: cannot allocate {size / 2**30:.2f} GiB for a tensor of shape "
                    f"{tuple(shape)} and type {storage.name}; "
                    f"{self.used_bytes / 2**30:.2f} GiB are in use by tensors"
                ) from None

    def _release(self, reference: _Held) -> None:
        if self.held.pop(id(reference), None) is None:
            return
        size = reference.size
        with self._lock:
            spare = self.free.get(size)
            if spare is None:
                spare = self.free[size] = []
            spare.append(reference.buffer)
            self.free_bytes += size
            while self.free_bytes > self.limit:
                oldest = next(iter(self.free))
                buffers = self.free[oldest]
                if not buffers:
                    del self.free[oldest]
                    continue
                buffers.pop(0)
                self.free_bytes -= oldest


class _Held(weakref.ref[Any]):
    """A weak reference to an array, with the buffer it lies in."""

    __slots__ = ("buffer", "size")
    buffer: PickleBuffer
    size: int


def _default_limit() -> int:
    """A quarter of the machine's memory, or LUCID_POOL_BYTES."""
    wish = os.environ.get("LUCID_POOL_BYTES")
    if wish:
        if not wish.isdigit():
            raise ValueError(f"LUCID_POOL_BYTES is a number of bytes; got {wish!r}")
        return int(wish)
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4
    except (ValueError, OSError, AttributeError):
        return 1 << 30


def keep_freed_memory(most: int) -> bool:
    """Let the C library keep what is freed, up to ``most`` bytes at the end of its heap.

    glibc gives memory back to the system as soon as a little of it lies free, and the next step of
    a training loop touches fresh pages again. These are the largest thresholds it would set itself
    (mallopt(3)), but for the end of the heap. What the environment sets stays.
    """
    if not most or any(name in os.environ for name in _MALLOC):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, 32 << 20) and mallopt(_M_TRIM_THRESHOLD, most))


_MALLOC = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h
_END_OF_HEAP = 256 << 20

pool = Pool(_default_limit())
keep_freed_memory(min(pool.limit, _END_OF_HEAP))
