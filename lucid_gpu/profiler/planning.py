"""What was planned and compiled inside a ``with`` block, and by which lines.

Examples
--------
>>> import lucid_gpu
>>> x = lucid_gpu.ones(3, 5)
>>> with lucid_gpu.profiler.planning() as log:
...     for _ in range(10):
...         y = (x * 2).exp().numpy()
>>> log.plans
1
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from lucid_gpu.core import planning as making
from lucid_gpu.core import program
from lucid_gpu.core.planning import PlanningWarning

__all__ = ["Planned", "PlanningLog", "PlanningWarning", "planned", "planned_bytes", "planning"]


class Planned(NamedTuple):
    """How many were made.

    Attributes
    ----------
    programs : int
        Expressions whose types and shapes were worked out.
    plans : int
        Kernels laid out for such expressions.
    kernels : int
        Texts generated and compiled: CUDA C, or functions of NumPy's calls on a CPU.
    """

    programs: int = 0
    plans: int = 0
    kernels: int = 0


class PlanningLog:
    """The programs, plans and kernels that a `planning` block made.

    Attributes
    ----------
    lines : dict of str to Planned
        By the line of the program that caused it, ``"file:number"``, in the order in which they
        first did.
    """

    def __init__(self) -> None:
        self.lines: dict[str, Planned] = {}

    def note(self, kind: str, line: str) -> None:
        """Count one more."""
        before = self.lines.get(line, Planned())
        self.lines[line] = before._replace(**{kind: getattr(before, kind) + 1})

    @property
    def programs(self) -> int:
        """Programs derived."""
        return sum(counts.programs for counts in tuple(self.lines.values()))

    @property
    def plans(self) -> int:
        """Kernels planned."""
        return sum(counts.plans for counts in tuple(self.lines.values()))

    @property
    def kernels(self) -> int:
        """Kernels compiled."""
        return sum(counts.kernels for counts in tuple(self.lines.values()))

    def __repr__(self) -> str:
        return f"<{self.programs} programs, {self.plans} plans, {self.kernels} kernels>"

    def __str__(self) -> str:
        """A table, the lines that planned most first."""
        lines = sorted(self.lines.items(), key=lambda item: item[1][::-1], reverse=True)
        whole = Planned(self.programs, self.plans, self.kernels)
        width = max([len("in all"), *map(len, self.lines)])
        rows = ["  ".join(["line".ljust(width), *Planned._fields])]
        for line, counts in (*lines, ("in all", whole)):
            cells = [str(n).rjust(len(name)) for name, n in counts._asdict().items()]
            rows.append("  ".join([line.ljust(width), *cells]))
        return "\n".join(rows)


@contextmanager
def planning() -> Iterator[PlanningLog]:
    """Count what is planned and compiled inside the block, by line.

    A loop whose steps do the same plans nothing from its third step on.

    Yields
    ------
    PlanningLog
        It grows while the block runs; blocks may be nested.
    """
    log = PlanningLog()
    making.listeners.append(log)
    try:
        yield log
    finally:
        making.listeners.remove(log)


def planned() -> Planned:
    """How many programs, plans and kernels were made since the process began.

    Examples
    --------
    >>> import lucid_gpu
    >>> before = lucid_gpu.profiler.planned()
    >>> lucid_gpu.profiler.planned().plans - before.plans
    0
    """
    totals = making.totals
    return Planned(totals.programs, totals.plans, totals.kernels)


def planned_bytes() -> int:
    """How many bytes, about, the tables of programs and plans take.

    They are bounded: with more than ``LUCID_PLAN_BYTES`` (64 MiB) all start anew, while code and
    kernels that were used lately stay.
    """
    return program.kept.count
