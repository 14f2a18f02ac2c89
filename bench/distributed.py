"""Collectives and steps of DistributedDataParallel beside torch's gloo, in the same processes.

``python -m lucid_gpu.distributed.run --nproc-per-node 2 -m bench.distributed --write`` writes
``bench/results/distributed.md``. The two take turns, step by step, so that whatever else the
machine does falls on both; figures are medians of the slowest rank.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

import lucid_gpu
import lucid_gpu.distributed as dist

RESULTS = Path(__file__).parent / "results" / "distributed.md"
SIZES = (4 << 10, 64 << 10, 1 << 20, 25 << 20, 100 << 20)  # bytes
BATCH, WIDTHS = 64, (784, 512, 512, 10)


def timed(call: Callable[[], Any]) -> float:
    """Seconds of a call that all ranks begin together."""
    dist.barrier()
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def in_turn(calls: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """The median of each call's seconds, of the rank where that is largest."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for i in range(rounds + 2):
        for name, call in calls.items():
            elapsed = timed(call)
            if i > 1:
                seconds[name].append(elapsed)
    mine = [statistics.median(values) for values in seconds.values()]
    every: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(every, mine)
    return dict(zip(calls, map(max, zip(*every))))


def all_reduces(rounds: int) -> list[str]:
    lines = []
    for size in SIZES:
        ours, theirs = lucid_gpu.ones(size // 4), torch.ones(size // 4)
        calls = {
            # of ones, so that no value grows without end
            "lucid_gpu": lambda x=ours: dist.all_reduce(x, dist.ReduceOp.MAX),
            "torch": lambda x=theirs: torch.distributed.all_reduce(
                x, torch.distributed.ReduceOp.MAX
            ),
        }
        found = in_turn(calls, max(5, min(rounds, (200 << 20) // size)))
        lines.append(row(f"all_reduce {named(size)}", found["lucid_gpu"], found["torch"]))
    return lines


def named(size: int) -> str:
    return f"{size >> 10} KiB" if size < 1 << 20 else f"{size >> 20} MiB"


def row(name: str, ours: float, theirs: float) -> str:
    return f"| {name} | {1e3 * ours:.3f} | {1e3 * theirs:.3f} | {ours / theirs:.2f} |"


def stepper(t: Any, wrapped: bool) -> Callable[[], Any]:
    """A training step of a perceptron, of one library."""
    t.manual_seed(0)
    layers: list[Any] = []
    for n, m in zip(WIDTHS, WIDTHS[1:]):
        layers += [t.nn.Linear(n, m), t.nn.ReLU()]
    model = t.nn.Sequential(*layers[:-1])
    if wrapped:
        model = t.nn.parallel.DistributedDataParallel(model)
    optimizer = t.optim.SGD(model.parameters(), lr=1e-3)
    x, y = t.randn(BATCH, WIDTHS[0]), t.randint(0, WIDTHS[-1], (BATCH,))
    loss_of = t.nn.CrossEntropyLoss()

    def step() -> float:
        optimizer.zero_grad()
        loss = loss_of(model(x), y)
        loss.backward()
        optimizer.step()
        return float(loss.item())

    return step


def steps(rounds: int) -> list[str]:
    calls = {
        f"{t.__name__}{' DDP' if wrapped else ''}": stepper(t, wrapped)
        for t in (lucid_gpu, torch)
        for wrapped in (False, True)
    }
    found = in_turn(calls, rounds)
    ours, theirs = found["lucid_gpu DDP"], found["torch DDP"]
    alone = found["lucid_gpu"], found["torch"]
    return [
        row("MLP step, processes that do not talk", *alone),
        row("MLP step, DDP", ours, theirs),
        row("what DDP adds", ours - alone[0], theirs - alone[1]),
    ]


def main() -> None:
    """Measure, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--write", action="store_true", help="write bench/results/distributed.md")
    options = parser.parse_args()
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        where = [f"file://{folder}/store"]
        dist.broadcast_object_list(where, 0)
        torch.distributed.init_process_group("gloo", where[0], rank=rank, world_size=size)
        lines = [*all_reduces(options.rounds), *steps(options.rounds)]
        torch.distributed.destroy_process_group()
        dist.barrier()
    if rank == 0:
        load = os.getloadavg()[0]
        table = [
            "# Several processes",
            "",
            "`python -m lucid_gpu.distributed.run --nproc-per-node 2 -m bench.distributed --write`",
            "",
            f"{size} processes, one thread each, {os.cpu_count()} processors "
            f"({platform.machine()}), load {load:.1f}, torch {torch.__version__} with gloo; "
            "medians in ms.",
            "",
            "| | lucid_gpu, MPI | torch, gloo | ratio |",
            "|---|---|---|---|",
            *lines,
        ]
        print("\n".join(table))
        if options.write:
            RESULTS.write_text("\n".join(table) + "\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
