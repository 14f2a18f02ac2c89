"""Every shape of generated kernel with 64-bit indices, which arrays above 2^30 elements have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lucid_gpu import dtypes as dt
from lucid_gpu.fusion import blocked, cuda_elementwise, cuda_executor, cuda_index
from tests.fusion.plans import agree, leaf, needs_compiler, op, planned, random

X, ROW, COLUMN = (
    random((24, 40), dt.float32),
    random((40,), dt.float32),
    random((24, 1), dt.float32),
)
CUBE = random((6, 10, 14), dt.float32)
CASES: dict[str, Any] = {
    "flat": lambda: ([op("mul", leaf(X), 2.0)], None),
    "rows": lambda: ([op("add", op("mul", leaf(X), leaf(ROW)), leaf(COLUMN))], None),
    "transposed": lambda: ([op("sub", leaf(X.T), leaf(random((40, 24), dt.float32)))], None),
    "strided": lambda: ([op("sub", leaf(CUBE[:, ::2, ::-1]), leaf(CUBE[:, 1::2]))], None),
    "permuted": lambda: ([op("exp", leaf(CUBE.transpose(2, 0, 1)))], None),
    "all": lambda: ([op("square", leaf(X))], (0, 1)),
    "last axis": lambda: ([op("mul", leaf(X), leaf(ROW))], (1,)),
    "first axis": lambda: ([op("mul", leaf(X), leaf(ROW))], (0,)),
    "middle axis": lambda: ([op("abs", leaf(CUBE))], (1,)),
    "outer axes": lambda: ([op("abs", leaf(CUBE))], (0, 2)),
    "long": lambda: ([op("abs", leaf(random((200_000,), dt.float32)))], (0,)),
    "nothing": lambda: ([op("abs", leaf(X[:0]))], None),
}


@needs_compiler
@pytest.mark.parametrize("case", CASES)
def test_64_bit_indices_give_the_same(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, arrays, scalars = planned(*CASES[case]())
    short = cuda_executor.Executable(plan).kernel(True).source
    for module in (cuda_index, cuda_elementwise):
        monkeypatch.setattr(module, "SHORT", -1)
    executable = cuda_executor.Executable(plan)
    long = executable.kernel(True).source
    assert "long long" in long
    assert long != short
    wanted = blocked.Executable(plan)(arrays, scalars)
    for found, other in zip(executable(arrays, scalars), wanted, strict=True):
        agree(np.asarray(found), other)
