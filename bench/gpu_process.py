"""A process with a limit: it is ended with everything it started, and what it said is kept."""

from __future__ import annotations

import contextlib
import ctypes
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.gpu_journal import Stream, unpacked
from bench.peers import TREE

MOST_LOG = 12 << 20  # compressed bytes of one log
TAIL = 1 << 16
FLUSH_SECONDS = 0.5
GONE_SECONDS = 5.0  # a process within a driver's call takes a while to end
DIES_WITH_PARENT = 1  # PR_SET_PDEATHSIG


@dataclass(frozen=True)
class Ended:
    """How a process ended; ``code`` is None when its time ran out, negative for a signal."""

    code: int | None
    seconds: float
    log: Path
    tail: str

    @property
    def verdict(self) -> str:
        """A word or two for it."""
        if self.code is None:
            return "out of time"
        if self.code == 0:
            return "passed"
        return "crashed" if self.code < 0 else "failed"

    @property
    def how(self) -> str:
        """The same as a sentence."""
        if self.code is None:
            return f"its time of {self.seconds:.0f} s ran out"
        if self.code >= 0:
            return f"it ended with status {self.code}"
        name = signal.Signals(-self.code).name
        return f"it was ended by {name}" + ", maybe for its memory" * (name == "SIGKILL")

    @property
    def last_line(self) -> str:
        """What it said last."""
        return (self.tail.strip().splitlines() or ["it said nothing"])[-1]

    def text(self) -> str:
        """All that it said."""
        return unpacked(self.log)[0].decode(errors="replace")


class Log:
    """What a process says, compressed on the disk within half a second."""

    def __init__(self, path: Path) -> None:
        self._stream, self._waiting, self._since = Stream(path), bytearray(), time.monotonic()
        self.tail, self.left_out = b"", 0

    def add(self, data: bytes) -> None:
        """Take some output."""
        self.tail = (self.tail + data)[-TAIL:]
        if self._stream.size > MOST_LOG:
            self.left_out += len(data)
        else:
            self._waiting += data

    def flush(self, always: bool = False) -> None:
        """Write what waits, if it is much or has waited long."""
        late = len(self._waiting) > TAIL or time.monotonic() - self._since > FLUSH_SECONDS
        if self._waiting and (always or late):
            self._stream.write(bytes(self._waiting))
            self._waiting.clear()
            self._since = time.monotonic()

    def close(self) -> None:
        """Write what is left, and the end of what was too much."""
        self.flush(always=True)
        if self.left_out:
            told = f"\n[{self.left_out} bytes are left out; these are the last]\n"
            self._stream.write(told.encode() + self.tail)
        self._stream.close()


def run(
    command: Sequence[str],
    seconds: float,
    log: Path,
    variables: Mapping[str, str],
    sometimes: Callable[[], None] = lambda: None,
) -> Ended:
    """Run a command in the tree for at most so long, its output into a gzip file.

    Meanwhile ``sometimes`` is called, several times a second.
    """
    start = time.monotonic()
    log.unlink(missing_ok=True)
    said = Log(log)
    process = subprocess.Popen(
        command,
        cwd=TREE,
        env=dict(variables),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=_die_with_parent if sys.platform == "linux" else None,
    )
    try:
        in_time = _listen(process, start + seconds, said, sometimes)
    finally:  # also when somebody interrupts this process
        end(process)
        _drain(process, said)
        said.close()
    code = process.returncode if in_time else None
    return Ended(code, time.monotonic() - start, log, said.tail.decode(errors="replace"))


def _listen(
    process: subprocess.Popen[bytes], until: float, said: Log, sometimes: Callable[[], None]
) -> bool:
    """Keep its output till it ends; whether it ended in time."""
    assert process.stdout is not None
    with selectors.DefaultSelector() as ready:
        ready.register(process.stdout, selectors.EVENT_READ)
        while process.poll() is None:  # a child it leaves behind may hold the pipe: ask itself
            if time.monotonic() > until:
                return False
            if ready.select(0.2):
                data = os.read(process.stdout.fileno(), TAIL)
                said.add(data)
                if not data:  # it closed its output, and may work on
                    time.sleep(0.05)
            said.flush()
            sometimes()
    return True


def _drain(process: subprocess.Popen[bytes], said: Log) -> None:
    """What is still in the pipe; nothing else that holds it is waited for."""
    assert process.stdout is not None
    os.set_blocking(process.stdout.fileno(), False)
    with contextlib.suppress(BlockingIOError):
        while data := os.read(process.stdout.fileno(), TAIL):
            said.add(data)
    process.stdout.close()


def end(process: subprocess.Popen[Any]) -> None:
    """End a process and what it started, in its group or out of it, and wait till they are gone."""
    below = descendants(process.pid)
    for number in below:
        with contextlib.suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)
    process.kill()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(GONE_SECONDS)
    until = time.monotonic() + GONE_SECONDS
    while any(_lives(number) for number in below) and time.monotonic() < until:
        time.sleep(0.01)


def _lives(number: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        stat = Path(f"/proc/{number}/stat").read_text("utf-8", "replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def descendants(root: int) -> list[int]:
    """Every process below one, by ``/proc``; none where there is no such folder."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            parent = int(stat.read_text("utf-8", "replace").rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(stat.parent.name))
    found, waiting = [], [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(DIES_WITH_PARENT, signal.SIGKILL)
