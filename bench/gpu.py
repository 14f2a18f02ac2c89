"""Everything that needs a GPU, in one command: ``make gpu``.

It installs nothing, needs no network, works with CuPy for CUDA 12 or 13, and ends inside nine
minutes: each part is a process of its own with a limit. The parts are a comparison with the CPU of
every family of kernels, the copy bandwidth, the cases of `bench.gpu_cases` for lucid_gpu and each
peer that is installed, the same comparison under ``compute-sanitizer``, and the test suite on
``cuda``. The figures go to ``bench/results/<gpu>-<date>.json`` and ``.md``, after every part anew.

``python bench/gpu.py --device cpu --rounds 1 --results FOLDER`` tries it without a GPU.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

TREE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TREE))  # so that it also runs without PYTHONPATH

from bench import report  # noqa: E402
from bench.gpu_cases import CASES  # noqa: E402
from bench.gpu_report import line_of, markdown, rows, wrong  # noqa: E402
from bench.gpu_worker import PEERS, Peer  # noqa: E402
from bench.peers import environment, installed, named  # noqa: E402

WHOLE_SECONDS = 515.0  # all parts together
STOPPED = 2  # pytest's answer when its session was ended

Figures = dict[str, Any]
Part = Callable[[float], Figures]

NO_GPU: Figures = {
    "name": "no GPU",
    "compute_capability": "none",
    "driver": "none",
    "runtime": "none",
    "cupy": "none",
}

PROBE = """
import json, cupy, lucid_gpu
runtime = cupy.cuda.runtime
try:
    count = runtime.getDeviceCount()
except runtime.CUDARuntimeError as error:
    raise SystemExit(f"CuPy finds no CUDA GPU ({error})")
if not count:
    raise SystemExit("CuPy finds no CUDA GPU")
about = runtime.getDeviceProperties(0)
print(json.dumps({
    "name": about["name"].decode(),
    "compute_capability": f"{about['major']}.{about['minor']}",
    "multiprocessors": about["multiProcessorCount"],
    "memory_bytes": about["totalGlobalMem"],
    "driver": runtime.driverGetVersion(),
    "runtime": runtime.runtimeGetVersion(),
    "cupy": cupy.__version__,
    "cudnn": lucid_gpu.backends.cudnn.version(),
}))
"""


@dataclass(frozen=True)
class Ended:
    """How a process ended; ``code`` is None when its time ran out."""

    code: int | None
    output: str
    seconds: float

    @property
    def verdict(self) -> str:
        """A word for it."""
        return "out of time" if self.code is None else "passed" if self.code == 0 else "failed"

    def figures(self, tail: int = 2000) -> Figures:
        """Verdict and time, and the end of the output where it did not pass."""
        found: Figures = {"verdict": self.verdict, "seconds": round(self.seconds, 1)}
        if self.code != 0:
            found["output"] = self.output[-tail:]
        return found


def run(command: Sequence[str], seconds: float, **variables: str) -> Ended:
    """Run a command in the tree for at most so long; its whole process group ends with it."""
    start = time.monotonic()
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
        process = subprocess.Popen(
            command,
            cwd=TREE,
            env=gpu_environment() | variables,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        code: int | None
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            _end(process)
        output.seek(0)
        return Ended(code, output.read(), time.monotonic() - start)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and what it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def gpu_environment() -> dict[str, str]:
    """The environment of every part: the tree importable, CuPy's cache where it can be written."""
    env = environment()
    home = env.get("HOME", "")
    if "CUPY_CACHE_DIR" not in env and not (home and os.access(home, os.W_OK)):
        env["CUPY_CACHE_DIR"] = str(Path(tempfile.gettempdir()) / "lucid_gpu-cupy-cache")
    return env


def probe() -> Figures:
    """What GPU this is.

    Raises
    ------
    SystemExit
        With one sentence, where CuPy, a GPU or the package's own needs are missing.
    """
    if not installed("cupy"):
        raise SystemExit(
            f"make gpu: CuPy is not installed for {sys.executable}; install cupy-cuda12x or "
            "cupy-cuda13x, or say make gpu PYTHON=/path/to/a/python3/with/cupy"
        )
    ended = run([sys.executable, "-c", PROBE], 60)
    if ended.code != 0:
        raise SystemExit(f"make gpu: {_last_line(ended.output)}; nothing was run")
    about: Figures = json.loads(_last_line(ended.output))
    ended = run([sys.executable, "-c", "import lucid_gpu"], 60)
    if ended.code != 0:
        raise SystemExit(f"make gpu: lucid_gpu cannot be imported: {_last_line(ended.output)}")
    return about


def _last_line(output: str) -> str:
    return (output.strip().splitlines() or ["no answer"])[-1]


def compare_with_cpu(device: str, seconds: float) -> Figures:
    """The package's own comparison of GPU and CPU."""
    ended = run([sys.executable, "-m", "bench.gpu_check", device], seconds)
    return {**ended.figures(), "summary": _last_line(ended.output)}


# What only a GPU can tell comes first: the suite may not be through when its time is up.
SUITE = ("cuda", "kernels", "fusion", "devices", "ops", "optim", "nn", "autograd")


def test_suite(seconds: float) -> Figures:
    """The test suite on ``cuda``, as far as it comes."""
    if not installed("pytest"):
        return {"verdict": "skipped", "summary": "pytest is not installed"}
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "tests.xml"
        flags = ["-q", "-p", "no:cacheprovider", "-p", "bench.gpu_suite"]
        flags += ["--continue-on-collection-errors", "--device", "cuda"]
        flags += ["--ignore=tests/bench", "--ignore=tests/tools"]  # nothing on a GPU
        paths = [f"tests/{name}" for name in SUITE if (TREE / "tests" / name).exists()]
        command = [sys.executable, "-m", "pytest", *paths, "tests", *flags, f"--junitxml={log}"]
        ended = run(command, seconds, LUCID_TEST_SECONDS=str(0.85 * seconds - 5))
        found = ended.figures()
        found["summary"] = _last_line(ended.output)
        if log.exists():
            found.update(read_junit(log))
            if ended.code in (STOPPED, None) and not found["counts"]["failed"]:
                found["verdict"] = "passed"
                found["summary"] = f"as far as it came: {found['counts']['passed']} passed"
    return found


def read_junit(path: Path) -> Figures:
    """Counts, the names of what failed, and the reasons for skips."""
    cases = list(ET.parse(path).getroot().iter("testcase"))
    failed = [c for c in cases if c.find("failure") is not None or c.find("error") is not None]
    reasons: dict[str, int] = {}
    for case in cases:
        skip = case.find("skipped")
        if skip is not None:
            reason = skip.get("message") or ""
            reasons[reason] = reasons.get(reason, 0) + 1
    skipped = sum(reasons.values())
    return {
        "counts": {
            "passed": len(cases) - len(failed) - skipped,
            "failed": len(failed),
            "skipped": skipped,
        },
        "failed_tests": [f"{c.get('classname')}::{c.get('name')}" for c in failed[:50]],
        "skips": dict(sorted(reasons.items(), key=lambda item: -item[1])[:20]),
    }


def check_memory(seconds: float) -> Figures:
    """The comparison again, under compute-sanitizer's memory checker."""
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/cuda/bin"])
    tool = shutil.which("compute-sanitizer", path=path)
    if tool is None:
        return {"verdict": "skipped", "summary": "compute-sanitizer is not installed"}
    flags = ["--tool", "memcheck", "--error-exitcode", "99", "--report-api-errors", "no"]
    check = [sys.executable, "-m", "bench.gpu_check", "cuda", "alone"]
    ended = run([tool, *flags, *check], seconds)
    found = ended.figures()
    summary = re.findall(r"ERROR SUMMARY: .*", ended.output)
    found["summary"] = summary[-1] if summary else _last_line(ended.output)
    return found


def copy_bandwidth(seconds: float) -> Figures:
    """Bytes a second that a copy reads and writes."""
    ended = run([sys.executable, "-m", "bench.gpu_copy"], seconds)
    found = ended.figures()
    if ended.code == 0:
        found["bytes_a_second"] = json.loads(_last_line(ended.output))
        found["summary"] = f"{max(found['bytes_a_second'].values()) / 1e9:.0f} GB/s"
    return found


def benchmarks(peer: Peer, options: Options, document: Figures) -> Callable[[float], Figures]:
    """The part that measures a peer; its figures go into the document."""

    def part(seconds: float) -> Figures:
        if not installed(peer.module) or (peer.table and not installed("torch")):
            return {"verdict": "skipped", "summary": f"{peer.module} is not installed"}
        command = [sys.executable, "-m", "bench.gpu_worker", peer.name, "--device", options.device]
        command += ["--rounds", str(options.rounds), "--seconds", str(0.8 * seconds)]
        command += ["--toy"] if options.toy else []
        command += [word for name in options.cases or () for word in ("--case", name)]
        ended = run(command, seconds)
        cases = read_cases(ended.output)
        document["benchmarks"][peer.name] = cases
        failed = [name for name, figures in cases.items() if "failed" in figures]
        found = ended.figures()
        wanted = sum(len(c.dtypes) for c in CASES if not options.cases or c.name in options.cases)
        found["summary"] = f"{len(cases) - len(failed)} of {wanted} measured"
        if failed:
            found["summary"] += f", {len(failed)} failed: {', '.join(failed[:6])}"
        return found

    return part


def read_cases(output: str) -> Figures:
    """The figures among a worker's lines, by case and type."""
    found: Figures = {}
    for line in output.splitlines():
        if line.startswith('{"case"'):
            with contextlib.suppress(json.JSONDecodeError):  # its time ran out within a line
                figures = json.loads(line)
                found[f"{figures.pop('case')} {figures.pop('dtype')}"] = figures
    return found


@dataclass(frozen=True)
class Options:
    """What the command line says."""

    device: str = "cuda"
    rounds: int = 15
    results: Path = report.RESULTS
    peers: tuple[Peer, ...] = PEERS
    cases: tuple[str, ...] | None = None

    @property
    def toy(self) -> bool:
        """Whether only the script is tried."""
        return self.device == "cpu"


def parts(options: Options, document: Figures) -> list[tuple[str, float, Part]]:
    """Each part with its name and its limit in seconds."""
    seconds = {"lucid_gpu": 100.0, "torch-eager": 45, "torch-compile": 70, "triton": 25, "jax": 30}
    measured = [
        (f"benchmarks: {peer.title}", seconds[peer.name], benchmarks(peer, options, document))
        for peer in options.peers
    ]
    checked = ("comparison with the CPU", 80.0, partial(compare_with_cpu, options.device))
    if options.toy:
        return [checked, *measured]
    return [
        checked,
        ("copy bandwidth", 20, copy_bandwidth),
        *measured[:1],
        ("memory check", 60, check_memory),
        *measured[1:],
        ("test suite on cuda", 250, test_suite),  # what is left of the whole
    ]


def parser() -> argparse.ArgumentParser:
    """The flags."""
    flags = argparse.ArgumentParser(prog="make gpu", description=__doc__)
    flags.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    flags.add_argument("--rounds", type=int, default=15)
    flags.add_argument("--results", type=Path, default=report.RESULTS, help="a folder")
    flags.add_argument("--peers", default=",".join(p.name for p in PEERS))
    flags.add_argument("--case", action="append", help="one case; may be repeated")
    return flags


def main(argv: Sequence[str] | None = None) -> int:
    """Run every part; 1 when one failed, 2 where there is no GPU."""
    told = parser()
    flags = told.parse_args(argv)
    if flags.rounds < 1:
        told.error("--rounds must be at least 1")
    try:
        peers = named(PEERS, flags.peers.split(","), "peer")
        named(CASES, flags.case or [], "case")
    except ValueError as error:
        told.error(str(error))
    cases = tuple(flags.case) if flags.case else None
    options = Options(flags.device, flags.rounds, flags.results, peers, cases)
    end = time.monotonic() + WHOLE_SECONDS
    try:
        gpu = NO_GPU if options.toy else probe()
    except SystemExit as reason:
        print(reason, file=sys.stderr)
        return 2
    print(f"{gpu['name']}, CuPy {gpu['cupy']}")
    now = datetime.now(timezone.utc)
    document: Figures = {
        "created": now.isoformat(timespec="seconds"),
        "gpu": gpu,
        "machine": report.machine(),
        "toy": options.toy,
        "parts": {},
        "benchmarks": {},
    }
    slug = re.sub(r"[^a-z0-9]+", "-", gpu["name"].lower()).strip("-")
    stem = options.results / f"{slug}-{now:%Y-%m-%d}"
    for name, seconds, part in parts(options, document):
        print(f"{name} ...", flush=True)
        document["parts"][name] = _do(part, min(seconds, end - time.monotonic()))
        print(f"  {line_of(document['parts'][name])}", flush=True)
        write(document, stem)
    print(f"written: {stem}.json {stem}.md")
    bad = ("failed", "out of time")
    wrongs = [row["title"] for row in rows(document) if wrong(row)]
    if wrongs:
        print("wrong results:", ", ".join(wrongs), file=sys.stderr)
    return int(bool(wrongs) or any(p["verdict"] in bad for p in document["parts"].values()))


def _do(part: Callable[[float], Figures], seconds: float) -> Figures:
    if seconds < 5:
        return {"verdict": "out of time"}
    try:
        return part(seconds)
    except Exception as error:  # the other parts still run
        return {"verdict": "failed", "output": f"{type(error).__name__}: {error}"}


def write(document: Figures, stem: Path) -> None:
    """Write the figures and their table."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    told = {**document, "rows": rows(document)}
    told["benchmarks"] = {  # the samples have done their work
        peer: {
            name: {k: v for k, v in figures.items() if k != "sample"}
            for name, figures in cases.items()
        }
        for peer, cases in document["benchmarks"].items()
    }
    stem.with_name(stem.name + ".json").write_text(json.dumps(told, indent=1) + "\n", "utf-8")
    stem.with_name(stem.name + ".md").write_text(markdown(document), "utf-8")


if __name__ == "__main__":
    sys.exit(main())
