"""Collectives and steps of DistributedDataParallel beside torch's gloo, in the same processes.

``python -m lucid_gpu.distributed.run --nproc-per-node 2 -m bench.distributed --write`` writes
``bench/results/distributed.md``. Steps take turns, so that whatever else the machine does falls on
both; collectives are measured in blocks of one library, for gloo's threads go on after a call and
disturb the next one. Figures are medians of the slowest rank.

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
GPT = (128, 4, 3, 65, 64, 8)  # width, heads, layers, characters, length, batch


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
        count = max(5, min(rounds, (200 << 20) // size))
        found: dict[str, float] = {}
        for name, call in calls.items():
            found |= in_turn({name: call}, count)
        lines.append(row(f"all_reduce {named(size)}", found["lucid_gpu"], found["torch"]))
    return lines


def named(size: int) -> str:
    return f"{size >> 10} KiB" if size < 1 << 20 else f"{size >> 20} MiB"


def row(name: str, ours: float, theirs: float) -> str:
    return f"| {name} | {1e3 * ours:.3f} | {1e3 * theirs:.3f} | {ours / theirs:.2f} |"


def perceptron(t: Any) -> tuple[Any, Any, Any]:
    """A model, its inputs and their classes."""
    layers: list[Any] = []
    for n, m in zip(WIDTHS, WIDTHS[1:]):
        layers += [t.nn.Linear(n, m), t.nn.ReLU()]
    inputs, classes = t.randn(BATCH, WIDTHS[0]), t.randint(0, WIDTHS[-1], (BATCH,))
    return t.nn.Sequential(*layers[:-1]), inputs, classes


def gpt(t: Any) -> tuple[Any, Any, Any]:
    """The same of characters, and what follows each."""
    width, heads, layers, characters, length, batch = GPT

    class Block(t.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.before, self.after = t.nn.LayerNorm(width), t.nn.LayerNorm(width)
            self.project, self.mix = t.nn.Linear(width, 3 * width), t.nn.Linear(width, width)
            self.up, self.down = t.nn.Linear(width, 4 * width), t.nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            parts = self.project(self.before(x)).chunk(3, -1)
            q, k, v = (p.reshape(batch, length, heads, -1).transpose(1, 2) for p in parts)
            seen = t.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.mix(seen.transpose(1, 2).reshape(batch, length, width))
            return x + self.down(t.nn.functional.gelu(self.up(self.after(x))))

    class Model(t.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.characters = t.nn.Embedding(characters, width)
            self.places = t.nn.Embedding(length, width)
            self.blocks = t.nn.Sequential(*[Block() for _ in range(layers)])
            self.norm, self.head = t.nn.LayerNorm(width), t.nn.Linear(width, characters)

        def forward(self, x: Any) -> Any:
            x = self.characters(x) + self.places(t.arange(length))
            return self.head(self.norm(self.blocks(x))).flatten(0, 1)

    text = t.randint(0, characters, (batch, length + 1))
    return Model(), text[:, :-1], text[:, 1:].flatten()


def stepper(t: Any, made: Callable[[Any], tuple[Any, Any, Any]], wrapped: bool) -> Any:
    """A training step of a model, of one library."""
    t.manual_seed(0)
    model, x, y = made(t)
    if wrapped:
        model = t.nn.parallel.DistributedDataParallel(model)
    optimizer = t.optim.SGD(model.parameters(), lr=1e-3)
    loss_of = t.nn.CrossEntropyLoss()

    def step() -> float:
        optimizer.zero_grad()
        loss = loss_of(model(x), y)
        loss.backward()
        optimizer.step()
        return float(loss.item())

    return step


def steps(rounds: int) -> list[str]:
    lines = []
    for name, made in (("MLP", perceptron), ("GPT", gpt)):
        calls = {
            f"{t.__name__}{' DDP' if wrapped else ''}": stepper(t, made, wrapped)
            for t in (lucid_gpu, torch)
            for wrapped in (False, True)
        }
        found = in_turn(calls, rounds)
        ours, theirs = found["lucid_gpu DDP"], found["torch DDP"]
        alone = found["lucid_gpu"], found["torch"]
        lines += [
            row(f"{name} step, processes that do not talk", *alone),
            row(f"{name} step, DDP", ours, theirs),
            row(f"what DDP adds to {name}", ours - alone[0], theirs - alone[1]),
        ]
    return lines


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
    load = os.getloadavg()[0]  # before this adds to it
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
