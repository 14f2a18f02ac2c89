"""A pytest plugin for `make gpu`: each test's result is noted when it comes.

It works in one process and under pytest-xdist, where the process that hands out the tests notes
them. A test that takes too long ends its worker, which is replaced; so is a worker that lost its
GPU, for every test after that would fail in it. What such a worker was doing stands in a file.

Told by the environment: ``LUCID_GPU_JOURNAL``, ``LUCID_GPU_DONE`` (tests to leave out),
``LUCID_GPU_STACKS`` (a folder), ``LUCID_TEST_LIMIT`` (seconds a test), ``LUCID_TEST_END`` (when no
test is begun any more, as `time.time` tells it, so that the junit file is written).
"""

from __future__ import annotations

import faulthandler
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.gpu_journal import BEGAN, FAILED, LOST, PASSED, SKIPPED, Journal
from bench.gpu_pieces import device_is_lost, done

LONGEST = 50_000  # characters of a failure's text
NOT_TRIED = "not tried: its process had lost the GPU in "

_end = float(os.environ.get("LUCID_TEST_END", "inf"))


def pytest_configure(config: Any) -> None:
    """Note results here, or, in a worker, watch over its tests."""
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    alone = worker is None and not getattr(config.option, "numprocesses", None)
    if worker is None:
        config.pluginmanager.register(Notes(), "gpu-notes")
    if worker is not None or alone:
        config.pluginmanager.register(Watch(worker or "alone"), "gpu-watch")
        config.pluginmanager.register(InTime(), "gpu-in-time")


def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    """Leave out what is the same on every machine, and what is done."""
    finished = done()
    wanted = [item for item in items if "device" in getattr(item, "fixturenames", ())]
    kept = [item for item in wanted if item.nodeid not in finished]
    held = set(kept)
    config.hook.pytest_deselected(items=[item for item in items if item not in held])
    items[:] = kept


def stacks(worker: str) -> Path:
    """Where a worker says what it was doing when it ended."""
    return Path(os.environ.get("LUCID_GPU_STACKS", "."), f"{worker}.txt")


class Notes:
    """Writes the journal."""

    def __init__(self) -> None:
        self.journal = Journal.told("suite")
        self.worst: dict[str, tuple[str, str]] = {}
        self.seconds: dict[str, float] = {}

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.journal.write(nodeid, BEGAN, at=time.time())

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: Any) -> None:
        """Of a test's three reports the worst counts."""
        name = report.nodeid
        outcome, message = _outcome(report)
        before = self.worst.get(name, (PASSED, ""))
        self.seconds[name] = self.seconds.get(name, 0.0) + getattr(report, "duration", 0.0)
        if before[0] == PASSED or outcome in (FAILED, LOST):
            joined = "\n\n".join(text for text in (before[1], message) if text)
            self.worst[name] = outcome, joined
        if report.when in ("teardown", "???"):  # the second is a worker's end
            outcome, message = self.worst.pop(name)
            seconds = round(self.seconds.pop(name), 3)
            told = {"message": message} if message else {}
            self.journal.write(name, outcome, seconds=seconds, **told)

    def pytest_collectreport(self, report: Any) -> None:
        """A file that cannot be imported is a failure too."""
        if report.failed:
            told = str(report.longrepr)
            self.journal.write(report.nodeid or told.splitlines()[0], FAILED, message=told)

    def pytest_sessionfinish(self, session: Any) -> None:
        """Say that tests are left, maybe."""
        if time.time() > _end:
            session.exitstatus = pytest.ExitCode.INTERRUPTED

    def pytest_unconfigure(self) -> None:
        self.journal.close()


def _outcome(report: Any) -> tuple[str, str]:
    """What a report says, and the whole text of a failure or the reason of a skip."""
    if report.skipped:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        return SKIPPED, getattr(report, "wasxfail", None) or str(reason).removeprefix("Skipped: ")
    if not report.failed:
        return PASSED, ""
    text = report.longreprtext
    if report.when == "???":
        path = stacks(report.node.gateway.id)
        said = path.read_text("utf-8", "replace") if path.exists() else ""
        if said.startswith(NOT_TRIED):
            return LOST, said.splitlines()[0]
        text = f"{text}\n{said}"
    for title, content in report.sections:
        text += f"\n--- {title} ---\n{content}"
    if len(text) > LONGEST:
        cut = len(text) - LONGEST
        text = f"{text[: LONGEST // 2]}\n[{cut} characters left out]\n{text[-LONGEST // 2 :]}"
    return FAILED, text


class InTime:
    """Begins no test when the time is up."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self) -> bool | None:
        """Tell pytest that the test was dealt with."""
        return True if time.time() > _end else None


class Watch:
    """Ends the process where a test takes too long, or after one that lost the GPU."""

    def __init__(self, worker: str) -> None:
        self.path = stacks(worker)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.file = self.path.open("w", encoding="utf-8")
        self.limit = float(os.environ.get("LUCID_TEST_LIMIT", "150"))
        self.lost: str | None = None

    @pytest.hookimpl(trylast=True)
    def pytest_sessionstart(self) -> None:
        faulthandler.enable(self.file)  # a crash says where, in the same file

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: Any) -> Iterator[None]:
        if self.lost is not None:
            self.file.seek(0)
            self.file.truncate()
            print(NOT_TRIED + self.lost, file=self.file, flush=True)
            os._exit(3)
        faulthandler.dump_traceback_later(self.limit, exit=True, file=self.file)
        try:
            return (yield)
        finally:
            faulthandler.cancel_dump_traceback_later()

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and self.lost is None and device_is_lost():
            self.lost = report.nodeid
