"""What is planned and compiled: counted always, told by line where somebody listens.

Making a program, a plan or a kernel ends with a call of `made`. A loop whose steps find everything
made never gets here; one whose every step plans anew is warned about, once a line.
"""

from __future__ import annotations

import inspect
import threading
import traceback
import warnings
from types import FrameType
from typing import Any, NamedTuple, Protocol

from lucid_gpu.launch.observers import debug

PACKAGE = __name__.partition(".")[0]
STEPS = 50  # so many steps that planned something at a line are warned about,
AMONG = 1000  # if they are among so many
NOBODY = "a thread of its own"  # where no frame is the user's


class PlanningWarning(UserWarning):
    """A line whose work is planned in every step."""


class Listener(Protocol):
    """Told of each program, plan and kernel that is made."""

    def note(self, kind: str, line: str) -> None:
        """``kind`` is a field of `Totals`; ``line`` is the user's, as ``file:number``."""
        ...


class Totals:
    """How many were made since the process began."""

    __slots__ = ("kernels", "plans", "programs")

    def __init__(self) -> None:
        self.programs = self.plans = self.kernels = 0


class Steps:
    """How often work began anew on any thread: a pass back, a value read, data brought in.

    What was made before the step ``fresh`` may be old: the straight path of ops leaves it alone.
    That step is never below ``least``, by which whoever wants to see every op closes the path.
    """

    __slots__ = ("count", "fresh", "least")

    def __init__(self) -> None:
        self.count = self.fresh = self.least = 0

    def refresh(self) -> int:
        """All that there is may be old from now on; returns the step's number."""
        self.fresh = max(self.count, self.least)
        return self.count


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


def made(kind: str, what: Any = None, verb: str | None = None) -> None:
    """Count a program, a plan or a kernel; ``what`` has its name and shape.

    ``verb`` says what was done, where that is not what is usual.
    """
    with _lock:
        setattr(totals, kind, getattr(totals, kind) + 1)
    if kind != "plans" and not listeners and (not debug or kind == "programs"):
        return
    frame = users_frame()
    file, number = (NOBODY, 0) if frame is None else (frame.f_code.co_filename, frame.f_lineno)
    line = f"{file}:{number}"
    for listener in tuple(listeners):
        listener.note(kind, line)
    if debug and kind != "programs":
        print(f"{verb or _VERBS[kind]} {what.name}, number {getattr(totals, kind)}, at {line}")
    if kind == "plans" and _repeats(line):
        warnings.warn_explicit(_text(line, what), PlanningWarning, file, number)


_VERBS = {"plans": "planned", "kernels": "compiled"}


def users_frame() -> FrameType | None:
    """The innermost frame outside of this package: where a warning or a report says it happened."""
    for frame, _ in traceback.walk_stack(inspect.currentframe()):
        if frame.f_globals.get("__name__", "").partition(".")[0] != PACKAGE:
            return frame
    return None


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
        "is a shape (pad to a few sizes, or sort by size), several Python numbers at once (hand "
        "them over as tensors: torch.tensor(number)), or the ops themselves (an `if` on the step). "
        "lucid_gpu.profiler.planning() counts what is planned, by line."
    )
