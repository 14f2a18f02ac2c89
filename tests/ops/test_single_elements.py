"""NumPy gives scalars, which own their memory, where an array of one element is meant."""

from __future__ import annotations

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.tensor import from_array


def test_an_element_is_a_view(device: str) -> None:
    x = lucid_gpu.tensor([1.0, 2.0, 3.0], device=device)
    x[1].add_(5)
    assert x.tolist() == [1.0, 7.0, 3.0]
    y = x[2]
    x.mul_(2)
    assert y.item() == 6.0


REDUCTIONS = {
    "amax": lambda x: x.amax(),
    "prod": lambda x: x.prod(),
    "mean": lambda x: x.mean(),
    "all": lambda x: x.all(),
    "argmin": lambda x: x.argmin(),
    "dot": lambda x: x.dot(x),
    "index": lambda x: x[lucid_gpu.tensor(2)],
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_results_of_no_dimension_are_arrays(name: str, device: str) -> None:
    result = REDUCTIONS[name](lucid_gpu.tensor([1.0, 3.0, 2.0], device=device))
    assert result.shape == ()
    assert not isinstance(result.array, np.generic)
    assert (result + 1).item() == result.item() + 1


def test_a_scalar_of_numpy_becomes_an_array() -> None:
    assert isinstance(from_array(np.float64(2.5)).array, np.ndarray)
