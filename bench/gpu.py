"""Everything that needs a GPU, in one command: ``make gpu``.

It installs nothing, needs no network, works with CuPy for CUDA 12 or 13, and ends inside nine
minutes: each part is a process of its own with a limit. The parts are a comparison with the CPU,
the copy bandwidth, the chain beside torch where torch is installed, the test suite on ``cuda``, and
a memory checker where ``compute-sanitizer`` is installed. The figures go to
``bench/results/<gpu>-<date>.json`` and ``.md``, after every part anew.
"""

from __future__ import annotations

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
from pathlib import Path
from typing import Any

TREE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TREE))  # so that it also runs without PYTHONPATH

from bench import report  # noqa: E402
from bench.peers import environment, installed  # noqa: E402

WHOLE_SECONDS = 515.0  # all parts together
CHAINS = ("chain-2^24", "chain-1024", "chain-64")
CHAIN_ARRAYS = 6  # read x, r, g; write the value and two gradients

Figures = dict[str, Any]

PROBE = """
import json, cupy
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


def run(command: Sequence[str], seconds: float) -> Ended:
    """Run a command in the tree for at most so long; its whole process group ends with it."""
    start = time.monotonic()
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
        process = subprocess.Popen(
            command,
            cwd=TREE,
            env=gpu_environment(),
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


def compare_with_cpu(seconds: float) -> Figures:
    """The package's own comparison of GPU and CPU."""
    ended = run([sys.executable, "-m", "bench.gpu_check"], seconds)
    return {**ended.figures(), "summary": _last_line(ended.output)}


def test_suite(seconds: float) -> Figures:
    """The test suite on ``cuda``."""
    if not installed("pytest"):
        return {"verdict": "skipped", "summary": "pytest is not installed"}
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "tests.xml"
        flags = ["-q", "-p", "no:cacheprovider", "--continue-on-collection-errors"]
        left_out = ["--ignore=tests/bench", "--ignore=tests/tools"]  # nothing on a GPU
        command = [sys.executable, "-m", "pytest", "tests", "--device", "cuda", *flags, *left_out]
        ended = run([*command, f"--junitxml={log}"], seconds)
        found = ended.figures()
        found["summary"] = _last_line(ended.output)
        if log.exists():
            found.update(read_junit(log))
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
    ended = run([tool, *flags, sys.executable, "-m", "bench.gpu_check"], seconds)
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


def chains(seconds: float) -> Figures:
    """The chain forward and backward beside torch; torch.compile last, where time is left."""
    end = time.monotonic() + seconds
    found: Figures = {"verdict": "passed", "cases": {}}
    with_torch = installed("torch")
    eager = "lucid_gpu,torch-eager" if with_torch else "lucid_gpu"
    jobs = [(name, eager) for name in CHAINS]
    if with_torch:
        jobs += [(name, eager + ",torch-compile") for name in CHAINS[:2]]
    for name, peers in jobs:
        left = end - time.monotonic()
        again = name in found["cases"]
        if left < 10:
            break
        job = _chain(name, peers, min(left, 60 if again else 40))
        if "row" in job:
            found["cases"][name] = job["row"]
        elif not again:  # torch.compile may fail; lucid_gpu's own figures stand already
            found.update(job)
    found["seconds"] = round(seconds - (end - time.monotonic()), 1)
    rows = found["cases"].values()
    if any(row["verdict"] == "failed" for row in rows) or len(rows) < len(CHAINS):
        found["verdict"] = "failed" if found["verdict"] == "passed" else found["verdict"]
    ratios = [f"{row['name']} {row['to_eager']:.2f}" for row in rows if row["to_eager"]]
    found["summary"] = "of torch eager's time: " + ", ".join(ratios) if ratios else "without torch"
    return found


def _chain(case: str, peers: str, seconds: float) -> Figures:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.json"
        flags = ["--case", case, "--peers", peers, "--rounds", "10", "--device", "cuda"]
        command = [sys.executable, "-m", "bench", *flags, "--json", str(path), "--no-results"]
        ended = run(command, seconds)
        if not path.exists():
            return ended.figures()
        return {"row": json.loads(path.read_text("utf-8"))["cases"][0]}


PARTS: tuple[tuple[str, float, Callable[[float], Figures]], ...] = (
    ("comparison with the CPU", 70, compare_with_cpu),
    ("copy bandwidth", 30, copy_bandwidth),
    ("chain beside torch", 160, chains),
    ("test suite on cuda", 190, test_suite),
    ("memory check", 90, check_memory),
)


def main() -> int:
    """Run every part; 1 when one failed, 2 where there is no GPU."""
    end = time.monotonic() + WHOLE_SECONDS
    try:
        gpu = probe()
    except SystemExit as reason:
        print(reason, file=sys.stderr)
        return 2
    print(f"{gpu['name']}, CuPy {gpu['cupy']}")
    now = datetime.now(timezone.utc)
    document: Figures = {
        "created": now.isoformat(timespec="seconds"),
        "gpu": gpu,
        "machine": report.machine(),
        "parts": {},
    }
    slug = re.sub(r"[^a-z0-9]+", "-", gpu["name"].lower()).strip("-")
    stem = report.RESULTS / f"{slug}-{now:%Y-%m-%d}"
    for name, seconds, part in PARTS:
        print(f"{name} ...", flush=True)
        document["parts"][name] = _do(part, min(seconds, end - time.monotonic()))
        print(f"  {_line_of(document['parts'][name])}", flush=True)
        write(document, stem)
    print(f"written: {stem}.json {stem}.md")
    bad = ("failed", "out of time")
    return int(any(part["verdict"] in bad for part in document["parts"].values()))


def _do(part: Callable[[float], Figures], seconds: float) -> Figures:
    if seconds < 5:
        return {"verdict": "out of time"}
    try:
        return part(seconds)
    except Exception as error:  # the other parts still run
        return {"verdict": "failed", "output": f"{type(error).__name__}: {error}"}


def _line_of(figures: Figures) -> str:
    return f"{figures['verdict']}: {figures.get('summary', '')}".rstrip(": ")


def write(document: Figures, stem: Path) -> None:
    """Write the figures and their table."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    stem.with_name(stem.name + ".json").write_text(json.dumps(document, indent=1) + "\n", "utf-8")
    stem.with_name(stem.name + ".md").write_text(markdown(document), "utf-8")


def markdown(document: Figures) -> str:
    """The parts, then the chain's table."""
    gpu, at = document["gpu"], document["machine"]
    about = (
        f"{gpu['name']}, compute capability {gpu['compute_capability']}, CUDA driver "
        f"{gpu['driver']}, runtime {gpu['runtime']}, CuPy {gpu['cupy']}; Python {at['python']}, "
        f"numpy {at['versions']['numpy']}, torch {at['versions']['torch']}; "
        f"{document['created'][:10]}, commit {at['commit']}."
    )
    lines = [about, "", "| part | result | seconds |", "| --- | --- | --- |"]
    for name, figures in document["parts"].items():
        lines.append(f"| {name} | {_line_of(figures)} | {figures.get('seconds', '')} |")
    return "\n".join([*lines, *_chain_table(document["parts"])]) + "\n"


def _chain_table(parts: Figures) -> list[str]:
    rows = parts.get("chain beside torch", {}).get("cases", {})
    if not rows:
        return []
    peers = ("lucid_gpu", "torch-eager", "torch-compile")
    titles = " | ".join(report.TITLES[p] for p in peers)
    lines = ["", f"| case | {titles} | to eager | of copy bandwidth |", "| --- " * 6 + "|"]
    for row in rows.values():
        cells = " | ".join(report.cell(row["peers"].get(p), "s") for p in peers)
        eager = "" if row["to_eager"] is None else f"{row['to_eager']:.3g}"
        lines.append(f"| {row['title']} | {cells} | {eager} | {_share(row, parts)} |")
    return lines


def _share(row: Figures, parts: Figures) -> str:
    """The large chain's bytes a second, six arrays a step, over those of a copy."""
    copies = parts.get("copy bandwidth", {}).get("bytes_a_second")
    median = row["peers"].get("lucid_gpu", {}).get("median")
    if row["name"] != CHAINS[0] or not copies or not median:
        return ""
    return f"{CHAIN_ARRAYS * (4 << 24) / median / max(copies.values()):.0%}"


if __name__ == "__main__":
    sys.exit(main())
