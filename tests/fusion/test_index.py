"""Values that are their own place, and random numbers made of it: both executors, every walk."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from lucid_gpu import dtypes as dt
from lucid_gpu.core.value import Expr
from lucid_gpu.device import CPU
from lucid_gpu.devices import philox
from lucid_gpu.fusion import blocked, cuda_executor
from lucid_gpu.fusion.building import drawn, of_index
from lucid_gpu.fusion.cuda_elementwise import elementwise
from lucid_gpu.fusion.cuda_reduction import reduction
from lucid_gpu.fusion.cuda_source import work_of
from lucid_gpu.fusion.optable import TABLE
from tests.kernels.compiling import resources

from .nvrtc import architectures, compiled
from .plans import leaf, needs_compiler, op, planned

SEED, DRAW = 0x9ABCDEF012345678, 0xFEDCBA9876543210
SHAPES = [(), (1,), (7,), (0, 3), (33, 5), (300, 401), (1 << 17,), (5, 1, 90, 333)]
EXECUTORS = [
    pytest.param(blocked.Executable, id="numpy"),
    pytest.param(cuda_executor.Executable, id="cuda-c", marks=needs_compiler),
]


def draw(name: str, d: dt.dtype, shape: tuple[int, ...], *numbers: float) -> Expr:
    return drawn(TABLE[name], d, shape, CPU, (SEED, DRAW), numbers)


def mask(shape: tuple[int, ...], p: float = 0.5) -> Expr:
    return op("ge", draw("random_uniform", dt.float32, shape, 8, 2.0**-24, 0.0), p)


def run(executor, *values: Expr, axes=None):
    plan, arrays, scalars = planned(values, axes)
    return executor(plan)(arrays, scalars)


def place(*shape: int):
    return np.arange(math.prod(shape)).reshape(shape)


@pytest.mark.each_value
@pytest.mark.parametrize("executor", EXECUTORS)
class TestIndex:
    @pytest.mark.parametrize("shape", SHAPES, ids=str)
    def test_counts_row_by_row(self, executor, shape):
        (found,) = run(executor, of_index(shape, CPU))
        assert found.dtype == np.int64
        np.testing.assert_array_equal(found, place(*shape))

    @pytest.mark.parametrize("own", [(401,), (300, 1), (1,), (2, 1, 401), (1, 300, 1)], ids=str)
    def test_broadcasts_its_own_count(self, executor, own):
        shape = (2, 300, 401)
        x = place(*shape) % 1000
        (found,) = run(executor, op("sub", leaf(x), of_index(own, CPU)))
        np.testing.assert_array_equal(found, x - place(*own))

    def test_beside_operands_that_lie_differently(self, executor):
        turned = (place(401, 300) % 77).T
        values = [
            op("add", leaf(turned), of_index((300, 401), CPU)),
            op("mul", leaf(turned[:, ::-1]), of_index((401,), CPU)),
        ]
        for one, other in zip(run(executor, *values), (
            turned + place(300, 401), turned[:, ::-1] * place(401)), strict=True):  # fmt: skip
            np.testing.assert_array_equal(one, other)

    @pytest.mark.parametrize("axes", [(0,), (1,), (2,), (0, 2), (0, 1, 2)], ids=str)
    def test_is_summed(self, executor, axes):
        shape = (3, 70, 412)
        x = place(*shape) % 5
        value = op("mul", op("add", leaf(x), of_index((412,), CPU)), of_index(shape, CPU))
        (found,) = run(executor, value, axes=axes)
        wanted = ((x + place(412)) * place(*shape)).sum(axes, keepdims=True)
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.each_value
@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
class TestDraws:
    """The stream is `devices.philox`'s, whoever computes it."""

    @pytest.mark.parametrize("d", [dt.float32, dt.float64], ids=str)
    def test_uniform(self, executor, shape, d):
        spare, digits = (8, 24) if d is dt.float32 else (11, 53)
        value = draw("random_uniform", d, shape, spare, 3.0 * 2.0**-digits, -1.25)
        (found,) = run(executor, value)
        wanted = philox.uniform(SEED, DRAW, math.prod(shape), d).reshape(shape)
        np.testing.assert_array_equal(found, wanted * d.numpy.type(3) + d.numpy.type(-1.25))

    @pytest.mark.parametrize("d", [dt.float32, dt.float64], ids=str)
    def test_normal(self, executor, shape, d):
        (found,) = run(executor, draw("random_normal", d, shape, 1.0, 0.0))
        wanted = philox.normal(SEED, DRAW, math.prod(shape), d).reshape(shape)
        few = 4 * np.finfo(d.numpy).eps  # units in the last place: another library's log and cos
        np.testing.assert_allclose(found, wanted, few, few)

    @pytest.mark.parametrize("d", [dt.float32, dt.float64], ids=str)
    def test_exponential(self, executor, shape, d):
        """The smallest too are right to the last places, which the word as a float is not."""
        (found,) = run(executor, draw("random_exponential", d, shape, 2.0))
        wanted = philox.exponential(SEED, DRAW, math.prod(shape)).reshape(shape) / 2
        assert found.dtype == d.numpy
        np.testing.assert_allclose(found, wanted, 4 * np.finfo(d.numpy).eps)

    @pytest.mark.parametrize("span", [1, 10, 1 << 16, (1 << 16) + 1, 10**12, 1 << 64])
    def test_below(self, executor, shape, span):
        (found,) = run(executor, draw("random_below", dt.int64, shape, span % (1 << 64)))
        wanted = philox.integers(SEED, DRAW, math.prod(shape), 0, span).reshape(shape)
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_draw_is_the_same_in_every_walk(executor):
    shape = (300, 404)
    wanted = philox.uniform(SEED, DRAW, math.prod(shape), dt.float32).reshape(shape) >= 0.5
    x = np.ones(shape, np.float32)
    for other in (x, np.ones((404, 300), np.float32).T, x[0], x[:, :1], x[:, ::-1]):
        (found,) = run(executor, op("mul", leaf(other), mask(shape)))
        np.testing.assert_array_equal(found, wanted)
    half = np.ones(shape, np.float16)
    np.testing.assert_array_equal(run(executor, op("mul", leaf(half), mask(shape)))[0], wanted)
    (total,) = run(executor, op("mul", leaf(x), mask(shape)), axes=(1,))
    np.testing.assert_array_equal(total, wanted.sum(1, keepdims=True))


@pytest.mark.parametrize("executor", EXECUTORS)
def test_an_index_that_was_computed_with(executor):
    """Any whole numbers may be the index of a draw."""
    several = op("floor_divide", of_index((1000,), CPU), 3)
    numbers = [np.array(n, np.int64) for n in (7, 3, 50)]
    (found,) = run(executor, op("random_below", several, *[leaf(n) for n in numbers], to=dt.int64))
    np.testing.assert_array_equal(found, philox.integers(7, 3, 334, 0, 50)[np.arange(1000) // 3])


def test_an_index_reads_no_bytes():
    x = np.ones((300, 401), np.float32)
    plan, _, _ = planned([op("mul", leaf(x), mask(x.shape))])
    assert (plan.bytes_read, plan.bytes_written) == (x.nbytes, x.nbytes)
    assert len(plan.loads) == 1


# --- the CUDA C ---------------------------------------------------------------------------------


def kernels(d: dt.dtype):
    """Draws in every walk, by name."""
    x = np.ones((64, 48), d.numpy)
    normal = draw("random_normal", dt.float32, x.shape, 2.0, 1.0)
    wide = draw("random_uniform", dt.float64, x.shape, 11, 2.0, 1.0)
    waits = draw("random_exponential", dt.float64, x.shape, 2.0)
    below = draw("random_below", dt.int64, x.shape, 10**10)
    flat = [op("mul", leaf(x), mask(x.shape)), normal, wide, below, waits]
    found = {"flat": elementwise(work_of(planned(flat)[0]), 132)}
    for name, other in {"strided": np.ones((48, 64), d.numpy).T, "broadcast": x[0]}.items():
        work = work_of(planned([op("mul", leaf(other), mask(x.shape))])[0])
        found[name] = elementwise(work, 132)
        found[f"{name}, 64 bits"] = elementwise(work, 132, long_index=True)
    for axes in ((0,), (1,)):
        found[f"summed over {axes}"] = reduction(work_of(planned(flat[:1], axes)[0]))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(kernels(dt.float32)))
@pytest.mark.parametrize("d", [dt.float32, dt.bfloat16], ids=str)
def test_it_compiles(name, d):
    kernel = kernels(d)[name]
    assert max(map(len, kernel.source.splitlines())) <= 100
    for architecture in architectures():
        compiled(kernel.source, architecture)


@pytest.mark.parametrize("long_index", [False, True], ids=["32 bits", "64 bits"])
@pytest.mark.parametrize("d", [dt.float16, dt.float32, dt.float64], ids=str)
def test_four_neighbors_share_the_rounds(d, long_index):
    """Twenty multiplications make four numbers: those of a pack, and of the element left over."""
    x = np.ones((4096,), d.numpy)
    plan = planned([op("mul", leaf(x), mask(x.shape))])[0]
    source = elementwise(work_of(plan), 132, long_index=long_index).source
    repeat, width = map(int, re.search(r"moves (\d+) x (\d+) elements", source).groups())
    blocks = repeat * -(-width // 4) + 1
    multiplications = len(re.findall(r"mul\.(?:hi|wide)\.u32", compiled(source, 80, as_ptx=True)))
    assert 0 < multiplications <= 20 * blocks


def block(rows: int, columns: int, d: dt.dtype) -> Expr:
    """bias + gelu + dropout + residual."""
    x, residual = (np.ones((rows, columns), d.numpy) for _ in range(2))
    biased = op("add", leaf(x), leaf(np.ones(columns, d.numpy)))
    curve = op("add", op("erf", op("mul", biased, 0.7071067811865476)), 1.0)
    gelu = op("mul", op("mul", biased, 0.5), curve)
    kept = op("mul", op("mul", gelu, mask(x.shape, 0.1)), 1 / 0.9)
    return op("add", kept, leaf(residual))


@pytest.mark.parametrize("d", [dt.float32, dt.bfloat16], ids=str)
def test_a_block_shares_the_rounds_and_spills_nothing(d):
    """Rows that share a bias: a mask costs a quarter of the rounds an element, and no memory."""
    source = elementwise(work_of(planned([block(4096, 1024, d)])[0]), 132).source
    packs = 2 if d is dt.bfloat16 else 1  # of four numbers, in one of 16 bytes
    repeat = int(re.search(r"u < (\d+)", source)[1])
    multiplications = len(re.findall(r"mul\.(?:hi|wide)\.u32", compiled(source, 90, as_ptx=True)))
    assert 0 < multiplications <= 20 * packs * (repeat + 1)
    for architecture in (80, 90):
        used = resources(source, architecture)
        assert (used.stack, used.spilled) == (0, 0) and used.registers <= 96
