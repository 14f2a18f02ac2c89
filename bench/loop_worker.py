"""A fresh process that runs one loop once: how long it took, or what it planned.

``python -m bench.loop_worker NAME MODULE STEPS FILE [--count]`` prints one JSON object and leaves
the loop's results in FILE.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from bench.loop_programs import PROGRAMS
from bench.worker import claim_stdout

KINDS = ("programs", "plans", "kernels")
After = Callable[[int], None]


def nothing(step: int) -> None:
    pass


def run(name: str, module: str, steps: int, after: After = nothing) -> tuple[dict[str, Any], Any]:
    """Seconds of the import, of the whole loop and of its last quarter; the results' arrays."""
    clock = time.perf_counter
    program = PROGRAMS[name](np.random.default_rng(0), steps)
    start = clock()
    torch = importlib.import_module(module)
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


class Count:
    """How many programs, plans and kernels each step made."""

    def __init__(self) -> None:
        self.made = dict.fromkeys(KINDS, 0)
        self.steps: list[tuple[int, ...]] = []
        self._before: tuple[int, ...] = (0,) * len(KINDS)

    def watch(self) -> None:
        """Begin: whatever makes one of them counts it from here on."""
        from lucid_gpu.fusion import blocked, plan, program
        from lucid_gpu.launch import cuda, host

        self._wrap(program.Program, "__init__", "programs")
        self._wrap(plan.Plan, "__init__", "plans")
        self._wrap(blocked, "generate", "kernels")
        self._wrap(host.Function, "__init__", "kernels")
        self._wrap(cuda.Function, "__init__", "kernels")

    def _wrap(self, where: Any, name: str, kind: str) -> None:
        wrapped = getattr(where, name)

        def counted(*arguments: Any, **keywords: Any) -> Any:
            self.made[kind] += 1
            return wrapped(*arguments, **keywords)

        setattr(where, name, counted)

    def after(self, step: int) -> None:
        """Note what a step made."""
        now = tuple([self.made[kind] for kind in KINDS])
        self.steps.append(tuple([a - b for a, b in zip(now, self._before, strict=True)]))
        self._before = now


def counted(name: str, steps: int) -> tuple[dict[str, Any], Any]:
    """What each step of lucid_gpu made, and what reading the results did."""
    count = Count()
    count.watch()
    _, arrays = run(name, "lucid_gpu", steps, count.after)
    count.after(steps)
    return {"kinds": KINDS, "steps": count.steps}, arrays


def main(name: str, module: str, steps: str, path: str, *flags: str) -> None:
    answers = claim_stdout()
    if "--count" in flags:
        found, arrays = counted(name, int(steps))
    else:
        found, arrays = run(name, module, int(steps))
    np.savez(path, *[np.asarray(array, np.float64) for array in arrays])
    print(json.dumps(found), file=answers, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
