"""Reading along a dimension: values, gradients and errors as in torch."""

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
    "gather": lambda m, t: t.gather(1, long(m, 0, 2, 1, 1).reshape(4, 1, 1).to(t.device)),
    "gather last": lambda m, t: m.gather(t, -1, m.zeros(2, 3, 5, dtype=m.int64).to(t.device)),
    "take_along_dim": lambda m, t: m.take_along_dim(
        t, m.ones(4, 3, 1, dtype=m.int64).to(t.device), 2
    ),
    "index_select": lambda m, t: t.index_select(2, long(m, 4, 0, 0).to(t.device)),
    "gather of a number": lambda m, t: (
        t[0, 0, 0].gather(0, long(m, 0, 0).to(t.device)),
        t[0, 0].gather(0, long(m, 2)[0].to(t.device)),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_agree_with_torch(name: str, device: str) -> None:
    agree(CASES[name], CUBE, device=device)


MISUSE: dict[str, tuple[Any, str]] = {
    "gather by a list": (
        lambda m: m.ones(3).gather(0, [1]),
        "gather(): argument 'index' (position 2) must be Tensor, not list",
    ),
    "select by a list": (
        lambda m: m.ones(3).index_select(0, [1]),
        "index_select(): argument 'index' (position 2) must be Tensor, not list",
    ),
    "gather rank": (lambda m: m.ones(2, 2).gather(0, m.tensor([0])), "same number of dimensions"),
    "gather type": (lambda m: m.ones(2).gather(0, m.ones(2)), "int64"),
    "gather of more rows": (
        lambda m: m.zeros(1, 3).gather(1, m.zeros(2, 2, dtype=m.int64)),
        "Size does not match",
    ),
    "gather beyond": (
        lambda m: m.ones(3).gather(0, m.tensor([0, 5])),
        "index 5 is out of bounds for dimension 0 with size 3",
    ),
    "gather of whole rows beyond": (
        lambda m: m.ones(3, 2).gather(0, m.tensor([[5]]).expand(1, 2)),
        "index 5 is out of bounds for dimension 0 with size 3",
    ),
    "gather from the end": (
        lambda m: m.ones(2, 3).gather(1, m.tensor([[-1]])),
        "index -1 is out of bounds for dimension 1 with size 3",
    ),
    "select beyond": (lambda m: m.ones(3).index_select(0, m.tensor([5])), "index 5"),
    "select from the end": (lambda m: m.ones(3).index_select(0, m.tensor([-1])), "index -1"),
    "select by a mask": (
        lambda m: m.ones(2).index_select(0, m.tensor([True, False])),
        "Expected dtype int32 or int64 for index",
    ),
}


@pytest.mark.parametrize("name", MISUSE)
def test_misuse_raises_as_in_torch(name: str) -> None:
    function, words = MISUSE[name]
    same_error(function, words)


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_gather_of_many(dim: int, device: str) -> None:
    rng = np.random.default_rng(8)
    x, index = rng.standard_normal((20, 30, 40)), rng.integers(0, 18, (18, 18, 18))
    agree(lambda m, t: (t.gather(dim, m.tensor(index).to(t.device)),), x, device=device, order=1)


@pytest.mark.parametrize("name", ["gather", "index_select"])
def test_positions_out_of_range_are_named(name: str, device: str) -> None:
    t = lucid_gpu.ones(2, device=device)
    index = lucid_gpu.tensor([0, 2], device=device)
    kind = IndexError if name.startswith("index") else RuntimeError  # as in PyTorch
    with pytest.raises(kind, match="index 2 is out of bounds for dimension 0 with size 2"):
        getattr(t, name)(0, index).tolist()
