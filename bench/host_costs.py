"""What a training step costs the thread that asks for it: ``python -m bench.host_costs``.

The steps of `bench.small_steps`, timed by the thread's own processor
time, at three depths: of a step, and of each layer more. On the CPU that is the arithmetic too, of
sizes so small that calls are most of it; with ``--standin`` it runs over the stand-in for CuPy,
whose own cost is in the figures, and which are no GPU's.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench.peers import TREE
from bench.report import machine
from bench.small_steps import CASES, DEPTHS

WARM, STEPS = 20, 100


def costs(make: Callable[[str, int], Callable[[], Any]], device: str, depth: int) -> float:
    """Microseconds of this thread's time a step, the median of many."""
    step = make(device, depth)
    for _ in range(WARM):
        step()
    taken = []
    gc.collect()
    gc.disable()
    try:
        for _ in range(STEPS):
            began = time.thread_time_ns()
            step()
            taken.append(time.thread_time_ns() - began)
    finally:
        gc.enable()
    return statistics.median(taken) / 1000


def measured(device: str, wanted: Sequence[str] | None = None) -> dict[str, dict[str, float]]:
    """Of each case, microseconds a step by its depth, and a layer."""
    rows: dict[str, dict[str, float]] = {}
    for name in wanted or CASES:
        found = {depth: costs(CASES[name], device, depth) for depth in DEPTHS}
        least, most = min(DEPTHS), max(DEPTHS)
        layer = (found[most] - found[least]) / (most - least)
        rows[name] = {str(depth): us for depth, us in found.items()} | {"layer": layer}
    return rows


def table(rows: dict[str, dict[str, float]]) -> str:
    """The figures as Markdown."""
    heads = [*map(str, DEPTHS), "layer"]
    lines = [
        f"| microseconds of thread time | {' | '.join(heads)} |",
        f"|---|{'---:|' * len(heads)}",
    ]
    for name, row in rows.items():
        lines.append(f"| {name} | {' | '.join(f'{us:.0f}' for us in row.values())} |")
    return "\n".join(lines)


def use_standin() -> None:
    """Let `import cupy` find the stand-in, as ``pytest --standin`` does."""
    from lucid_gpu.devices import cupy_backend
    from lucid_gpu.launch import compiling

    sys.path.insert(0, str(TREE / "tests" / "standin"))
    os.environ["CUPY_CACHE_IN_MEMORY"] = "1"  # what it makes of kernels is nothing for a GPU
    cupy_backend._has_driver = lambda: True  # type: ignore[assignment]
    compiling.setting.mode = "wait"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and keep where a file is named."""
    flags = argparse.ArgumentParser(prog="python -m bench.host_costs", description=__doc__)
    flags.add_argument("--standin", action="store_true", help="on cuda, over tests/standin")
    flags.add_argument("--case", action="append", choices=CASES, help="only this one, or these")
    flags.add_argument("--json", type=Path, help="a file for the figures")
    options = flags.parse_args(arguments)
    if options.standin:
        use_standin()
    rows = measured("cuda" if options.standin else "cpu", options.case)
    print(table(rows))
    if options.json is not None:
        how = "the stand-in for CuPy" if options.standin else "CPU"
        options.json.write_text(json.dumps({"machine": machine(), "over": how, "rows": rows}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
