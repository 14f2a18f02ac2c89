"""Generated CUDA C compiles for every GPU, and says what it should."""

from __future__ import annotations

import re

import pytest

from lucid_gpu import dtypes as dt
from lucid_gpu.devices import block_counters
from lucid_gpu.fusion import optable, reduction_table
from lucid_gpu.fusion.cuda_elementwise import BLOCKS, elementwise
from lucid_gpu.fusion.cuda_reduction import reduction
from lucid_gpu.fusion.cuda_source import complete, work_of
from lucid_gpu.launch.kernel_sources import kernel_folder
from lucid_gpu.launch.nvrtc import GENERATED, OPTIONS
from tests.kernels.compiling import ptx
from tests.slow import slow_but

from .nvrtc import architectures, compiled
from .plans import apply, full, leaf, op, planned, random, rows_for

PROCESSORS = 132


def kernels(values, axes=None, packed=True, long_index=None):
    """The kernels of a plan."""
    work = work_of(planned(values, axes)[0])
    if axes is None:
        return [elementwise(work, PROCESSORS, packed, long_index)]
    return [reduction(work, packed, long_index)]


# --- compiling --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "number",
    slow_but(range(len(dt.ALL))),
    ids=[d.name for d in dt.ALL],
)
def test_table_rows_compile(number):
    """Every row for every type, in one kernel a type; each type for two of the architectures."""
    d, known = dt.ALL[number], architectures()
    (kernel,) = kernels([apply(row, d, (3,)) for row in rows_for(d)], packed=False)
    for k in (number, number + len(known) // 2)[: 1 if d.is_complex else 2]:  # these take seconds
        compiled(kernel.source, known[k % len(known)])


def _samples():
    """Kernels of every walk, with packs and without, by name."""
    x, y = random((64, 48), dt.float32), random((48,), dt.float32)
    half, brain = random((64, 48), dt.float16), random((64, 48), dt.bfloat16)
    bits, turned = random((64, 48), dt.bool), random((48, 64), dt.float32).T
    chain = op("mul", op("sigmoid", op("add", leaf(x), leaf(y))), op("tanh", leaf(half)))
    picked = op("where", leaf(bits), op("sqrt", leaf(x)), op("maximum", leaf(x), leaf(y)))
    mixed = op("mul", leaf(brain), leaf(random((64, 1), dt.float64)))
    waves = op("square", leaf(random((64, 48), dt.complex64)))
    return {
        "flat": ([op("mul", op("tanh", leaf(x)), 0.5), op("gt", leaf(x), 0.0)], None),
        "flat, 16 bits": ([op("mul", leaf(half), leaf(half)), op("exp", leaf(half))], None),
        "flat, bfloat16": ([op("log1p", leaf(brain))], None),
        "flat, bytes": ([op("bitwise_and", leaf(bits), leaf(bits))], None),
        "flat, complex": ([waves], None),
        "flat, a number": ([full(1.0, dt.float16, (1000,))], None),
        "broadcast": ([chain, picked], None),
        "broadcast, mixed": ([mixed], None),
        "strided": ([op("add", leaf(turned), leaf(x))], None),
        "rows": ([chain], (1,)),
        "columns": ([chain, picked], (0,)),
        "all": ([mixed], (0, 1)),
        "middle": ([op("mul", leaf(random((8, 9, 10), dt.float32)), 2.0)], (1,)),
        "alternating": ([op("cast", leaf(random((8, 9, 10), dt.int8)), to=dt.int64)], (0, 2)),
        "complex": ([waves], (0,)),
        "in two": ([op("exp", leaf(random((300_000,), dt.bfloat16)))], (0,)),
    }


@pytest.mark.parametrize("name", slow_but(_samples(), "flat", "rows"))
def test_walks_compile(name):
    """Packed for every architecture; without packs and with 64-bit indices for one."""
    values, axes = _samples()[name]
    for kernel in kernels(values, axes):
        for architecture in architectures():
            compiled(kernel.source, architecture)
    for kernel in kernels(values, axes, packed=False, long_index=True):
        compiled(kernel.source, 90)


@pytest.mark.parametrize("path", sorted(kernel_folder().glob("*.cuh")), ids=lambda p: p.name)
def test_headers_compile_by_themselves(path):
    compiled(f'#include "{path.name}"\n', 90, as_ptx=True)


# --- what is generated ------------------------------------------------------------------------


def accesses(kernel):
    """The kinds of global loads and stores in the kernel's main loop."""
    text = compiled(kernel.source, 90, as_ptx=True)
    return set(re.findall(r"(?:ld|st)\.global(?:\.nc)?(?:\.v\d)?\.[a-z]\d+", text))


@pytest.mark.parametrize(
    ("d", "store"), [(dt.float32, "v4.f32"), (dt.float16, "v4.u32"), (dt.uint8, "v4.u32")], ids=str
)
def test_contiguous_operands_move_16_bytes_at_once(d, store):
    x = random((4096,), d)
    (kernel,) = kernels([op("add", leaf(x), leaf(x[::-1].copy()))])
    assert {"ld.global.nc.v4.u32", f"st.global.{store}"} <= accesses(kernel)
    assert kernel.aligned == (16, 16, 16)


def test_ops_are_not_contracted_but_functions_keep_their_own_fused_steps():
    """``a * b - y`` with y = a * b is 0 where y was stored, and so it is where it was not.

    In PTX an operation that names its rounding is left as it is; ptxas may contract others.
    """
    a, b, y = (leaf(random((4096,), dt.float32, seed=seed)) for seed in range(3))
    product = op("mul", a, b)
    values = [product, op("sub", product, y), op("add", y, op("mul", a, y))]
    free = re.compile(r"\b(?:mul|add|sub)(?:\.ftz)?\.f32|fma")
    for made in kernels(values) + kernels([product], (0,)):
        assert free.search(ptx(made.source, 90, OPTIONS))
        assert not free.search(ptx(made.source, 90, GENERATED))
    (made,) = kernels([op("exp", a)])
    assert "fma." in ptx(made.source, 90, GENERATED)


def test_the_widest_operand_decides_the_pack():
    x, mask = random((4096,), dt.float64), random((4096,), dt.bool)
    (kernel,) = kernels([op("where", leaf(mask), leaf(x), 0.0)])
    assert kernel.aligned == (2, 16, 16)


def test_rows_of_a_broadcast_move_packs_too():
    x, bias, scale = (
        random((64, 48), dt.float32),
        random((48,), dt.float32),
        random((64, 1), dt.float32),
    )
    (kernel,) = kernels([op("mul", op("add", leaf(x), leaf(bias)), leaf(scale))])
    assert kernel.aligned == (16, 16, 4, 16)
    assert "lucid_load<4>(a1 + b1)" in kernel.source and "p2[u] = a2[j2];" in kernel.source
    (kernel,) = kernels([op("add", leaf(x[:, :46]), leaf(bias[:46]))])
    assert kernel.aligned == (8, 8, 8)


def test_loads_are_batched_ahead_of_arithmetic():
    (kernel,) = kernels([op("tanh", leaf(random((1 << 16,), dt.float32)))])
    body = compiled(kernel.source, 90, as_ptx=True)
    first, last = (body.index("ld.global.nc.v4"), body.rindex("ld.global.nc.v4"))
    assert "ex2.approx" not in body[first:last] and body.count("ld.global.nc.v4") == 4


def test_a_size_one_operand_is_read_once():
    x, scale = random((4096,), dt.float32), random((1,), dt.float32)
    (kernel,) = kernels([op("mul", leaf(x), leaf(scale))])
    assert "const float s1 = *a1;  // the same for all" in kernel.source
    assert "lucid_divider" not in kernel.source


@pytest.mark.parametrize("count", [1, 4095, 8191, 3 * 8192 + 5000])
def test_what_fills_no_tile_is_one_element_a_thread(count):
    """A thread that took its rest in turn would wait for memory once an element."""
    (kernel,) = kernels([op("neg", leaf(random((count,), dt.bfloat16)))])
    assert "tiles = n / 8192;" in kernel.source
    assert count % 8192 <= kernel.grid[0] * 256 < count % 8192 + 4 * 256


def test_indices_grow_with_the_array():
    short = planned([op("add", leaf(random((8, 8), dt.float32)), leaf(random((8,), dt.float32)))])[
        0
    ]
    work = work_of(short)
    assert "const int rows" in elementwise(work, PROCESSORS).source
    shape = (1 << 20, 1 << 11)
    long = work._replace(shape=shape, loads=((dt.float32, (1 << 11, 1)), (dt.float32, (0, 1))))
    kernel = elementwise(long, PROCESSORS)
    assert "const long long rows" in kernel.source
    assert kernel.grid[0] * kernel.grid[1] <= PROCESSORS * BLOCKS


def test_nothing_of_a_plan_but_its_structure_is_in_the_source():
    one = kernels(
        [
            op(
                "mul",
                op("add", leaf(random((64, 32), dt.float32)), leaf(random((32,), dt.float32))),
                3.0,
            )
        ]
    )
    two = kernels(
        [
            op(
                "mul",
                op("add", leaf(random((90, 44), dt.float32)), leaf(random((44,), dt.float32))),
                7.0,
            )
        ]
    )
    assert one[0].source == two[0].source
    assert one[0].sizes != two[0].sizes


def test_a_source_reads_well():
    x, y = random((4096,), dt.float32), random((4096,), dt.float16)
    (kernel,) = kernels([op("mul", op("tanh", leaf(x)), leaf(y))])
    assert kernel.name == "lucid_tanh_mul"
    lines = kernel.source.splitlines()
    assert "    const float v1 = tanh(v0);  // tanh" in lines
    assert "    const float v3 = lucid_cast<float>(v2);  // cast" in lines
    assert max(map(len, lines)) <= 100
    assert '#include "elementwise.cuh"' in lines and "#include" not in complete(kernel.source)


@pytest.mark.parametrize("divisor", [1, 2, 3, 7, 10, 641, 4096, 65_537, (1 << 30) - 1, 1 << 30])
def test_division_by_multiplication(divisor):
    """The divider's numbers, tried at the quotients' steps, where an error would show."""
    from lucid_gpu.fusion.cuda_index import Indices

    _, multiplier, shift = Indices(False)._divider("n", divisor).values
    assert 0 < multiplier < 1 << 32
    for quotient in {0, 1, 2, 5, 1000, (1 << 30) // divisor, ((1 << 31) - 1) // divisor}:
        for n in (quotient * divisor - 1, quotient * divisor, quotient * divisor + divisor - 1):
            if 0 <= n < 1 << 31:
                assert ((n * multiplier >> 32) + n) >> shift == n // divisor
                assert (n * multiplier >> 32) + n < 1 << 32


def test_sums_have_enough_blocks_and_short_chains():
    """Full sums and bias gradients of large arrays are spread over about a thousand blocks."""
    x = random((8, 8), dt.float32)
    work = work_of(planned([op("mul", leaf(x), 2.0)], (0,))[0])
    for shape, axes in (((1 << 24,), (0,)), ((8192, 1024), (0,)), ((4096, 4096), (1,)),
                        ((64, 128, 56, 56), (0, 2, 3))):  # fmt: skip
        walk = tuple([_count(shape[k + 1 :]) for k in range(len(shape))])
        fold = work.fold._replace(axes=axes)
        large = work._replace(shape=shape, loads=((dt.float32, walk),), fold=fold)
        kernel = reduction(large)
        blocks = kernel.grid[0] * kernel.grid[1]
        each = _count(shape) / (blocks * 256)
        assert 500 <= blocks <= 4096 and each <= 256, (shape, kernel.grid, kernel.block)
        assert not kernel.partials or kernel.grid[0] <= block_counters.MOST
        few = kernel.grid[1] / kernel.block[0 if axes[-1] == len(shape) - 1 else 1]
        assert few <= 32  # states of an output that a lane of the last block adds


def _count(shape):
    n = 1
    for extent in shape:
        n *= extent
    return n


def test_templates_are_not_called_like_kernels() -> None:
    """A kernel is called ``lucid_`` and its ops; C++ takes no function with a template's name."""
    ops = {*optable.TABLE, *reduction_table.TABLE}
    text = "".join(path.read_text("utf-8") for path in kernel_folder().glob("*.cuh"))
    names = re.findall(r"template <[^;{]*?struct [^;{]*?\blucid_(\w+)", text)
    assert len(names) > 5
    assert [name for name in names if set(name.split("_")) <= ops] == []
