"""Which steps of a training loop are profiled, and what is done with what they gave."""

from __future__ import annotations

import enum
import os
import socket
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["ProfilerAction", "schedule", "tensorboard_trace_handler"]


class ProfilerAction(enum.Enum):
    """What a profile does in a step."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3

    @property
    def records(self) -> bool:
        """Whether kernels of the step are noted."""
        return self.value >= 2


def schedule(
    *,
    wait: int,
    warmup: int,
    active: int,
    repeat: int = 0,
    skip_first: int = 0,
    skip_first_wait: int = 0,
) -> Callable[[int], ProfilerAction]:
    """Cycles of steps: ``wait`` and ``warmup`` ones that are not noted, ``active`` ones that are.

    Parameters
    ----------
    wait, warmup, active : int
    repeat : int
        How many cycles; 0 for no end.
    skip_first : int
        Steps before the first cycle.
    skip_first_wait : int
        Not 0: the first cycle does not wait.

    Returns
    -------
    callable
        What `profile` takes as ``schedule``: the action of a step by its number.

    Raises
    ------
    AssertionError
        For negative numbers, or no active step.
    """
    if wait < 0 or warmup < 0 or active <= 0 or repeat < 0 or skip_first < 0:
        raise AssertionError(
            f"Invalid profiler schedule arguments. Got wait={wait} (need >= 0), warmup={warmup} "
            f"(need >= 0), active={active} (need > 0), repeat={repeat} (need >= 0), "
            f"skip_first={skip_first} (need >= 0)."
        )
    if warmup == 0:
        warnings.warn(
            "Profiler won't be using warmup, this can skew profiler results", stacklevel=2
        )
    cycle = wait + warmup + active

    def action(step: int) -> ProfilerAction:
        if step < 0:
            raise AssertionError(f"Step must be non-negative. Got {step}.")
        at = step - skip_first + (wait if skip_first_wait else 0)
        if step < skip_first or (repeat and at >= repeat * cycle) or at % cycle < wait:
            return ProfilerAction.NONE
        if at % cycle < wait + warmup:
            return ProfilerAction.WARMUP
        last = at % cycle == cycle - 1
        return ProfilerAction.RECORD_AND_SAVE if last else ProfilerAction.RECORD

    return action


def tensorboard_trace_handler(
    dir_name: str, worker_name: str | None = None, use_gzip: bool = False
) -> Callable[[Any], None]:
    """What writes a profile's trace into a folder, for `profile`'s ``on_trace_ready``.

    Parameters
    ----------
    dir_name : str
    worker_name : str, optional
        How names of files begin; the host and the process by default.
    use_gzip : bool
        Whether the files are packed.
    """
    ending = ".gz" if use_gzip else ""
    name = worker_name or f"{socket.gethostname()}_{os.getpid()}"

    def handler(prof: Any) -> None:
        folder = Path(dir_name)
        folder.mkdir(parents=True, exist_ok=True)
        prof.export_chrome_trace(folder / f"{name}.{time.time_ns()}.pt.trace.json{ending}")

    return handler
