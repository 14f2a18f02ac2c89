"""Generated CUDA C, run on the host, against the NumPy executor."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from lucid_gpu import dtypes as dt
from lucid_gpu.fusion import blocked, cuda_executor
from lucid_gpu.fusion.cuda_elementwise import elementwise
from lucid_gpu.fusion.cuda_reduction import reduction
from tests.slow import slow_but

from .plans import (
    agree,
    apply,
    full,
    leaf,
    needs_compiler,
    op,
    operands_of,
    planned,
    random,
    rows_for,
)

pytestmark = needs_compiler

FLOATS = (dt.float16, dt.bfloat16, dt.float32, dt.float64)


def check(values, axes=None):
    """Run a plan both ways and compare."""
    plan, arrays, scalars = planned(values, axes)
    executable = cuda_executor.Executable(plan)
    found = executable(arrays, scalars)
    wanted = blocked.Executable(plan)(arrays, scalars)
    for one, other in zip(found, wanted, strict=True):
        agree(one, other, executable.source)
    return executable


SOME = (dt.bool, dt.bfloat16, dt.float32, dt.complex128)

# --- every row of the table, each type's in one kernel ----------------------------------------


@pytest.mark.parametrize("d", slow_but(dt.ALL, dt.float32), ids=lambda d: d.name)
def test_table_rows(d):
    shape = (67,)
    rows = rows_for(d)
    kinds = {(row.domain, row.rule == "select", row.name.endswith("shift")): row for row in rows}
    inputs = {key: operands_of(row, d, shape) for key, row in kinds.items()}
    for key, arrays in inputs.items():
        while len(arrays) < 3:
            arrays.append(random(shape, d, key[0], seed=len(arrays)))
    values = []
    for row in rows:
        arrays = inputs[row.domain, row.rule == "select", row.name.endswith("shift")]
        values.append(apply(row, d, shape, arrays[: row.arity]))
    plan, arrays, scalars = planned(values)
    found = cuda_executor.Executable(plan)(arrays, scalars)
    wanted = blocked.Executable(plan)(arrays, scalars)
    for row, one, other in zip(rows, found, wanted, strict=True):
        agree(one, other, f"{row.name} of {d.name}")


EDGES = (0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.5, -2.5, np.inf, -np.inf, np.nan, 7.0, -7.0, 3.0, 1e-3)


@pytest.mark.parametrize("d", slow_but([dt.float32, dt.float64], dt.float64), ids=lambda d: d.name)
def test_table_rows_at_the_edges(d):
    """Signed zeros, infinities and NaN, each with each."""
    a, b = (g.reshape(-1) for g in np.meshgrid(np.array(EDGES, d.numpy), np.array(EDGES, d.numpy)))
    rows = [r for r in rows_for(d) if r.rule != "select"]
    plan, arrays, scalars = planned([apply(r, d, a.shape, [a, b][: r.arity]) for r in rows])
    found = cuda_executor.Executable(plan)(arrays, scalars)
    wanted = blocked.Executable(plan)(arrays, scalars)
    for row, one, other in zip(rows, found, wanted, strict=True):
        agree(one, other, f"{row.name} of {d.name}")


@pytest.mark.parametrize(
    "d", slow_but([dt.int8, dt.uint8, dt.int32, dt.int64], dt.int64), ids=lambda d: d.name
)
def test_integers_at_the_edges(d):
    """Division by zero and of the smallest number, shifts by more than the width."""
    limits = np.iinfo(d.numpy)
    some = np.array([limits.min, limits.max, 0, 1, 2, 3, 7, 9, limits.max - 1], d.numpy)
    if d.is_signed:
        some = np.concatenate([some, np.array([-1, -2, -7], d.numpy)])
    a, b = (g.reshape(-1) for g in np.meshgrid(some, some))
    rows = [r for r in rows_for(d) if r.arity == 2 and r.name != "pow" and r.rule != "float"]
    plan, arrays, scalars = planned([apply(r, d, a.shape, [a, b]) for r in rows])
    found = cuda_executor.Executable(plan)(arrays, scalars)
    wanted = blocked.Executable(plan)(arrays, scalars)
    for row, one, other in zip(rows, found, wanted, strict=True):
        agree(one, other, f"{row.name} of {d.name}")


def test_casts_between_all_types():
    values = []
    for source in dt.ALL:
        array = random((37,), source, "positive")
        values += [op("cast", leaf(array), to=target) for target in dt.ALL]
    check(values)


def test_rounding_to_16_bits_is_ieee():
    """Every float16 and bfloat16, the numbers half way between them, and beyond both ends."""
    for d, storage in ((dt.float16, np.float16), (dt.bfloat16, ml_dtypes.bfloat16)):
        exact = np.arange(1 << 16, dtype=np.uint16).view(storage).astype(np.float32)
        with np.errstate(over="ignore", invalid="ignore"):
            between = (exact[:-1] + exact[1:]) / 2
        numbers = np.concatenate([exact, between, np.nextafter(between, np.float32(np.inf))])
        numbers = np.concatenate([numbers, np.array([65519.9, 65520, 1e38, -1e38], np.float32)])
        plan, arrays, scalars = planned([op("cast", leaf(numbers), to=d)])
        (found,) = cuda_executor.Executable(plan)(arrays, scalars)
        with np.errstate(over="ignore", invalid="ignore"):
            wanted = numbers.astype(storage)
        known = ~np.isnan(numbers)
        np.testing.assert_array_equal(found[known].view(np.uint16), wanted[known].view(np.uint16))
        assert np.isnan(found[~known].astype(np.float32)).all()
        plan, arrays, scalars = planned([op("cast", leaf(wanted), to=dt.float32)])
        (back,) = cuda_executor.Executable(plan)(arrays, scalars)
        np.testing.assert_array_equal(back, wanted.astype(np.float32))


# --- shapes and layouts -----------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 1, 2, 31, 33, 1023, 1025, 4096, 20_000, 1_000_003])
def test_contiguous_sizes(n):
    x, y = random((n,), dt.float32), random((n,), dt.float32, seed=1)
    check([op("add", op("mul", leaf(x), leaf(y)), 1.5), op("sub", leaf(x), leaf(y))])


@pytest.mark.parametrize("d", slow_but(dt.ALL, *SOME), ids=lambda d: d.name)
def test_contiguous_types(d):
    x = random((2, 1031), d)
    check([op("logical_not", leaf(x)), op("cast", leaf(x), to=dt.float32), op("where", full(
        True, dt.bool, x.shape), leaf(x), leaf(x))])  # fmt: skip


@pytest.mark.parametrize("offset", [1, 2, 3, 4, 8])
def test_unaligned_views_take_single_elements(offset):
    memory = random((2100,), dt.float32)
    whole = random((2048,), dt.float32, seed=1)
    view = memory[offset : offset + 2048]
    executable = check([op("add", leaf(view), leaf(whole))])
    assert (executable._launches[True] is not None) == (view.ctypes.data % 16 == 0)


def test_addresses_that_are_no_multiple_of_an_element():
    memory = np.zeros(8 * 101 + 3, np.uint8)
    odd = memory[3:].view(np.float64)
    odd[:] = random((101,), dt.float64)
    check([op("mul", leaf(odd), 2.0)])


def test_strides_that_are_no_multiple_of_an_element():
    records = np.zeros(33, np.dtype([("mark", np.uint8), ("value", np.float32)]))
    records["value"] = random((33,), dt.float32)
    check([op("mul", leaf(records["value"]), leaf(random((33,), dt.float32)))])


def _layouts(d):
    """Pairs of operands that lie differently, by name."""
    x = random((12, 5, 16), d)
    return {
        "vector": (x, random((16,), d, seed=1)),
        "column": (x, random((12, 1, 1), d, seed=1)),
        "middle": (x, random((5, 1), d, seed=1)),
        "outer": (random((12, 1, 1), d), random((1, 5, 16), d, seed=1)),
        "single": (x, random((1, 1), d, seed=1)),
        "scalar": (x, random((), d, seed=1)),
        "transposed": (x, random((16, 5, 12), d, seed=1).transpose(2, 1, 0)),
        "both transposed": (x.T, random((12, 5, 16), d, seed=1).T),
        "steps": (x[:, :, ::2], random((12, 5, 8), d, seed=1)),
        "backwards": (x[::-1, :, ::-1], x),
        "rows cut": (x[:, :, :8], x[:, :, 8:]),
        "odd rows": (random((7, 3, 5), d), random((7, 1, 5), d, seed=1)),
        "pairs": (random((7, 6), d), random((6,), d, seed=1)),
        "broadcast view": (x, np.broadcast_to(random((5, 1), d, seed=1), (12, 5, 16))),
        "missing dimensions": (random((1, 1, 1, 16), d), x),
        "ones between": (random((9, 1, 16), d), random((16,), d, seed=1)),
        "empty": (random((0, 5), d), random((5,), d, seed=1)),
    }


@pytest.mark.each_value
@pytest.mark.parametrize("layout", _layouts(dt.float32))
@pytest.mark.parametrize("d", [dt.uint8, dt.float16, dt.float32, dt.complex128], ids=str)
def test_layouts(layout, d):
    a, b = _layouts(d)[layout]
    check([op("sub", op("mul", leaf(a), leaf(b)), leaf(b))])


@pytest.mark.parametrize("layout", ["middle", "transposed", "backwards", "pairs"])
def test_64_bit_indices(layout):
    a, b = _layouts(dt.float32)[layout]
    plan, arrays, scalars = planned([op("sub", leaf(a), leaf(b))])
    executable = cuda_executor.Executable(plan)
    executable._kernels[True] = elementwise(executable.work, 1, long_index=True)
    agree(executable(arrays, scalars)[0], a - b)
    assert "long long" in executable.source


@pytest.mark.parametrize("shape", [(0,), (2, 0), (0, 2), (3, 0, 2), (0, 0)], ids=str)
def test_empty_shapes(shape):
    x, y = random(shape, dt.float32), random((1,) * len(shape), dt.float32)
    narrow = random((*shape[:-1], 1), dt.float32)
    check([op("mul", op("add", leaf(x), leaf(y)), leaf(narrow))])
    for axis in range(len(shape)):
        executable = check([op("mul", leaf(x), leaf(narrow))], (axis,))
    check([op("mul", leaf(x.T), leaf(x.T))], tuple(range(len(shape))))
    assert "nothing is launched" in executable.source


def test_strides_are_arguments():
    """Plans that differ in sizes, strides and constants only share one source."""
    shapes = ((64, 32), (48, 1000), (20, 90))
    sources = set()
    for n, shape in enumerate(shapes):
        x = random((shape[1], shape[0]), dt.float32).T
        sources.add(
            check(
                [op("mul", op("add", leaf(x), leaf(random(shape, dt.float32))), n % 2 + 0.5)]
            ).source
        )
    assert len(sources) == 1


def test_numbers_keep_their_type():
    """Constants and scalars arrive as the type of the value they meet."""
    x = random((10,), dt.float32)
    check([op("mul", leaf(x), 1e40), op("add", leaf(x.astype(np.complex64)), 2 - 3j)])
    check([op("add", leaf(np.arange(10, dtype=np.int8)), -1), op("add", leaf(x > 0), 2**40)])
    for step in range(20):  # beyond a few, numbers become scalars
        value = op("hypot", leaf(x), 0.25 * step)
    check([value])
    assert planned([value])[2]


def test_a_value_that_reads_nothing():
    check([full(2.5, dt.float32, (3, 5))])


# --- sums -------------------------------------------------------------------------------------


SUMS = {
    "all": ((13, 40), (0, 1)),
    "all, large": ((1 << 17,), (0,)),
    "rows": ((33, 100), (1,)),
    "long rows": ((3, 70_000), (1,)),
    "rows of ten": ((300, 10), (1,)),
    "columns": ((100, 36), (0,)),
    "long columns": ((30_000, 12), (0,)),
    "seven columns": ((500, 7), (0,)),
    "middle": ((6, 50, 8), (1,)),
    "channels": ((8, 5, 6, 6), (0, 2, 3)),
    "alternating": ((5, 6, 7, 8), (0, 2)),
    "other alternating": ((5, 6, 7, 8), (1, 3)),
    "extent one": ((5, 1, 8), (1,)),
    "one element": ((1, 1), (0, 1)),
    "nothing": ((0, 4), (0,)),
    "no outputs": ((4, 0), (0,)),
    "no axes": ((4, 6), ()),
}


@pytest.mark.parametrize("case", SUMS)
def test_sums(case):
    shape, axes = SUMS[case]
    # Positive numbers: the error of a sum is relative to the sum of magnitudes.
    x, y = (random(n, dt.float32, "positive", seed) for seed, n in enumerate((shape, shape[-1:])))
    executable = check(
        [op("mul", leaf(x), leaf(y)), op("cast", op("square", leaf(x)), to=dt.float64)], axes
    )
    assert bool(executable.kernel(True).partials) == ("large" in case or "long" in case)


@pytest.mark.parametrize("d", slow_but(dt.ALL, *SOME), ids=lambda d: d.name)
def test_sums_of_types(d):
    x = random((40, 24), d, "positive")
    wide = leaf(x) if d.category >= 2 else op("cast", leaf(x), to=dt.int64)
    check([op("add", wide, 0)], (0,))
    check([op("add", wide, 0)], (1,))


def test_sums_of_strided_operands():
    x = random((24, 40), dt.float32, "positive")
    for view in (x.T, x[:, ::-1], x[::2], x[:, :36]):
        for axes in ((0,), (1,), (0, 1)):
            check([op("mul", leaf(view), leaf(view))], axes)


def test_sums_with_64_bit_indices():
    x = random((24, 40), dt.float32, "positive")
    for axes in ((0,), (1,)):
        plan, arrays, scalars = planned([op("mul", leaf(x), leaf(x[0]))], axes)
        executable = cuda_executor.Executable(plan)
        executable._kernels[True] = reduction(executable.work, long_index=True)
        wanted = (x * x[0]).sum(axes, keepdims=True)
        np.testing.assert_allclose(executable(arrays, scalars)[0], wanted, 1e-5, 1e-5)


def test_sums_of_unaligned_views():
    memory = random((40 * 24 + 1,), dt.float32, "positive")
    check([op("mul", leaf(memory[1:].reshape(40, 24)), 2.0)], (0,))


def test_sums_repeat_to_the_bit():
    x = random((1 << 16,), dt.float32)
    plan, arrays, scalars = planned([op("exp", leaf(x))], (0,))
    executable = cuda_executor.Executable(plan)
    assert executable(arrays, scalars)[0].item() == executable(arrays, scalars)[0].item()


def test_sums_are_added_in_pairs():
    """A million equal float32 numbers: adding them one by one would be off by a tenth."""
    x = np.full(1 << 20, 0.1, np.float32)
    plan, arrays, scalars = planned([op("mul", leaf(x), 1.5)], (0,))
    found = cuda_executor.Executable(plan)(arrays, scalars)[0].item()
    assert abs(found / (float(np.float32(np.float32(0.1) * np.float32(1.5))) * 2**20) - 1) < 1e-6


# --- the tools --------------------------------------------------------------------------------


def test_threads_that_part_at_a_barrier_are_an_error():
    plan, arrays, scalars = planned([op("mul", leaf(random((64,), dt.float32)), 2.0)], (0,))
    executable = cuda_executor.Executable(plan)
    kernel = executable.kernel(True)
    parted = kernel.source.replace(
        "if (o < outputs) {", "if (threadIdx.x == 1) __syncwarp();\n    {", 1
    )
    executable._kernels[True] = kernel._replace(source=parted)
    with pytest.raises(RuntimeError, match="parted at a barrier or a shuffle"):
        executable(arrays, scalars)


def test_a_source_the_compiler_refuses_is_shown():
    plan, arrays, scalars = planned([op("mul", leaf(random((4,), dt.float32)), 2.0)])
    executable = cuda_executor.Executable(plan)
    kernel = executable.kernel(True)
    executable._kernels[True] = kernel._replace(source=kernel.source.replace("v0 *", "v0 times"))
    with pytest.raises(RuntimeError, match=r"refused the kernel lucid_mul(.|\n)*v0 times"):
        executable(arrays, scalars)


def test_a_kernel_of_one_op_is_not_mistaken_for_the_device_function():
    check([op("abs", leaf(random((4,), dt.float32)))])
