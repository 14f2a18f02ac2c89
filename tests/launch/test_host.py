"""What stands in for CUDA on the host: threads in lock step, shared memory, atomics, intrinsics."""

from __future__ import annotations

import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

from lucid_gpu.launch import Kernel, host
from tests.fusion.plans import needs_compiler

pytestmark = needs_compiler


def run(body, y, *arrays, grid=1, threads=32, shared=0, before=""):
    """Run a kernel body on int arrays ``y, a, b...``; `t` is the number of the thread."""
    names = ["y", "a", "b"][: 1 + len(arrays)]
    kinds = {"i4": "int", "u4": "unsigned", "f4": "float", "f8": "double", "i8": "long long"}
    declaration = ", ".join(
        f"{kinds[x.dtype.str[1:]]}* {n}" for n, x in zip(names, (y, *arrays), strict=True)
    )
    kernel = Kernel(
        f'#include "types.cuh"\n{before}\nLUCID_FN void body({declaration})\n{{\n'
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
        "if (t != 3) __syncthreads(); __shfl_sync(~0u, t, 0);",
        "if (t < 16) __shfl_sync(~0u, t, 0); else __ballot_sync(~0u, 1);",
        "if (t < 16) __shfl_sync(0xffffu, t, 0); else __syncwarp(~0u); __syncthreads();",
        "__syncwarp(1u << ((t + 1) % 32));",
        "if (t == 0) __syncwarp(); else __syncthreads();",
    ],
)
def test_threads_that_part_are_an_error(body):
    with pytest.raises(RuntimeError, match="parted at a barrier or a shuffle"):
        run(body, ints(64), threads=64)
    run("y[t] = t;\n__syncthreads();", ints(64), threads=64)  # and the next launch is whole


@pytest.mark.parametrize(
    ("call", "wanted"),
    [
        ("__syncthreads(); y[t] = t;", np.arange(40)),
        ("y[t] = __syncthreads_count(t % 2);", np.full(40, 20)),
        ("y[t] = __syncthreads_count(1);", np.full(40, 40)),
        ("y[t] = __syncthreads_and(t < 40);", np.ones(40)),
        ("y[t] = __syncthreads_or(t > 39);", np.zeros(40)),
        ("y[t] = __popc(__ballot_sync(~0u, 1));", np.repeat([32, 8], [32, 8])),
        ("y[t] = __all_sync(~0u, t < 40);", np.ones(40)),
        ("y[t] = __any_sync(~0u, t > 39);", np.zeros(40)),
        ("y[t] = __popc(__match_any_sync(~0u, -1));", np.repeat([32, 8], [32, 8])),
        ("y[t] = __shfl_xor_sync(~0u, t, 1);", np.arange(40) ^ 1),
        ("y[t] = __shfl_sync(~0u, t, 31);", np.repeat([31, -1], [32, 8])),  # undefined: made seen
        ("__shared__ int s[40]; s[t] = t; __syncthreads(); y[t] = s[39 - t];", 39 - np.arange(40)),
    ],
)
def test_nobody_waits_for_threads_that_have_ended(call, wanted):
    """As in a kernel that begins with ``if (t >= n) return;``, in one block after another."""
    y = run(f"if (t >= 40) return; {call}", ints(64), threads=64, grid=2)
    np.testing.assert_array_equal(y, np.r_[wanted, np.full(24, -1)])


@pytest.mark.parametrize("wait", ["", "__syncthreads();"])
def test_an_assertion_that_fails_ends_the_launch(wait, capfd):
    body = f"{wait} assert(t < 0 || y[0] != 7); {wait} y[t] = t;"
    np.testing.assert_array_equal(run(body, ints(32)), LANES)
    with pytest.raises(RuntimeError, match="an assertion of the kernel failed"):
        run(body, np.full(32, 7, np.int32))
    printed = capfd.readouterr().out
    assert "block: [0,0,0], thread: [0,0,0] Assertion `t < 0 || y[0] != 7` failed." in printed
    np.testing.assert_array_equal(run("y[t] = t;", ints(32)), LANES)  # the next launch is whole


def test_what_a_kernel_prints_is_seen(capfd):
    run('printf("%d: %5.2f %s\\n", t, t / 2.0f, "x"); y[t] = t;', ints(3), threads=3)
    assert capfd.readouterr().out == "0:  0.00 x\n1:  0.50 x\n2:  1.00 x\n"


GROUPS = """
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
namespace cg = cooperative_groups;
"""


@pytest.mark.parametrize(
    ("call", "wanted"),
    [
        ("block.thread_rank() + 100 * block.size()", np.arange(64) + 6400),
        (
            "tile.thread_rank() + 10 * tile.meta_group_rank()",
            np.arange(64) % 8 + np.arange(64) // 8 * 10,
        ),
        ("tile.shfl(t, 3)", np.arange(64) // 8 * 8 + 3),
        ("tile.shfl_down(t, 1)", np.arange(64) + (np.arange(64) % 8 < 7)),
        ("tile.shfl_up(t, 1)", np.arange(64) - (np.arange(64) % 8 > 0)),
        ("tile.shfl_xor(t, 4)", np.arange(64) ^ 4),
        ("tile.ballot(t % 2)", np.full(64, 0xAA)),
        ("tile.any(t == 9)", np.arange(64) // 8 == 1),
        ("tile.all(t < 16)", np.arange(64) < 16),
        ("tile.match_any(t / 4)", np.where(np.arange(64) % 8 < 4, 0x0F, 0xF0)),
        ("cg::reduce(tile, t, cg::plus<int>())", np.arange(64).reshape(8, 8).sum(1).repeat(8)),
        ("cg::reduce(tile, t, cg::greater<int>())", np.arange(64) // 8 * 8 + 7),
        ("cg::inclusive_scan(tile, t)", np.arange(64).reshape(8, 8).cumsum(1).ravel()),
        ("cg::exclusive_scan(tile, 1)", np.arange(64) % 8),
        ("cg::this_grid().thread_rank()", np.arange(64)),
    ],
)
def test_cooperative_groups(call, wanted):
    body = f"""
        auto block = cg::this_thread_block();
        auto tile = cg::tiled_partition<8>(block);
        tile.sync(); block.sync(); cg::sync(block);
        y[t] = {call};
    """
    np.testing.assert_array_equal(run(body, ints(64), threads=64, before=GROUPS), wanted)


@pytest.mark.parametrize("call", ["cg::this_grid().sync()", "cg::coalesced_threads().sync()"])
def test_groups_that_the_host_has_not_are_named(call):
    with pytest.raises(RuntimeError, match=r"grid.sync\(\) and coalesced_threads\(\) are for GPUs"):
        run(f"{call};", ints(32), before=GROUPS)


@pytest.mark.parametrize("kind", ["half", "nv_bfloat16"])
def test_numbers_of_16_bits(kind):
    """Arithmetic is rounded once; values are those of NumPy's types."""
    numpy_kind = np.float16 if kind == "half" else ml_dtypes.bfloat16
    header, pair = ("cuda_fp16.h", "half2") if kind == "half" else ("cuda_bf16.h", "nv_bfloat162")
    short = "half" if kind == "half" else "bfloat16"
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(32).astype(np.float32) for _ in range(2))
    body = f"""
        const {kind} u = __float2{short}(a[t]), v = {kind}(b[t]);
        {pair} both({kind}(0.0f), u);
        both = __hfma2(both + both, {pair}(v, v), {pair}(u, u));
        {kind} sum = __hmul(u, v);
        sum += __hadd(u, -v);
        sum = __shfl_xor_sync(~0u, sum, 1);
        if (u > v || __hlt(v, u)) sum = __hmax(sum, hexp(u) / v);
        y[t] = __{short}2float(sum) + __high2float(both) + (float)both.x;
    """
    y = run(body, np.zeros(32, np.float32), a, b, before=f"#include <{header}>")
    u, v = a.astype(numpy_kind), b.astype(numpy_kind)
    total = (u * v + (u - v))[LANES ^ 1]
    quotient = np.exp(u.astype(np.float32)).astype(numpy_kind) / v
    total = np.where(u > v, np.maximum(total, quotient), total).astype(np.float32)
    fused = ((u + u).astype(float) * v.astype(float) + u.astype(float)).astype(numpy_kind)
    np.testing.assert_array_equal(y, total + fused.astype(np.float32) + u.astype(np.float32))


def test_what_is_halfway_is_rounded_once():
    """A double just beside a tie between two numbers of 16 bits is on its side of it."""
    tie = 1 + 2.0**-11
    x = np.array([tie, tie + 2.0**-40, tie - 2.0**-40, -tie - 2.0**-40, 65519.999999, 65520.0])
    y = run("y[t] = half(a[t]);", np.zeros(6), x, threads=6, before="#include <cuda_fp16.h>")
    np.testing.assert_array_equal(y, x.astype(np.float16).astype(float))


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


TEMPLATES = """
    __shared__ int outside[2];

    template <typename T, int N> LUCID_FN T* kept() { __shared__ T x[N]; return x; }

    template <typename T> struct lucid_of_test {
        static LUCID_FN T& one() { __shared__ T x; return x; }
    };
"""


@pytest.mark.parametrize("wait", ["", "__syncthreads();"])
def test_static_shared_memory_is_spoiled_before_each_block(wait):
    """Several variables, of templates too: none keeps what it was given by the block before."""
    body = f"""
        __shared__ int s[3], one; __shared__ __align__(16) float f[64];
        float* first = kept<float, 5>(); float* other = kept<float, 7>();
        double* wide = kept<double, 5>(); unsigned& last = lucid_of_test<unsigned>::one();
        __shared__ int never[2];
        {wait}
        y += 10 * blockIdx.x;
        y[0] = s[2]; y[1] = one; y[2] = isnan(f[63]); y[3] = isnan(first[4]);
        y[4] = isnan(other[6]); y[5] = isnan(wide[4]); y[6] = (int)last; y[7] = outside[1];
        y[8] = never[1]; y[9] = first != other;
        {wait}
        s[2] = one = 5; f[63] = first[4] = other[6] = 1; wide[4] = 1; last = 7; outside[1] = 9;
    """
    y = run(body, np.zeros(30, np.int32), grid=3, threads=1, before=TEMPLATES)
    assert y.reshape(3, 10).tolist() == [[-1, -1, 1, 1, 1, 1, -1, -1, -1, 1]] * 3


def test_libraries_do_not_share_variables_of_templates():
    """Two sources may give one name two sizes."""
    before = "template <typename T> LUCID_FN T* kept() {{ __shared__ T x[{}]; return x; }}"
    body = "int* x = kept<int>(); __shared__ int last; last = 3; x[{0} - 1] = {0}; y[0] = last;"
    for size in (1, 1000, 12_000):
        y = run(body.format(size), ints(1), threads=1, before=before.format(size))
        assert y[0] == 3


def test_memory_of_the_device_is_kept_between_blocks():
    y = run("y[0] = ++count;", ints(1), grid=3, threads=1, before="__device__ int count;")
    assert y[0] == 3


def turns(threads, grid, wait=""):
    """The numbers of threads in the order they ran."""
    n = threads * grid
    body = f"{wait} y[atomicAdd(a, 1)] = blockIdx.x * blockDim.x + t; {wait}"
    return run(body, ints(n), np.zeros(1, np.int32), grid=grid, threads=threads).tolist()


@pytest.mark.parametrize("wait", ["", "__syncthreads();", "__syncwarp();"])
def test_blocks_warps_and_lanes_run_in_other_orders(monkeypatch, wait):
    first_to_last = list(range(210))
    assert turns(70, 3, wait) == first_to_last
    monkeypatch.setenv("LUCID_HOST_ORDER", "reversed")
    assert turns(70, 3, wait) == first_to_last[::-1]
    mixed = []
    for seed in range(3):
        monkeypatch.setenv("LUCID_HOST_ORDER", str(seed))
        found = turns(70, 3, wait)
        assert sorted(found) == first_to_last and found == turns(70, 3, wait)
        assert len({k - i for i, k in enumerate(found)}) > 5
        mixed.append(found)
    assert mixed[0] != mixed[1] != mixed[2]
    monkeypatch.setenv("LUCID_HOST_ORDER", "random")
    with pytest.raises(RuntimeError, match="'reversed' or a number, not 'random'"):
        turns(1, 1)


def test_other_orders_show_a_missing_barrier(monkeypatch):
    body = "__shared__ int s[64]; s[t] = t; {} y[t] = s[t / 2];"
    for barrier, wanted in (("__syncthreads();", [True] * 2), ("", [True, False])):
        found = []
        for order in ("", "reversed"):
            monkeypatch.setenv("LUCID_HOST_ORDER", order)
            y = run(body.format(barrier), ints(64), threads=64)
            found.append((y == np.arange(64) // 2).all())
        assert found == wanted


FEW = np.asarray([1 + 2.0**-12, 3e-40, 1e38, -3e-40], np.float32)


@pytest.mark.parametrize(
    ("product", "rest"), [("a[t] * a[t]", 2.0**-24), ("__fmul_rn(a[t], a[t])", 0.0)]
)
def test_products_and_sums_are_contracted_where_that_is_asked_for(monkeypatch, product, rest):
    a = FEW[:1].copy()
    for arithmetic in ("", "contracted", ""):
        monkeypatch.setenv("LUCID_HOST_ARITHMETIC", arithmetic)
        (y,) = run(f"y[t] = {product} - b[t];", np.ones(1, np.float32), a, a * a, threads=1)
        assert y == (rest if arithmetic == "contracted" else 0.0)


@pytest.mark.parametrize("wait", ["", "__syncthreads();"])
def test_denormal_numbers_are_flushed_until_the_launch_is_over(monkeypatch, wait):
    for arithmetic in ("", "flushed", ""):
        monkeypatch.setenv("LUCID_HOST_ARITHMETIC", arithmetic)
        y = run(f"{wait} y[t] = a[t] * 1.5f;", np.ones(4, np.float32), FEW.copy(), threads=4)
        wanted = FEW * np.float32(1.5)
        np.testing.assert_array_equal(y, [wanted[0], 0, wanted[2], 0] if arithmetic else wanted)
        assert wanted[1] > 0 > wanted[3]
    monkeypatch.setenv("LUCID_HOST_ARITHMETIC", "flushed")
    with pytest.raises(RuntimeError, match="an access at an address"):
        run(f"{wait} ((int4*)(y + 1))[t] = {{}};", ints(64))
    assert (FEW * np.float32(1.5))[1] > 0


def test_arithmetic_that_cannot_be_is_told(monkeypatch, tmp_path):
    monkeypatch.setenv("LUCID_HOST_ARITHMETIC", "fast")
    with pytest.raises(RuntimeError, match="'contracted' or 'flushed', not 'fast'"):
        run("y[t] = 0;", ints(32))
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("flags\t: sse2 fma4\n")
    with pytest.raises(RuntimeError, match="needs a processor that has fused multiply-add"):
        host._contracting("x86_64", str(cpuinfo))
    assert "-mfma" not in host._contracting("aarch64")


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
        ("(y == NULL) + 2 * ((ptrdiff_t)-1 < 0)", 2),
    ],
)  # fmt: skip
def test_built_in_functions(call, wanted):
    assert run(f"y[0] = {call};", ints(1), threads=1)[0] == wanted


def test_fma_rounds_once():
    x = np.float32(1 + 2**-12)
    body = "y[0] = fma(a[0], a[0], -1.0f) - (__fmul_rn(a[0], a[0]) - 1.0f);"
    y = run(body, np.zeros(1, np.float32), np.array([x]), threads=1)
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


LAUNCHED_WHILE_LIBRARIES_LOAD = """
import ctypes, pathlib, shutil, tempfile, threading
from lucid_gpu.launch import host

body = "__shared__ int s[8]; s[threadIdx.x] = 1; y[threadIdx.x] = s[threadIdx.x];"
built = host.build("k", 'extern "C" __global__ void k(int* y) { %s }' % body, False)
with tempfile.TemporaryDirectory() as folder:
    paths = [str(pathlib.Path(folder) / f"{i}.so") for i in range(800)]
    for path in paths:
        shutil.copy(built, path)
    loaded = [ctypes.CDLL(path) for path in paths[:400]]
    y = (ctypes.c_int * 8)()
    place = ctypes.c_void_p(ctypes.addressof(y))
    table = (ctypes.c_void_p * 1)(ctypes.addressof(place))

    def launch():
        for library in loaded:
            start = library.lucid_host_launch
            start.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_uint] * 9
            assert start(ctypes.addressof(table), None, 1, 1, 1, 8, 1, 1, 0, 0, 0) == 0

    def load():
        for path in paths[400:]:
            ctypes.CDLL(path)

    threads = [threading.Thread(target=f) for f in (launch, load)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print(sum(y))
"""


def test_a_first_launch_does_not_wait_for_a_thread_that_loads_a_library():
    """The loader has two locks. In a process of its own: one that waits so hears no signal."""
    ran = subprocess.run(
        [sys.executable, "-c", LAUNCHED_WHILE_LIBRARIES_LOAD],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert ran.stdout == "8\n", ran.stderr
