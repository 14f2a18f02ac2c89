"""cupy.cuda.pinned_memory: host memory with an address, readable by the buffer protocol."""

from __future__ import annotations

import ctypes
from typing import Any


def alloc_pinned_memory(size: int) -> Any:
    return _pool.malloc(size)


class PinnedMemoryPool:
    def __init__(self, allocator: Any = None) -> None:
        pass

    def malloc(self, size: int) -> Any:
        rounded = 1 << max(size - 1, 0).bit_length()  # as the real pool rounds
        made = type("PinnedMemoryPointer", (ctypes.c_ubyte * max(rounded, 1),), {})()
        ctypes.memset(made, 0xFF, max(rounded, 1))
        made.ptr = ctypes.addressof(made)
        return made

    def free_all_blocks(self) -> None:
        pass

    def n_free_blocks(self) -> int:
        return 0


_pool = PinnedMemoryPool()
