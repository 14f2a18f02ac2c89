"""The kernel that updates many tensors at once."""

from __future__ import annotations

import struct
from types import SimpleNamespace

import numpy as np
import pytest

from lucid_gpu import dtypes as dt
from lucid_gpu.fusion import blocked, cuda_executor, cuda_foreach, foreach
from lucid_gpu.launch import rows
from lucid_gpu.launch.rows import filled, table_of

from .nvrtc import architectures, compiled
from .plans import agree, needs_compiler, op, random

SIZES = [(3,), (0,), (100, 40), (), (2048,), (2049,), (5, 1001)] + [(n,) for n in range(1, 120)]


def momentum(types):
    """Inputs and values of a rule with a state: parameter, velocity, gradient."""
    parameter, velocity, gradient = foreach.stand_ins(types)
    speed = op("add", op("mul", velocity, 0.9), op("cast", gradient, to=types[1]))
    moved = op("sub", parameter, op("mul", speed, 0.01))
    return [parameter, velocity, gradient], [op("cast", moved, to=types[0]), speed]


def columns_of(types, shift=0):
    """Arrays of many sizes; ``shift`` takes some of them off their alignment."""
    result = []
    for seed, d in enumerate(types):
        column = []
        for i, shape in enumerate(SIZES):
            count = int(np.prod(shape))
            off = shift if i % 3 == 0 else 0
            memory = random((count + off,), d, seed=seed * 1000 + i)
            column.append(memory[off:].reshape(shape))
        result.append(column)
    return result


TYPES = {
    "float32": [dt.float32] * 3,
    "bfloat16 with float32 states": [dt.bfloat16, dt.float32, dt.bfloat16],
    "float64": [dt.float64] * 3,
}


@needs_compiler
@pytest.mark.parametrize("shift", [0, 1])
@pytest.mark.parametrize("types", TYPES)
def test_many_tensors_are_updated_as_by_numpy(types, shift, monkeypatch):
    results = []
    for executor in (blocked.Executable, cuda_executor.Executable):
        monkeypatch.setattr(foreach, "executor", executor)
        columns = columns_of(TYPES[types], shift)
        update = foreach.traced(*momentum(TYPES[types]))
        for _ in range(2):
            foreach.run(update, columns)
        results.append(columns)
    for wanted, found in zip(*results, strict=True):
        for one, other in zip(found, wanted, strict=True):
            agree(one, other)


@needs_compiler
@pytest.mark.parametrize("types", TYPES)
def test_tensors_of_several_rows_are_updated_as_by_numpy(types, monkeypatch):
    """No row is so long that its index needs 64 bits: here they are a thousand elements at most."""
    results = []
    for executor, longest in ((blocked.Executable, rows.LONGEST), (cuda_executor.Executable, 1024)):
        monkeypatch.setattr(foreach, "executor", executor)
        monkeypatch.setattr(rows, "LONGEST", longest)
        columns = columns_of(TYPES[types])
        foreach.run(foreach.traced(*momentum(TYPES[types])), columns)
        results.append(columns)
    for wanted, found in zip(*results, strict=True):
        for one, other in zip(found, wanted, strict=True):
            agree(one, other)


@needs_compiler
@pytest.mark.parametrize("types", TYPES)
def test_it_compiles(types, monkeypatch):
    made = []
    monkeypatch.setattr(
        foreach, "executor", lambda plan: made.append(cuda_executor.Executable(plan)) or made[0]
    )
    foreach.run(foreach.traced(*momentum(TYPES[types])), columns_of(TYPES[types]))
    for architecture in architectures():
        compiled(made[0].source, architecture)
    assert "lucid_rows<3, " in made[0].source and max(map(len, made[0].source.splitlines())) <= 100


def test_the_table_fits_in_the_arguments_of_a_kernel():
    for columns in range(1, 12):
        table = table_of(columns, 10)
        size = struct.calcsize("=" + table.form)
        assert size + 80 <= 4096 and size % 8 == 0 and table.rows >= 40
    assert table_of(4, 9).rows >= 100  # Adam's, with a number for everything


@pytest.mark.parametrize("numbers", [(dt.float32,), (dt.complex128,) * 3, (dt.complex128, dt.bool)])
def test_numbers_of_sixteen_bytes_have_their_place(numbers):
    for columns in range(1, 12):
        work = SimpleNamespace(scalars=numbers, constants=numbers)
        table = cuda_foreach.rows_of(work, [dt.complex128] * columns)
        end = struct.calcsize("=" + table.form)
        for d in (*numbers, *numbers):
            end += -end % d.itemsize + d.itemsize
        assert end <= 4096 and table.rows >= 40


def test_tensors_longer_than_a_row_are_several():
    table = table_of(2, 0)
    long = (2**30 + 2**30 + 5, 4096, 1 << 40)
    ((argument, blocks, count),) = filled(table, [(7, 16, 32), long], 1024, [4, 8])
    n = table.rows
    sizes, first = argument[2 * n : 3 * n], argument[3 * n : 4 * n]
    assert sizes[:5] == [7, 2**30, 2**30, 5, 0] and argument[-1] == 4
    assert argument[:4] == [16, 4096, 4096 + 2**32, 4096 + 2**33]
    assert argument[n : n + 4] == [32, 1 << 40, (1 << 40) + 2**33, (1 << 40) + 2**34]
    assert first[:4] == [0, 1, 1 + 2**20, 1 + 2**21] and blocks == 2 + 2**21
    assert count == 7 + long[0]
