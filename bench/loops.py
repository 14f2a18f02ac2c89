"""Whole loops from a fresh process, beside torch eager: ``python -m bench.loops``.

Each program of `bench.loop_programs` runs its steps once in a fresh process of each peer, in turn.
Measured are the whole time, first calls included and the import apart, and that of the last quarter
of the steps; a third process counts what lucid_gpu plans in each step.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.loop_programs import PROGRAMS
from bench.loop_worker import WARM
from bench.peers import THREAD_VARIABLES, THREADS, environment
from bench.rounds import difference

MODULES = {"lucid": "lucid_gpu", "torch": "torch"}
PARTS = ("whole", "last")
AIMS = {"whole": (2.0, 4.0), "last": (1.0, 2.0)}  # of torch's time: the aim, the bar
TOLERANCE = 1e-3  # of the largest value: 40 steps of training in float32
TOLERANCES = {"lion": 2e-2}  # the sign of a gradient near 0


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
    name: str, peers: Sequence[str], steps: int, rounds: int, **env: str
) -> dict[str, Any]:
    """A program's times in each round, what it planned, and how far the results are apart."""
    with tempfile.TemporaryDirectory() as folder:
        files = {peer: Path(folder) / f"{peer}.npz" for peer in peers}
        taken: dict[str, list[dict[str, Any]]] = {peer: [] for peer in peers}
        for number in range(rounds):
            for peer in peers if number % 2 == 0 else reversed(peers):
                taken[peer].append(ask(name, peer, steps, files[peer], **env))
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


def median(entry: dict[str, Any], peer: str, part: str) -> float:
    return statistics.median(taken[part] for taken in entry["times"][peer])


def ratio(entry: dict[str, Any], part: str) -> float | None:
    """The median over the rounds of our time over torch's."""
    ours, theirs = (entry.get("times", {}).get(peer) for peer in MODULES)
    if not ours or not theirs:
        return None
    return statistics.median(a[part] / b[part] for a, b in zip(ours, theirs, strict=True))


def late(entry: dict[str, Any]) -> dict[str, list[int]]:
    """For each kind of thing, the steps after the third that made one; the last is the reading."""
    made = entry["made"]
    return {
        kind: [i for i, step in enumerate(made["steps"]) if i >= WARM and step[k]]
        for k, kind in enumerate(made["kinds"])
    }


def count(entry: dict[str, Any], kind: str, begin: int = 0) -> int:
    """How many were made, in the steps from ``begin`` on and by the reading of the results."""
    made = entry["made"]
    k = made["kinds"].index(kind)
    return sum(step[k] for step in made["steps"][begin:])


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
    after, steps = count(entry, kind, WARM), late(entry)[kind]
    shown = ", ".join(map(str, steps[:12])) + ", ..." * (len(steps) > 12)
    where = f", {after} after step {WARM} (in steps {shown})" if after else f", 0 after step {WARM}"
    return f"  {kind}: {count(entry, kind)}{where}"


def _lines(entry: dict[str, Any]) -> list[str]:
    """The lines that planned most after the third step."""
    found = sorted(entry["made"]["lines"].items(), key=lambda item: item[1][::-1], reverse=True)
    kinds = entry["made"]["kinds"]
    return [
        f"    {line}: " + ", ".join(f"{n} {kind}" for n, kind in zip(counts, kinds, strict=True))
        for line, counts in found[:5]
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """The command: 1 where a result differs from torch's."""
    flags = argparse.ArgumentParser(prog="python -m bench.loops", description=__doc__)
    flags.add_argument("--case", action="append", choices=list(PROGRAMS), metavar="NAME")
    flags.add_argument("--peers", default="lucid,torch")
    flags.add_argument("--steps", type=int, default=40)
    flags.add_argument("--rounds", type=int, default=5)
    flags.add_argument("--count", action="store_true", help="what is planned, and no times")
    flags.add_argument("--threads", type=int, default=THREADS, help="1 on a machine that is busy")
    options = flags.parse_args(argv)
    peers = [peer for peer in MODULES if peer in options.peers.split(",")]
    env = dict.fromkeys(THREAD_VARIABLES, str(options.threads))
    wrong = []
    for name in options.case or PROGRAMS:
        if options.count:
            entry = planned(name, options.steps, **env)
        else:
            entry = measured(name, peers, options.steps, options.rounds, **env)
        print(told(entry), flush=True)
        if entry.get("apart", 0.0) > TOLERANCES.get(name, TOLERANCE):
            wrong.append(name)
    if wrong:
        print(f"results differ from torch's: {', '.join(wrong)}")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
