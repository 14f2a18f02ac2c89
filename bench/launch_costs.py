"""What the way to a launch costs the host: ``python tests/driver/build.py bench.launch_costs``.

It runs over the stand-in for CUDA's driver, with the real CuPy: no GPU is involved, no kernel's
time is in the figures, and the stand-in's own time, about a microsecond a launch, is. Counted
of each step is what it asks of CUDA and of CuPy's pool, and how many functions Python calls;
measured is the processor time of the thread that asks.
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

import lucid_gpu as torch
from bench import models
from bench.report import machine
from bench.small_steps import hundred
from lucid_gpu import nn
from lucid_gpu.launch import compiling
from lucid_gpu.nn import functional as F

Step = Callable[[], Any]

WARM, STEPS = 5, 60
KINDS = ("launches", "products", "memsets", "allocations", "device questions")
HEADS = (*KINDS, "Python calls", "us", "us least")


class _Bfloat16:
    """lucid_gpu with modules that are bfloat16 from the first line on."""

    class nn:
        functional = F
        Embedding, LayerNorm, Linear = nn.Embedding, nn.LayerNorm, nn.Linear
        Sequential = nn.Sequential

        class Module(nn.Module):
            def to(self, device: str) -> Any:
                return super().to(device, torch.bfloat16)

    arange, tensor, optim, no_grad = torch.arange, torch.tensor, torch.optim, torch.no_grad


def gpt() -> Step:
    return models.gpt(6, 64, 4, 16, 2, 65)(_Bfloat16, "cuda", lambda loss: loss)


def layer_norm(backward: bool) -> Step:
    norm = nn.LayerNorm(64).to("cuda")
    x = torch.randn(32, 64, device="cuda", requires_grad=True)
    g = torch.randn(32, 64, device="cuda")

    def step() -> None:
        y = norm(x)
        if backward:
            x.grad = norm.weight.grad = norm.bias.grad = None
            y.backward(g)

    return step


def softmax() -> Step:
    x = torch.randn(32, 64, device="cuda", requires_grad=True)
    g = torch.randn(32, 64, device="cuda")

    def step() -> None:
        x.grad = None
        F.softmax(x, dim=-1).backward(g)

    return step


def one_op() -> Step:
    x = torch.randn(32, 64, device="cuda")
    return lambda: (x + 1.0)._realise()


def product() -> Step:
    x, y = torch.randn(32, 64, device="cuda"), torch.randn(64, 32, device="cuda")
    return lambda: x @ y


CASES: dict[str, Callable[[], Step]] = {
    "GPT of 6 layers, bfloat16": gpt,
    "AdamW of 100 tensors": lambda: hundred("cuda", 1),
    "layer norm forward": lambda: layer_norm(False),
    "layer norm forward and back": lambda: layer_norm(True),
    "softmax forward and back": softmax,
    "x + 1": one_op,
    "x @ y": product,
}


def asked(step: Step) -> dict[str, int]:
    """What a step asks of CUDA and of CuPy's pool."""
    import cupy
    import driver_standin

    class Count(cupy.cuda.MemoryHook):
        name, allocations = "lucid_gpu.bench", 0

        def malloc_postprocess(self, **about: Any) -> None:
            self.allocations += 1

    torch.cuda.synchronize()
    driver_standin.reset_counts()
    with Count() as hook:
        step()
    counts = driver_standin.counts()
    torch.cuda.synchronize()

    def of(start: str) -> int:
        return sum([n for name, n in counts.items() if name.startswith(start)])

    return {
        "launches": of("launch "),
        "products": of("multiply "),
        "memsets": of("fill"),
        "allocations": hook.allocations,
        "device questions": of("ask "),
    }


def python_calls(step: Step) -> int:
    """How many functions, Python's and C's, a step calls."""
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        step()
    finally:
        sys.setprofile(None)
    return calls


def microseconds(step: Step) -> tuple[float, float]:
    """Of this thread a step: the median, and the least."""
    taken = []
    gc.collect()
    gc.disable()
    try:
        for _ in range(STEPS):
            began = time.thread_time_ns()
            step()
            taken.append((time.thread_time_ns() - began) / 1000)
            torch.cuda.synchronize()  # kernels run here, not in what is timed
    finally:
        gc.enable()
    return statistics.median(taken), min(taken)


def measured(wanted: Sequence[str] | None = None) -> dict[str, dict[str, float]]:
    """Of each case the figures of `HEADS`."""
    rows: dict[str, dict[str, float]] = {}
    for name in wanted or CASES:
        step = CASES[name]()
        for _ in range(WARM):
            step()
        row: dict[str, float] = dict(asked(step))
        row["Python calls"] = python_calls(step)
        torch.cuda.synchronize()
        row["us"], row["us least"] = microseconds(step)
        rows[name] = row
    return rows


def table(rows: dict[str, dict[str, float]]) -> str:
    """The figures as Markdown."""
    lines = [f"| a step | {' | '.join(HEADS)} |", f"|---|{'---:|' * len(HEADS)}"]
    lines += [
        f"| {name} | {' | '.join(f'{row[head]:,.0f}' for head in HEADS)} |"
        for name, row in rows.items()
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and keep where a file is named."""
    flags = argparse.ArgumentParser(prog="python -m bench.launch_costs", description=__doc__)
    flags.add_argument("--case", action="append", choices=CASES, help="only this one, or these")
    flags.add_argument("--json", type=Path, help="a file for the figures")
    options = flags.parse_args(arguments)
    if "LUCID_DRIVER_STANDIN" not in os.environ:
        flags.error("start it as python tests/driver/build.py bench.launch_costs")
    compiling.setting.mode = "wait"
    rows = measured(options.case)
    print(table(rows))
    if options.json is not None:
        over = "the stand-in for CUDA's driver; no GPU"
        options.json.write_text(json.dumps({"machine": machine(), "over": over, "rows": rows}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
