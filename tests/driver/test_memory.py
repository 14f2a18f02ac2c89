"""Memory of the stand-in: poisoned, closed behind its end and once it is free, of one device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cupy
import numpy as np
import pytest
from cupy.cuda import runtime


def test_fresh_memory_is_poisoned(driver: Any) -> None:
    memory = cupy.cuda.Memory(4096)
    x = cupy.ndarray(512, np.float64, cupy.cuda.MemoryPointer(memory, 0))
    assert np.isnan(x.get()).all()


def test_copies_stay_inside_an_allocation(driver: Any) -> None:
    memory, host = cupy.cuda.Memory(512), np.zeros(1024, np.uint8)
    with pytest.raises(runtime.CUDARuntimeError, match="cudaErrorInvalidValue"):
        runtime.memcpy(memory.ptr, host.ctypes.data, 513, runtime.memcpyHostToDevice)
    runtime.memcpy(memory.ptr, host.ctypes.data, 512, runtime.memcpyHostToDevice)


def test_a_copy_has_the_sides_it_says(driver: Any) -> None:
    memory, host = cupy.cuda.Memory(512), np.zeros(512, np.uint8)
    with pytest.raises(runtime.CUDARuntimeError, match="cudaErrorInvalidValue"):
        runtime.memcpy(memory.ptr, host.ctypes.data, 512, runtime.memcpyDeviceToDevice)


def test_memory_that_is_full_says_so(driver: Any) -> None:
    free, total = runtime.memGetInfo()
    assert total == 8 << 30
    with pytest.raises(runtime.CUDARuntimeError, match="cudaErrorMemoryAllocation"):
        cupy.cuda.Memory(free + 1)


def test_the_nth_allocation_fails(driver: Any) -> None:
    for n in range(3):
        with driver.failing_allocations(n):
            for _ in range(n):
                cupy.cuda.Memory(512)
            with pytest.raises(runtime.CUDARuntimeError, match="cudaErrorMemoryAllocation"):
                cupy.cuda.Memory(512)
            cupy.cuda.Memory(512)


PROGRAM = """
import cupy
source = r'extern "C" __global__ void wrong(float* x, long long at) {{ x[at] = 1; }}'
kernel = cupy.RawKernel(source, "wrong")
memory = cupy.cuda.Memory(4096)
kernel((1,), (1,), (cupy.cuda.MemoryPointer(memory, 0), {at}))
for attempt in range(2):
    try:
        cupy.cuda.Device().synchronize()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        print(error)
try:
    cupy.cuda.Memory(512)
except cupy.cuda.runtime.CUDARuntimeError as error:
    print(error)
"""


@pytest.mark.parametrize("at", [1024, -1 << 20])
def test_an_illegal_address_stays(in_process: Callable[[str], str], at: int) -> None:
    lines = in_process(PROGRAM.format(at=at)).splitlines()
    assert lines == ["cudaErrorIllegalAddress: an illegal memory access was encountered"] * 3


def test_a_kernel_may_use_all_of_an_allocation(in_process: Callable[[str], str]) -> None:
    assert in_process(PROGRAM.format(at=1023)) == ""


FREED = """
import cupy
kernel = cupy.RawKernel(r'extern "C" __global__ void wrong(float* x) { x[0] = 1; }', "wrong")
memory = cupy.cuda.Memory(4096)
address = memory.ptr
del memory
import numpy
kernel((1,), (1,), (numpy.uint64(address),))
try:
    cupy.cuda.Device().synchronize()
except cupy.cuda.runtime.CUDARuntimeError as error:
    print(error)
"""


def test_memory_that_was_freed_is_closed(in_process: Callable[[str], str]) -> None:
    assert "cudaErrorIllegalAddress" in in_process(FREED)
