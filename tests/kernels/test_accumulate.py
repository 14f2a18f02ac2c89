"""Accumulating many rows side by side: the bits of NumPy's own way."""

from __future__ import annotations

import numpy as np
import pytest

from lucid_gpu.devices.loops import available
from lucid_gpu.kernels import accumulate as kernels

SHAPES = (
    ((70, 300), 1), ((33, 513), 1), ((1100, 16), 1), ((3, 70, 33, 5), 2), ((40, 512), 1),
    ((1100, 70), 0), ((5, 40, 100), 1), ((2, 3, 4500), 1), ((9, 200, 12), 1),
)  # fmt: skip


@pytest.mark.parametrize("kind", "fd")
@pytest.mark.parametrize(("shape", "dim"), SHAPES)
def test_as_numpy_accumulates(shape: tuple[int, ...], dim: int, kind: str) -> None:
    x = (np.random.default_rng(3).standard_normal(shape) * 2).astype(kind)
    x.reshape(-1)[[5, 900]] = np.nan, np.inf
    for ufunc in (np.add, np.multiply, np.maximum):
        backwards = np.flip(x, dim)
        with np.errstate(all="ignore"):
            expected = ufunc.accumulate(x, dim), ufunc.accumulate(backwards, dim)
            found = kernels.accumulate(ufunc, backwards, dim)
            out = np.empty(x.shape[::-1], kind).T
            assert kernels.accumulate(ufunc, x, dim, out) is out
        np.testing.assert_array_equal(out, expected[0])
        np.testing.assert_array_equal(found, expected[1])


def test_in_place() -> None:
    for shape, dim in SHAPES:
        x = np.random.default_rng(3).standard_normal(shape)
        expected = np.add.accumulate(x, dim)
        assert kernels.accumulate(np.add, x, dim, x) is x
        np.testing.assert_array_equal(x, expected)


def test_recordings_serve_rows_and_columns() -> None:
    x = np.ones((128, 256), "f")
    for dim, recorded in ((0, kernels._columns_recorded), (1, kernels._rows_recorded)):
        before = recorded.cache_info().misses + recorded.cache_info().hits
        kernels.accumulate(np.add, x, dim)
        calls = recorded.cache_info().misses + recorded.cache_info().hits - before
        assert bool(calls) == (dim == 0 or available())


def test_of_places() -> None:
    x = np.random.default_rng(3).integers(0, 9, (40, 500))
    np.testing.assert_array_equal(kernels.accumulate(np.maximum, x, 1), np.maximum.accumulate(x, 1))
