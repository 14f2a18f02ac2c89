"""cupy.cuda.memory: host memory that plays device memory.

Fresh memory is poisoned, so that what a kernel did not write shows as NaN or as large numbers.
Freed memory is poisoned again. Behind what was asked for, up to the end of its 512 bytes and 64
more, and for 64 bytes before it, lies a pattern; where it is not whole any more when the memory is
freed, or when `_check_all` looks, a kernel wrote out of bounds: `_faults` says so.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

import numpy

from cupy import _counts
from cupy.cuda import memory_hook, runtime, stream
from cupy.cuda.device import Device

_GUARD = 64
_ROUND = 512
_POISON = 0xFF
_PATTERN = b"\xa5" * (_ROUND + _GUARD)
_LIMIT_KEPT = 64 << 20  # larger chunks are given back to the host when they are freed

_faults: list[str] = []
_recent: list[str] = []  # names of the kernels that ran last
_taken: dict[int, int] = {}
_lock = threading.RLock()
_live: weakref.WeakSet[Any] = weakref.WeakSet()


class OutOfMemoryError(MemoryError):
    def __init__(self, size: int, total: int, limit: int = 0) -> None:
        self._size, self._total, self._limit = size, total, limit
        text = f"Out of memory allocating {size:,} bytes (allocated so far: {total:,} bytes"
        text += f", limit set to: {limit:,} bytes)." if limit else ")."
        super().__init__(text)

    def __reduce__(self) -> Any:
        return type(self), (self._size, self._total, self._limit)


def _taken_bytes(device: int) -> int:
    """Bytes of a device that are in use or kept."""
    return _taken.get(device, 0)


class BaseMemory:
    ptr = 0
    size = 0
    device_id = -1

    @property
    def device(self) -> Any:
        return Device(self.device_id)


class Memory(BaseMemory):
    """A chunk of its own."""

    def __init__(self, size: int) -> None:
        runtime._make_context()
        self.device_id = runtime.getDevice()
        self.size = size
        if size == 0:
            self._all = numpy.empty(0, numpy.uint8)
            return
        if _taken_bytes(self.device_id) + size > runtime._TOTAL_BYTES:
            raise runtime.CUDARuntimeError(2)  # only a pool says OutOfMemoryError
        self._all = numpy.empty(size + 2 * _ROUND + _GUARD, numpy.uint8)
        at = self._all.__array_interface__["data"][0]
        self._start = _ROUND + -at % _ROUND
        self.ptr = at + self._start
        with _lock:
            _taken[self.device_id] = _taken_bytes(self.device_id) + size
        self._lend(size)
        self._poison()

    def _lend(self, wanted: int) -> None:
        """Set the pattern around what was asked for."""
        start = self._start
        self._end = start + wanted
        self._last = start + -(-wanted // _ROUND) * _ROUND + _GUARD
        self._last = min(self._last, len(self._all))
        self._all[start - _GUARD : start] = 0xA5
        self._all[self._end : self._last] = 0xA5

    def _poison(self) -> None:
        self._all[self._start : self._end] = _POISON

    def _fault(self) -> str | None:
        """What is wrong with the pattern, or None."""
        start, end, last = self._start, self._end, self._last
        before = self._all[start - _GUARD : start].tobytes() == _PATTERN[:_GUARD]
        if before and self._all[end:last].tobytes() == _PATTERN[: last - end]:
            return None
        where = numpy.flatnonzero(self._all[start - _GUARD : last] != 0xA5) - _GUARD
        outside = where[(where < 0) | (where >= end - start)]
        self._all[start - _GUARD : start] = 0xA5
        self._all[end:last] = 0xA5
        return (
            f"bytes {outside[:8].tolist()} were written around an allocation of {end - start} "
            f"bytes; kernels that ran last: {', '.join(_recent[-6:])}"
        )

    def __del__(self) -> None:
        if getattr(self, "ptr", 0) and _lock is not None:  # the interpreter is not going down
            with _lock:
                _taken[self.device_id] -= self.size


class UnownedMemory(BaseMemory):
    def __init__(self, ptr: int, size: int, owner: Any, device_id: int = -1) -> None:
        self.ptr, self.size, self._owner = ptr, size, owner
        self.device_id = runtime.getDevice() if device_id == -1 else device_id


class PooledMemory(BaseMemory):
    """A chunk on loan from a pool."""

    def __init__(self, chunk: Memory, pool: MemoryPool, arena: Any) -> None:
        self.ptr, self.size, self.device_id = chunk.ptr, chunk.size, chunk.device_id
        self._chunk, self._pool, self._arena = chunk, weakref.ref(pool), arena
        _live.add(self)

    def free(self) -> None:
        chunk, self._chunk = self._chunk, None
        if chunk is None:
            return
        fault = chunk._fault()
        if fault:
            _faults.append(fault)
        pool = self._pool()
        if pool is None:
            return
        about = {"device_id": self.device_id, "mem_size": self.size, "mem_ptr": self.ptr}
        memory_hook._tell("free_preprocess", **about, pmem_id=id(self))
        pool._take_back(chunk, self._arena)
        memory_hook._tell("free_postprocess", **about, pmem_id=id(self))
        self.ptr = 0

    def __del__(self) -> None:
        if _faults is not None:  # the interpreter is not going down
            self.free()


def _check_all() -> None:
    """Look at the pattern around everything in use."""
    for memory in list(_live):
        chunk = memory._chunk
        fault = chunk._fault() if chunk is not None else None
        if fault:
            _faults.append(fault)


class MemoryPointer:
    def __init__(self, mem: Any, offset: int) -> None:
        self.mem = mem
        self.ptr = mem.ptr + offset

    @property
    def device_id(self) -> int:
        return int(self.mem.device_id)

    @property
    def device(self) -> Any:
        return self.mem.device

    def __add__(self, offset: int) -> MemoryPointer:
        return MemoryPointer(self.mem, self.ptr - self.mem.ptr + offset)

    __radd__ = __add__

    def __sub__(self, offset: int) -> MemoryPointer:
        return self + -offset

    def __int__(self) -> int:
        return int(self.ptr)

    def copy_from_device(self, src: Any, size: int) -> None:
        runtime.memcpy(self.ptr, src.ptr, size, runtime.memcpyDeviceToDevice)

    def copy_from_device_async(self, src: Any, size: int, stream: Any = None) -> None:
        runtime.memcpyAsync(self.ptr, src.ptr, size, runtime.memcpyDefault, _ptr(stream))

    def copy_from_host(self, mem: Any, size: int) -> None:
        runtime.memcpy(self.ptr, _address(mem), size, runtime.memcpyHostToDevice)

    def copy_from_host_async(self, mem: Any, size: int, stream: Any = None) -> None:
        runtime.memcpyAsync(self.ptr, _address(mem), size, runtime.memcpyHostToDevice, _ptr(stream))

    def copy_from(self, mem: Any, size: int) -> None:
        if isinstance(mem, MemoryPointer):
            self.copy_from_device(mem, size)
        else:
            self.copy_from_host(mem, size)

    def copy_from_async(self, mem: Any, size: int, stream: Any = None) -> None:
        if isinstance(mem, MemoryPointer):
            self.copy_from_device_async(mem, size, stream)
        else:
            self.copy_from_host_async(mem, size, stream)

    def copy_to_host(self, mem: Any, size: int) -> None:
        runtime.memcpy(_address(mem), self.ptr, size, runtime.memcpyDeviceToHost)

    def copy_to_host_async(self, mem: Any, size: int, stream: Any = None) -> None:
        runtime.memcpyAsync(_address(mem), self.ptr, size, runtime.memcpyDeviceToHost, _ptr(stream))

    def memset(self, value: int, size: int) -> None:
        runtime.memset(self.ptr, value, size)

    def memset_async(self, value: int, size: int, stream: Any = None) -> None:
        runtime.memsetAsync(self.ptr, value, size, _ptr(stream))


def _ptr(some: Any) -> int:
    return int((stream.get_current_stream() if some is None else some).ptr)


def _address(mem: Any) -> int:
    return int(getattr(mem, "value", mem))  # an int or a ctypes.c_void_p


class MemoryPool:
    """Chunks in multiples of 512 bytes, kept for each device and stream."""

    def __init__(self, allocator: Any = None) -> None:
        self._free: dict[Any, dict[int, list[Memory]]] = {}
        self._used: dict[int, int] = {}
        self._kept: dict[int, int] = {}
        self._limit: dict[int, int] = {}
        self._lock = threading.RLock()

    def malloc(self, size: int) -> MemoryPointer:
        if size == 0:
            return MemoryPointer(Memory(0), 0)
        _counts.note("allocation", "malloc", size)
        device = runtime.getDevice()
        about = {"device_id": device, "size": size, "mem_size": -(-size // _ROUND) * _ROUND}
        memory_hook._tell("malloc_preprocess", **about)
        found = self._malloc(size, device)
        memory_hook._tell("malloc_postprocess", **about, mem_ptr=found.ptr, pmem_id=id(found.mem))
        return found

    def _malloc(self, size: int, device: int) -> MemoryPointer:
        runtime._make_context()
        arena = device, stream.get_current_stream().ptr
        rounded = -(-size // _ROUND) * _ROUND
        with self._lock:
            spare = self._free.get(arena, {}).get(rounded)
            if spare and stream._is_idle(arena[1]):
                chunk = spare.pop()
                self._kept[device] -= rounded
                chunk._poison()
            else:
                chunk = self._fresh(device, rounded)
            chunk._lend(size)
            self._used[device] = self._used.get(device, 0) + rounded
        return MemoryPointer(PooledMemory(chunk, self, arena), 0)

    def _fresh(self, device: int, rounded: int) -> Memory:
        limit = self._limit.get(device, 0)
        if limit and self.total_bytes() + rounded > limit:
            self.free_all_blocks()
        if limit and self.total_bytes() + rounded > limit:
            raise OutOfMemoryError(rounded, self.total_bytes(), limit)
        try:
            return Memory(rounded)
        except runtime.CUDARuntimeError:
            self.free_all_blocks()
            try:
                return Memory(rounded)
            except runtime.CUDARuntimeError:
                raise OutOfMemoryError(rounded, self.total_bytes(), limit) from None

    def _take_back(self, chunk: Memory, arena: Any) -> None:
        device, size = chunk.device_id, chunk.size
        with self._lock:
            self._used[device] -= size
            try:
                stream._submit(chunk._poison, arena[1])
            except runtime.CUDARuntimeError:  # the stream is gone, and its work done
                chunk._poison()
            if size <= _LIMIT_KEPT:
                self._free.setdefault(arena, {}).setdefault(size, []).append(chunk)
                self._kept[device] = self._kept.get(device, 0) + size

    def free_all_blocks(self, stream: Any = None) -> None:
        device = runtime.getDevice()
        with self._lock:
            for arena in list(self._free):
                if arena[0] == device and (stream is None or arena[1] == stream.ptr):
                    for size, chunks in self._free.pop(arena).items():
                        self._kept[device] -= size * len(chunks)

    def free_all_free(self) -> None:
        self.free_all_blocks()

    def n_free_blocks(self) -> int:
        device = runtime.getDevice()
        return sum(
            len(chunks)
            for arena, sizes in self._free.items()
            if arena[0] == device
            for chunks in sizes.values()
        )

    def used_bytes(self) -> int:
        return self._used.get(runtime.getDevice(), 0)

    def free_bytes(self) -> int:
        return self._kept.get(runtime.getDevice(), 0)

    def total_bytes(self) -> int:
        return self.used_bytes() + self.free_bytes()

    def set_limit(self, size: int | None = None, fraction: float | None = None) -> None:
        if (size is None) == (fraction is None):
            raise ValueError("size and fraction cannot be specified at once")
        if fraction is not None:
            size = int(fraction * runtime._TOTAL_BYTES)
        self._limit[runtime.getDevice()] = size or 0

    def get_limit(self) -> int:
        return self._limit.get(runtime.getDevice(), 0)


class _Allocator(threading.local):
    local: Any = None


_allocator = _Allocator()
_default_pool = MemoryPool()
_global: Any = _default_pool.malloc


def get_allocator() -> Any:
    return _allocator.local or _global


def set_allocator(allocator: Any = None) -> None:
    global _global
    if _allocator.local is not None:
        raise ValueError(
            "Can't change the global allocator inside `using_allocator` context manager"
        )
    _global = _plain if allocator is None else allocator


def _plain(size: int) -> MemoryPointer:
    return MemoryPointer(Memory(size), 0)


def alloc(size: int) -> MemoryPointer:
    found: MemoryPointer = get_allocator()(size)
    return found
