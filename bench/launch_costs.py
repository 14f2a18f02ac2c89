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
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import lucid_gpu as torch
from bench import models
from bench.graphs import replayed
from bench.host_costs import python_calls
from bench.report import RESULTS, machine
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


def replayed_gpt() -> Step:
    torch.zeros(1, device="cuda")  # a capture takes the work of a GPU that is in use
    return replayed(torch, gpt())


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


def rms_norm() -> Step:
    w = torch.randn(64, device="cuda", requires_grad=True)
    return _there_and_back(lambda x: F.rms_norm(x, (64,), w), [w], 32, 64)


def group_norm() -> Step:
    norm = nn.GroupNorm(8, 64).to("cuda")
    return _there_and_back(norm, norm.parameters(), 4, 64, 16)


def cross_entropy() -> Step:
    target = torch.arange(32, device="cuda")
    return _there_and_back(lambda x: F.cross_entropy(x, target), [], 32, 64)


def _there_and_back(op: Callable[[Any], Any], parameters: Iterable[Any], *shape: int) -> Step:
    x = torch.randn(*shape, device="cuda", requires_grad=True)
    g = torch.randn(op(x).shape, device="cuda")
    leaves = [x, *parameters]

    def step() -> None:
        for leaf in leaves:
            leaf.grad = None
        op(x).backward(g)

    return step


def one_op() -> Step:
    x = torch.randn(32, 64, device="cuda")
    return lambda: (x + 1.0)._realize()


def product() -> Step:
    x, y = torch.randn(32, 64, device="cuda"), torch.randn(64, 32, device="cuda")
    return lambda: x @ y


CASES: dict[str, Callable[[], Step]] = {
    "GPT of 6 layers, bfloat16": gpt,
    "the same, replayed as a graph": replayed_gpt,
    "AdamW of 100 tensors": lambda: hundred("cuda", 1),
    "layer norm forward": lambda: layer_norm(False),
    "layer norm forward and back": lambda: layer_norm(True),
    "softmax forward and back": softmax,
    "RMS norm forward and back": rms_norm,
    "group norm forward and back": group_norm,
    "cross entropy forward and back": cross_entropy,
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


def warmed(name: str) -> Step:
    """The step of a case, which has run a few times."""
    step = CASES[name]()
    for _ in range(WARM):
        step()
    return step


def counted(step: Step) -> dict[str, int]:
    """What a step asks for, as far as it can be counted."""
    return {**asked(step), "Python calls": python_calls(step, ("call", "c_call"))}


def measured(wanted: Sequence[str] | None = None) -> dict[str, dict[str, float]]:
    """Of each case the figures of `HEADS`."""
    rows: dict[str, dict[str, float]] = {}
    for name in wanted or CASES:
        step = warmed(name)
        row: dict[str, float] = dict(counted(step))
        torch.cuda.synchronize()
        row["us"], row["us least"] = microseconds(step)
        rows[name] = row
    return rows


def table(rows: dict[str, dict[str, float]], before: Mapping[str, Any]) -> str:
    """The figures as Markdown; those of an earlier run, where it has some, in brackets."""
    lines = [f"| a step | {' | '.join(HEADS)} |", f"|---|{'---:|' * len(HEADS)}"]
    for name, row in rows.items():
        old = before.get(name, {})
        cells = [f"{row[head]:,.0f}" + _bracketed(old.get(head), row[head]) for head in HEADS]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _bracketed(before: float | None, now: float) -> str:
    return "" if before is None or round(before) == round(now) else f" ({before:,.0f})"


def page(at: dict[str, Any], rows: dict[str, Any], kept: dict[str, Any]) -> str:
    """The results file."""
    before = f", in brackets those of {kept['machine']['commit']}" if kept else ""
    load = os.getloadavg()[0]
    return (
        f"What the way to a launch costs the host, commit {at['commit']}{before}; {at['cpu']}, "
        f"Python {at['python']}, CuPy over the stand-in for CUDA's driver: no GPU. Times are the "
        f"thread's own processor time, taken while {load:.0f} processes wanted {at['cores']} "
        f"processors.\n\n{table(rows, kept.get('rows', {}))}\n"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and keep where a file is named."""
    flags = argparse.ArgumentParser(prog="python -m bench.launch_costs", description=__doc__)
    flags.add_argument("--case", action="append", choices=CASES, help="only this one, or these")
    flags.add_argument("--json", type=Path, help="a file for the figures")
    flags.add_argument("--before", type=Path, help="such a file, to compare with")
    flags.add_argument("--write", action="store_true", help="write bench/results/launch-costs.md")
    options = flags.parse_args(arguments)
    if "LUCID_DRIVER_STANDIN" not in os.environ:
        flags.error("start it as python tests/driver/build.py bench.launch_costs")
    kept = json.loads(options.before.read_text("utf-8")) if options.before else {}
    compiling.setting.mode = "wait"
    rows, at = measured(options.case), machine()
    print(table(rows, kept.get("rows", {})))
    if options.json is not None:
        over = "the stand-in for CUDA's driver; no GPU"
        options.json.write_text(json.dumps({"machine": at, "over": over, "rows": rows}))
    if options.write:
        (RESULTS / "launch-costs.md").write_text(page(at, rows, kept), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
