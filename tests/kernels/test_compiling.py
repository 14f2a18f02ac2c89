"""Every instance the families list compiles, within its bounds.

A kernel's first instance is compiled for every architecture, the others for sm_90 and one more, in
turn; all for all with ``LUCID_ALL_ARCHITECTURES=1``, which takes minutes.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from lucid_gpu import dtypes as dt
from lucid_gpu import precompile
from lucid_gpu.kernels import attention
from lucid_gpu.launch import Kernel, nvrtc
from lucid_gpu.launch.source import complete
from tests.slow import slow_but

from .compiling import Instance, architectures, instances, resources

INSTANCES = list(instances())
FIRST = {i.family: i for i in reversed(INSTANCES)}.values()  # of each family of kernels


@pytest.mark.parametrize("instance", slow_but(INSTANCES, *FIRST), ids=[i.label for i in INSTANCES])
def test_instances_compile(instance: Instance) -> None:
    known = architectures()
    number = INSTANCES.index(instance)
    first = [i.kernel for i in INSTANCES].index(instance.kernel) == number
    if not first and not os.environ.get("LUCID_ALL_ARCHITECTURES"):
        known = sorted({90, known[number % len(known)]})
    with ThreadPoolExecutor() as pool:  # NVRTC compiles on several threads
        list(pool.map(instance.check, known))


def test_hoppers_own_is_compiled_for_it_alone() -> None:
    """By the name of its architecture, which is in the key of the cache."""
    hopper, tiles = (
        complete(
            kernel.instance(T=dt.bfloat16, D=64, M=64, N=64, W=8, MMA=m, B="void", DROPS=0).source
        )
        for m, kernel in ((3, attention.attention_hopper), (1, attention.attention_forward))
    )
    assert [nvrtc.target(hopper, a) for a in (89, 90, 100)] == ["sm_89", "sm_90a", "sm_100"]
    assert nvrtc.target(tiles, 90) == "sm_90"
    compiled_for = {n for n, s in precompile._work([80, 90, 100]) if nvrtc.HOPPER in s.text}
    assert compiled_for == {90}


SPILLING = """
extern "C" __global__ void __launch_bounds__(1024) spilling(const float* x, float* y, int n)
{
    float kept[80];
    #pragma unroll
    for (int i = 0; i < 80; ++i) kept[i] = x[i * n + threadIdx.x];
    __syncthreads();
    #pragma unroll
    for (int i = 0; i < 80; ++i) y[(79 - i) * n + threadIdx.x] = kept[i] * kept[(i + 7) % 80];
}
"""


def test_spills_registers_and_shared_memory_are_seen() -> None:
    found = resources(SPILLING, 90)
    assert found.spilled > 0 and found.registers == 64
    shared = SPILLING.replace("float kept[80]", "__shared__ float kept[80]")
    assert resources(shared, 90).shared == 320


def test_a_log_that_is_not_clean_fails() -> None:
    unused = 'extern "C" __global__ void f(float* x) { int unused = 3; }'
    with pytest.raises(AssertionError, match="never referenced"):
        resources(unused, 90)
    with pytest.raises(pytest.fail.Exception, match="is undefined"):
        resources('extern "C" __global__ void f(float* x) { *x = y; }', 90)


def test_bounds_are_kept() -> None:
    kernel = Kernel("elementwise.cuh", "lucid_abs", "float x", "T")
    instance = Instance("none", kernel, {"T": dt.float32}, 1, 0)
    with pytest.raises(AssertionError, match="at most 1 registers"):
        instance.check(90)
