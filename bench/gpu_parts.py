"""The parts of `make gpu`: what each runs, in which order, and its limit."""

from __future__ import annotations

import csv
import os
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bench import gpu_process
from bench.gpu_check import FAMILIES
from bench.gpu_journal import (
    BEGAN,
    ENDED,
    FAILED,
    FORGOTTEN,
    LOST,
    PASSED,
    VARIABLE,
    Entry,
    begun,
    note,
    pieces,
    read,
)
from bench.gpu_kernels import Kernels
from bench.gpu_pieces import DONE, SOME_FAILED
from bench.gpu_process import Ended
from bench.gpu_profiled import PROFILED
from bench.gpu_results import Results
from bench.gpu_worker import PEERS, Peer
from bench.peers import installed

Figures = dict[str, Any]
Verdict = Mapping[str, Any]  # what a part came to: nobody who reads one changes it
SAVE_SECONDS = 15.0
LEAST_SECONDS = 3.0  # with less nothing is begun
OUT_OF_TIME: Verdict = MappingProxyType({"verdict": "out of time"})  # of every part


@dataclass(frozen=True)
class Options:
    """What the command line says about how parts are run.

    Attributes
    ----------
    python : sequence of str
        What runs Python: the interpreter, behind another command where one is wanted.
    workers : int
        Processes of the test suite.
    test_seconds : float
        What one test may take.
    tests : sequence of str
        Files or folders to run instead of the whole suite.
    wheels : Path, optional
        A folder of wheels for the part ``cudnn``.
    toy : bool
        Whether only the command is tried, at tiny sizes.
    """

    device: str = "cuda"
    rounds: int = 15
    cases: Sequence[str] = ()
    python: Sequence[str] = ()
    workers: int = 12
    test_seconds: float = 150.0
    tests: Sequence[str] = ()
    wheels: Path | None = None
    toy: bool = False


@dataclass
class Window:
    """What a part needs: where results go, how to run a process, how to save."""

    results: Results
    options: Options
    variables: dict[str, str]
    scratch: Path
    kernels: Kernels
    update: Callable[[], None]  # writes gpu.json anew
    retried: dict[str, set[str]] = field(default_factory=dict)  # failed before, by part
    started: int = 0  # length of the journal when this part began

    def entries(self) -> list[Entry]:
        """The journal."""
        return read(self.results.journal)

    def finished(self, part: str) -> set[str]:
        """The pieces of a part that are not to be done again now."""
        entries = self.entries()
        before = {n for n, e in pieces(entries[: self.started], part).items() if _ended(e)}
        since = {n for n, e in pieces(entries[self.started :], part).items() if _ended(e)}
        return (before - self.retried.get(part, set())) | since

    def run(
        self, name: str, command: Sequence[str], seconds: float, variables: Figures | None = None
    ) -> Ended:
        """Run a process; its whole output goes among the logs however it ends."""
        last = time.monotonic()

        def sometimes() -> None:
            nonlocal last
            if time.monotonic() - last > SAVE_SECONDS:
                self.save()
                last = time.monotonic()

        running = self.results.running
        environment = {**self.variables, VARIABLE: str(self.results.journal), **(variables or {})}
        try:
            ended = gpu_process.run(command, seconds, running, environment, sometimes)
            shutil.copyfile(running, self.scratch / "last.log.gz")
        finally:
            self.results.keep_log(name, running)
        return Ended(ended.code, ended.seconds, self.scratch / "last.log.gz", ended.tail)

    def note(self, part: str, piece: str | None, outcome: str, **figures: Any) -> None:
        """Add a line to the journal."""
        note(self.results.journal, part, piece, outcome, **figures)

    def save(self) -> str:
        """Save what is new: `gpu.json` and kernels."""
        self.update()
        return self.kernels.save()


def _ended(entry: Entry) -> bool:
    return entry["outcome"] in ENDED


Work = Callable[[Window, str, float], Verdict]


@dataclass(frozen=True)
class Part:
    """One part.

    Attributes
    ----------
    seconds : float
        Its limit.
    work : callable
        ``work(window, name, seconds)`` gives its verdict.
    group : str
        A name for several parts.
    on_cpu : bool
        Whether it can be tried on a CPU.
    """

    name: str
    title: str
    seconds: float
    work: Work
    group: str = ""
    on_cpu: bool = True


def in_pieces(
    commands: Callable[[Window], Iterable[Sequence[str]]],
) -> Work:
    """A part whose processes note their pieces; one that a piece ends is started again."""

    def work(window: Window, part: str, seconds: float) -> Verdict:
        until = time.monotonic() + seconds
        for command in commands(window):
            found = _to_the_end(window, part, command, until, seconds)
            if found:
                return found
        return {"verdict": PASSED}

    return work


def _to_the_end(
    window: Window, part: str, command: Sequence[str], until: float, seconds: float
) -> Verdict | None:
    """Start a process till its pieces are done; a verdict where that cannot be."""
    while True:
        finished, left = window.finished(part), until - time.monotonic()
        if left < LEAST_SECONDS:
            return OUT_OF_TIME
        variables = {
            DONE: _written(window.scratch / "done.txt", finished),
            "LUCID_GPU_PIECE_SECONDS": str(max(5.0, min(120.0, 0.6 * seconds))),
        }
        ended = window.run(part, [*window.options.python, "-m", *command], left, variables)
        if ended.code in (0, SOME_FAILED):
            return None
        if ended.code is None:
            return OUT_OF_TIME
        for name in list(begun(window.entries()[window.started :], part)):
            window.note(part, name, FAILED, message=f"{ended.how}\n\n{ended.tail}")
        if window.finished(part) == finished:  # it would end in the same way again
            return {"verdict": ended.verdict, "summary": _why(ended), "output": ended.tail}


def _why(ended: Ended) -> str:
    return f"{ended.how}: {ended.last_line}"


def _written(path: Path, names: Iterable[str]) -> str:
    path.write_text("\n".join(sorted(names)), "utf-8")
    return str(path)


# --- the suite ------------------------------------------------------------------------------------

# What only a GPU can tell comes first.
FIRST = {"op-table": "tests/test_optable.py", "kernels": "tests/kernels", "cuda": "tests/cuda"}
ELSEWHERE = ("tests/bench", "tests/tools")  # nothing of them is on a GPU


def suite(window: Window, part: str, seconds: float) -> Verdict:
    """The tests that take a device, many at a time."""
    if not installed("pytest"):
        return {"verdict": "skipped", "summary": "pytest is not installed"}
    until = time.monotonic() + seconds
    left_out = [f"--ignore={path}" for path in (*FIRST.values(), *ELSEWHERE)]
    groups = {name: [path] for name, path in FIRST.items()} | {"others": ["tests", *left_out]}
    if window.options.tests:
        groups = {"chosen": list(window.options.tests)}
    for name in window.retried.get(part, ()):
        if "::" not in name:  # a file that could not be imported: no test of that name will pass
            window.note(part, name, FORGOTTEN)
    failed: Verdict = {}
    for name, words in groups.items():
        found = _group(window, part, name, words, until)
        print(f"  {name}: {counted(window.entries(), part)}", flush=True)
        window.save()
        if found == OUT_OF_TIME:
            return found
        failed = failed or found or {}
    return failed or {"verdict": PASSED}


def _group(
    window: Window, part: str, group: str, words: Sequence[str], until: float
) -> Verdict | None:
    """Tests till each has been tried; a verdict where that cannot be."""
    parallel = installed("xdist") and window.options.workers > 0
    while True:
        finished, left = window.finished(part), until - time.monotonic()
        if left < LEAST_SECONDS:
            return OUT_OF_TIME
        junit, stacks = window.scratch / f"suite-{group}.xml", window.scratch / "stacks"
        shutil.rmtree(stacks, ignore_errors=True)
        variables = {
            DONE: _written(window.scratch / "done.txt", finished),
            "LUCID_GPU_STACKS": str(stacks),
            "LUCID_TEST_LIMIT": str(min(window.options.test_seconds, max(5.0, 0.6 * left))),
            "LUCID_TEST_END": str(time.time() + left - min(20.0, 0.15 * left)),
        }
        # A process has one watch over what hangs, and it is that of bench.gpu_suite.
        flags = ["-q", "-p", "no:cacheprovider", "-p", "bench.gpu_suite"]
        flags += ["-o", "faulthandler_timeout=0"]
        flags += ["--continue-on-collection-errors", "--device", window.options.device]
        flags += ["-n", str(window.options.workers)] if parallel else []
        flags += ["--max-worker-restart=10000"] if parallel else []
        command = [*window.options.python, "-m", "pytest", *words, *flags, f"--junitxml={junit}"]
        ended = window.run(f"{part}-{group}", command, left, variables)
        window.results.keep_text(f"{part}-{group}", junit)
        said = ""
        for path in sorted(stacks.glob("*.txt")):
            said += path.read_text("utf-8", "replace")
            window.results.keep_text(f"{part}-{group}-stacks-{path.stem}", path)
        junit.unlink(missing_ok=True)
        if ended.code in (None, INTERRUPTED) and until - time.monotonic() < 25:
            return OUT_OF_TIME
        since = pieces(window.entries()[window.started :], part)
        stopped = [n for n, e in since.items() if e["outcome"] == BEGAN]
        if not parallel and ended.code not in (None, INTERRUPTED):  # the one process ended in it
            for name in stopped:
                message = f"{ended.how}\n\n{said}\n\n{ended.tail}"
                window.note(part, name, FAILED, message=message)
        lost = any(entry["outcome"] == LOST for entry in since.values())
        if ended.code in (0, 1, NO_TESTS) and not stopped and not lost:
            return None
        if window.finished(part) == finished:
            return {"verdict": ended.verdict, "summary": _why(ended), "output": ended.tail}


INTERRUPTED, NO_TESTS = 2, 5  # pytest's exit statuses


def counted(entries: list[Entry], part: str) -> str:
    """How many pieces came to which end."""
    found: dict[str, int] = {}
    for entry in pieces(entries, part).values():
        word = entry["outcome"] if _ended(entry) else "not ended"
        found[word] = found.get(word, 0) + 1
    order = (PASSED, FAILED, "skipped", "not ended")
    return ", ".join(f"{found[word]} {word}" for word in order if word in found) or "nothing done"


# --- NVIDIA's tools -------------------------------------------------------------------------------

FAMILY_SECONDS = 150.0


def tool_named(name: str, path: str | None) -> str | None:
    """A tool of CUDA's, also where the path does not lead to it."""
    places = [path or os.defpath, "/usr/local/cuda/bin", "/opt/cuda/bin"]
    return shutil.which(name, path=os.pathsep.join(places))


def one_by_one(
    window: Window, part: str, names: Iterable[str], seconds: float, do: Callable[[str, float], Any]
) -> Verdict:
    """Pieces that are a process each: ``do(name, seconds)`` gives outcome and figures."""
    until = time.monotonic() + seconds
    finished = window.finished(part)
    for name in names:
        if name in finished:
            continue
        left = until - time.monotonic()
        if left < LEAST_SECONDS:
            return OUT_OF_TIME
        window.note(part, name, BEGAN, at=time.time())
        ended, outcome, found = do(name, min(left, FAMILY_SECONDS))
        if ended.code is None and left < FAMILY_SECONDS:
            window.note(part, name, LOST, message="the part's time ran out")
            return OUT_OF_TIME
        window.note(part, name, outcome, seconds=round(ended.seconds, 1), **found)
        print(f"  {name}: {found.get('summary', outcome)}", flush=True)
        window.save()
    return {"verdict": PASSED}


def sanitizer(window: Window, part: str, seconds: float) -> Verdict:
    """Every family of kernels under a tool of compute-sanitizer, each array by itself."""
    tool = tool_named("compute-sanitizer", window.variables.get("PATH"))
    if tool is None:
        return {"verdict": "skipped", "summary": "compute-sanitizer is not installed"}
    told = [tool, "--tool", part, "--error-exitcode", "99", "--print-limit", "100"]
    told += ["--report-api-errors", "no"] if part == "memcheck" else []

    def do(family: str, limit: float) -> tuple[Ended, str, Figures]:
        check = ["-m", "bench.gpu_check", "--device", window.options.device]
        check += ["--family", family, "--alone"]
        command = [*told, *window.options.python, *check]
        ended = window.run(f"{part}-{family}", command, limit, {VARIABLE: ""})
        text = ended.text()
        lines = [line for line in text.splitlines() if line.startswith("=========")]
        summaries = [line.strip("= ") for line in lines if " SUMMARY: " in line]
        summary = summaries[-1] if summaries else _why(ended)
        if ended.code == 0 and summaries:
            return ended, PASSED, {"summary": summary}
        message = "\n".join([summary, ended.how, *(lines or [ended.tail])])
        return ended, FAILED, {"summary": summary, "message": message[:50_000]}

    return one_by_one(window, part, FAMILIES, seconds, do)


METRICS = (
    "gpu__time_duration.sum",
    "dram__bytes.sum",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    "launch__registers_per_thread",
)


def profiled(window: Window, part: str, seconds: float) -> Verdict:
    """What ncu says of six kernels."""
    tool = tool_named("ncu", window.variables.get("PATH"))
    if tool is None:
        return {"verdict": "skipped", "summary": "ncu is not installed"}

    def do(case: str, limit: float) -> tuple[Ended, str, Figures]:
        told = [tool, "--profile-from-start", "off", "--csv", "--metrics", ",".join(METRICS)]
        step = ["-m", "bench.gpu_profiled", case, "--device", window.options.device]
        step += ["--toy"] if window.options.toy else []
        ended = window.run(f"{part}-{case}", [*told, *window.options.python, *step], limit)
        text = ended.text()
        if "ERR_NVGPUCTRPERM" in text:
            reason = "the driver lets only root read the counters (ERR_NVGPUCTRPERM)"
            return ended, "skipped", {"message": reason, "summary": f"skipped: {reason}"}
        kernels = read_metrics(text)
        if ended.code == 0 and kernels:
            return ended, PASSED, {"summary": f"{len(kernels)} kernels", "figures": kernels}
        return ended, FAILED, {"message": f"{_why(ended)}\n\n{ended.tail}"}

    return one_by_one(window, part, PROFILED, seconds, do)


def read_metrics(text: str) -> list[Figures]:
    """The kernels in ncu's CSV, in order: name and metrics with their units."""
    lines = text.splitlines()
    head = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    found: dict[str, Figures] = {}
    for row in csv.DictReader(line for line in lines[head:] if line.startswith('"')):
        kernel = found.setdefault(row["ID"], {"kernel": row["Kernel Name"]})
        kernel[row["Metric Name"]] = f"{row['Metric Value']} {row['Metric Unit']}".strip()
    return list(found.values())


# --- the table ------------------------------------------------------------------------------------


def check(window: Window) -> Iterable[Sequence[str]]:
    return [["bench.gpu_check", "--device", window.options.device]]


def large(window: Window) -> Iterable[Sequence[str]]:
    told = ["bench.gpu_large", "--device", window.options.device]
    return [[*told, "--toy"] if window.options.toy else told]


def copy(window: Window) -> Iterable[Sequence[str]]:
    return [["bench.gpu_copy"]]


def nccl(window: Window) -> Iterable[Sequence[str]]:
    return [["bench.gpu_nccl", *["--toy"] * window.options.toy]]


def measured(window: Window, peer: str, cases: Sequence[str] = ()) -> list[str]:
    """The command that measures a peer."""
    command = ["bench.gpu_worker", peer, "--device", window.options.device]
    command += ["--rounds", str(window.options.rounds)] + ["--toy"] * window.options.toy
    return command + [word for name in cases or window.options.cases for word in ("--case", name)]


def benchmark(peer: Peer) -> Work:
    """The part that measures a peer."""
    work = in_pieces(lambda window: [measured(window, peer.name)])

    def part(window: Window, name: str, seconds: float) -> Verdict:
        for module in (peer.module, *["torch"] * (peer.name == "triton")):
            if not installed(module):
                return {"verdict": "skipped", "summary": f"{module} is not installed"}
        return work(window, name, seconds)

    return part


VERSION = "import lucid_gpu; print(lucid_gpu.backends.cudnn.version() or 'none')"


def cudnn(window: Window, part: str, seconds: float) -> Verdict:
    """Convolutions by cuDNN beside the CPU's, and their time beside that of matrix products."""
    until, path = time.monotonic() + seconds, window.variables.get("PYTHONPATH", "")
    if window.options.wheels is not None:
        folder = window.scratch / "wheels"
        wheels = sorted(window.options.wheels.glob("*.whl"))
        if not wheels:
            return {"verdict": FAILED, "summary": f"{window.options.wheels} holds no wheel"}
        for wheel in wheels:
            shutil.unpack_archive(wheel, folder, "zip")
        path = os.pathsep.join([path, str(folder)])
    before = window.variables
    window.variables = {**before, "PYTHONPATH": path}
    try:
        ended = window.run(part, [*window.options.python, "-c", VERSION], min(60, seconds))
        if ended.code != 0:
            return {"verdict": FAILED, "summary": _why(ended), "output": ended.tail}
        if ended.last_line == "none":
            told = "cuDNN is not installed; carry the wheels and say ARGS='--wheels FOLDER'"
            return {"verdict": "skipped", "summary": told}
        cases = ("convolution", "convolution-without-cudnn")
        shared = ["--part", part]
        work = in_pieces(
            lambda window: [
                ["bench.gpu_check", "--family", "convolutions", *shared],
                [*measured(window, "lucid_gpu", cases), *shared],
            ]
        )
        return work(window, part, until - time.monotonic())
    finally:
        window.variables = before


TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
SECONDS = {"lucid_gpu": 150.0, "torch-eager": 80, "torch-compile": 200, "triton": 60, "jax": 90}

PARTS: tuple[Part, ...] = (
    Part("check", "every family of kernels beside the CPU", 90, in_pieces(check)),
    Part("suite", "the tests that take a device", 540, suite),
    *(Part(t, f"every family under {t}", 300, sanitizer, "sanitizer") for t in TOOLS),
    Part("large", "tensors of 2^31 + 16 elements", 90, in_pieces(large)),
    Part("nccl", "NCCL with one rank", 60, in_pieces(nccl), on_cpu=False),
    Part("copy", "copy bandwidth", 30, in_pieces(copy), "bench", on_cpu=False),
    *(
        Part(p.name, f"benchmarks: {p.title}", SECONDS[p.name], benchmark(p), "bench")
        for p in PEERS
    ),
    Part("cudnn", "convolutions by cuDNN", 120, cudnn, on_cpu=False),
    Part("ncu", "counters of six kernels", 150, profiled),
)
