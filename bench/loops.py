"""Whole loops from a fresh process, beside torch eager: ``python -m bench.loops``.

Each program of `bench.loop_programs` runs its steps once in a fresh process of each peer, in turn.
Measured are the whole time, first calls included and the import apart, and that of the last quarter
of the steps; one more process counts what lucid_gpu plans in each step. ``--memory`` runs 10,000
steps of each instead.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.loop_programs import PROGRAMS
from bench.loop_report import CLASSES, PARTS, count, keep, late, median, ratio, summary
from bench.loop_worker import WARM
from bench.peers import THREAD_VARIABLES, THREADS, environment
from bench.rounds import difference
from tools import as_processor, endurance

MODULES = {"lucid": "lucid_gpu", "torch": "torch"}
TOLERANCE = 1e-3  # of the largest value: 40 steps of training in float32
TOLERANCES = {"lion": 2e-2}  # the sign of a gradient near 0
MARKS = (200, 1000, 10_000)  # steps after which the memory is read
GROWN = 1.1  # what 10,000 steps may hold of what 200 did


def ask(name: str, peer: str, steps: int, path: Path, *flags: str, **env: str) -> dict[str, Any]:
    """One run of a program in a fresh process."""
    command = [sys.executable, "-m", "bench.loop_worker", name, MODULES[peer], str(steps)]
    ran = subprocess.run(
        [*command, str(path), *flags],
        env={**environment(), **env}, capture_output=True, text=True,
    )  # fmt: skip
    if ran.returncode:
        raise RuntimeError(f"{name} with {peer}: {ran.stderr.strip()[-2000:]}")
    answer: dict[str, Any] = json.loads(ran.stdout)
    return answer


def measured(
    name: str, peers: Sequence[str], steps: int, rounds: int, *flags: str, **env: str
) -> dict[str, Any]:
    """A program's times in each round, what it planned, and how far the results are apart."""
    with tempfile.TemporaryDirectory() as folder:
        files = {peer: Path(folder) / f"{peer}.npz" for peer in peers}
        taken: dict[str, list[dict[str, Any]]] = {peer: [] for peer in peers}
        for number in range(rounds):
            for peer in peers if number % 2 == 0 else reversed(peers):
                taken[peer].append(ask(name, peer, steps, files[peer], *flags, **env))
        entry: dict[str, Any] = {"name": name, "steps": steps, "times": taken}
        if len(peers) == 2:
            entry["apart"] = apart(files["lucid"], files["torch"])
    return entry | (planned(name, steps, **env) if "lucid" in peers else {})


def planned(name: str, steps: int, **env: str) -> dict[str, Any]:
    """What each step of a program had planned."""
    with tempfile.TemporaryDirectory() as folder:
        made = ask(name, "lucid", steps, Path(folder) / "results.npz", "--count", **env)
    return {"name": name, "steps": steps, "made": made}


def apart(ours: Path, theirs: Path) -> float:
    """The largest difference of two runs' results, relative to the largest value of each."""
    with np.load(ours) as a, np.load(theirs) as b:
        return max(difference(a[key], b[key]) for key in b.files)


# --- in words -------------------------------------------------------------------------------------


def told(entry: dict[str, Any]) -> str:
    """An entry for a person to read."""
    lines = [entry["name"]]
    for peer in entry.get("times", ()):
        times = ", ".join(f"{part} {median(entry, peer, part) * 1e3:.1f} ms" for part in PARTS)
        lines.append(f"  {peer}: {times}, import {median(entry, peer, 'import') * 1e3:.0f} ms")
    if ratio(entry, "whole") is not None:
        ratios = "; ".join(f"{part} {ratio(entry, part):.2f}" for part in PARTS)
        lines.append(f"  ratio: {ratios}; results apart {entry['apart']:.1e}")
    if "made" in entry:
        lines += [_made(entry, kind) for kind in entry["made"]["kinds"]] + _lines(entry)
    return "\n".join(lines)


def _made(entry: dict[str, Any], kind: str) -> str:
    after, steps = count(entry, kind, WARM), late(entry, kind)
    shown = ", ".join(map(str, steps[:12])) + ", ..." * (len(steps) > 12)
    where = f" (in steps {shown})" if after else ""
    return f"  {kind}: {count(entry, kind)}, {after} after step {WARM}{where}"


def _lines(entry: dict[str, Any]) -> list[str]:
    """The lines that planned most after the third step."""
    found = sorted(entry["made"]["lines"].items(), key=lambda item: item[1][::-1], reverse=True)
    kinds = entry["made"]["kinds"]
    return [
        f"    {line}: " + ", ".join(f"{n} {kind}" for n, kind in zip(counts, kinds, strict=True))
        for line, counts in found[:5]
    ]


# --- memory ---------------------------------------------------------------------------------------


def grown(names: Sequence[str], steps: int, env: dict[str, str], kept: bool) -> int:
    """How much memory each program holds after 200 steps and after many; 1 where it grows."""
    run, worst = endurance.Run("loops", 0), (0.0, "")
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "results.npz"
            held = ask(name, "lucid", steps, path, "--memory", **env)["resident"]
        figures = ", ".join(f"{size / 1e6:.0f} MB after {step}" for step, size in held.items())
        times = held[str(steps)] / held[str(min(MARKS[0], steps))]
        worst = max(worst, (times, name))
        print(f"{name}: {figures}; {times:.2f} times", flush=True)
    if kept:
        run.keep(
            f"{steps:,} steps of each of {len(names)} loops (`bench/loop_programs.py`)",
            f"memory then, of that after {MARKS[0]} steps: at most {worst[0]:.2f} ({worst[1]})",
        )
    return int(worst[0] > GROWN)


# --- the command ----------------------------------------------------------------------------------


def processor() -> str:
    """The class of this processor, by what NumPy finds."""
    newer = (name for name in ("sse", "avx2") if not as_processor.features(name))
    return next(newer, "avx512")


def variables(wanted: str, threads: int) -> dict[str, str]:
    """The environment of a run as on a class of processors."""
    env = dict.fromkeys(THREAD_VARIABLES, str(threads))
    return env if wanted == processor() else env | as_processor.environment(wanted)


def main(argv: Sequence[str] | None = None) -> int:
    """The command: 1 where a result differs from torch's, or where memory grows."""
    flags = argparse.ArgumentParser(prog="python -m bench.loops", description=__doc__)
    flags.add_argument("--case", action="append", choices=list(PROGRAMS), metavar="NAME")
    flags.add_argument("--peers", default="lucid,torch")
    flags.add_argument("--steps", type=int, help="40, or 10,000 with --memory")
    flags.add_argument("--rounds", type=int, default=5)
    flags.add_argument("--threads", type=int, default=THREADS)
    flags.add_argument("--busy", action="store_true", help="one thread, and the processor's time")
    flags.add_argument("--processor", choices=list(CLASSES), default=processor())
    what = flags.add_mutually_exclusive_group()
    what.add_argument("--count", action="store_true", help="what is planned, and no times")
    what.add_argument("--memory", action="store_true", help="resident memory of a long run")
    flags.add_argument("--keep", action="store_true", help="write bench/results/")
    options = flags.parse_args(argv)
    names = options.case or list(PROGRAMS)
    env = variables(options.processor, 1 if options.busy else options.threads)
    busy = ["--busy"] * options.busy
    if options.memory:
        return grown(names, options.steps or MARKS[-1], env, options.keep)
    peers = [peer for peer in MODULES if peer in options.peers.split(",")]
    if options.keep and (options.count or options.busy or len(peers) < len(MODULES)):
        flags.error("what is kept has the times of both peers, by the clock")
    wrong = []
    settings = {"steps": options.steps or 40, "rounds": options.rounds, "threads": options.threads}
    for name in names:
        if options.count:
            entry = planned(name, settings["steps"], **env)
        else:
            entry = measured(name, peers, settings["steps"], options.rounds, *busy, **env)
        print(told(entry), flush=True)
        if entry.get("apart", 0.0) > TOLERANCES.get(name, TOLERANCE):
            wrong.append(name)
        if options.keep:
            keep(options.processor, [summary(entry)], settings)
    if wrong:
        print(f"results differ from torch's: {', '.join(wrong)}")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
