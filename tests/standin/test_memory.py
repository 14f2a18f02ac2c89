"""The stand-in's memory shows what kernels leave unwritten and where they write outside."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest


def test_fresh_memory_is_poison(cupy: Any) -> None:
    assert np.isnan(cupy.empty(5, "f").get()).all()
    a = cupy.ones(5, "f")
    del a  # its memory is given out again
    assert np.isnan(cupy.empty(5, "f").get()).all()


def test_a_write_behind_an_array_is_found(cupy: Any) -> None:
    memory = cupy.cuda.memory
    a = cupy.zeros(5, "f")
    ctypes.memset(a.data.ptr + 20, 0, 4)
    memory._check_all()
    assert "bytes [20, 21, 22, 23] were written around an allocation of 20" in memory._faults.pop()
    b = cupy.zeros(5, "f")
    ctypes.memset(b.data.ptr - 1, 0, 1)
    del b
    assert "bytes [-1]" in memory._faults.pop()


def test_the_pool_counts_in_512_bytes(cupy: Any) -> None:
    pool = cupy.cuda.MemoryPool()
    with cupy.cuda.using_allocator(pool.malloc):
        a, b = cupy.empty(1, "b"), cupy.empty(513, "b")
        assert a.data.ptr % 512 == b.data.ptr % 512 == 0
        assert (pool.used_bytes(), pool.total_bytes()) == (1536, 1536)
        del b
        assert (pool.used_bytes(), pool.free_bytes(), pool.n_free_blocks()) == (512, 1024, 1)
        pool.free_all_blocks()
        assert pool.total_bytes() == 512
        pool.set_limit(1024)
        with pytest.raises(cupy.cuda.memory.OutOfMemoryError, match="limit set to: 1,024 bytes"):
            cupy.empty(1000, "b")
        del a


def test_more_than_the_device_has_is_refused(cupy: Any) -> None:
    with pytest.raises(cupy.cuda.memory.OutOfMemoryError, match="Out of memory allocating"):
        cupy.cuda.MemoryPool().malloc(2**40)


def test_hooks_see_allocations(cupy: Any) -> None:
    seen = []

    class Hook(cupy.cuda.MemoryHook):
        name = "test"

        def malloc_postprocess(self, **about: Any) -> None:
            seen.append(("take", about["mem_size"]))

        def free_postprocess(self, **about: Any) -> None:
            seen.append(("give", about["mem_size"]))

    with Hook():
        a = cupy.empty(3, "b")
        del a
    assert seen == [("take", 512), ("give", 512)]
