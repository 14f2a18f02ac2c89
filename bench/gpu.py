"""Everything that needs a GPU, in parts that can be interrupted: ``make gpu RESULTS=folder``.

It installs nothing, needs no network, and works with CuPy for CUDA 12 or 13. Each part is a group
of processes with a limit; what it finds is in the folder of results piece by piece
(`bench.gpu_results`), and the same command goes on where it stopped, on this machine or on the
next. ``--list`` names the parts, ``--rehearse`` tries everything without a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

TREE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TREE))  # so that it also runs without PYTHONPATH

try:
    from bench import gpu_process, report
    from bench.gpu_cases import CASES
    from bench.gpu_journal import BEGAN, ENDED, FAILED, FORGOTTEN, LOST, Entry, last_word, pieces
    from bench.gpu_kernels import Kernels
    from bench.gpu_parts import LEAST_SECONDS, PARTS, Options, Part, Window, counted
    from bench.gpu_report import line_of, rows, wrong
    from bench.gpu_results import Results
    from bench.gpu_worker import PEERS
    from bench.peers import environment, installed, named
except ImportError as problem:
    raise SystemExit(f"make gpu: {problem}; nothing was run") from None

GOES_ON = ("out of time", "not begun", "not ended")  # a state in which the same command goes on
SPENT = ("out of time", "crashed", FAILED)  # of what was begun last time: after what was not
Figures = dict[str, Any]

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
    "nvrtc": cupy.cuda.nvrtc.getVersion(),
    "cudnn": lucid_gpu.backends.cudnn.version(),
}))
"""


def gpu_environment() -> dict[str, str]:
    """The environment of every part: the tree importable, a cache of kernels that can be written.

    Fused kernels are waited for, so that every round runs the same ones. What pytest says to its
    own processes is left out: the suite would take itself for a part of the one that began it.
    """
    known = {name: v for name, v in environment().items() if not name.startswith("PYTEST_")}
    env = {"LUCID_COMPILE": "wait", **known}
    own = Path(tempfile.gettempdir()) / f"lucid_gpu-kernels-{os.getuid()}"
    env.setdefault("CUPY_CACHE_DIR", str(own))
    return env


def probe(window: Window) -> Figures:
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
    log = window.scratch / "probe.log.gz"
    command = [*window.options.python, "-c", PROBE]
    ended = gpu_process.run(command, 90, log, window.variables)
    if ended.code != 0:
        raise SystemExit(f"make gpu: {ended.last_line}; nothing was run")
    about: Figures = json.loads(ended.last_line)
    return about


def fitting(window: Window, gpu: Figures) -> str:
    """How many kernels of those compiled ahead are there for this GPU and compiler."""
    log = window.scratch / "missing.log.gz"
    arch = gpu["compute_capability"].replace(".", "")
    told = ["-m", "lucid_gpu.precompile", "--missing", "--arch", arch]
    command = [*window.options.python, *told]
    return gpu_process.run(command, 90, log, window.variables).last_line


def fill(window: Window, arch: str) -> int:
    """Compile kernels ahead, which needs no GPU, and keep them in the folder of results."""
    log = window.scratch / "fill.log.gz"
    folder = str(window.kernels.folder)
    told = ["-m", "lucid_gpu.precompile", "--arch", arch, "--cache", folder]
    ended = gpu_process.run([*window.options.python, *told], 3600, log, window.variables)
    print(ended.last_line)
    print(window.kernels.save(), "in", window.kernels.tar)
    return int(ended.code != 0)


# --- what is known --------------------------------------------------------------------------------


def part_figures(entries: list[Entry], part: str) -> Figures:
    """A part as it stands in `gpu.json`."""
    last, found = last_word(entries, part), pieces(entries, part)
    if last is None and not found:
        return {"verdict": "not begun"}
    figures: Figures = {"verdict": "not ended"}
    if last is not None and last["outcome"] != BEGAN:
        figures = {k: v for k, v in last.items() if k not in ("part", "piece", "outcome")}
        figures["verdict"] = last["outcome"]
    known = {n: e.get("before", e) if e["outcome"] == BEGAN else e for n, e in found.items()}
    failed = {n: e.get("message", "") for n, e in known.items() if e["outcome"] == FAILED}
    reasons: dict[str, int] = {}
    for entry in known.values():
        if entry["outcome"] == "skipped":
            reason = entry.get("message", "")
            reasons[reason] = reasons.get(reason, 0) + 1
    told = figures.get("summary")
    if found:
        figures["summary"] = counted(entries, part) + (f"; {told}" if told else "")
    figures["failed"] = failed
    figures["not_ended"] = [n for n, e in found.items() if e["outcome"] not in ENDED]
    figures["skips"] = dict(sorted(reasons.items(), key=lambda item: -item[1]))
    if part != "suite":
        figures["pieces"] = {
            n: {k: e[k] for k in ("outcome", "seconds", "summary", "figures") if k in e}
            for n, e in known.items()
        }
    return figures


def known(entries: list[Entry], parts: Sequence[Part], toy: bool) -> Figures:
    """What `gpu.json` holds of the journal."""
    document: Figures = {
        "updated": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "toy": toy,
        "parts": {part.name: part_figures(entries, part.name) for part in parts},
        "benchmarks": {},
    }
    for peer in PEERS:
        cases = document["parts"].get(peer.name, {}).pop("pieces", {})
        if cases:
            failed = document["parts"][peer.name]["failed"]
            document["benchmarks"][peer.name] = {
                name: entry.get("figures") or {"failed": failed[name].splitlines()[0]}
                for name, entry in cases.items()
                if entry.get("figures") or name in failed
            }
    return document


def in_turn(parts: Sequence[Part], states: Mapping[str, str]) -> list[Part]:
    """The parts still to do; those that had their time or failed come after the others."""
    left = [part for part in parts if states[part.name] != "passed"]
    return sorted(left, key=lambda part: states[part.name] in SPENT)


# --- the command ----------------------------------------------------------------------------------


def parser() -> argparse.ArgumentParser:
    """The flags."""
    flags = argparse.ArgumentParser(prog="make gpu", description=__doc__)
    flags.add_argument("--parts", default="", help="names of parts or groups; by default all")
    flags.add_argument("--results", type=Path, help="a folder; the same one goes on")
    flags.add_argument("--minutes", type=float, default=9.0, help="for all parts of this run")
    flags.add_argument("--again", action="store_true", help="forget what these parts found before")
    flags.add_argument("--list", action="store_true", help="name the parts, and do nothing")
    flags.add_argument("--fill", metavar="ARCH", help="only compile kernels ahead, say for 90")
    flags.add_argument("--rehearse", action="store_true", help="try everything without a GPU")
    flags.add_argument("--device", choices=("cuda", "cpu"), help="by default cuda")
    flags.add_argument("--toy", action="store_true", help="tiny sizes, as without a GPU")
    flags.add_argument("--workers", type=int, default=min(12, os.cpu_count() or 1))
    flags.add_argument("--test-seconds", type=float, default=150.0, help="what one test may take")
    flags.add_argument("--tests", action="append", default=[], help="instead of the whole suite")
    flags.add_argument("--rounds", type=int, default=15)
    flags.add_argument("--case", action="append", default=[], help="one case; may be repeated")
    flags.add_argument("--wheels", type=Path, help="a folder of wheels for the part cudnn")
    flags.add_argument("--python", default=sys.executable, help="what runs Python in the parts")
    return flags


def chosen(words: str, parts: Sequence[Part]) -> list[Part]:
    """Parts by their names or their groups' names, in the order of the words.

    Raises
    ------
    ValueError
        With the names there are.
    """
    found: list[Part] = []
    for word in words.replace(",", " ").split():
        some = [part for part in parts if word in (part.name, part.group)]
        if not some:
            names = dict.fromkeys(n for p in parts for n in (p.name, p.group) if n)
            raise ValueError(f"no part {word!r}; there are: {', '.join(names)}")
        found += [part for part in some if part not in found]
    return found or list(parts)


def listed(parts: Sequence[Part]) -> str:
    """The parts with their limits."""
    lines = [f"{'part':15}{'seconds':>8}  {'group':11}what it does"]
    lines += [f"{p.name:15}{p.seconds:8.0f}  {p.group:11}{p.title}" for p in parts]
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None, parts: Sequence[Part] = PARTS) -> int:
    """Run parts; 0 when all passed, 1 when something failed or is left, 2 where nothing can be."""
    told = parser()
    flags = told.parse_args(argv)
    if flags.list:
        print(listed(parts))
        return 0
    if flags.rehearse:
        from bench import gpu_rehearsal

        return gpu_rehearsal.main(flags.results, shlex.split(flags.python), flags.device or "cpu")
    if flags.rounds < 1:
        told.error("--rounds must be at least 1")
    if not flags.minutes <= 24 * 60:  # not a number, too
        told.error(f"--minutes is a number of minutes, not {flags.minutes}")
    if flags.results is None or flags.results.resolve() == TREE:  # an empty name is this folder
        told.error("say where the results go: make gpu RESULTS=folder, or --results folder")
    try:
        named(CASES, flags.case, "case")
        wanted = chosen(flags.parts, parts)
    except ValueError as error:
        told.error(str(error))
    options = Options(
        flags.device or "cuda",
        flags.rounds,
        flags.case,
        shlex.split(flags.python),
        flags.workers,
        flags.test_seconds,
        flags.tests,
        flags.wheels.resolve() if flags.wheels else None,
        flags.toy or flags.device == "cpu",
    )
    if flags.device == "cpu":
        wanted = [part for part in wanted if part.on_cpu]
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with tempfile.TemporaryDirectory(prefix="lucid_gpu-") as scratch:
            return _begin(flags, options, wanted, parts, Path(scratch))
    finally:
        signal.signal(signal.SIGTERM, before)


def _begin(
    flags: argparse.Namespace,
    options: Options,
    wanted: Sequence[Part],
    parts: Sequence[Part],
    scratch: Path,
) -> int:
    end = time.monotonic() + 60 * flags.minutes
    variables = gpu_environment()
    try:
        results = Results(flags.results.resolve())
    except BlockingIOError:
        print(f"make gpu: another run writes into {flags.results}", file=sys.stderr)
        return 2
    except OSError as problem:
        print(f"make gpu: {flags.results} cannot hold results: {problem}", file=sys.stderr)
        return 2
    kernels = Kernels(flags.results / "kernels.tar", Path(variables["CUPY_CACHE_DIR"]))
    window = Window(results, options, variables, scratch, kernels, lambda: None)
    try:
        return _with(window, flags, wanted, parts, end)
    finally:
        results.close()


def _with(
    window: Window,
    flags: argparse.Namespace,
    wanted: Sequence[Part],
    parts: Sequence[Part],
    end: float,
) -> int:
    results, options, kernels = window.results, window.options, window.kernels
    if flags.fill:
        return fill(window, flags.fill)
    print(kernels.unpack())
    try:
        gpu = NO_GPU if options.device == "cpu" else probe(window)
    except SystemExit as reason:
        print(reason, file=sys.stderr)
        return 2
    print(f"{gpu['name']}, CuPy {gpu['cupy']}", flush=True)
    if options.device != "cpu":
        print(fitting(window, gpu), flush=True)

    machine = report.machine()

    def update() -> None:
        found = known(window.entries(), parts, options.toy)
        results.write({**found, "gpu": gpu, "machine": machine})

    window.update = update
    if flags.again:
        for part in wanted:
            window.note(part.name, None, FORGOTTEN)
    return _all_parts(window, wanted, end)


def _all_parts(window: Window, wanted: Sequence[Part], end: float) -> int:
    """Run what is left of these parts; 1 when something failed or is left."""
    states = {p.name: part_figures(window.entries(), p.name)["verdict"] for p in wanted}
    for part in wanted:
        if states[part.name] == "passed":
            print(f"{part.name}: passed before")
    try:
        for part in in_turn(wanted, states):
            left = min(part.seconds, end - time.monotonic())
            if left < LEAST_SECONDS:
                print("the time of this run is over")
                break
            print(f"{part.name} ({part.title}), {left:.0f} s at most ...", flush=True)
            _do(window, part, left, states[part.name])
            print(f"  {line_of(part_figures(window.entries(), part.name))}", flush=True)
            if saved := window.save():
                print(f"  {saved}", flush=True)
    except KeyboardInterrupt:
        window.save()
        print("interrupted; the same command goes on", file=sys.stderr)
        return 130
    window.save()
    return _told(window, wanted)


def _do(window: Window, part: Part, seconds: float, state: str) -> None:
    """Run one part, whose pieces that failed before are done again if it came to its end then."""
    entries = window.entries()
    window.started = len(entries)
    if state == FAILED:
        before = pieces(entries, part.name).items()
        window.retried[part.name] = {n for n, e in before if e["outcome"] == FAILED}
    window.note(part.name, None, BEGAN, at=time.time())
    start = time.monotonic()
    try:
        found = dict(part.work(window, part.name, seconds))
    except Exception as error:  # the other parts still run
        found = {"verdict": FAILED, "summary": f"{type(error).__name__}: {error}"}
    entries = window.entries()
    outcomes = {entry["outcome"] for entry in pieces(entries, part.name).values()}
    verdict = found.pop("verdict")
    if verdict == "passed" and outcomes & {FAILED, LOST, BEGAN}:
        verdict = FAILED
    seconds = round(time.monotonic() - start, 1)
    window.note(part.name, None, verdict, seconds=seconds, **found)


def _told(window: Window, wanted: Sequence[Part]) -> int:
    """Say what is left and what is wrong; the exit status."""
    document = known(window.entries(), wanted, window.options.toy)
    states = {name: figures["verdict"] for name, figures in document["parts"].items()}
    wrongs = [row["title"] for row in rows(document) if wrong(row)]
    if wrongs:
        print("wrong results:", ", ".join(wrongs), file=sys.stderr)
    left = [name for name, state in states.items() if state in GOES_ON]
    if left:
        print(f"left: {', '.join(left)}; the same command goes on")
    files = sorted(p for p in window.results.folder.iterdir() if p.is_file())
    print("to be copied home:", ", ".join(f"{p.name} {p.stat().st_size >> 10} KiB" for p in files))
    return int(bool(wrongs) or any(s not in ("passed", "skipped") for s in states.values()))


if __name__ == "__main__":
    sys.exit(main())
