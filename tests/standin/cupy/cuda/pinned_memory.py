"""cupy.cuda.pinned_memory: plain host memory with the buffer interface."""

from __future__ import annotations

import ctypes
from typing import Any


class PinnedMemoryPool:
    def __init__(self, allocator: Any = None) -> None:
        pass

    def malloc(self, size: int) -> Any:
        return (ctypes.c_ubyte * size)()

    def free_all_blocks(self) -> None:
        pass

    def n_free_blocks(self) -> int:
        return 0


_pool = PinnedMemoryPool()


def alloc_pinned_memory(size: int) -> Any:
    return _pool.malloc(size)
