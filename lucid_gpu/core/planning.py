"""What is planned and compiled: counted always, told by line where somebody listens.

Making a program, a plan or a kernel ends with a call of `made`. A loop whose steps find everything
made never gets here; one whose every step plans anew is warned about, once a line.
"""

from __future__ import annotations

import functools
import os
import threading
import traceback
import warnings
from typing import Any, NamedTuple, Protocol

from lucid_gpu.tape.door import PACKAGE

debug = os.environ.get("LUCID_DEBUG", "") not in ("", "0")
_NOT_THEIRS = (PACKAGE, functools.__file__)  # our lines, also where a cached property calls them
STEPS = 50  # so many steps that planned something at a line are warned about,
AMONG = 1000  # if they are among so many
NOBODY = "a thread of its own"  # where no line is the user's


class PlanningWarning(UserWarning):
    """A line whose work is planned in every step."""


class Listener(Protocol):
    """Told of each program, plan and kernel that is made."""

    def note(self, kind: str, line: str) -> None:
        """``kind`` is a field of `Totals`; ``line`` is the user's, as ``file:number``."""
        ...


class Made(Protocol):
    """A plan, or the text of a kernel."""

    @property
    def name(self) -> str: ...


class Totals:
    """How many were made since the process began."""

    __slots__ = ("kernels", "plans", "programs")

    def __init__(self) -> None:
        self.programs = self.plans = self.kernels = 0


class Steps:
    """How often work began anew on any thread: a pass back, a value read, data brought in.

    What was made before the step ``fresh`` may be old: the straight path of ops leaves it alone.
    That step is never below ``least``, by which the path is closed where every op has to be seen.
    """

    __slots__ = ("count", "fresh", "least")

    def __init__(self) -> None:
        self.count = self.fresh = self.least = 0

    def refresh(self) -> int:
        """All that there is may be old from now on; returns the step's number."""
        count = self.count
        self.fresh = count if count > self.least else self.least
        return count


class Seen(NamedTuple):
    """In how many steps a line planned something: the first of them, the last."""

    times: int
    first: int
    last: int


totals = Totals()
steps = Steps()
listeners: list[Listener] = []
_lines: dict[str, Seen | None] = {}  # None: it has been warned about
_lock = threading.Lock()


def forget_lines() -> None:
    """Count the steps of every line anew."""
    with _lock:
        _lines.clear()


def made(kind: str, what: Made | None = None, verb: str | None = None) -> None:
    """Count a program, a plan or a kernel; ``what`` has its name.

    ``verb`` says what was done, where that is not what is usual.
    """
    with _lock:
        setattr(totals, kind, getattr(totals, kind) + 1)
    if kind != "plans" and not listeners and (not debug or kind == "programs"):
        return
    file, number = user_line()
    line = f"{file}:{number}"
    for listener in tuple(listeners):
        listener.note(kind, line)
    if debug and what is not None:
        print(f"{verb or _VERBS[kind]} {what.name}, number {getattr(totals, kind)}, at {line}")
    if kind == "plans" and _repeats(line):
        warnings.warn_explicit(_text(line, what), PlanningWarning, file, number)


_VERBS = {"plans": "planned", "kernels": "compiled"}


def call_stack() -> tuple[traceback.StackSummary, int]:
    """The lines that led here, innermost first, and how many of them are this package's.

    The first that is not this package's is where a warning or a report says it happened.
    """
    stack = traceback.StackSummary.extract(traceback.walk_stack(None), lookup_lines=False)
    ours = (i for i, line in enumerate(stack) if not line.filename.startswith(_NOT_THEIRS))
    return stack, next(ours, len(stack))


def user_line() -> tuple[str, int]:
    """File and number of the innermost line outside of this package."""
    calls = ((frame.f_code.co_filename, number) for frame, number in traceback.walk_stack(None))
    return next((line for line in calls if not line[0].startswith(_NOT_THEIRS)), (NOBODY, 0))


def _repeats(line: str) -> bool:
    """Note that a line planned something; whether that is what is warned about."""
    with _lock:
        now = steps.count
        seen = _lines.setdefault(line, Seen(1, now, now))
        if seen is None or now == seen.last:
            return False
        seen = Seen(seen.times + 1, seen.first, now)
        if seen.times >= STEPS:
            often = now - seen.first <= AMONG
            _lines[line] = None if often else Seen(1, now, now)
            return often
        _lines[line] = seen
        return False


def _text(line: str, plan: Any) -> str:
    shape = list(plan.shape)
    return (
        f"{line} keeps planning: in {STEPS} steps something was computed there that no step before "
        f"had computed, the last of them the kernel {plan.name} of shape {shape}. That takes a "
        "millisecond each time, and a compilation on a GPU. What usually changes from step to step "
        "is the number of dimensions, several Python numbers at once (hand them over as tensors: "
        "torch.tensor(number)), or the ops themselves (an `if` on the step). "
        "lucid_gpu.profiler.planning() counts what is planned, by line."
    )
