"""Pooling: CUDA C and NumPy against the definition in float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from lucid_gpu import profiler
from lucid_gpu.kernels import pooling
from lucid_gpu.kernels.windows import Frame, Window
from tests.kernels.windows import CASES, KINDS, LIMITS, executor, views, windows
from tests.slow import slow_but

__all__ = ["executor"]

POOLED = {name: case for name, case in CASES.items() if name != "many channels"}


def places_of(array: Any, frame: Frame) -> Any:
    """The place of each window's largest pixel; NaN is larger than any number."""
    found = windows(array.astype(np.float64), frame, -np.inf)
    n, c = found.shape[:2]
    flat = found.reshape(n, c, math.prod(frame.window.kernel), *frame.steps)
    inside = windows(np.ones(frame.shape), frame, 0).reshape(flat.shape) != 0
    order = np.where(np.isnan(flat), np.inf, flat)
    return np.where(inside, order, np.nan), flat


@pytest.mark.each_value
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", POOLED)
def test_maxima(case: str, kind: Any, executor: str) -> None:
    shape, window = POOLED[case]
    frame = Frame(shape, window)
    for name, array in views(np.random.default_rng(3), shape, kind):
        rounded = np.round(array.astype(np.float32)).astype(kind)  # many are equal
        inside, flat = places_of(rounded, frame)
        y, places = pooling.max_pool(rounded, frame)
        assert y.dtype == kind and places.dtype.itemsize == (1 if flat.shape[2] <= 256 else 4)
        if y.size:
            first = np.nanargmax(inside, axis=2)
            np.testing.assert_array_equal(places, first, err_msg=name)
            expected = np.take_along_axis(flat, first[:, :, None], 2)[:, :, 0]
            np.testing.assert_array_equal(y.astype(np.float64), expected, err_msg=name)


@pytest.mark.each_value
@pytest.mark.parametrize("kind", slow_but(KINDS, np.float32))
@pytest.mark.parametrize("case", POOLED)
def test_gradients_of_maxima(case: str, kind: Any, executor: str) -> None:
    shape, window = POOLED[case]
    frame, rng = Frame(shape, window), np.random.default_rng(4)
    x = rng.standard_normal(shape).astype(kind)
    _, places = pooling.max_pool(x, frame)
    pixels = np.arange(x.size, dtype=np.float64).reshape(shape)
    owners = windows(pixels, frame, -1).reshape(*shape[:2], math.prod(window.kernel), *frame.steps)
    owner = np.take_along_axis(owners, places[:, :, None].astype(int), 2)[:, :, 0].astype(int)
    for name, g in views(rng, (*shape[:2], *frame.steps), kind):
        expected = np.zeros(x.size)
        np.add.at(expected, owner, g.astype(np.float64))
        got = pooling.max_pool_bwd(g, places, frame)
        limit = LIMITS[kind]
        np.testing.assert_allclose(
            got.astype(np.float64).ravel(), expected, limit, limit * 8, err_msg=name
        )
    taken = pooling.max_pool_take(x, places, frame)
    np.testing.assert_array_equal(taken.astype(np.float64), x.astype(np.float64).ravel()[owner])


@pytest.mark.each_value
@pytest.mark.parametrize("kind", [np.float32, np.float16, np.int32, np.uint8])
def test_all_as_small_as_can_be(kind: Any, executor: str) -> None:
    """The first pixel of the image wins, not the padding before it."""
    least = -np.inf if np.dtype(kind).kind == "f" else np.iinfo(kind).min
    x = np.full((1, 1, 4, 4), least, kind)
    y, places = pooling.max_pool(x, Frame(x.shape, Window((3, 3), (2, 2), (1, 1))))
    np.testing.assert_array_equal(y, np.full((1, 1, 2, 2), least))
    np.testing.assert_array_equal(places[0, 0], [[4, 3], [1, 0]])


@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_nan_is_the_largest(kind: Any, executor: str) -> None:
    x = np.array([[np.nan, 5, 1, 2], [3, np.nan, 9, np.inf]], kind).reshape(1, 1, 2, 4)
    y, places = pooling.max_pool(x, Frame(x.shape, Window((2, 2), (2, 2))))
    np.testing.assert_array_equal(y[0, 0], [[np.nan, np.inf]])
    np.testing.assert_array_equal(places[0, 0], [[3, 3]])


@pytest.mark.each_value
@pytest.mark.parametrize("padding", [True, False])
@pytest.mark.parametrize("divisor", [0, 3])
@pytest.mark.parametrize("kind", slow_but(KINDS, np.float32))
@pytest.mark.parametrize("case", [name for name in POOLED if "dilated" not in name])
def test_means(case: str, kind: Any, divisor: int, padding: bool, executor: str) -> None:
    shape, window = POOLED[case]
    frame, rng, limit = Frame(shape, window), np.random.default_rng(5), LIMITS[kind]
    counts = windows(np.ones(shape), frame, float(padding)).sum((2, 3))  # no window leaves the edge
    counts = np.full(counts.shape, divisor) if divisor else counts
    for name, x in views(rng, shape, kind):
        expected = windows(x.astype(np.float64), frame, 0).sum((2, 3)) / counts
        got = pooling.avg_pool(x, frame, padding, divisor)
        assert got.dtype == kind
        np.testing.assert_allclose(got.astype(np.float64), expected, limit, limit, err_msg=name)
    for name, g in views(rng, (*shape[:2], *frame.steps), kind):
        got = pooling.avg_pool_bwd(g, frame, padding, divisor)
        assert got.dtype == kind and got.shape == shape
        spread = np.zeros(np.prod(shape))
        pixels = np.arange(spread.size, dtype=np.float64).reshape(shape)
        owners = windows(pixels, frame, -1).astype(int)
        parts = np.broadcast_to((g.astype(np.float64) / counts)[:, :, None, None], owners.shape)
        np.add.at(spread, owners[owners >= 0], parts[owners >= 0])
        np.testing.assert_allclose(
            got.astype(np.float64).ravel(), spread, limit * 4, limit * 8, err_msg=name
        )


def test_each_is_one_kernel_that_moves_the_least(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lucid_gpu.launch.Executor.host_cuda", True)
    frame = Frame((2, 3, 8, 8), Window((3, 3), (2, 2), (1, 1)))
    x = np.ones(frame.shape, np.float32)
    with profiler.record() as run:
        y, places = pooling.max_pool(x, frame)
        pooling.max_pool_bwd(y, places, frame)
        pooling.avg_pool(x, frame, True, 0)
        pooling.avg_pool_bwd(y, frame, True, 0)
    assert places.nbytes == y.size
    large, small = x.nbytes, y.nbytes
    assert [(k.name, k.bytes_read, k.bytes_written) for k in run.kernels] == [
        ("lucid_max_pool_float32_uint8", large, small + places.nbytes),
        ("lucid_max_pool_bwd_float32_uint8", small + places.nbytes, large),
        ("lucid_avg_pool_float32", large, small),
        ("lucid_avg_pool_bwd_float32", small, large),
    ]
