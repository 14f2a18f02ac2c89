"""`utils.benchmark`: what its figures are of, not how large they are."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

import lucid_gpu

benchmark: Any = importlib.import_module("lucid_gpu.utils.benchmark")


class Clock:
    """A clock on which each reading is a second later, or later by what it is told."""

    def __init__(self, *steps: float) -> None:
        self.now, self.steps = 0.0, list(steps)

    def __call__(self) -> float:
        self.now += self.steps.pop(0) if self.steps else 1.0
        return self.now


def test_one_run_of_a_number_of_calls() -> None:
    seen: list[int] = []
    timer = benchmark.Timer("seen.append(k)", "k = 7", timer=Clock(), globals={"seen": seen})
    told = timer.timeit(10)
    assert seen == [7] * 12  # two that are not counted
    assert (told.number_per_run, told.raw_times, told.mean, told.iqr) == (10, [1.0], 0.1, 0.0)


def test_the_statement_has_torch_and_threads_are_as_before() -> None:
    before, seen = lucid_gpu.get_num_threads(), []
    statement = "seen.append((torch.get_num_threads(), torch.ones(2).sum().item()))"
    benchmark.Timer(statement, globals={"seen": seen}, num_threads=1).timeit(1)
    assert set(seen) == {(1, 2.0)} and lucid_gpu.get_num_threads() == before
    with pytest.raises(ZeroDivisionError):
        benchmark.Timer("1 / 0", num_threads=1).timeit(1)
    assert lucid_gpu.get_num_threads() == before


def test_runs_until_the_time_is_over() -> None:
    told = benchmark.Timer("pass", timer=Clock(), label="l", sub_label="s").blocked_autorange(
        min_run_time=3
    )
    assert told.number_per_run == 1 and told.raw_times == [1.0] * 3
    assert told.median == told.mean == 1.0 and "of l: s>" in repr(told)


def test_runs_until_they_agree() -> None:
    calls: list[tuple[int, float]] = []
    timer = benchmark.Timer("pass", timer=Clock())
    told = timer.adaptive_autorange(callback=lambda *call: calls.append(call))
    assert told.raw_times == [1.0] * 4 and calls == [(1, 1.0)] * 4


def test_measurements_of_one_statement_are_merged() -> None:
    first = benchmark.Measurement(2, [2.0, 4.0], "a", num_threads=1)
    second = benchmark.Measurement(1, [3.0], "a", num_threads=1)
    other = benchmark.Measurement(1, [3.0], "b", num_threads=1)
    one, two = benchmark.Measurement.merge([first, second, other])
    assert one.times == [1.0, 2.0, 3.0] and one.median == 2.0 and one.iqr == 1.0
    assert two.stmt == "b" and benchmark.Measurement.merge([]) == []


@pytest.mark.parametrize("settings", [{"language": "c++"}, {"global_setup": "#include <x>"}])
def test_what_is_not_python_is_refused(settings: dict[str, str]) -> None:
    with pytest.raises(NotImplementedError, match="statements are Python's"):
        benchmark.Timer("1", **settings)


def test_what_pytorch_refuses() -> None:
    with pytest.raises(NotImplementedError, match="blocked_autorange"):
        benchmark.Timer().repeat()
    assert benchmark.timer() < benchmark.timer() + 1
