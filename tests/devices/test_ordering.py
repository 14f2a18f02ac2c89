"""The stable order, and products of integers, beside NumPy's own."""

from __future__ import annotations

import numpy as np
import pytest

from lucid_gpu import dtypes as dt
from lucid_gpu.devices import ordering
from lucid_gpu.devices.numpy_backend import NumpyBackend

RNG = np.random.default_rng(4)
FLOATS = RNG.standard_normal((90, 64)).astype(np.float32)
ODD = FLOATS.copy()
ODD[3, ::5], ODD[4, ::7], ODD[5, ::3] = np.nan, -np.inf, 0.0
ODD[5, 1::3] = -0.0
ODD[6, 1:3] = np.array([0xFFC00001, 0x7FC00002], np.uint32).view(np.float32)  # NaNs of two signs
ARRAYS = {
    "floats": FLOATS,
    "odd floats": ODD,
    "equals": np.round(FLOATS),
    "integers": RNG.integers(-50, 50, (90, 64)),
    "large integers": RNG.integers(-(1 << 63), (1 << 63) - 1, (90, 64)),
    "bytes": RNG.integers(0, 256, (90, 64)).astype(np.uint8),
    "doubles": FLOATS.astype(np.float64),
    "cube": RNG.standard_normal((5, 40, 33)).astype(np.float32),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_as_numpy_argsorts(name: str) -> None:
    x = ARRAYS[name]
    for array, dim in ((x, 0), (x, -1), (x.T[::-1], 1), (x.reshape(-1), 0)):
        expected = np.argsort(array, axis=dim, kind="stable")
        np.testing.assert_array_equal(ordering.stable_argsort(array, dim), expected)


@pytest.mark.parametrize("name", ["int8", "int32", "int64", "uint8"])
def test_products_of_integers(name: str) -> None:
    for high in (9, 127, (1 << 30)):
        a, b = [RNG.integers(-high, high, s).astype(name) for s in ((40, 50), (50, 60))]
        d = dt.from_numpy_dtype(a.dtype)
        np.testing.assert_array_equal(NumpyBackend().matmul(a, b, d), a @ b)
        np.testing.assert_array_equal(
            NumpyBackend().matmul(a, b, d, np.empty((40, 60), name)), a @ b
        )
