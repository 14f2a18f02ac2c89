"""A fresh process that runs one loop once: how long it took, or what it planned.

``python -m bench.loop_worker NAME MODULE STEPS FILE [--count | --memory | --busy]`` prints
one JSON object and leaves the loop's results in FILE; ``--busy`` takes the process's own time.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bench.loop_programs import PROGRAMS
from bench.worker import claim_stdout, resident

ROUND = 1000  # steps a long run has data for
WARM = 3  # steps after which nothing should be planned
After = Callable[[int], None]
Clock = Callable[[], float]


def nothing(step: int) -> None:
    pass


def run(
    name: str, module: str, steps: int, after: After = nothing, clock: Clock = time.perf_counter
) -> tuple[dict[str, Any], Any]:
    """Seconds of the import, of the whole loop and of its last quarter; the results' arrays."""
    program = PROGRAMS[name](np.random.default_rng(0), steps)
    start = clock()
    torch = importlib.import_module(module)
    importlib.import_module(f"{module}.nn.functional")  # which `import torch` brings with it
    imported = clock()
    loop = program(torch)
    last = clock()
    for i in range(steps):
        if i == steps - steps // 4:
            last = clock()
        loop.step(i)
        after(i)
    arrays = [result.detach().numpy() for result in loop.results()]
    end = clock()
    return {"import": imported - start, "whole": end - imported, "last": end - last}, arrays


def counted(name: str, steps: int) -> tuple[dict[str, Any], Any]:
    """What each step of lucid_gpu made, and what reading the results did; by which lines, late."""
    from lucid_gpu import profiler

    made: list[tuple[int, ...]] = []
    blocks = contextlib.ExitStack()
    logs: list[Any] = []
    before = profiler.planned()

    def after(step: int) -> None:
        nonlocal before
        now = profiler.planned()
        made.append(tuple([a - b for a, b in zip(now, before, strict=True)]))
        before = now
        if step == WARM - 1:
            logs.append(blocks.enter_context(profiler.planning()))

    with blocks:
        _, arrays = run(name, "lucid_gpu", steps, after)
        after(steps)
    lines = {line.rpartition("/")[2]: found for log in logs for line, found in log.lines.items()}
    return {"kinds": before._fields, "steps": made, "lines": lines}, arrays


def memory(name: str, steps: int, marks: Sequence[int] = (200, 1000)) -> dict[str, Any]:
    """Resident bytes after some steps and after the last; a thousand steps' data go round."""
    loop = PROGRAMS[name](np.random.default_rng(0), ROUND)(importlib.import_module("lucid_gpu"))
    held = {}
    for i in range(steps):
        loop.step(i)
        if i + 1 in (*marks, steps):
            held[i + 1] = resident()["VmRSS"]
    return {"resident": held}


def main(name: str, module: str, steps: str, path: str, *flags: str) -> None:
    answers = claim_stdout()
    arrays: Any = ()
    if "--memory" in flags:
        found = memory(name, int(steps))
    elif "--count" in flags:
        found, arrays = counted(name, int(steps))
    else:
        clock = time.process_time if "--busy" in flags else time.perf_counter
        found, arrays = run(name, module, int(steps), clock=clock)
    np.savez(path, *[np.asarray(array, np.float64) for array in arrays])
    print(json.dumps(found), file=answers, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
