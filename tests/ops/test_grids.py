"""Grids, combinations and triangles: as in torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.oracle import agree, gives, same_error, torch_module

RNG = np.random.default_rng(24)
MATRIX = RNG.standard_normal((2, 4))
CASES: dict[str, Any] = {
    "meshgrid": lambda m, t: m.meshgrid(t[0], t[1, :2], t[0, 0], indexing="ij"),
    "meshgrid of a list": lambda m, t: m.meshgrid([t[0, :3], t[1]], indexing="xy"),
    "meshgrid xy of three": lambda m, t: m.meshgrid(t[0], t[1, :2], t[0, :3], indexing="xy"),
    "meshgrid of one": lambda m, t: m.meshgrid(t[0], indexing="xy"),
    "cartesian_prod": lambda m, t: m.cartesian_prod(t[0, :2], t[1], t[0, :1]),
    "cartesian_prod of one": lambda m, t: m.cartesian_prod(t[0]),
    "combinations": lambda m, t: m.combinations(t[0]),
    "combinations of three": lambda m, t: m.combinations(t[0], r=3),
    "with replacement": lambda m, t: m.combinations(t[0], 2, with_replacement=True),
    "too many": lambda m, t: m.combinations(t[0], 5),
    "of none": lambda m, t: m.combinations(t[0], 0),
    "unravel_index of bytes": lambda m, t: m.unravel_index((t.detach() * 0).byte(), (10, 3)),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore:torch.meshgrid")
def test_agrees_with_torch(name: str, device: str) -> None:
    agree(CASES[name], MATRIX, device=device)


def test_indices(device: str) -> None:
    def scenario(m: Any, where: str) -> Any:
        lower = m.tril_indices(3, 4, 1, device=where)
        upper = m.triu_indices(4, 2, offset=-1, dtype=m.int32, device=where)
        places = m.unravel_index(m.tensor([[5, 0], [23, 7]], device=where), (2, 3, 4))
        return lower, upper, str(upper.dtype)[-5:], places, m.unravel_index(m.tensor(3), 5)

    gives(scenario(torch_module(), "cpu"), scenario, device)


MISUSE: dict[str, tuple[Any, str]] = {
    "a grid of nothing": (lambda m: m.meshgrid(), ""),
    "a grid of a matrix": (lambda m: m.meshgrid(m.ones(2, 2)), "Expected 0D or 1D tensor"),
    "a grid of types": (
        lambda m: m.meshgrid(m.ones(2), m.ones(2, dtype=m.int64)),
        "torch.meshgrid expects all tensors to have the same dtype",
    ),
    "indexing": (
        lambda m: m.meshgrid(m.ones(2), indexing="yx"),
        'indexing must be one of "xy" or "ij", but received: yx',
    ),
    "product of a matrix": (lambda m: m.cartesian_prod(m.ones(2, 2)), "Expect a 1D vector"),
    "combinations of a matrix": (lambda m: m.combinations(m.ones(2, 2)), "Expect a 1D vector"),
    "less than none": (lambda m: m.combinations(m.ones(2), -1), "Expect a non-negative number"),
    "a negative triangle": (lambda m: m.tril_indices(-1, 2), "row must be non-negative, got-1"),
    "positions of a fraction": (lambda m: m.unravel_index(m.ones(2), (2,)), "to be integer dtype"),
    "a negative shape": (lambda m: m.unravel_index(m.tensor(2), (-2,)), "negative"),
}


@pytest.mark.parametrize("name", MISUSE)
def test_misuse_raises_as_in_torch(name: str) -> None:
    same_error(*MISUSE[name])
