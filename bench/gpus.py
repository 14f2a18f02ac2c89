"""Several GPUs, a process each: ``make gpus``.

Collectives and messages through NCCL beside MPI's, the bandwidth of ``all_reduce``, overlap with
matrix products, steps of `DistributedDataParallel` beside one process with the whole batch, and
what a rank that does not come makes of the job. Rank 0 prints and writes what was found, a line a
piece. ``--rehearse`` tries all of it over the stand-in for CuPy, where no figure is one of a GPU.
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

TREE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TREE))  # so that it also runs without PYTHONPATH

torch: Any = importlib.import_module("lucid_gpu")  # with PyTorch's names, as scripts see it
dist: Any = importlib.import_module("lucid_gpu.distributed")

Figures = dict[str, Any]
REAL = ("float32", "float64", "float16", "bfloat16")
WHOLE = ("int8", "uint8", "int16", "int32", "int64")
NEAR = {"float16": 4e-3, "bfloat16": 4e-2}
REPEATS = 20
LATE = r"all_reduce\(float32 \[3\], SUM\) timed out after 5 s on rank 0: rank \d+ has not come"


def _host() -> Any:
    """The group whose tensors travel by MPI."""
    return dist.new_group(backend="gloo")


def _near(name: str, found: Any, expected: Any) -> None:
    near = NEAR.get(name, 1e-5)
    if not torch.allclose(found.double().cpu(), expected.double().cpu(), rtol=near, atol=near):
        raise ArithmeticError(f"{name}: {found.flatten()[:6].tolist()} beside MPI's "
                              f"{expected.flatten()[:6].tolist()}")  # fmt: skip


def collectives(name: str) -> None:
    """Every collective on one type, through NCCL and through MPI."""
    host, rank, size = _host(), dist.get_rank(), dist.get_world_size()
    kind = getattr(torch, name)
    x = ((torch.arange(1001) * (rank + 3)) % 11 + 1).to(kind)
    ops = ["SUM", "MIN", "MAX", *(["AVG", "PRODUCT"] if name in REAL else [])]
    for op in ops:
        mine, theirs = x.cuda(), x.clone()
        dist.all_reduce(mine, dist.ReduceOp[op])
        dist.all_reduce(theirs, dist.ReduceOp[op], group=host)
        _near(name, mine, theirs)
    whole, parts = x.repeat(size), [torch.empty_like(x) for _ in range(size)]
    for call, args in {
        "broadcast": (x, size - 1),
        "reduce": (x, 0),
        "all_gather_into_tensor": (torch.empty_like(whole), x),
        "reduce_scatter_tensor": (torch.empty_like(x), whole),
        "all_to_all_single": (torch.empty_like(whole), whole + rank),
        "gather": (x, parts if rank == 0 else None),
        "scatter": (torch.empty_like(x), [x + r for r in range(size)] if rank == 0 else None),
    }.items():
        found = [_moved(a, "cuda") for a in args]
        expected = [_moved(a, "cpu") for a in args]
        getattr(dist, call)(*found)
        getattr(dist, call)(*expected, group=host)
        for one, other in zip(_flat(found), _flat(expected)):
            _near(name, one, other)


def _moved(value: Any, where: str) -> Any:
    if isinstance(value, list):
        return [_moved(v, where) for v in value]
    return value.to(where, copy=True) if torch.is_tensor(value) else value


def _flat(values: Sequence[Any]) -> list[Any]:
    every = [v for value in values for v in (value if isinstance(value, list) else [value])]
    return [v for v in every if torch.is_tensor(v)]


def messages() -> None:
    """A ring of messages, side by side and one by one."""
    rank, size = dist.get_rank(), dist.get_world_size()
    after, before = (rank + 1) % size, (rank - 1) % size
    x, y = torch.full((1 << 16,), float(rank)).cuda(), torch.zeros(1 << 16).cuda()
    ops = [dist.P2POp(dist.isend, x, after), dist.P2POp(dist.irecv, y, before)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    _near("float32", y, torch.full((1 << 16,), float(before)))
    if rank:
        dist.recv(y, before)
    dist.send(y + 1 if rank else y, after)
    if rank == 0:
        dist.recv(y, before)
        _near("float32", y, torch.full((1 << 16,), float(2 * size - 2)))


def _seconds(work: Callable[[], object], repeats: int) -> float:
    found = []
    for _ in range(repeats):
        dist.barrier()
        torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        torch.cuda.synchronize()
        found.append(time.perf_counter() - start)
    return sorted(found)[len(found) // 2]


def bandwidth(toy: bool) -> Figures:
    """Seconds of ``all_reduce``, and bytes a second that each link carries in a ring."""
    size, found = dist.get_world_size(), {}
    for count in (1 << 10, 1 << 12) if toy else (1 << 10, 1 << 16, 1 << 20, 1 << 23, 1 << 26):
        x = torch.zeros(count).cuda()
        seconds = _seconds(partial(dist.all_reduce, x), 3 if toy else REPEATS)
        links = 2 * (size - 1) / size * 4 * count / seconds
        found[f"{4 * count} bytes"] = {"seconds": seconds, "bytes_a_second": links}
    return found


def overlap(toy: bool) -> Figures:
    """Seconds of matrix products and of ``all_reduce``, apart and side by side."""
    side, count = (64, 1 << 10) if toy else (4096, 1 << 26)
    a, x = torch.randn(side, side).cuda(), torch.zeros(count).cuda()

    def products() -> Any:
        b = a
        for _ in range(16):
            b = a @ b * 1e-2
        return b.array  # computes it

    def both() -> None:
        work = dist.all_reduce(x, async_op=True)
        products()
        work.wait()

    works: dict[str, Callable[[], object]] = {
        "products": products,
        "all_reduce": partial(dist.all_reduce, x),
        "both": both,
    }
    return {name: _seconds(work, 3 if toy else REPEATS) for name, work in works.items()}


def training(toy: bool) -> Figures:
    """Three steps beside one process with the whole batch; seconds of a step, and of one alone."""
    rank, size = dist.get_rank(), dist.get_world_size()
    width, rows = (16, 4) if toy else (2048, 256)

    def net() -> Any:
        torch.manual_seed(0)
        layers = [torch.nn.Linear(width, width) for _ in range(4)]
        return torch.nn.Sequential(
            *(m for layer in layers for m in (layer, torch.nn.Tanh()))
        ).cuda()

    torch.manual_seed(1)
    whole = torch.randn(rows * size, width).cuda()
    mine = whole[rows * rank : rows * (rank + 1)].clone()
    plain, spread = net(), torch.nn.parallel.DistributedDataParallel(net())

    def step(model: Any, x: Any) -> None:
        model.zero_grad()
        model(x).square().mean().backward()
        with torch.no_grad():
            for p in model.parameters():
                p -= 0.1 * p.grad

    for _ in range(3):
        step(plain, whole)
        step(spread, mine)
    for p, q in zip(plain.parameters(), spread.parameters()):
        if not torch.allclose(p, q, rtol=1e-3, atol=1e-5):
            raise ArithmeticError(f"parameters differ by {(p - q).abs().max().item():.3g}")
    every: list[Any] = [None] * size
    dist.all_gather_object(every, [p.double().sum().item() for p in spread.parameters()])
    if any(one != every[0] for one in every):
        raise ArithmeticError("ranks hold different parameters")
    repeats = 3 if toy else REPEATS
    alone = _seconds(partial(step, plain, mine), repeats)
    return {"step": _seconds(partial(step, spread, mine), repeats), "alone": alone}


def work(options: argparse.Namespace) -> int:
    """What each rank does."""
    seconds = 5 if options.late else 60
    dist.init_process_group("cpu:gloo,cuda:nccl", timeout=timedelta(seconds=seconds))
    rank = dist.get_rank()
    if not options.rehearse:
        torch.cuda.set_device(dist.get_node_local_rank())
    if options.late:
        dist.all_reduce(torch.ones(3).cuda())
        if rank == dist.get_world_size() - 1:
            time.sleep(60)
        x = torch.ones(3).cuda()
        dist.all_reduce(x)
        raise SystemExit(f"came through with {x.tolist()}")
    works: dict[str, Callable[[], Figures | None]] = {
        f"collectives of {name}": partial(collectives, name) for name in (*REAL, *WHOLE)
    }
    works["messages"] = messages
    for sized in (bandwidth, overlap, training):
        works[sized.__name__] = partial(sized, options.toy)
    lines, failed = [], 0
    for name, piece in works.items():
        try:
            figures, wrong = piece(), ""
        except ArithmeticError as error:  # others end the job: ranks would wait for each other
            figures, wrong = None, f"{type(error).__name__}: {error}"
        every: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(every, wrong)
        wrongs = {r: told for r, told in enumerate(every) if told}
        failed += bool(wrongs)
        lines.append({"piece": name, "figures": figures, "failed": wrongs})
        if rank == 0:
            print(f"{name}: {wrongs or figures or 'passed'}", flush=True)
    if rank == 0 and options.results:
        options.results.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    dist.destroy_process_group()
    return int(bool(failed))


def _started(options: argparse.Namespace, processes: int, *words: str) -> tuple[int, str]:
    """Start the ranks; their status and what they said."""
    script = [str(TREE / "bench" / "gpus.py")]
    if options.rehearse:
        script = [str(TREE / "tests" / "standin" / "run.py"), *script]
        words = (*words, "--rehearse", "--toy")
    run = [sys.executable, "-m", "lucid_gpu.distributed.run", "--nproc-per-node", str(processes)]
    command = [*run, *script, "--rank", *words, *(["--toy"] if options.toy else [])]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=TREE
    ) as process:
        said = ""
        for line in process.stdout or ():
            print(line, end="", flush=True)
            said += line
    return process.returncode, said


def main(argv: Sequence[str] | None = None) -> int:
    """Start a process a GPU; 1 where something is wrong, 2 where there are too few GPUs."""
    flags = argparse.ArgumentParser(prog="make gpus", description=__doc__)
    flags.add_argument("--processes", type=int, help="as many as there are GPUs by default")
    flags.add_argument("--results", type=Path, help="a file for what was found, a line a piece")
    flags.add_argument("--toy", action="store_true", help="tiny sizes")
    flags.add_argument("--rehearse", action="store_true", help="over the stand-in, without a GPU")
    flags.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    flags.add_argument("--late", action="store_true", help=argparse.SUPPRESS)
    options = flags.parse_args(argv)
    if options.rank:
        return work(options)
    processes = options.processes or (2 if options.rehearse else torch.cuda.device_count())
    if not options.rehearse and not 2 <= processes <= torch.cuda.device_count():
        print(
            f"make gpus: {processes} processes need as many GPUs, at least two; here are "
            f"{torch.cuda.device_count()}; nothing was run", file=sys.stderr,
        )  # fmt: skip
        return 2
    told = ["--results", str(options.results.resolve())] if options.results else []
    status, _ = _started(options, processes, *told)
    late, said = _started(options, processes, "--late")
    ended = bool(late) and re.search(LATE, said) is not None
    print(f"a rank that does not come: {'passed' if ended else 'failed'}")
    if options.rehearse:
        print("over the stand-in: no figure here is one of a GPU")
    return int(bool(status) or not ended)


if __name__ == "__main__":
    sys.exit(main())
