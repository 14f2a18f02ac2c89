"""cupy.cuda of the stand-in: no GPU is here."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from cupy.cuda import (
    compiler,
    device,
    driver,
    graph,
    memory,
    memory_hook,
    nvtx,
    pinned_memory,
    runtime,
    stream,
)
from cupy.cuda.device import Device, get_cublas_handle, get_device_id
from cupy.cuda.graph import Graph
from cupy.cuda.memory import (
    BaseMemory,
    Memory,
    MemoryPointer,
    MemoryPool,
    UnownedMemory,
    alloc,
    get_allocator,
    set_allocator,
)
from cupy.cuda.memory_hook import MemoryHook
from cupy.cuda.pinned_memory import PinnedMemoryPool, alloc_pinned_memory
from cupy.cuda.stream import Event, ExternalStream, Stream, get_current_stream, get_elapsed_time


@contextlib.contextmanager
def using_allocator(allocator: Any = None) -> Iterator[None]:
    before = memory._allocator.local
    memory._allocator.local = memory._plain if allocator is None else allocator
    try:
        yield
    finally:
        memory._allocator.local = before


def is_available() -> bool:
    return runtime.getDeviceCount() > 0


def get_cuda_path() -> Any:
    return None


def get_local_runtime_version() -> int:
    return runtime.runtimeGetVersion()
