"""The norm of many arrays and clipping by it: CUDA C on the host and the NumPy twin."""

from __future__ import annotations

import math
import shutil
from typing import Any

import numpy as np
import pytest

from lucid_gpu import dtypes as dt
from lucid_gpu.device import CPU
from lucid_gpu.kernels import multi_tensor as family
from tests.slow import slow_but

SIZES = (0, 1, 31, 33, 1023, 1025, 8191, 8192, 8193, 50_000)
FEW = {"float16": 1e-3, "bfloat16": 8e-3, "float32": 2e-6, "float64": 1e-13}


@pytest.fixture(params=["numpy", "cuda c"])
def executor(request: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "cuda c":
        if shutil.which("g++") is None:
            pytest.skip("the host executor compiles with g++, which is missing")
        monkeypatch.setattr("lucid_gpu.launch.Executor.host_cuda", True)


def arrays_of(d: dt.dtype, sizes: tuple[int, ...] = SIZES, shift: int = 0) -> list[Any]:
    rng = np.random.default_rng(1)
    return [rng.standard_normal(n + shift).astype(d.numpy)[shift:] for n in sizes]


def exact(arrays: list[Any], order: float) -> float:
    return float(np.linalg.norm(np.concatenate([a.astype(np.float64) for a in arrays]), order))


@pytest.mark.each_value
@pytest.mark.usefixtures("executor")
@pytest.mark.parametrize("shift", [0, 1], ids=["aligned", "one element in"])
@pytest.mark.parametrize("order", [1.0, 2.0, 3.0, 0.5, -1.5, math.inf, -math.inf])
@pytest.mark.parametrize("name", slow_but(FEW, "float32"))
def test_the_norm_is_that_of_float64(name: str, order: float, shift: int) -> None:
    d = dt.BY_NAME[name]
    arrays = arrays_of(d, shift=shift)
    if order == -1.5:
        arrays = [np.abs(a) + d.numpy.type(1) for a in arrays]
    found = family.total_norm(arrays, order, d if d.itemsize > 2 else dt.float32, CPU)
    assert found.shape == ()
    few = max(FEW[name] if d.itemsize > 2 else 2e-5, 0)
    np.testing.assert_allclose(float(found), exact(arrays, order), few * 4)


@pytest.mark.usefixtures("executor")
def test_types_together_are_added_in_the_widest() -> None:
    arrays = [a for name in FEW for a in arrays_of(dt.BY_NAME[name])]
    found = family.total_norm(arrays, 2.0, dt.float64, CPU)
    np.testing.assert_allclose(float(found), exact(arrays, 2), 1e-6)


@pytest.mark.each_value
@pytest.mark.usefixtures("executor")
@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("order", [1.0, 2.0, 3.0, math.inf])
def test_what_is_not_finite_is_seen(bad: float, order: float) -> None:
    arrays = arrays_of(dt.float32)
    arrays[-1][777] = bad
    found = float(family.total_norm(arrays, order, dt.float32, CPU))
    assert math.isnan(found) if math.isnan(bad) else found == math.inf


@pytest.mark.usefixtures("executor")
def test_nothing_has_norm_zero() -> None:
    assert float(family.total_norm([np.zeros((0, 3), np.float32)], 2.0, dt.float32, CPU)) == 0


@pytest.mark.each_value
@pytest.mark.usefixtures("executor")
@pytest.mark.parametrize("limit", [0.5, 1e6])
@pytest.mark.parametrize("shift", [0, 1], ids=["aligned", "one element in"])
@pytest.mark.parametrize("name", FEW)
def test_arrays_are_scaled_in_place(name: str, shift: int, limit: float) -> None:
    arrays = arrays_of(dt.BY_NAME[name], shift=shift)
    before = [a.astype(np.float64) for a in arrays]
    norm = np.array(exact(arrays, 2), np.float64 if name == "float64" else np.float32)
    family.clip_to_norm(arrays, norm, limit, CPU)
    factor = min(limit / (float(norm) + 1e-6), 1)
    for found, old in zip(arrays, before, strict=True):
        np.testing.assert_allclose(found.astype(np.float64), old * factor, FEW[name], FEW[name])
        assert factor < 1 or (found == old).all()


@pytest.mark.usefixtures("executor")
def test_a_norm_that_is_nan_makes_everything_nan() -> None:
    arrays = arrays_of(dt.float32)
    family.clip_to_norm(arrays, np.array(math.nan, np.float32), 1.0, CPU)
    assert all(np.isnan(a).all() for a in arrays)


def test_the_same_input_gives_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """However the arrays are spread over tables."""
    if shutil.which("g++") is None:
        pytest.skip("the host executor compiles with g++, which is missing")
    monkeypatch.setattr("lucid_gpu.launch.Executor.host_cuda", True)
    arrays = arrays_of(dt.float32, (9000,) * (family.TABLE.rows + 20))
    first = family.total_norm(arrays, 2.0, dt.float32, CPU)
    again = family.total_norm([a.copy() for a in arrays], 2.0, dt.float32, CPU)
    assert first == again
    np.testing.assert_allclose(float(first), exact(arrays, 2), 1e-6)
