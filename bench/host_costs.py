"""Host time of small programs beside torch eager: ``python -m bench.host_costs``.

Each program of `bench.host_programs` runs on one thread, in a process of each peer in turn.
Measured is the least processor time of that thread a step; counted, for lucid_gpu, what a step
calls and makes in Python, and not what C does. ``--write`` keeps both in
``bench/results/host-costs.md``.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from bench.host_programs import PROGRAMS, Step
from bench.peers import THREAD_VARIABLES, environment
from bench.report import RESULTS, machine

PEERS = ("lucid_gpu", "torch")
COUNTS = ("calls", "expressions", "cells", "nodes", "programs", "plans")
WARM, SECONDS, ROUNDS = 10, 0.4, 3
KEPT = RESULTS / "host-costs.md"


def warmed(module: Any, name: str) -> Step:
    """Return the step of a program, which has run a few times."""
    step = PROGRAMS[name](module)
    for _ in range(WARM):
        step()
    return step


def least(step: Step, seconds: float) -> float:
    """Return microseconds of this thread's time a step, the least of as many as fit ``seconds``."""
    gc.collect()
    gc.disable()
    best, ends = float("inf"), time.perf_counter() + seconds
    try:
        while time.perf_counter() < ends:
            began = time.thread_time_ns()
            step()
            best = min(best, time.thread_time_ns() - began)
    finally:
        gc.enable()
    return best / 1000


def python_calls(step: Step, events: Sequence[str] = ("call",)) -> int:
    """Return how many functions a step calls: Python's; C's too with ``"c_call"`` in ``events``."""
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event in events

    sys.setprofile(count)
    try:
        step()
    finally:
        sys.setprofile(None)
    return calls


@contextmanager
def watched(made: dict[str, int]) -> Iterator[None]:
    """Count expressions and cells that are made in the block, by standing before their makers."""
    from lucid_gpu.core.value import Cell, Expr

    tensor: Any = importlib.import_module("lucid_gpu.tensor")
    new, names = tensor._new, {Expr: "expressions", Cell: "cells"}
    inits: dict[Any, Any] = {kind: vars(kind)["__init__"] for kind in names}

    def counted_new(kind: Any) -> Any:
        made["expressions"] += kind is Expr
        return new(kind)

    def before(kind: Any) -> Any:
        def counted(self: Any, *arguments: Any) -> None:
            made[names[kind]] += 1
            inits[kind](self, *arguments)

        return counted

    tensor._new = counted_new
    for kind in inits:
        kind.__init__ = before(kind)
    try:
        yield
    finally:
        tensor._new = new
        for kind, init in inits.items():
            kind.__init__ = init


def counted(name: str) -> dict[str, int]:
    """Return what a step of a program calls and makes once it is warm: `COUNTS`."""
    import lucid_gpu
    from lucid_gpu.core import node
    from lucid_gpu.core.planning import totals
    from lucid_gpu.core.program import forget_numbers

    forget_numbers()  # of other programs
    step = warmed(lucid_gpu, name)
    made = dict.fromkeys(COUNTS, 0)
    made["calls"] = python_calls(step)
    before = next(node.sequence), totals.programs, totals.plans
    with watched(made):
        step()
    after = next(node.sequence) - 1, totals.programs, totals.plans
    for kind, first, last in zip(("nodes", "programs", "plans"), before, after, strict=True):
        made[kind] = last - first
    return made


def ask(peer: str, names: Sequence[str], seconds: float) -> dict[str, float]:
    """Return the least microseconds of some programs in a fresh process of one thread."""
    command = [sys.executable, "-m", "bench.host_costs", "--peer", peer, "--seconds", str(seconds)]
    env = environment() | dict.fromkeys(THREAD_VARIABLES, "1")
    cases = [word for name in names for word in ("--case", name)]
    ran = subprocess.run([*command, *cases], env=env, capture_output=True, text=True)
    if ran.returncode:
        raise RuntimeError(f"{peer}: {ran.stderr.strip()[-2000:]}")
    answer: dict[str, float] = json.loads(ran.stdout)
    return answer


def measured(names: Sequence[str], rounds: int, seconds: float) -> dict[str, dict[str, float]]:
    """Return the least times of each program by peer, processes taken in turn."""
    rows: dict[str, dict[str, float]] = {name: {} for name in names}
    for _ in range(rounds):
        for peer in PEERS:
            for name, us in ask(peer, names, seconds).items():
                rows[name][peer] = min(us, rows[name].get(peer, us))
    return rows


def ratio(row: dict[str, float]) -> float:
    """Return our time of torch's."""
    return row["lucid_gpu"] / row["torch"]


def table(rows: dict[str, dict[str, float]], counts: dict[str, dict[str, int]]) -> str:
    """Return the figures as Markdown."""
    heads = ("us", "torch", "ratio", *COUNTS)
    lines = [f"| a step | {' | '.join(heads)} |", f"|---|{'---:|' * len(heads)}"]
    for name, row in rows.items():
        cells = [f"{row['lucid_gpu']:,.1f}", f"{row['torch']:,.1f}", f"{ratio(row):.2f}"]
        cells += [f"{counts[name][kind]:,}" for kind in COUNTS]
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def page(rows: dict[str, dict[str, float]], counts: dict[str, dict[str, int]]) -> str:
    """Return the results file."""
    at = machine()
    return (
        f"Host time of small programs, commit {at['commit']}; {at['cpu']}, Python {at['python']}, "
        f"torch {at['versions']['torch']}: `python -m bench.host_costs --write`. Least processor "
        "time of the one thread a step, microseconds; beside it what a warm step of lucid_gpu "
        f"calls and makes in Python, and not what C does.\n\n{table(rows, counts)}\n\n"
        "Median of the ratios: "
        f"{median(map(ratio, rows.values())):.2f}.\n"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and keep where it is asked for."""
    flags = argparse.ArgumentParser(prog="python -m bench.host_costs", description=__doc__)
    flags.add_argument("--case", action="append", choices=PROGRAMS, help="only this one, or these")
    flags.add_argument("--seconds", type=float, default=SECONDS, help="of each program and process")
    flags.add_argument("--rounds", type=int, default=ROUNDS, help="processes of each peer")
    flags.add_argument("--write", action="store_true", help=f"write {KEPT.name}")
    flags.add_argument("--json", type=Path, help="a file for the figures")
    flags.add_argument("--peer", choices=PEERS, help="measure in this process, print JSON")
    options = flags.parse_args(arguments)
    names = options.case or list(PROGRAMS)
    if options.peer:
        module = importlib.import_module(options.peer)
        if options.peer == "torch":
            module.set_num_threads(1)
        found = {name: least(warmed(module, name), options.seconds) for name in names}
        print(json.dumps(found))
        return 0
    rows = measured(names, options.rounds, options.seconds)
    counts = {name: counted(name) for name in names}
    print(table(rows, counts))
    if options.json is not None:
        figures = {"machine": machine(), "rows": rows, "counts": counts}
        options.json.write_text(json.dumps(figures))
    if options.write:
        KEPT.write_text(page(rows, counts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
