"""Operands spread over periods of rows, as a batch norm's figures are over images."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import lucid_gpu

SHAPES = [(3, 40, 130), (5, 300, 1000), (3, 4, 20, 70), (300, 3, 1400), (3, 1, 64, 64)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_as_numpy(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal(shape).astype(np.float32)
    for spread in itertools.product((False, True), repeat=len(shape)):
        own = [1 if one else n for one, n in zip(spread, shape, strict=True)]
        a, b = rng.standard_normal(own).astype(np.float32), x[:1, :, :1]
        got = lucid_gpu.tensor(x) * lucid_gpu.tensor(a) + lucid_gpu.tensor(b)
        np.testing.assert_array_equal(got.numpy(), x * a + b)
