"""`scatter`: values, gradients and errors as in torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.oracle import agree, same_error

CUBE = np.random.default_rng(6).standard_normal((4, 3, 5))


def long(m: Any, *values: Any) -> Any:
    return m.tensor(list(values), dtype=m.int64)


CASES: dict[str, Any] = {
    "scatter": lambda m, t: t.scatter(
        0, long(m, 2, 0, 1).reshape(1, 3, 1).to(t.device), t[:1, :, :1] * 2
    ),
    "scatter a number": lambda m, t: t.scatter(1, m.ones(4, 1, 5, dtype=m.int64).to(t.device), 9.0),
    "scatter nothing": lambda m, t: t.scatter(
        1, m.ones(4, 0, 5, dtype=m.int64).to(t.device), t[:, :0] * 2
    ),
    "scatter into a number": lambda m, t: t[0, 0, 0].scatter(
        0, long(m, 0).to(t.device), t[0, 0, 1]
    ),
    "scatter at one position": lambda m, t: (
        t[0, 0].scatter(0, m.tensor(1).to(t.device), 7.0),
        t[0, 0].scatter(0, m.tensor(2).to(t.device), t[0, 0, 1]),
        t[0, 0].detach().scatter(-1, m.tensor(0).to(t.device), 3.0, reduce="multiply"),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_agree_with_torch(name: str, device: str) -> None:
    agree(CASES[name], CUBE, device=device)


MISUSE: dict[str, tuple[Any, str]] = {
    "scatter beyond": (
        lambda m: m.ones(3).scatter_(0, m.tensor([5]), 1.0),
        "index 5 is out of bounds for dimension 0 with size 3",
    ),
    "scatter from the end": (
        lambda m: m.ones(3).scatter(0, m.tensor([-1]), m.ones(1)),
        "index -1 is out of bounds for dimension 0 with size 3",
    ),
}


@pytest.mark.parametrize("name", MISUSE)
def test_misuse_raises_as_in_torch(name: str) -> None:
    function, words = MISUSE[name]
    same_error(function, words)
