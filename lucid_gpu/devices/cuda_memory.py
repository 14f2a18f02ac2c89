"""CuPy's memory pool as this package uses it.

The pool keeps free memory by the stream it was allocated on: what is freed goes back there and is
given out again at once, to work that comes later on the same stream. So memory is safe without any
waiting as long as it is used on the stream it was allocated on. `record_stream` is for memory that
another stream works on: it goes back when that stream has passed.

The pool counts what it holds, but knows no highest mark. `measure_peak` hangs a hook on it, which
costs about a microsecond an allocation: nobody pays before somebody asked.
"""

from __future__ import annotations

import functools
import gc
import threading
import weakref
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from lucid_gpu.devices.cuda_errors import explained, out_of_memory
from lucid_gpu.devices.current_gpu import on_gpu
from lucid_gpu.tape.native import gpu

# (event, memory): not free before the event. No lock guards it: arrays die anywhere, in the middle
# of what would hold one too, and each step of a deque is one step.
_held: deque[tuple[Any, Any]] = deque()
# Arrays whose address was asked for, more than a launch usually takes. They live on, so that what
# was pending then is not computed into their memory before that launch.
addressed: deque[Any] = deque(maxlen=64)
retries: dict[int, int] = {}  # by device: allocations tried again
failures: dict[int, int] = {}
_reserved: dict[int, int] = {}  # the most the pool held when it was last looked at


def install(cupy: Any) -> None:
    """Stand before CuPy's pool, so that running out of memory raises our error.

    An allocator that the program has set itself is left alone.
    """
    pool = cupy.get_default_memory_pool()
    if cupy.cuda.get_allocator() == pool.malloc:
        cupy.cuda.set_allocator(allocator(cupy, pool))


def allocator(cupy: Any, pool: Any) -> Callable[[int], Any]:
    """The pool's allocation, tried once more after everything free was given back."""
    malloc, failed = pool.malloc, cupy.cuda.memory.OutOfMemoryError
    lost = cupy.cuda.runtime.CUDARuntimeError

    def again(size: int, error: Exception) -> Any:
        if isinstance(error, lost):  # of some kernel before
            raise explained(error) from error
        if not isinstance(error, failed):
            raise error
        index = cupy.cuda.runtime.getDevice()
        retries[index] = retries.get(index, 0) + 1
        note_reserved(cupy, index)
        release_passed(wait=True)
        addressed.clear()
        gc.collect()
        pool.free_all_blocks()
        try:
            return malloc(size)
        except failed:
            failures[index] = failures.get(index, 0) + 1
        free, total = cupy.cuda.runtime.memGetInfo()
        limit = pool.get_limit()
        if limit:  # a part of the device
            free, total = max(0, min(free, limit - pool.total_bytes())), min(limit, total)
        raise out_of_memory(size, index, free, total, pool.used_bytes(), pool.free_bytes())

    return gpu.Guarded(malloc, again) if gpu is not None else partial(_guarded, malloc, again)


def _guarded(malloc: Callable[[int], Any], again: Callable[..., Any], size: int) -> Any:
    """An allocation, and where it fails another one, as `_gpu.Guarded`."""
    try:
        return malloc(size)
    except Exception as error:
        raised = error
    return again(size, raised)


# --- memory that other streams use ----------------------------------------------------------------


def record_stream(array: Any, stream: Any) -> None:
    """Keep an array's memory, once it is freed, from being used again before a stream has passed.

    Parameters
    ----------
    array : cupy.ndarray
    stream : cupy.cuda.Stream
    """
    while array.base is not None:
        array = array.base
    release_passed()
    weakref.finalize(array, _hold, array.data.mem, stream, array.device).atexit = False


def _hold(memory: Any, stream: Any, device: Any) -> None:
    """The array is gone: its memory stays until what the stream was given so far is done."""
    with device:  # an event belongs to one, and another may be current where arrays die
        _held.append((stream.record(), memory))


def release_passed(wait: bool = False) -> None:
    """Let go of memory whose streams have passed; ``wait`` until they all have."""
    for _ in range(len(_held)):
        try:
            event, memory = _held.popleft()
        except IndexError:  # another thread took it
            return
        if wait:
            event.synchronize()
        elif not event.done:
            _held.append((event, memory))


# --- figures --------------------------------------------------------------------------------------


class Usage:
    """What one thread's allocations have come to on a device since they are measured.

    Attributes
    ----------
    current, peak : int
        Bytes in arrays now, and at most.
    allocated, freed, allocations : int
        Bytes given out and returned so far, and how often.
    """

    def __init__(self, current: int) -> None:
        self.current = self.peak = current
        self.allocated = self.freed = self.allocations = 0

    def take(self, size: int) -> None:
        self.allocated += size
        self.allocations += 1
        self.current += size
        if self.current > self.peak:
            self.peak = self.current

    def give(self, size: int) -> None:
        self.freed += size
        self.current -= size


class _Measured(threading.local):
    """CuPy's hooks are a thread's own."""

    def __init__(self) -> None:
        self.hook: Any = None
        self.devices: dict[int, Usage] = {}


_measured = _Measured()


@functools.cache
def _hook_class(base: type) -> type:
    """A hook of CuPy's pool that counts; its base is not there before CuPy is."""

    class CountBytes(base):
        name = "lucid_gpu.cuda.memory"

        def malloc_postprocess(self, **about: Any) -> None:
            usage = _measured.devices.get(about["device_id"])
            if usage is not None and about["mem_ptr"]:
                usage.take(about["mem_size"])

        def free_postprocess(self, **about: Any) -> None:
            usage = _measured.devices.get(about["device_id"])
            if usage is not None:
                usage.give(about["mem_size"])

    return CountBytes


def measure_peak(cupy: Any, index: int) -> Usage:
    """Measure a device's memory from now on, on the calling thread."""
    if _measured.hook is None:
        _measured.hook = _hook_class(cupy.cuda.MemoryHook)()
        _measured.hook.__enter__()
    usage = _measured.devices[index] = Usage(used_bytes(cupy, index))
    return usage


def usage_of(index: int) -> Usage | None:
    """What was measured of a device, if it is."""
    return _measured.devices.get(index)


def used_bytes(cupy: Any, index: int) -> int:
    """Bytes of a device's pool in arrays."""
    with on_gpu(cupy.cuda, index):
        release_passed()
        count: int = cupy.get_default_memory_pool().used_bytes()
    return count


def reserved_bytes(cupy: Any, index: int) -> int:
    """Bytes a device's pool holds."""
    with on_gpu(cupy.cuda, index):
        count: int = cupy.get_default_memory_pool().total_bytes()
    return count


def note_reserved(cupy: Any, index: int, afresh: bool = False) -> int:
    """The most the pool held: it only shrinks where it is emptied, and is looked at before."""
    now = reserved_bytes(cupy, index)
    most = _reserved[index] = now if afresh else max(now, _reserved.get(index, 0))
    return most


def empty(cupy: Any) -> None:
    """Give unused memory of the current device back to it."""
    note_reserved(cupy, cupy.cuda.runtime.getDevice())
    release_passed()
    addressed.clear()
    cupy.get_default_memory_pool().free_all_blocks()
