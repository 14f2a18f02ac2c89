"""Which cases of a table `make test` runs."""

from __future__ import annotations

import itertools

from tests.slow import with_each


def test_few_cases_have_each_value_about_as_often() -> None:
    cases = [set(case) for case in itertools.product("abcdefghijkl", range(4), (None, "x"))]
    kept = [cases[i] for i in with_each(cases)]
    assert len(kept) == 12
    assert [sum(n in case for case in kept) for n in range(4)] == [3] * 4
    assert sum(None in case for case in kept) == 6


def test_one_parameter_keeps_all() -> None:
    assert with_each([{n} for n in range(5)]) == set(range(5))
    assert with_each([]) == set()
