"""A small plan's first runs go line by line, later ones by a table of loops: with the same bits."""

from __future__ import annotations

import numpy as np
import pytest

from lucid_gpu import dtypes as dt
from lucid_gpu.core.program import forget
from lucid_gpu.dtypes import dtype
from lucid_gpu.fusion import blocked
from lucid_gpu.fusion.numpy_source import COLD

from .plans import apply, leaf, op, planned, random, rows_for

SHAPES = [(), (1,), (2, 0), (3,), (67,), (4099,), (5, 67), (2, 3, 129)]


def executable_of(row, d: dtype, shape):
    """A row among other ops, of which some read a value spread over the rows."""
    wide = apply(row, d, shape)
    own = dt.float32 if wide.program.dtype is dt.bool else wide.program.dtype
    narrow = leaf(random(shape[-1:], own, "positive", seed=7))
    value = op("mul", wide, narrow)
    for _ in range(3):
        value = op("add", op("mul", value, value), narrow)
    plan, arrays, scalars = planned([value, op("neg", value)])
    return blocked.Executable(plan), arrays, scalars


@pytest.mark.each_value
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("d", [dt.float32, dt.float64], ids=str)
def test_the_bits_of_later_runs_are_those_of_the_first(d: dtype, shape) -> None:
    made = 0
    for row in rows_for(d):
        executable, arrays, scalars = executable_of(row, d, shape)
        runs = [executable(arrays, scalars) for _ in range(COLD + 2)]
        assert ("native" in vars(executable)) == bool(executable.total)
        made += vars(executable).get("native") is not None
        for run in runs[1:]:
            for a, b in zip(run, runs[0], strict=True):
                np.testing.assert_array_equal(a, b, row.name)
    forget()
    if blocked.native_loops.available() and shape == (4099,):
        assert made > 10


def test_a_shape_that_does_not_come_again_has_no_table() -> None:
    x = leaf(random((3, 5), dt.float32))
    value = op("tanh", op("mul", op("add", op("exp", x), x), op("sin", x)))
    plan, arrays, scalars = planned([value])
    executable = blocked.Executable(plan)
    for _ in range(COLD):
        executable(arrays, scalars)
        assert "native" not in vars(executable)
    executable(arrays, scalars)
    assert "native" in vars(executable)


def test_a_run_that_two_threads_count_at_once_does_not_end_the_counting() -> None:
    executable, arrays, scalars = executable_of(next(iter(rows_for(dt.float32))), dt.float32, (5,))
    executable.cold = executable.form.cold = -1  # as two threads leave it that both find 1
    executable(arrays, scalars)
    assert "native" in vars(executable)


def test_one_table_serves_many_lengths_with_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    build = blocked.native_loops.build
    monkeypatch.setattr(
        blocked.native_loops, "build", lambda *given: made.append(build(*given)) or made[-1]
    )
    lengths = [*range(3, 60, 7), 2047, 2048, 2049, 5000, 4099, 1]
    for n in lengths:
        x, y = random((n,), dt.float32), random((n,), dt.float32, seed=1)
        a, b = leaf(x), leaf(y)
        value = op("mul", op("tanh", op("add", op("mul", a, b), a)), op("sub", b, a))
        plan, arrays, scalars = planned([value])
        (found,) = blocked.Executable(plan)(arrays, scalars)
        np.testing.assert_array_equal(found, np.tanh(x * y + x) * (y - x))
    if blocked.native_loops.available():
        assert 0 < len(made) <= 10  # a longer one is for twice as many elements
    forget()
