"""Rolled, rotated, mirrored: values, gradients and errors as in torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.oracle import agree, same_error

RNG = np.random.default_rng(21)
CUBE = RNG.standard_normal((2, 3, 4))
CASES: dict[str, Any] = {
    "roll": lambda m, t: m.roll(t, 1, 0),
    "roll flattened": lambda m, t: t.roll(5),
    "roll two": lambda m, t: t.roll((1, -2), (0, -1)),
    "roll far": lambda m, t: t.roll(shifts=-9, dims=2),
    "roll one dim twice": lambda m, t: t.roll((1, 1), (2, 2)),
    "roll of lists": lambda m, t: m.roll(t, shifts=[1], dims=[1]),
    "roll nothing": lambda m, t: m.roll(t[:0], 1, 1),
    "roll a number": lambda m, t: m.roll(t[0, 0, 0], 1),
    "rot90": lambda m, t: m.rot90(t),
    "rot90 twice": lambda m, t: t.rot90(2, (0, 2)),
    "rot90 back": lambda m, t: t.rot90(-1, [1, 2]),
    "rot90 not at all": lambda m, t: m.rot90(t, 4, dims=(2, 1)),
    "fliplr": lambda m, t: m.fliplr(t),
    "flipud": lambda m, t: t.flipud(),
}
MISUSE: dict[str, tuple[Any, str]] = {
    "shifts and dims": (lambda m: m.ones(2, 2).roll((1, 2), 0), "shifts: 2, dims:1"),
    "no shifts": (lambda m: m.ones(2, 2).roll(()), "`shifts` required"),
    "dims": (lambda m: m.ones(2).roll(1, 1), "Dimension out of range"),
    "a number": (lambda m: m.tensor(1.0).roll(1, 1), "Dimension"),
    "one rotation dim": (lambda m: m.ones(2, 2).rot90(1, (0,)), "total rotation dims == 2"),
    "a vector": (lambda m: m.ones(2).rot90(), "expected total dims >= 2, but got total dims = 1"),
    "the same dim": (lambda m: m.ones(2, 2).rot90(1, (1, -1)), "rotation dims to be different"),
    "fliplr of a vector": (lambda m: m.ones(2).fliplr(), "Input must be >= 2-d."),
    "flipud of a number": (lambda m: m.tensor(1.0).flipud(), "Input must be >= 1-d."),
}


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_torch(name: str, device: str) -> None:
    agree(CASES[name], CUBE, device=device)
    agree(CASES[name], CUBE.astype(np.int64).transpose(0, 2, 1), device=device)


@pytest.mark.parametrize("name", MISUSE)
def test_misuse_raises_as_in_torch(name: str) -> None:
    same_error(*MISUSE[name])
