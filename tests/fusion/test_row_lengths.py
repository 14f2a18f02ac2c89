"""Rows of the compiled loops: their lengths, and what is left when they end."""

from __future__ import annotations

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.fusion import native_loops


def test_a_block_of_many_calls_has_longer_rows() -> None:
    names = {"a0": 4, "a1": 4, "o0": 4}
    short = native_loops.flat_rows(1 << 20, names, scratch=12, calls=14)
    long = native_loops.flat_rows(1 << 20, names, scratch=12, calls=15)
    assert short.width < long.width
    assert short.width * (12 + 12) <= native_loops.row_bytes(False)
    assert long.width * (12 + 12) <= native_loops.row_bytes(True)
    assert short.number * short.width == long.number * long.width == 1 << 20


@pytest.mark.parametrize("count", [1, 63, 4095, 4096, 4097, 12_305, 300_001, 700_000])
@pytest.mark.parametrize("calls", [3, 40])
def test_as_numpy(calls: int, count: int) -> None:
    x = np.linspace(-1, 1, count, dtype=np.float32)
    wanted, got = x, lucid_gpu.tensor(x)
    for number in range(calls):
        part = np.float32(0.5 + number / 64)
        wanted, got = wanted * part + x, got * float(part) + lucid_gpu.tensor(x)
    np.testing.assert_array_equal(got.numpy(), wanted)
