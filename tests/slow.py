"""Cases that `make test` leaves out, and `make test-all` runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

__all__ = ["mark_slow", "slow_but"]


def slow_but(values: Iterable[Any], *kept: Any) -> list[Any]:
    """Cases of a parameter, for ``pytest.mark.parametrize``: all but a few are marked slow."""
    return [v if v in kept else pytest.param(v, marks=pytest.mark.slow) for v in values]


def mark_slow(items: Iterable[Any]) -> None:
    """Mark the cases slow that tests with ``each_value`` can do without.

    Of a test of 16 ops and 4 types 16 cases stay: each op with some type, each type with some ops.
    """
    tests: dict[str, list[Any]] = {}
    for item in items:
        if item.get_closest_marker("each_value") and not item.get_closest_marker("slow"):
            tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for cases in tests.values():
        kept = with_each([{(k, repr(v)) for k, v in c.callspec.params.items()} for c in cases])
        for i, case in enumerate(cases):
            if i not in kept:
                case.add_marker("slow")


def with_each(cases: list[set[Any]]) -> set[int]:
    """Numbers of few cases that together have each value, all values about as often."""
    left, kept = set().union(*cases), set()
    times: Counter[Any] = Counter()

    def worth(i: int) -> tuple[int, int]:
        return len(cases[i] & left), -sum(times[value] for value in cases[i])

    while left:
        best = max(range(len(cases)), key=worth)
        left -= cases[best]
        times.update(cases[best])
        kept.add(best)
    return kept
