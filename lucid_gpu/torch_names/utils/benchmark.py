"""`torch.utils.benchmark`: the time of a statement, told by several runs of it."""

from __future__ import annotations

import statistics
import time
import timeit
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import lucid_gpu
from lucid_gpu.compat.refused import refused

__all__ = ["Compare", "Fuzzer", "Measurement", "Timer", "timer"]


def timer() -> float:
    """Seconds of a clock, once what a GPU was given is done."""
    if lucid_gpu.cuda.is_available():
        lucid_gpu.cuda.synchronize()
    return time.perf_counter()


@dataclass
class Measurement:
    """Times of runs of one statement.

    Attributes
    ----------
    number_per_run : int
        How often the statement ran in each.
    raw_times : list of float
        Seconds of each run.
    times : list of float
        Seconds of the statement, one a run.
    median, mean, iqr : float
        Of ``times``; ``iqr`` is the distance of their quartiles.
    """

    number_per_run: int
    raw_times: list[float]
    stmt: str = ""
    label: str | None = None
    sub_label: str | None = None
    description: str | None = None
    env: str | None = None
    num_threads: int = 1
    metadata: dict[str, Any] = field(default_factory=dict)

    @property
    def times(self) -> list[float]:
        """Seconds of the statement, one a run."""
        return [t / self.number_per_run for t in self.raw_times]

    @property
    def median(self) -> float:
        """The middle one of them."""
        return statistics.median(self.times)

    @property
    def mean(self) -> float:
        """Their mean."""
        return statistics.fmean(self.times)

    @property
    def iqr(self) -> float:
        """The distance of their quartiles; 0 for one run."""
        if len(self.raw_times) < 2:
            return 0.0
        first, _, third = statistics.quantiles(self.times, n=4, method="inclusive")
        return third - first

    @property
    def title(self) -> str:
        """What the statement is called."""
        title = self.label or self.stmt
        return f"{title}: {self.sub_label}" if self.sub_label else title

    @staticmethod
    def merge(measurements: Iterable[Measurement]) -> list[Measurement]:
        """One for each statement and its names, with the times of all runs of it."""
        merged: dict[Any, Measurement] = {}
        for m in measurements:
            names = (m.stmt, m.label, m.sub_label, m.description, m.env, m.num_threads)
            if names not in merged:
                merged[names] = Measurement(1, [], *names)
            merged[names].raw_times += m.times
        return list(merged.values())

    def __repr__(self) -> str:
        scale, unit = next(
            ((s, u) for s, u in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")) if self.median >= s),
            (1e-9, "ns"),
        )
        runs = f"{len(self.raw_times)} measurement{'s' * (len(self.raw_times) != 1)}"
        spread = f"  IQR:    {self.iqr / scale:.2f} {unit}\n" if len(self.raw_times) > 1 else ""
        return (
            f"<lucid_gpu.utils.benchmark.Measurement of {self.title}>\n"
            f"  Median: {self.median / scale:.2f} {unit}\n{spread}"
            f"  {runs}, {self.number_per_run} runs per measurement, {self.num_threads} thread"
            f"{'s' * (self.num_threads != 1)}"
        )


class Timer:
    """Times a statement by `timeit`; a GPU has done its work before a clock is read.

    Parameters
    ----------
    stmt, setup : str
        What is timed, and what runs once before.
    global_setup : str
        Refused: it is C++ in PyTorch.
    timer : callable
        The clock.
    globals : dict, optional
        Names of the statement.
    label, sub_label, description, env : str, optional
        What a table of several would show.
    num_threads : int
        As many threads compute meanwhile; `get_num_threads` is as before afterwards.
    language : str
        "python" or "py".

    Raises
    ------
    NotImplementedError
        For C++.
    """

    def __init__(
        self,
        stmt: str = "pass",
        setup: str = "pass",
        global_setup: str = "",
        timer: Callable[[], float] = timer,
        globals: dict[str, Any] | None = None,
        label: str | None = None,
        sub_label: str | None = None,
        description: str | None = None,
        env: str | None = None,
        num_threads: int = 1,
        language: str = "python",
    ) -> None:
        if global_setup or str(getattr(language, "name", language)).lower() not in (
            "python",
            "py",
        ):
            refused("utils.benchmark.Timer", "statements are Python's; time C++ by its own tools")()
        names = {"torch": lucid_gpu, **(globals or {})}
        self._timer = timeit.Timer(stmt, setup, timer, names)
        self._names = (stmt, label, sub_label, description, env, num_threads)
        self._num_threads = num_threads

    def _measured(self, number: int, times: Sequence[float]) -> Measurement:
        return Measurement(number, list(times), *self._names)

    def _run(self, number: int) -> float:
        before = lucid_gpu.get_num_threads()
        lucid_gpu.set_num_threads(self._num_threads)
        try:
            return max(self._timer.timeit(number), 1e-9)
        finally:
            lucid_gpu.set_num_threads(before)

    def timeit(self, number: int = 1_000_000) -> Measurement:
        """One run of ``number`` calls, after some that are not counted."""
        self._run(max(number // 100, 2))
        return self._measured(number, [self._run(number)])

    def repeat(self, repeat: int = -1, number: int = -1) -> None:
        """Refuse with a NotImplementedError, as PyTorch does."""
        raise NotImplementedError("See `Timer.blocked_autorange.`")

    def _number(self, min_run_time: float) -> int:
        """How many calls one run has, for a thousandth of the time or more."""
        number = 1
        while True:
            seconds = self._run(number)
            if seconds >= min(min_run_time / 1000, 1e-1) and seconds > 1e-5:
                return number
            number *= 10

    def blocked_autorange(
        self, callback: Callable[[int, float], Any] | None = None, min_run_time: float = 0.2
    ) -> Measurement:
        """Runs of as many calls as a clock can tell, until ``min_run_time`` seconds have passed.

        ``callback`` is told the calls and the seconds of each.
        """
        number = self._number(min_run_time)
        times: list[float] = []
        while not times or sum(times) < min_run_time:
            times.append(self._run(number))
            if callback is not None:
                callback(number, times[-1])
        return self._measured(number, times)

    def adaptive_autorange(
        self,
        threshold: float = 0.1,
        *,
        min_run_time: float = 0.01,
        max_run_time: float = 10.0,
        callback: Callable[[int, float], Any] | None = None,
    ) -> Measurement:
        """As `blocked_autorange`, until the quartiles lie closer than a part of the median.

        It ends after ``max_run_time`` seconds.
        """
        number = self._number(min_run_time)
        times: list[float] = []
        while True:
            times.append(self._run(number))
            if callback is not None:
                callback(number, times[-1])
            told = self._measured(number, times)
            close = len(times) > 3 and told.iqr < threshold * told.median
            if sum(times) >= max_run_time or (sum(times) >= min_run_time and close):
                return told


_TABLES = "print the measurements, or make a table of their medians"
Compare = refused("utils.benchmark.Compare", _TABLES)
Fuzzer = refused("utils.benchmark.Fuzzer", "draw shapes by random.Random(seed)")
