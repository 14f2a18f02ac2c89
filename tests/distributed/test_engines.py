"""The engines on arrays, MPI's in real processes; what starts them ends when they do."""

from __future__ import annotations

import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from lucid_gpu.distributed.engines.one import OneEngine
from lucid_gpu.distributed.reductions import ReduceOp
from tests.distributed.processes import MPIEXEC, mpi, mpich, run
from tests.slow import slow_but

TYPES = (np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.uint8, np.int64, np.complex64)


def sums(rank: int, size: int, method: str | None) -> None:
    """What each process of a world does."""
    from lucid_gpu.distributed import groups

    groups.init_process_group("gloo", init_method=method, rank=rank, world_size=size)
    world = groups.resolved(None)
    assert world is not None
    engine, size = world.engine, world.size()

    def wait(done):
        done.begin()
        while not done.test():
            pass

    for kind in TYPES:
        array = np.full(5, engine.rank + 1).astype(kind)
        wait(engine.all_reduce(array, ReduceOp.SUM))
        assert array.dtype == kind and (array == np.array(size * (size + 1) // 2, kind)).all()
    array = np.arange(3.0) + 10 * engine.rank
    whole = np.zeros(3 * size)
    wait(engine.all_gather(whole, array))
    assert whole.tolist() == [10.0 * r + i for r in range(size) for i in range(3)]
    wait(engine.broadcast(array, size - 1))
    assert array.tolist() == [10.0 * (size - 1) + i for i in range(3)]
    part = np.zeros(3)
    wait(engine.reduce_scatter(part, whole, ReduceOp.AVG))
    assert part.tolist() == [10.0 * engine.rank + i for i in range(3)]
    first = groups.new_group([0])
    assert (first == groups.GroupMember.NON_GROUP_MEMBER) == (engine.rank > 0)
    groups.destroy_process_group()


def test_one_rank_copies_what_it_sends() -> None:
    engine = OneEngine()
    into, array = np.zeros(3), np.arange(3.0)
    received = engine.receive(into, 0, 7)
    assert not received.test()
    engine.send(array, 0, 7)
    array[...] = -1
    assert received.test() and into.tolist() == [0.0, 1.0, 2.0]


@mpi
@pytest.mark.parametrize("size", slow_but([2, 3], 3))
def test_mpiexec_starts_ranks(size: int) -> None:
    run([str(MPIEXEC), "-n", str(size), sys.executable, __file__])


@mpich
@pytest.mark.parametrize(
    ("scheme", "start"),
    [
        ("tcp", "spawn"),
        ("file", "fork"),
        pytest.param("tcp", "fork", marks=pytest.mark.slow),
        pytest.param("file", "spawn", marks=pytest.mark.slow),
    ],
)
def test_processes_find_each_other_without_mpiexec(start: str, scheme: str, tmp_path: Path) -> None:
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    method = f"tcp://127.0.0.1:{port}" if scheme == "tcp" else f"file://{tmp_path}/store"
    run([sys.executable, __file__, start, "2", method])


if __name__ == "__main__":
    import multiprocessing

    if len(sys.argv) == 1:
        sums(-1, -1, None)
    else:
        start, count, method = sys.argv[1], int(sys.argv[2]), sys.argv[3]
        context = multiprocessing.get_context(start)
        processes = [
            context.Process(target=sums, args=(rank, count, method))  # type: ignore[attr-defined]
            for rank in range(count)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        sys.exit(any(process.exitcode for process in processes))
