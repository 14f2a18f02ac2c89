"""NumPy gives scalars, which own their memory, where an array of one element is meant."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.tensor import from_array
from tests.oracle import gives


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


COPIES: dict[str, Any] = {  # ops whose result shares no memory, of a 0-d tensor either
    "softmax": lambda m, t, at: t.softmax(0),
    "log_softmax": lambda m, t, at: t.log_softmax(0),
    "gather": lambda m, t, at: t.gather(0, at),
    "index_select": lambda m, t, at: t.index_select(0, at),
    "take": lambda m, t, at: t.take(at),
    "take from many": lambda m, t, at: t.expand(3).clone().take(at),
    "roll": lambda m, t, at: t.roll(1),
    "roll of many": lambda m, t, at: t.expand(2, 3).roll(1),
    "scatter": lambda m, t, at: t.scatter(0, at, t),
    "scatter_reduce": lambda m, t, at: t.scatter_reduce(0, at, t, "sum"),
    "adaptive_max_pool2d": lambda m, t, at: m.nn.functional.adaptive_max_pool2d(
        t.expand(1, 5, 4), (3, 2)
    ),
}


@pytest.mark.parametrize("name", COPIES)
def test_no_result_is_a_view(name: str, device: str) -> None:
    def scenario(m: Any, where: str) -> Any:
        source = m.tensor(0.5, device=where)
        at = m.tensor(0, device=where)
        copied = COPIES[name](m, source, at)
        copied.mul_(3)
        recorded = COPIES[name](m, source.clone().requires_grad_() * 2, at)
        assert not recorded._is_view()
        return source, recorded.detach_().requires_grad

    gives((0.5, False), scenario, device)


def test_a_write_to_what_was_taken_leaves_the_source(device: str) -> None:
    def scenario(m: Any, where: str) -> Any:
        source = m.tensor([1.0, 2.0, 3.0], device=where)
        source.take(m.tensor(1, device=where)).mul_(5)
        leaf = source.clone().requires_grad_()
        taken = leaf.take(m.tensor(1, device=where))
        (taken * taken).backward()
        return source, taken, leaf.grad

    gives(([1, 2, 3], 2, [0, 4, 0]), scenario, device)
