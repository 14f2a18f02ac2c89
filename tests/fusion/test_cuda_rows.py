"""Kernels along rows: what they compute, how they read, and when they are chosen."""

from __future__ import annotations

import re

import numpy as np
import pytest

from lucid_gpu import dtypes as dt
from lucid_gpu.fusion import blocked, cuda_executor
from lucid_gpu.fusion.cuda_elementwise import elementwise
from lucid_gpu.fusion.cuda_source import work_of
from lucid_gpu.launch.host import HostLauncher

from .nvrtc import architectures, compiled
from .plans import agree, leaf, needs_compiler, op, planned, random

# shapes of operands that are added and multiplied; every one has rows to walk along
CASES = {
    "a bias": [(64, 48), (48,)],
    "a number a row": [(64, 48), (64, 1)],
    "both": [(33, 1024), (1024,), (33, 1), (33, 1024)],
    "a bias of channels": [(17, 8, 36), (8, 1)],
    "the second dimension": [(3, 40, 64), (3, 1, 64)],
    "outer": [(1023, 1), (1, 64)],
    "few": [(3, 64), (64,)],
    "a line": [(1000,), (1000,)],
    "short": [(100, 4), (4,)],
    "no packs": [(31, 33), (33,)],
    "five dimensions": [(2, 3, 20, 4, 8), (3, 1, 4, 1), (2, 1, 1, 1, 8)],
    "a part": [(40, 300), (300,)],
}


def values(case, d, first=None):
    x, *others = [leaf(random(shape, d, seed=k)) for k, shape in enumerate(CASES[case])]
    total = x if first is None else first
    for k, other in enumerate(others):
        total = op("mul" if k % 2 else "add", total, other)
    return [op("tanh", total), op("gt", total, 0.0)]


def kernel(made, **how):
    return elementwise(work_of(planned(made)[0]), 132, **how)


@pytest.mark.each_value
@needs_compiler
@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("d", [dt.float32, dt.bfloat16, dt.float64], ids=str)
@pytest.mark.parametrize("case", CASES)
def test_values(case, d, streamed, monkeypatch):
    if streamed:
        monkeypatch.setattr(HostLauncher, "cache", 0)
    first = None
    if case == "a line":
        first = leaf(random((3004,), d)[3::3][:1000])
    if case == "a part":
        first = leaf(random((40, 601), d)[:, ::-2][:, 1:])
    plan, arrays, scalars = planned(values(case, d, first))
    executable = cuda_executor.Executable(plan)
    assert "A thread walks from row to row" in executable.source
    assert ("lucid_store_streamed" in executable.source) == (
        streamed and case not in ("no packs", "a part", "a line")
    )
    for one, other in zip(executable(arrays, scalars), blocked.Executable(plan)(arrays, scalars)):
        agree(one, other, case)


@needs_compiler
@pytest.mark.parametrize("case", CASES)
def test_64_bit_indices_give_the_same(case, monkeypatch):
    first = leaf(random((3004,), dt.float32)[3::3][:1000]) if case == "a line" else None
    if case == "a part":
        first = leaf(random((40, 601), dt.float32)[:, ::-2][:, 1:])
    plan, arrays, scalars = planned(values(case, dt.float32, first))
    wanted = blocked.Executable(plan)(arrays, scalars)
    monkeypatch.setattr(
        cuda_executor, "elementwise", lambda *a, **k: elementwise(*a, **k, long_index=True)
    )
    executable = cuda_executor.Executable(plan)
    assert "A thread walks from row to row" in executable.source
    assert "const long long rows" in executable.source
    for one, other in zip(executable(arrays, scalars), wanted, strict=True):
        agree(one, other, case)


@needs_compiler
def test_unaligned_rows_and_long_indices(monkeypatch):
    x, bias = random((64 * 48 + 1,), dt.float32)[1:].reshape(64, 48), random((48,), dt.float32)
    plan, arrays, scalars = planned([op("add", leaf(x), leaf(bias))])
    wanted = blocked.Executable(plan)(arrays, scalars)
    agree(cuda_executor.Executable(plan)(arrays, scalars)[0], wanted[0])
    monkeypatch.setattr(
        cuda_executor, "elementwise", lambda *a, **k: elementwise(*a, **k, long_index=True)
    )
    executable = cuda_executor.Executable(plan)
    agree(executable(arrays, scalars)[0], wanted[0])
    assert "const long long rows" in executable.source


def test_what_rows_share_is_read_before_them():
    x, bias = random((4096, 1024), dt.float32), random((1024,), dt.float32)
    one = kernel([op("add", leaf(x), leaf(bias))])
    text = compiled(one.source, 90, as_ptx=True)
    moves = re.findall(r"(ld|st)\.global", text)
    assert moves[:5] == ["ld"] * 5 and moves[5:9] == ["st"] * 4  # the bias, then four rows
    assert "quotient" not in one.source and "div" not in text and "rem" not in text
    assert one.block == (256, 1) and one.grid == (1, 1024)


def test_loads_of_all_rows_under_way_come_before_arithmetic():
    x, bias = random((4096, 1024), dt.float32), random((1024,), dt.float32)
    made = [op("mul", op("tanh", op("add", leaf(x), leaf(bias))), leaf(x[::-1].copy()))]
    for streamed in (False, True):
        body = compiled(kernel(made, streamed=streamed).source, 90, as_ptx=True)
        first = [m.start() for m in re.finditer(r"ld\.global\S*v4", body)][:5]
        assert "ex2.approx" not in body[first[0] : first[-1]]


def test_what_no_cache_holds_is_streamed():
    x, bias = random((4096, 1024), dt.float32), random((1024,), dt.float32)
    made = [op("add", leaf(x), leaf(bias))]
    streamed = compiled(kernel(made, streamed=True).source, 90, as_ptx=True)
    assert "ld.global.cs.v4" in streamed and "st.global.cs.v4" in streamed
    assert "ld.global.nc.v4" in streamed  # the bias stays
    assert ".cs." not in compiled(kernel(made).source, 90, as_ptx=True)
    flat = compiled(kernel([op("exp", leaf(x))], streamed=True).source, 90, as_ptx=True)
    assert "ld.global.cs.v4" in flat and "st.global.cs.v4" in flat


def test_the_dimension_that_saves_most_is_walked():
    x, one, other = (random(s, dt.float32) for s in ((2, 64, 1024), (2, 1, 1024), (64, 1024)))
    made = [op("mul", op("add", leaf(x), leaf(one)), leaf(other))]
    assert kernel(made).sizes[0].values == (64,)


@pytest.mark.parametrize("case", ["both", "the second dimension", "no packs", "a number a row"])
def test_they_compile(case):
    for architecture in architectures():
        compiled(kernel(values(case, dt.float16)).source, architecture)
    compiled(kernel(values(case, dt.float32), packed=False, long_index=True).source, 90)
    compiled(kernel(values(case, dt.bfloat16), streamed=True).source, 90)


def test_grids_fill_the_device():
    x, bias = random((1, 1024), dt.float32), random((1024,), dt.float32)
    work = work_of(planned([op("add", leaf(np.repeat(x, 64, 0)), leaf(bias))])[0])
    large = work._replace(shape=(1 << 20, 1024))
    one = elementwise(large, 132)
    assert one.grid[0] == 1 and 132 * 100 <= one.grid[1] <= 132 * 120
