"""What a training step may ask of a GPU: counted over the stand-in for CuPy, bounded by one table.

Counts are of the host: how often it asks, and for how many bytes. They say nothing of how long a
GPU computes.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from bench.small_steps import CASES, DEPTHS

WARM = 4  # steps before the first that is counted
COUNTED = 3  # steps that are, and all of which ask for the same

KINDS = ("launch", "function", "product", "memset", "copy", "fetch", "wait", "allocation")
BYTES = "allocation bytes"

# The most a step asks for, in the order of `KINDS`, then bytes of memory: of itself, and with every
# layer. The first may be negative: the lowest layer needs no gradient of its input. Whoever makes a
# step ask for less writes it here.
BUDGETS: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "MLP": ((1, 0, -1, 0, 0, 0, 0, -1, -1020), (2, 0, 3, 0, 0, 0, 0, 6, 2336)),
    "convolutions": ((4, 0, 2, 0, 0, 0, 0, 8, -18836), (13, 0, 3, 0, 0, 0, 0, 18, 76760)),
    "GPT": ((1, 0, 0, 0, 0, 0, 0, -2, -6140), (22, 0, 12, 0, 0, 0, 0, 44, 172288)),
    "LSTM": ((6, 0, -1, 2, 0, 0, 0, 7, 1284), (13, 9, 14, 1, 0, 0, 0, 83, 22144)),
    "AdamW of 100": ((0, 0, 0, 0, 0, 0, 0, 0, 0), (1, 0, 0, 0, 0, 0, 0, 0, 0)),
    "cross entropy": ((0, 0, 0, 0, 0, 0, 0, 0, 0), (2, 0, 0, 0, 0, 0, 0, 5, 656)),
}


def counts_of(asked: list[Any]) -> dict[str, int]:
    """How often each kind was asked for, and bytes of memory."""
    found = Counter([one.kind for one in asked])
    size = sum([one.bytes for one in asked if one.kind == "allocation"])
    return {kind: found[kind] for kind in KINDS} | {BYTES: size}


def exceeded(name: str, depth: int, found: dict[str, int]) -> list[str]:
    """What a step asks for beyond its budget, a line a kind."""
    of_itself, of_layer = BUDGETS[name]
    lines = []
    for (kind, n), fixed, more in zip(found.items(), of_itself, of_layer, strict=True):
        most = fixed + depth * more
        if n > most:
            lines.append(f"{name}, {depth} deep: {n} x {kind}, {n - most} above the {most} allowed")
    return lines


@pytest.mark.parametrize("name", CASES)
def test_a_step_keeps_its_budget(name: str, device: str) -> None:
    """At every depth, from step to step alike, and each layer asks for as much as the last."""
    if device == "cpu":
        pytest.skip("the host and the CPU are one")
    counts = pytest.importorskip("cupy._counts", reason="the stand-in for CuPy counts")
    found: dict[int, dict[str, int]] = {}
    for depth in DEPTHS:
        step, steps = CASES[name](device, depth), []
        for number in range(WARM + COUNTED):
            with counts.noted() as asked:
                step()
            if number >= WARM:
                steps.append(counts_of(asked))
        found[depth] = steps[0]
        assert steps == [steps[0]] * COUNTED, f"{name}, {depth} deep: steps differ"
        assert not exceeded(name, depth, steps[0]), (exceeded(name, depth, steps[0]), asked)
    few, some, many = (found[depth] for depth in DEPTHS)
    for kind in few:
        assert many[kind] - some[kind] == 2 * (some[kind] - few[kind]), (kind, few, some, many)


def test_what_is_beyond_a_budget_is_told() -> None:
    of_itself, of_layer = BUDGETS["MLP"]
    allowed = [fixed + 2 * more for fixed, more in zip(of_itself, of_layer, strict=True)]
    found = dict(zip((*KINDS, BYTES), allowed, strict=True))
    assert exceeded("MLP", 2, found) == []
    launches = found["launch"]
    found |= {"launch": launches + 3, "wait": 1}
    assert exceeded("MLP", 2, found) == [
        f"MLP, 2 deep: {launches + 3} x launch, 3 above the {launches} allowed",
        "MLP, 2 deep: 1 x wait, 1 above the 0 allowed",
    ]
