"""NCCL on one GPU: a communicator of one rank, which needs no second one.

What NCCL's engine does with streams and memory is the same for any number of ranks: results come
after what they are made of, the host goes on, and memory lives until NCCL has passed. A copy of one
rank beside matrix products shows how far they overlap. `bench.gpus` is for several GPUs.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from bench.gpu_pieces import Skip, do
from lucid_gpu.distributed.engines import nccl
from lucid_gpu.distributed.engines.one import OneEngine
from lucid_gpu.distributed.reductions import ReduceOp

torch: Any = importlib.import_module("lucid_gpu")  # with PyTorch's names, as scripts see it

Figures = dict[str, Any]
TYPES = (
    "float32", "float64", "float16", "bfloat16", "complex64", "complex128",
    "bool", "int8", "uint8", "int16", "int32", "int64",
)  # fmt: skip
REPEATS, TEMPORARIES = 20, 200


def _filled(name: str, count: int = 1000) -> Any:
    x = torch.arange(count, device="cuda") % 7
    return x.to(getattr(torch, name)).array


def _engine() -> nccl.NCCLEngine:
    return nccl.NCCLEngine(OneEngine(), [0], timedelta(seconds=60))


def _same(found: Any, expected: Any) -> None:
    if found.tolist() != expected.tolist():
        raise ArithmeticError(f"found {found[:8].tolist()}..., not {expected[:8].tolist()}...")


def version() -> Figures:
    """Which NCCL this is."""
    from cupy.cuda import nccl as library

    return {"nccl": library.get_version(), "built_with": library.get_build_version()}


def collectives(name: str) -> None:
    """Every collective and op on one type: one rank gets back what it gave."""
    engine, x = _engine(), _filled(name)
    expected = x.get()
    real = name.startswith(("float", "bfloat", "complex"))
    ops = [ReduceOp.SUM, ReduceOp.AVG] if real else [ReduceOp.SUM]
    if not name.startswith("complex"):
        ops += [ReduceOp.MIN, ReduceOp.MAX, ReduceOp.PRODUCT]
    for op in ops:
        for begun in (engine.all_reduce(x, op), engine.reduce(x, op, 0)):
            begun.follow()  # type: ignore[attr-defined]
        _same(x.get(), expected)
    calls: dict[str, tuple[Any, ...]] = {
        "reduce_scatter": (ReduceOp.SUM,),
        "all_gather": (),
        "gather": (0,),
        "scatter": (0,),
        "all_to_all": ([1000], [1000]),
    }
    for call, rest in calls.items():
        into = torch.zeros(1000, dtype=getattr(torch, name), device="cuda").array
        getattr(engine, call)(into, x, *rest).follow()
        _same(into.get(), expected)
    engine.broadcast(x, 0).follow()  # type: ignore[attr-defined]
    _same(x.get(), expected)
    engine.close()


def memory() -> None:
    """Arrays that are freed as soon as NCCL has been asked for them."""
    engine = _engine()
    kept = []
    for i in range(TEMPORARIES):
        into = torch.zeros(1 << 16, device="cuda").array
        given = torch.full((1 << 16,), float(i), device="cuda").array
        kept.append((into, engine.all_gather(into, given)))
        del given
        torch.full((1 << 16,), -1.0, device="cuda").array.sum()  # takes what is free
    for i, (into, done) in enumerate(kept):
        done.follow()  # type: ignore[attr-defined]
        found = into.get()
        if (found != i).any():
            raise ArithmeticError(f"copy {i} holds {found[found != i][:8].tolist()}")
    engine.close()


def overlap(toy: bool) -> Figures:
    """Seconds of matrix products and of a copy, one after the other and side by side."""
    engine = _engine()
    size, count = (64, 1 << 12) if toy else (4096, 1 << 28)
    a = torch.randn(size, size, device="cuda")
    x = torch.ones(count, device="cuda").array
    into = torch.zeros(count, device="cuda").array

    def products() -> Any:
        b = a
        for _ in range(8):
            b = a @ b * 1e-2
        return b.array  # computes it

    def copy(wait: bool) -> Any:
        done = engine.all_gather(into, x)
        if wait:
            done.follow()  # type: ignore[attr-defined]
        return done

    def both() -> None:
        done = copy(False)
        products()
        done.follow()

    def timed(work: Callable[[], object]) -> float:
        found = []
        for _ in range(3 if toy else REPEATS):
            torch.cuda.synchronize()
            start = time.perf_counter()
            work()
            torch.cuda.synchronize()
            found.append(time.perf_counter() - start)
        return sorted(found)[len(found) // 2]

    figures = {
        "products": timed(products),
        "copy": timed(partial(copy, True)),
        "both": timed(both),
    }
    torch.cuda.synchronize()
    start = time.perf_counter()
    products()
    done = copy(True)
    figures["host"] = time.perf_counter() - start
    figures["host_went_on"] = not done.test()
    torch.cuda.synchronize()
    if (into != 1).any():
        raise ArithmeticError("the copy is wrong")
    engine.close()
    return figures


def ends() -> None:
    """A communicator is destroyed and another made; one is aborted."""
    for _ in range(2):
        engine = _engine()
        barrier = engine.barrier()
        while not barrier.test():
            time.sleep(1e-5)
        engine.close()
    from cupy.cuda import nccl as library

    comm = library.NcclCommunicator(1, library.get_unique_id(), 0)
    comm.check_async_error()
    comm.abort()


def main(argv: Sequence[str] | None = None) -> int:
    """Do all of them; `bench.gpu_pieces.SOME_FAILED` when one fails."""
    flags = argparse.ArgumentParser(prog="python -m bench.gpu_nccl", description=__doc__)
    flags.add_argument("--toy", action="store_true", help="tiny sizes")
    options = flags.parse_args(argv)

    def piece(work: Callable[[], Figures | None]) -> Figures | None:
        missing = nccl.problem()
        if missing is not None:
            raise Skip(missing)
        return work()

    works: list[tuple[str, Callable[[], Figures | None]]] = [("version", version)]
    works += [(f"collectives of {name}", partial(collectives, name)) for name in TYPES]
    works += [("memory", memory), ("overlap", partial(overlap, options.toy)), ("ends", ends)]
    return do("nccl", [(name, partial(piece, work)) for name, work in works])


if __name__ == "__main__":
    sys.exit(main())
