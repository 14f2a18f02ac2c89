"""Which cases of a table `make test` runs."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

from tests.slow import left_out, with_each


def test_few_cases_have_each_value_about_as_often() -> None:
    cases = list(itertools.product("abcdefghijkl", range(4), (None, "x")))
    kept = [cases[i] for i in with_each(cases)]
    assert len(kept) == 12
    assert [sum(n in case for case in kept) for n in range(4)] == [3] * 4
    assert sum(None in case for case in kept) == 6


def test_one_parameter_keeps_all() -> None:
    assert with_each([[n] for n in range(5)]) == set(range(5))
    assert with_each([]) == set()


def test_of_many_cases_a_part_is_left_out() -> None:
    names = [f"a.py::many[{i}]" for i in range(400)] + [f"a.py::few[{i}]" for i in range(12)]
    items = [SimpleNamespace(nodeid=name) for name in names]
    assert left_out(items, 1) == set()
    left = left_out(items, 4)
    assert 260 < len(left) < 340 and max(left) < 400 and 0 not in left
