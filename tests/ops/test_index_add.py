"""Adding at positions: values, gradients and errors as in torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lucid_gpu
from tests.oracle import agree, same_error

CUBE = np.random.default_rng(6).standard_normal((4, 3, 5))


def long(m: Any, *values: Any) -> Any:
    return m.tensor(list(values), dtype=m.int64)


CASES: dict[str, Any] = {
    "index_add": lambda m, t: t.index_add(0, long(m, 1, 1).to(t.device), t[:2] * 3),
    "index_add alpha": lambda m, t: t.index_add(
        2, long(m, 1, 1).to(t.device), t[..., :2], alpha=-2
    ),
    "scatter_add": lambda m, t: t.scatter_add(0, m.ones(4, 3, 5, dtype=m.int64).to(t.device), t),
}


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_agree_with_torch(name: str, device: str) -> None:
    agree(CASES[name], CUBE, device=device)


MISUSE: dict[str, tuple[Any, str]] = {
    "scatter_add beyond": (
        lambda m: m.ones(3).scatter_add(0, m.tensor([5]), m.ones(1)),
        "index 5 is out of bounds for dimension 0 with size 3",
    ),
}


@pytest.mark.parametrize("name", MISUSE)
def test_misuse_raises_as_in_torch(name: str) -> None:
    function, words = MISUSE[name]
    same_error(function, words)


@pytest.mark.parametrize("name", ["scatter_add", "index_add"])
def test_positions_out_of_range_are_named(name: str, device: str) -> None:
    t = lucid_gpu.ones(2, device=device)
    index = lucid_gpu.tensor([0, 2], device=device)
    kind = IndexError if name.startswith("index") else RuntimeError  # as in PyTorch
    with pytest.raises(kind, match="index 2 is out of bounds for dimension 0 with size 2"):
        getattr(t, name)(0, index, t).tolist()
