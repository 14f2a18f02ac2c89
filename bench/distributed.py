"""Collectives and steps of DistributedDataParallel beside torch's gloo, in the same processes.

``python -m lucid_gpu.distributed.run --nproc-per-node 2 -m bench.distributed --write`` writes
``bench/results/distributed.md``. The two take turns, step by step, so that whatever else the
machine does falls on both; figures are medians of the slowest rank.

``python -m bench.distributed --sharded --write`` counts the bytes that each of 1, 2, 3 and 4 ranks
keeps of a model under `fully_shard`, and writes ``bench/results/sharded.md``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

import lucid_gpu
import lucid_gpu.distributed as dist
from lucid_gpu import nn
from lucid_gpu.distributed.fsdp import FSDPModule, fully_shard

RESULTS = Path(__file__).parent / "results" / "distributed.md"
SHARDED = Path(__file__).parent / "results" / "sharded.md"
SHARDED_SIZES = (1, 2, 3, 4)
LAYERS, WIDTH = 8, 256
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


# --- what ranks keep under fully_shard ----------------------------------------------------------


def kept() -> dict[str, int]:
    """Bytes that this rank keeps after a step of Adam, and of whole parameters at one time."""
    lucid_gpu.manual_seed(0)
    layers = [nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, 0.0, batch_first=True)]
    layers += [
        nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, 0.0, batch_first=True)
        for _ in range(LAYERS - 1)
    ]
    model = nn.Sequential(*layers, nn.Linear(WIDTH, 10))
    for layer in layers:
        fully_shard(layer)
    fully_shard(model)
    optimizer = lucid_gpu.optim.Adam(model.parameters(), lr=1e-3)
    most = 0

    def look(*_: Any) -> None:
        nonlocal most
        values = [m._fsdp_group._values for m in model.modules() if isinstance(m, FSDPModule)]
        most = max(most, sum(v.nbytes for group in values for v in group or ()))

    for module in model.modules():
        module.register_forward_hook(look)
        if isinstance(module, nn.Linear):
            module.register_full_backward_hook(look)
    model(lucid_gpu.randn(2, 16, WIDTH)).square().mean().backward()
    optimizer.step()
    parameters = list(model.parameters())
    states = [v for p in parameters for v in optimizer.state[p].values()]
    return {
        "parameters": sum(p.nbytes for p in parameters),
        "gradients": sum(p.grad.nbytes for p in parameters if p.grad is not None),
        "states of Adam": sum(v.nbytes for v in states if isinstance(v, lucid_gpu.Tensor)),
        "whole parameters at one time": most,
    }


def sharded_rank() -> None:
    """One rank of one size: prints the largest of all ranks as JSON."""
    dist.init_process_group("gloo")
    every: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(every, kept())
    if dist.get_rank() == 0:
        print(json.dumps({name: max(one[name] for one in every) for name in every[0]}))
    dist.destroy_process_group()


def sharded(write: bool) -> None:
    """The table for all sizes, each a job of its own."""
    found = []
    for size in SHARDED_SIZES:
        command = ["-m", "lucid_gpu.distributed.run", "--nproc-per-node", str(size)]
        command += ["-m", "bench.distributed", "--sharded-rank"]
        said = subprocess.run(
            [sys.executable, *command], check=True, capture_output=True, text=True
        )
        found.append(json.loads(said.stdout.strip().splitlines()[-1]))
    rows = [
        f"| {name} | " + " | ".join(f"{one[name] / (1 << 20):.2f}" for one in found) + " |"
        for name in found[0]
    ]
    sums = [sum(v for k, v in one.items() if "whole" not in k) for one in found]
    rows.insert(3, "| sum of these | " + " | ".join(f"{n / (1 << 20):.2f}" for n in sums) + " |")
    table = [
        "# What a rank keeps under fully_shard",
        "",
        "`python -m bench.distributed --sharded --write`",
        "",
        f"{LAYERS} transformer layers of width {WIDTH} in float32, each sharded apart, after a "
        "step of Adam; MiB on the rank that has most, counted from tensors' shapes. Whole "
        "parameters are those of the layers gathered at one time, in forward and backward.",
        "",
        "| ranks | " + " | ".join(map(str, SHARDED_SIZES)) + " |",
        "|---|" + "---|" * len(SHARDED_SIZES),
        *rows,
    ]
    print("\n".join(table))
    if write:
        SHARDED.write_text("\n".join(table) + "\n")


def beside_torch(rounds: int, write: bool) -> None:
    """Measure both libraries in this process, and write the table."""
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        where = [f"file://{folder}/store"]
        dist.broadcast_object_list(where, 0)
        torch.distributed.init_process_group("gloo", where[0], rank=rank, world_size=size)
        lines = [*all_reduces(rounds), *steps(rounds)]
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
        if write:
            RESULTS.write_text("\n".join(table) + "\n")
    dist.destroy_process_group()


def main() -> None:
    """Measure, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--write", action="store_true", help="write a file in bench/results")
    parser.add_argument("--sharded", action="store_true", help="bytes under fully_shard instead")
    parser.add_argument("--sharded-rank", action="store_true", help="what --sharded starts")
    options = parser.parse_args()
    if options.sharded:
        sharded(options.write)
    elif options.sharded_rank:
        sharded_rank()
    else:
        beside_torch(options.rounds, options.write)


if __name__ == "__main__":
    main()
