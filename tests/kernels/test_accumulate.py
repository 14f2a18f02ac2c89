"""Accumulating many rows side by side: the bits of NumPy's own way."""

from __future__ import annotations

import numpy as np
import pytest

from lucid_gpu.devices.loops import available
from lucid_gpu.kernels import accumulate as kernels

SHAPES = (((70, 300), 1), ((33, 513), 1), ((1100, 16), 1), ((3, 70, 33, 5), 2), ((40, 512), 1))


@pytest.mark.parametrize("kind", "fd")
@pytest.mark.parametrize(("shape", "dim"), SHAPES)
def test_as_numpy_accumulates(shape: tuple[int, ...], dim: int, kind: str) -> None:
    x = (np.random.default_rng(3).standard_normal(shape) * 2).astype(kind)
    x.reshape(-1)[[5, 900]] = np.nan, np.inf
    for ufunc in (np.add, np.multiply, np.maximum):
        assert kernels._applies(ufunc, x, dim) == available()
        backwards = np.flip(x, dim)
        with np.errstate(all="ignore"):
            expected = ufunc.accumulate(x, dim), ufunc.accumulate(backwards, dim)
        out = np.empty(x.shape[::-1], kind).T
        assert kernels.accumulate(ufunc, x, dim, out) is out
        np.testing.assert_array_equal(out, expected[0])
        np.testing.assert_array_equal(kernels.accumulate(ufunc, backwards, dim), expected[1])


def test_of_places() -> None:
    x = np.random.default_rng(3).integers(0, 9, (40, 500))
    np.testing.assert_array_equal(kernels.accumulate(np.maximum, x, 1), np.maximum.accumulate(x, 1))
