"""A part of ``make fuzz``: what the search for differing ops takes for equal."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("hypothesis")

from tools.fuzz_ops import compare


def test_gradients_that_cancel_beside_huge_numbers_are_not_compared() -> None:
    """That of ``lerp(x, x, w)`` by x is 1; the two halves that torch adds are 1e30 and -1e30."""
    leaves = [("float64", 0, 0, 0), ("float64", 3, 2, 3)]
    assert compare(leaves, [("lerp", 0, 0, 1)], True, set()) == "lerp"
    assert compare([*leaves, ("bool", 0, 0, 0)], [("lerp", 0, 0, 1)], True, set()) == "lerp"
