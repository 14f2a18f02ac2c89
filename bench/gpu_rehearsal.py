"""``python bench/gpu.py --rehearse``: `make gpu` itself, tried where there is no GPU.

Beside real parts at toy sizes it runs parts and tests that hang, crash, fail, are killed for their
memory or lose the device, each of those parts twice, so that every ending comes after every other
and after itself, and stand-ins for NVIDIA's tools. The command is killed in the midst of
the suite and begun again twice; then everything that was found must be there, nothing that passed
may have run again, limits must have been kept, and the files be few and small. No figure that it
prints is one of a GPU.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from bench import gpu
from bench.gpu_journal import BEGAN, PASSED, Entry, pieces, read
from bench.gpu_parts import PARTS, Part, Verdict, Window, in_pieces
from bench.gpu_pieces import do
from bench.peers import TREE

MOST_FILES, MOST_BYTES = 7, 16 << 20
HANG_SECONDS = 4.0  # less than a piece may take: the part is ended
LIMITS = {"hangs": HANG_SECONDS, "sticks": 15.0}  # of the second a piece may take 0.6
AGAIN = "-again"  # behind the name of a part that ends as one before it
TEST_SECONDS = 5
Figures = dict[str, Any]

# --- parts that go wrong --------------------------------------------------------------------------


def _hang() -> None:
    subprocess.Popen(["sleep", "1000"], start_new_session=True)  # out of the process group
    time.sleep(1000)


def _stick() -> None:
    time.sleep(1000)


def _crash() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def _be_killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _fail() -> None:
    raise ValueError("no luck " + "x" * 5000 + " at all")


def _lose_device() -> None:
    from types import SimpleNamespace

    def synchronize() -> None:
        raise RuntimeError("cudaErrorIllegalAddress: an illegal memory access was encountered")

    runtime = SimpleNamespace(deviceSynchronize=synchronize)
    sys.modules["cupy"] = SimpleNamespace(cuda=SimpleNamespace(runtime=runtime))  # type: ignore[assignment]
    synchronize()


WRONG: dict[str, Callable[[], None]] = {
    "hangs": _hang,
    "sticks": _stick,
    "crashes": _crash,
    "killed": _be_killed,
    "fails": _fail,
    "loses": _lose_device,
}


def _pieces(part: str) -> int:
    """Five pieces, the third of which goes wrong."""
    wrong = WRONG[part.removesuffix(AGAIN)]
    return do(part, [(f"piece {n}", wrong if n == 3 else lambda: {"n": 1}) for n in range(5)])


# --- tests that go wrong --------------------------------------------------------------------------

TESTS = """
import os, pathlib, signal, time
import pytest
from bench.gpu_rehearsal import _crash, _fail, _hang, _lose_device
pytestmark = pytest.mark.parametrize("device", ["gpu"])

@pytest.mark.parametrize("n", range(40))
def test_good(n, device):
    time.sleep(0.1)

def test_fails(device):
    print("said before")
    _fail()

def test_crashes(device):
    _crash()

def test_hangs(device):
    time.sleep(1000)

def test_loses_the_device(device):
    _lose_device()

@pytest.mark.parametrize("n", range(40))
def test_good_after(n, device):
    pass

@pytest.mark.skip(reason="for a reason")
def test_left_out(device):
    pass
"""
BAD_TESTS = ("test_fails", "test_crashes", "test_hangs", "test_loses_the_device")
FAILING = ("sticks", "crashes", "killed", "fails", "loses", "breaks", "memcheck")
MANY_PASSED, KILLED_AFTER = 80, 8

# --- stand-ins for NVIDIA's tools -----------------------------------------------------------------

SANITIZER = """#!/bin/sh
while [ "${1#--}" != "$1" ]; do shift 2; done
"$@"
code=$?
case "$*" in *pooling*)
    echo "========= Invalid __global__ read of size 4 bytes"
    echo "========= ERROR SUMMARY: 1 error"
    exit 99
esac
echo "========= ERROR SUMMARY: 0 errors"
exit $code
"""
NCU = """#!/bin/sh
while [ "${1#--}" != "$1" ]; do [ "$1" = --csv ] && shift || shift 2; done
"$@" || exit $?
echo '==PROF== Connected'
echo '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"'
echo '"0","a_kernel","gpu__time_duration.sum","ns","1,000"'
"""


def _command(name: str, window: Window) -> list[list[str]]:
    return [["bench.gpu_rehearsal", "pieces", name]]


def _break(window: Window, part: str, seconds: float) -> Verdict:
    raise LookupError("no luck")


def _ending(again: str = "") -> list[Part]:
    """A part for each way to end, whose names end in ``again``."""
    parts = [Part(f"breaks{again}", "a part whose work raises", 60, _break)]
    for kind in WRONG:
        work = in_pieces(partial(_command, kind + again))
        told = f"a part with a piece that {kind}"
        parts.append(Part(kind + again, told, LIMITS.get(kind, 60.0), work))
    return parts


REHEARSED: tuple[Part, ...] = (
    *(part for part in PARTS if part.name in ("check", "suite")),
    *_ending(),
    *_ending(AGAIN),
    *(replace(part, seconds=120) for part in PARTS if part.name in ("memcheck", "large", "ncu")),
    *(part for part in PARTS if part.name == "lucid_gpu"),
)


def once(argv: Sequence[str]) -> int:
    """One run of the command."""
    return gpu.main(argv, REHEARSED)


class Rehearsal:
    """A folder of results, and the command that fills it."""

    def __init__(self, folder: Path, results: Path, python: Sequence[str], device: str) -> None:
        self.results = results
        tests, tools = folder / "tests", folder / "tools"
        tests.mkdir()
        tools.mkdir()
        self.tests = tests / "test_rehearsed.py"
        self.tests.write_text(TESTS)
        for name, text in (("compute-sanitizer", SANITIZER), ("ncu", NCU)):
            (tools / name).write_text(text)
            (tools / name).chmod(0o755)
        told = ["--results", str(results), "--device", device, "--toy", "--rounds", "1"]
        told += ["--workers", "2", "--test-seconds", str(TEST_SECONDS), "--case", "negation"]
        told += ["--tests", str(self.tests), "--tests", "tests/ops/test_size.py"]
        told += ["--minutes", "8", "--python", shlex.join(python)]
        self.command = [sys.executable, "-m", "bench.gpu_rehearsal", "once", *told]
        path = os.pathsep.join([str(tools), os.environ.get("PATH", os.defpath)])
        cache = str(folder / "kernels")
        self.environment = dict(os.environ, PATH=path, CUPY_CACHE_DIR=cache)
        known = [str(TREE), *filter(None, [os.environ.get("PYTHONPATH")])]
        self.environment["PYTHONPATH"] = os.pathsep.join(known)

    def start(self) -> subprocess.Popen[bytes]:
        """Begin a run."""
        return subprocess.Popen(self.command, cwd=TREE, env=self.environment)

    def entries(self) -> list[Entry]:
        """The journal."""
        return read(self.results / "journal.jsonl.gz")

    def killed_in_the_suite(self) -> list[str]:
        """Begin, kill it with no time to say anything, and say which tests had passed by then."""
        process = self.start()
        until = time.monotonic() + 120
        passed: list[str] = []
        while len(passed) < KILLED_AFTER and process.poll() is None and time.monotonic() < until:
            time.sleep(0.1)
            found = pieces(self.entries(), "suite").items()
            passed = [n for n, e in found if e["outcome"] == PASSED]
        process.kill()
        process.wait()
        return passed


def problems(rehearsal: Rehearsal, passed_before: Sequence[str], parts: int) -> list[str]:
    """What is not as it should be after the command was killed, begun again, and ended."""
    entries, wrong = rehearsal.entries(), []

    def wanted(true: bool, told: str) -> None:
        if not true:
            wrong.append(told)

    document = json.loads((rehearsal.results / "gpu.json").read_text("utf-8"))
    found: Figures = document["parts"]
    suite = pieces(entries, "suite")
    begun = Counter(e["piece"] for e in entries if e["part"] == "suite" and e["outcome"] == BEGAN)
    wanted(len(passed_before) >= KILLED_AFTER, "the suite had not begun when it was killed")
    for name in passed_before:
        wanted(suite.get(name, {}).get("outcome") == PASSED, f"{name} passed, and is forgotten")
        wanted(begun[name] == 1, f"{name} passed, and ran again")
    ours = {n: e for n, e in suite.items() if not n.startswith("tests/ops")}
    good = [n for n, e in ours.items() if "test_good" in n and e["outcome"] == PASSED]
    wanted(len(good) == MANY_PASSED, f"{len(good)} of {MANY_PASSED} good tests are there")
    failed = found["suite"]["failed"]
    names = sorted(n.partition("::")[2].partition("[")[0] for n in failed)
    wanted(names == sorted(BAD_TESTS), f"the suite's failures are {names}")
    text = "\n".join(failed.values())
    for words in (
        "xxx at all",
        "said before",
        "_crash",
        "test_hangs",
        "Timeout",
        "cudaErrorIllegal",
    ):
        wanted(words in text, f"the messages of the suite do not say {words!r}")
    wanted("for a reason" in found["suite"]["skips"], "the reason of a skip is lost")
    states = {
        "check": "passed",
        "suite": "failed",
        "hangs": "out of time",
        **dict.fromkeys(FAILING, "failed"),
        **dict.fromkeys(("large", "ncu", "lucid_gpu"), "passed"),
    }
    for name, state in states.items():
        for part in {name, name + AGAIN} & found.keys():
            verdict = found[part]["verdict"]
            wanted(verdict == state, f"{part} is {verdict!r}, not {state!r}")
    for name in [kind + again for kind in WRONG if kind != "hangs" for again in ("", AGAIN)]:
        ends = {n: e["outcome"] for n, e in pieces(entries, name).items()}
        shape = {f"piece {n}": "failed" if n == 3 else "passed" for n in range(5)}
        wanted(ends == shape, f"the pieces of {name} are {ends}")
    wanted("in _stick" in found["sticks"]["failed"]["piece 3"], "the stack of a piece is lost")
    wanted("SIGSEGV" in found["crashes"]["failed"]["piece 3"], "the signal is not said")
    wanted("memory" in found["killed"]["failed"]["piece 3"], "that it was killed is not said")
    wanted(" at all" in found["fails"]["failed"]["piece 3"], "the message is cut")
    for hung in (found["hangs"], found["hangs" + AGAIN]):
        took = hung["seconds"]
        wanted(took < HANG_SECONDS + 60, f"a limit of {HANG_SECONDS} s was {took}")
        wanted(hung["not_ended"] == ["piece 3"], f"what hung is {hung['not_ended']}")
    wanted(set(found["memcheck"]["failed"]) == {"pooling"}, "one family fails under the tool")
    wanted("Invalid" in found["memcheck"]["failed"].get("pooling", ""), "the tool's words are lost")
    wanted(bool(document["benchmarks"]["lucid_gpu"]), "the benchmarks' figures are lost")
    wrong += _files(rehearsal.results)
    wanted(len(found) == parts, f"{len(found)} parts of {parts} are in gpu.json")
    wanted(not _sleeping(), "a process that hung is still there")
    return wrong


def _files(folder: Path) -> list[str]:
    """What is wrong with the folder of results."""
    files, wrong = list(folder.iterdir()), []
    if len(files) > MOST_FILES:
        wrong.append(f"{len(files)} files: {', '.join(sorted(p.name for p in files))}")
    wrong += [f"{p.name} is too large" for p in files if p.stat().st_size >= MOST_BYTES]
    logs: list[str] = []
    for path in folder.glob("logs*.tar"):
        with tarfile.open(path) as tar:
            logs += tar.getnames()
    for name in ("interrupted", "suite-chosen", "hangs", "crashes", "memcheck-pooling", "ncu-adam"):
        if not any(log.startswith(name) for log in logs):
            wrong.append(f"there is no log of {name}")
    if not any(log.endswith(".xml.gz") for log in logs):
        wrong.append("there is no junit file")
    return wrong


def _sleeping() -> list[int]:
    """Processes that a part began by which it hung."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            if path.read_bytes() == b"sleep\x001000\x00":
                found.append(int(path.parent.name))
    return found


def main(results: Path | None, python: Sequence[str], device: str = "cpu") -> int:
    """Rehearse; 1 with what is wrong."""
    with tempfile.TemporaryDirectory(prefix="lucid_gpu-rehearsal-") as folder:
        where = (results or Path(folder) / "results").resolve()
        if (where / "journal.jsonl.gz").exists():
            print(f"make gpu: {where} holds results; rehearse in another folder", file=sys.stderr)
            return 2
        wrong = rehearse(Path(folder), where, python, device)
    for told in wrong:
        print(f"rehearsal: {told}", file=sys.stderr)
    print(f"rehearsal: {len(wrong)} problems; no figure here is one of a GPU")
    return int(bool(wrong))


def rehearse(folder: Path, results: Path, python: Sequence[str], device: str = "cpu") -> list[str]:
    """Kill the command in the suite, let it go on to its end, and begin it once more."""
    rehearsal = Rehearsal(folder, results, python, device)
    passed = rehearsal.killed_in_the_suite()
    wrong = [] if rehearsal.start().wait() == 1 else ["the exit status does not say what failed"]
    wrong += problems(rehearsal, passed, len(REHEARSED))
    before = pieces(rehearsal.entries(), "suite")
    tried = len(rehearsal.entries())
    rehearsal.start().wait()
    again = {e["piece"] for e in rehearsal.entries()[tried:] if e["part"] == "suite"} - {None}
    failed = {n for n, e in before.items() if e["outcome"] == "failed"}
    lost = {n for n in again if before[n]["outcome"] == PASSED}
    if lost:
        wrong.append(f"passed, and ran once more: {sorted(lost)}")
    if not failed <= again:
        wrong.append(f"failed, and was not tried again: {sorted(failed - again)}")
    return wrong + _files(results)


if __name__ == "__main__":
    way, *rest = sys.argv[1:]
    sys.exit(once(rest) if way == "once" else _pieces(*rest))
