"""Which thread compiles a kernel, and which threads wait for it."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest

from bench.peers import environment
from lucid_gpu import profiler
from lucid_gpu.device import CPU
from lucid_gpu.launch import compiling
from lucid_gpu.launch.compiling import Text
from lucid_gpu.launch.launcher import Launcher

SECONDS = 20  # after which a thread that should have come is given up


class Slow(Launcher):
    """A launcher whose compiler waits to be let through."""

    device = CPU
    mode = "background"

    def __init__(self) -> None:
        self.kernels, self.met = {}, {}
        self.begun: list[str] = []
        self.threads: list[threading.Thread] = []
        self.arrived = threading.Semaphore(0)
        self.gate = threading.Event()
        self.errors: dict[str, Exception] = {}

    def is_home(self) -> bool:
        return True

    def at_home(self) -> AbstractContextManager[None]:
        return nullcontext()

    def build(self, text: Text) -> Any:
        self.begun.append(text.name)
        self.threads.append(threading.current_thread())
        self.arrived.release()
        if text.name.startswith("slow"):
            assert self.gate.wait(SECONDS)
        if text.name in self.errors:
            raise self.errors[text.name]
        return f"<{text.name}>"


@pytest.fixture
def launcher() -> Iterator[Slow]:
    made = Slow()
    yield made
    made.gate.set()  # no thread of the background stays behind


def text(name: str) -> Text:
    return Text(name, f"// {name}", False)


def in_thread(function: Any, *arguments: Any) -> tuple[threading.Thread, list[Any]]:
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(function(*arguments)))
    thread.start()
    return thread, results


def test_a_kernel_is_compiled_once_by_the_thread_that_needs_it(launcher):
    for _ in range(2):
        assert compiling.compiled(launcher, text("a")) == "<a>"
    assert launcher.begun == ["a"]
    assert launcher.threads == [threading.current_thread()]


def test_two_threads_that_need_one_kernel_compile_it_once(launcher):
    pairs = [in_thread(compiling.compiled, launcher, text("slow")) for _ in range(2)]
    assert launcher.arrived.acquire(timeout=SECONDS)
    launcher.gate.set()
    for thread, results in pairs:
        thread.join(SECONDS)
        assert results == ["<slow>"]
    assert launcher.begun == ["slow"]


def test_different_kernels_compile_side_by_side(launcher):
    """A lock over the compiler would let one in only."""
    pairs = [in_thread(compiling.compiled, launcher, text(f"slow {i}")) for i in range(3)]
    for _ in pairs:
        assert launcher.arrived.acquire(timeout=SECONDS)
    assert compiling.compiled(launcher, text("quick")) == "<quick>"
    launcher.gate.set()
    for thread, _ in pairs:
        thread.join(SECONDS)
    assert sorted(launcher.begun) == ["quick", "slow 0", "slow 1", "slow 2"]


def test_the_background_leaves_the_caller_alone(launcher):
    compiling.begin(launcher, text("slow"))
    compiling.begin(launcher, text("slow"))
    assert launcher.arrived.acquire(timeout=SECONDS)
    assert not compiling.ready(launcher, text("slow"))
    launcher.gate.set()
    assert compiling.compiled(launcher, text("slow")) == "<slow>"
    assert compiling.ready(launcher, text("slow"))
    (thread,) = launcher.threads
    assert thread.daemon and thread.name.startswith("lucid-gpu-compiler")
    assert launcher.begun == ["slow"]


def test_what_is_needed_does_not_wait_for_what_is_queued(launcher):
    """All threads of the background are taken, and others wait in the queue."""
    for i in range(compiling.MOST + 3):
        compiling.begin(launcher, text(f"slow {i}"))
    compiling.begin(launcher, text("wanted"))
    assert compiling.compiled(launcher, text("wanted")) == "<wanted>"


def test_an_error_of_the_background_is_raised_at_the_next_use_and_then_tried_again(launcher):
    launcher.errors["slow"] = RuntimeError("no such type")
    compiling.begin(launcher, text("slow"))
    launcher.gate.set()
    future = launcher.kernels[text("slow")]
    assert future.exception(SECONDS) is launcher.errors["slow"]
    with pytest.raises(RuntimeError, match="no such type"):
        compiling.ready(launcher, text("slow"))
    del launcher.errors["slow"]
    assert not compiling.ready(launcher, text("slow"))
    assert compiling.compiled(launcher, text("slow")) == "<slow>"


def test_kernels_belong_to_the_line_that_asked_for_them(launcher):
    with profiler.planning() as log:
        compiling.begin(launcher, text("slow"))
        asked = sys._getframe().f_lineno - 1
    launcher.gate.set()
    compiling.compiled(launcher, text("slow"))
    assert log.kernels == 1 and log.lines[f"{__file__}:{asked}"].kernels == 1


def ran(code: str, **settings: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**environment(), **settings}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip


def test_what_the_variable_may_say():
    show = "from lucid_gpu.launch.compiling import setting; print(setting.mode)"
    assert ran(show, LUCID_COMPILE="").stdout == "None\n"
    assert ran(show, LUCID_COMPILE="wait").stdout == "wait\n"
    assert ran(show, LUCID_COMPILE="background").stdout == "background\n"
    wrong = ran(show, LUCID_COMPILE="later")
    last = wrong.stderr.splitlines()[-1]
    assert wrong.returncode and last.startswith("ValueError: LUCID_COMPILE is background (")
    assert last.endswith("or wait (for every compilation); got 'later'")


QUEUED = """
import time
from tests.launch.test_compiling import Slow, compiling, text
class Busy(Slow):
    def build(self, text):
        self.arrived.release()
        time.sleep(0.2)
        print(text.name, flush=True)
launcher = Busy()
for i in range(200):
    compiling.begin(launcher, text(str(i)))
launcher.arrived.acquire()
"""


def test_a_program_ends_with_kernels_in_the_queue():
    """What has begun is ended, what is queued is dropped; Python reports nothing."""
    ended = ran(QUEUED)
    assert ended.returncode == 0 and ended.stderr == ""
    assert 1 <= len(ended.stdout.split()) <= 2 * compiling.MOST


FORKED = """
import os
from tests.launch.test_compiling import Slow, compiling, text
launcher = Slow()
compiling.begin(launcher, text("slow"))
launcher.arrived.acquire()
child = os.fork()
if not child:
    launcher.gate.set()
    assert compiling.compiled(launcher, text("slow")) == "<slow>"
    compiling.begin(launcher, text("other"))
    assert launcher.kernels[text("other")].result(20) == "<other>"
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
launcher.gate.set()
"""


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="this system has no fork")
def test_a_child_process_compiles_what_its_parent_had_begun():
    ended = ran(FORKED)
    assert ended.stdout == "7\n", ended.stderr
