"""What stands in for CUDA on the host: threads in lock step, shared memory, atomics, intrinsics."""

from __future__ import annotations

import numpy as np
import pytest

from lucid_gpu.launch import Kernel
from tests.fusion.plans import needs_compiler

pytestmark = needs_compiler


def run(body, y, *arrays, grid=1, threads=32, shared=0):
    """Run a kernel body on int arrays ``y, a, b...``; `t` is the number of the thread."""
    names = ["y", "a", "b"][: 1 + len(arrays)]
    kinds = {"i4": "int", "u4": "unsigned", "f4": "float", "f8": "double", "i8": "long long"}
    declaration = ", ".join(
        f"{kinds[x.dtype.str[1:]]}* {n}" for n, x in zip(names, (y, *arrays), strict=True)
    )
    kernel = Kernel(
        f'#include "types.cuh"\nLUCID_FN void body({declaration})\n{{\n'
        "    const int t = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);\n"
        f"    {body}\n}}\n",
        "body",
        declaration,
        threads=1024,
    )
    kernel(grid, (y, *arrays), threads=threads, shared=shared)
    return y


def ints(n):
    return np.full(n, -1, np.int32)


LANES = np.arange(32)


@pytest.mark.parametrize(
    ("call", "wanted"),
    [
        ("__shfl_sync(~0u, t, 5)", np.full(32, 5)),
        ("__shfl_sync(~0u, t, t + 33)", (LANES + 1) % 32),
        ("__shfl_sync(~0u, t, 1, 8)", LANES // 8 * 8 + 1),
        ("__shfl_up_sync(~0u, t, 3)", np.where(LANES < 3, LANES, LANES - 3)),
        ("__shfl_up_sync(~0u, t, 3, 16)", np.where(LANES % 16 < 3, LANES, LANES - 3)),
        ("__shfl_down_sync(~0u, t, 5)", np.where(LANES > 26, LANES, LANES + 5)),
        ("__shfl_down_sync(~0u, t, 5, 8)", np.where(LANES % 8 > 2, LANES, LANES + 5)),
        ("__shfl_xor_sync(~0u, t, 21)", LANES ^ 21),
        ("__shfl_xor_sync(~0u, t, 3, 4)", LANES ^ 3),
        ("(int)__ballot_sync(~0u, t % 3 == 0)", np.full(32, int("49249249", 16))),
        ("__any_sync(~0u, t == 31)", np.ones(32)),
        ("__any_sync(~0u, t == 32)", np.zeros(32)),
        ("__all_sync(~0u, t < 32)", np.ones(32)),
        ("__all_sync(~0u, t < 31)", np.zeros(32)),
        ("__popc(__match_any_sync(~0u, t / 5))", np.where(LANES < 30, 5, 2)),
    ],
)
def test_warp_operations(call, wanted):
    np.testing.assert_array_equal(run(f"y[t] = {call};", ints(32)), wanted)


def test_shuffles_of_wide_values_and_of_a_short_warp():
    y = run("y[t] = __shfl_xor_sync(~0u, t * 1e10, 1);", np.zeros(32))
    np.testing.assert_array_equal(y, (LANES ^ 1) * 1e10)
    y = run("y[t] = __shfl_down_sync(~0u, t, 1); __syncthreads();", ints(40), threads=40)
    assert y[38] == 39 and y[30] == 31


def test_part_of_a_warp_works_by_itself():
    """Lanes a mask does not name go on; values are those of the operation, not of a later one."""
    body = """
        int v = t;
        if (t < 8) {
            for (int i = 0; i < 3; ++i) { v += __shfl_xor_sync(0xffu, v, 1); __syncwarp(0xffu); }
        } else {
            v = __shfl_sync(0xffffff00u, v, 9);
        }
        y[t] = v + __shfl_sync(~0u, t, 0);
    """
    wanted = np.where(LANES < 8, (LANES + (LANES ^ 1)) * 4, 9)
    np.testing.assert_array_equal(run(body, ints(32)), wanted)


@pytest.mark.parametrize(
    "body",
    [
        "if (t != 3) __syncthreads();",
        "if (t == 3) return; __shfl_sync(~0u, t, 0);",
        "if (t < 16) __shfl_sync(~0u, t, 0); else __ballot_sync(~0u, 1);",
        "if (t < 16) __shfl_sync(0xffffu, t, 0); else __syncwarp(~0u);",
        "__syncwarp(1u << ((t + 1) % 32));",
        "if (t < 32) __syncwarp(); else __syncthreads();",
    ],
)
def test_threads_that_part_are_an_error(body):
    with pytest.raises(RuntimeError, match="parted at a barrier or a shuffle"):
        run(body, ints(64), threads=64)
    run("y[t] = t;\n__syncthreads();", ints(64), threads=64)  # and the next launch is whole


@pytest.mark.parametrize("wait", ["", "__syncthreads();"])
@pytest.mark.parametrize(
    "access",
    [
        "*(uint4*)y = uint4{1, 2, 3, 4};",
        "y[3] = ((const uint2*)y)->x;",
        "*(int*)((char*)y + 2) = 7;",
    ],
)
def test_misaligned_accesses_are_an_error(access, wait):
    """On a GPU they end the launch; x86 would let most of them pass."""
    odd = "y += ((unsigned long long)y % 16) / 4 == 1 ? 0 : 1; "  # an odd number of words
    with pytest.raises(RuntimeError, match="no multiple of what it moves"):
        run(f"{wait} if (t == 5) {{ {odd} {access} }} {wait}", ints(64), threads=32)
    run("y[t] = t;\n__syncthreads();", ints(64), threads=64)  # and the next launch is whole


def test_static_shared_memory_and_barriers():
    body = """
        __shared__ int s[1024];
        s[t] = t;
        for (int step = 512; step > 0; step /= 2) {
            __syncthreads();
            if (t < step) s[t] += s[t + step];
        }
        if (t == 0) y[blockIdx.x] = s[0];
    """
    y = run(body, ints(3), grid=3, threads=1024)
    assert y.tolist() == [1023 * 512] * 3


def test_barriers_that_count():
    y = run("y[t] = __syncthreads_count(t < 7);", ints(100), threads=100)
    assert (y == 7).all()
    y = run("y[t] = __syncthreads_or(t == 7) * 2 + __syncthreads_and(t == 7);", ints(9), threads=9)
    assert (y == 2).all()


@pytest.mark.parametrize(
    "declaration",
    [
        "extern __shared__ int s[];",
        "extern __shared__ __align__(16) unsigned char bytes[]; int* s = (int*)bytes;",
    ],
)
def test_dynamic_shared_memory(declaration):
    """Large, and not zero when a block begins: on a GPU it holds what the last block left."""
    n = 50_000
    body = f"""
        {declaration}
        if (t == 0) y[0] = s[{n} - 1];
        for (int i = t; i < {n}; i += blockDim.x) s[i] = i;
        __syncthreads();
        y[1 + t] = s[{n} - 1 - t];
    """
    y = run(body, ints(65), grid=2, threads=64, shared=4 * n)
    assert y[0] == -1 and (y[1:] == n - 1 - np.arange(64)).all()


def test_three_dimensions():
    body = """
        const int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
        y[block * 24 + t] += 1 + block;
        __syncthreads();
    """
    for barrier in ("__syncthreads();", ""):
        y = run(body.replace("__syncthreads();", barrier), ints(24 * 30), grid=(2, 3, 5),
                threads=(2, 3, 4))  # fmt: skip
        np.testing.assert_array_equal(y, np.repeat(np.arange(30), 24))


@pytest.mark.parametrize(
    ("call", "wanted"),
    [
        ("atomicAdd(y, t)", 5 + 496),
        ("atomicSub(y, t)", 5 - 496),
        ("atomicMax(y, t)", 31),
        ("atomicMin(y, t - 40)", -40),
        ("atomicExch(y, 77)", 77),
        ("atomicOr(y, 1 << t)", -1),
        ("atomicAnd(y, ~(1 << t))", 0),
        ("atomicXor(y, t)", 5),
        ("atomicCAS(y, 5, 9)", 9),
        ("atomicCAS(y, 6, 9)", 5),
    ],
)
def test_atomics(call, wanted):
    y = np.array([5], np.int32)
    assert run(f"{call};", y)[0] == wanted


def test_atomics_return_the_old_value_and_take_floats():
    y = run("y[t] = atomicAdd(a, 2);", ints(4), np.array([10], np.int32), threads=4)
    assert y.tolist() == [10, 12, 14, 16]
    assert run("atomicAdd(y, 0.5f);", np.zeros(1, np.float32))[0] == 16
    assert run("atomicAdd(y, 0.5);", np.zeros(1))[0] == 16
    wrapped = run("atomicInc(y, 9u);", np.zeros(1, np.uint32))
    assert wrapped[0] == 32 % 10


@pytest.mark.parametrize(
    ("call", "wanted"),
    [
        ("__clz(1)", 31), ("__clz(0)", 32), ("__clzll(1)", 63), ("__popc(0xf0f0u)", 8),
        ("__popcll(~0ull)", 64), ("__ffs(8)", 4), ("__ffs(0)", 0), ("__ffsll(1ll << 40)", 41),
        ("(int)__brev(1u)", -(2**31)), ("__mulhi(-1, 5)", -1), ("(int)__umulhi(~0u, 2u)", 1),
        ("(int)__umul64hi(~0ull, 2ull)", 1), ("(int)__mul64hi(-1ll, 2ll)", -1),
        ("__float_as_int(1.0f)", 0x3F800000), ("(int)__int_as_float(0x40000000)", 2),
        ("max(3, 4) * 10 + min(3, 4)", 43), ("abs(-3)", 3), ("warpSize", 32),
        ("__float2int_rn(2.5f)", 2), ("__float2int_rz(-2.5f)", -2), ("__float2int_ru(2.1f)", 3),
        ("(int)fma(2.0f, 3.0f, 4.0f) + (int)__fmaf_rn(2.0f, 3.0f, 4.0f)", 20),
        ("(int)fmaxf(expf(0.0f), 3.0f) + (int)sqrtf(16.0f)", 7),
        ("isnan(__int_as_float(0x7fc00000)) + 2 * isinf(1.0f) + 4 * isfinite(1.0)", 5),
        ("(int)make_float4(1, 2, 3, 4).w", 4), ("(int)__ldcs(y) + __ldg(y)", -2),
        ("(int)ldexp(1.0f, 5)", 32), ("(int)rsqrtf(0.25f)", 2),
    ],
)  # fmt: skip
def test_built_in_functions(call, wanted):
    assert run(f"y[0] = {call};", ints(1), threads=1)[0] == wanted


def test_fma_rounds_once():
    x = np.float32(1 + 2**-12)
    y = run("y[0] = fma(a[0], a[0], -1.0f) - (a[0] * a[0] - 1.0f);", np.zeros(1, np.float32),
            np.array([x]), threads=1)  # fmt: skip
    assert y[0] == np.float32(2**-24)


def test_streaming_stores():
    y = run("__stcs(y + t, t * 2);", ints(32))
    np.testing.assert_array_equal(y, LANES * 2)


def test_approximations_are_not_offered():
    """What would round otherwise than a GPU does not compile."""
    with pytest.raises(RuntimeError, match="__expf"):
        run("y[0] = __expf(1.0f);", ints(1))


def test_the_source_of_another_test_compiles_for_a_gpu():
    """The bodies above are CUDA C, not only C++."""
    from tests.kernels.compiling import resources

    body = """extern "C" __global__ void f(int* y) {
        extern __shared__ __align__(16) unsigned char bytes[];
        int* s = (int*)bytes; const int t = threadIdx.x;
        s[t] = t; __syncthreads();
        y[t] = __shfl_xor_sync(~0u, s[t ^ 1], 3, 4) + (int)__ballot_sync(~0u, t & 1)
             + __popc(__match_any_sync(~0u, t / 5)) + __syncthreads_count(t < 7)
             + atomicCAS(y, 5, 9) + __ldcs(y + t) + __brev(t) + (int)__mul64hi(t, t);
        __stcs(y + t, warpSize); __syncwarp(); atomicInc((unsigned*)y, 9u);
    }"""
    assert resources(body, 90).spilled == 0
