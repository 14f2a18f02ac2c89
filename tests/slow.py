"""Cases that `make test` leaves out, and `make test-all` runs."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import pytest

__all__ = ["left_out", "mark_slow", "slow_but"]


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
        kept = with_each([[(k, repr(v)) for k, v in c.callspec.params.items()] for c in cases])
        for i, case in enumerate(cases):
            if i not in kept:
                case.add_marker("slow")


def with_each(cases: Sequence[Sequence[Hashable]]) -> set[int]:
    """Numbers of few cases that together have each value, all values about as often."""
    having: dict[Hashable, list[int]] = {}
    for i, case in enumerate(cases):
        for value in case:
            having.setdefault(value, []).append(i)
    times: Counter[Hashable] = Counter()
    kept = set()

    def worth(i: int) -> tuple[int, int]:
        known = [times[value] for value in cases[i]]
        return known.count(0), -sum(known)

    for value in sorted(having, key=lambda value: len(having[value])):  # rare ones bring the others
        if not times[value]:
            best = max(having[value], key=worth)
            times.update(cases[best])
            kept.add(best)
    return kept


def left_out(items: Sequence[Any], parts: int) -> set[int]:
    """Numbers of cases that are left out where of many one in so many parts is run.

    The names decide, so that all processes choose alike and no parameter has one value only.
    """
    tests: dict[str, list[int]] = {}
    for i, item in enumerate(items):
        tests.setdefault(item.nodeid.partition("[")[0], []).append(i)
    left: set[int] = set()
    for cases in tests.values():
        if len(cases) > 12:
            left.update(i for i in cases[1:] if zlib.crc32(items[i].nodeid.encode()) % parts)
    return left
