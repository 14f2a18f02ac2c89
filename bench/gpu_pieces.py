"""Pieces of a part of `make gpu` done one after another in this process, each noted at once.

A piece that hangs ends the process with the stacks of its threads; the command that started it
(`bench.gpu_parts`) notes the piece as failed and starts the process again for those that are left.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from bench.gpu_journal import BEGAN, FAILED, PASSED, SKIPPED, Journal

DONE = "LUCID_GPU_DONE"  # names a file with the pieces that are not to be done again, a line each
LIMIT = "LUCID_GPU_PIECE_SECONDS"  # what a piece may take
SOME_FAILED, DEVICE_LOST = 10, 75  # exit statuses; Python's own for an error is 1

Figures = dict[str, Any]


class Skip(Exception):
    """Why a piece cannot be done here."""


def done() -> frozenset[str]:
    """The pieces that are not to be done again."""
    path = os.environ.get(DONE)
    return frozenset(Path(path).read_text("utf-8").splitlines() if path else ())


def device_is_lost() -> bool:
    """Whether this process can use the GPU no more, as after an illegal address."""
    cupy = sys.modules.get("cupy")
    if cupy is None:
        return False
    try:
        cupy.cuda.runtime.deviceSynchronize()
    except Exception as error:  # by any name: what follows would fail likewise
        return "NoDevice" not in str(error) and "InsufficientDriver" not in str(error)
    return False


def do(
    part: str,
    works: Iterable[tuple[str, Callable[[], Figures | None]]],
) -> int:
    """Do every piece that is not done; an exit status.

    Parameters
    ----------
    part : str
        Whose pieces they are.
    works : iterable of (name, function)
        A function returns figures to be noted, or None where there are none.
    """
    journal, finished = Journal.told(part), done()
    piece_seconds = float(os.environ.get(LIMIT, "120"))
    status = count = 0
    try:
        for name, work in works:
            if name in finished:
                continue
            outcome = _one(journal, name, work, piece_seconds)
            count += 1
            if outcome == FAILED:
                status = SOME_FAILED
                if device_is_lost():
                    return DEVICE_LOST
    finally:
        journal.close()
    print(f"{part}: {count} done")
    return status


def _one(
    journal: Journal, name: str, work: Callable[[], Figures | None], piece_seconds: float
) -> str:
    start = time.monotonic()
    journal.write(name, BEGAN, at=time.time())
    with _ended_after(piece_seconds):
        found: Figures = {}
        try:
            found["figures"] = work()
            outcome = PASSED
        except Skip as reason:
            outcome, found["message"] = SKIPPED, str(reason)
        except Exception as error:  # said, and the next one is done
            outcome, found["message"] = FAILED, _told(error)
    seconds = round(time.monotonic() - start, 3)
    journal.write(name, outcome, seconds=seconds, **found)
    print(f"{name}: {outcome}", found.get("message", ""), flush=True)
    return outcome


def _told(error: Exception) -> str:
    """The whole error, its last line first."""
    return f"{type(error).__name__}: {error}\n\n{''.join(traceback.format_exception(error))}"


@contextlib.contextmanager
def _ended_after(seconds: float) -> Any:
    """End the process, after the stacks of its threads, where the block takes longer."""
    faulthandler.dump_traceback_later(seconds, exit=True, file=2)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
