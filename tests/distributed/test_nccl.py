"""NCCL's engine over the stand-in for CuPy: real processes, memory of the host, no GPU.

What MPI moves for the stand-in comes only when somebody synchronizes, and results are poison until
then; so a read that nothing ordered shows.
"""

from __future__ import annotations

import re
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lucid_gpu as t
import lucid_gpu.distributed as dist
from lucid_gpu import nn
from lucid_gpu.devices import cupy_backend
from lucid_gpu.distributed.fsdp import fully_shard
from tests.distributed import every_type
from tests.distributed.every_type import layouts
from tests.distributed.processes import MPIEXEC, ROOT, ended, mpi
from tests.slow import slow_but

STANDIN = ROOT / "tests" / "standin" / "run.py"
GPU = "cuda"


def reductions() -> None:
    every_type.reductions(GPU)
    for op in ("BAND", "BOR", "BXOR"):
        with pytest.raises(ValueError, match=f"Cannot use ReduceOp.{op} with NCCL"):
            dist.all_reduce(t.ones(3, device=GPU).int(), dist.ReduceOp[op])


def moves() -> None:
    every_type.moves(GPU)


def beside() -> None:
    """Objects, the host's tensors and barriers beside NCCL."""
    rank, size = dist.get_rank(), dist.get_world_size()
    found: list[Any] = [None] * size
    dist.all_gather_object(found, {"rank": rank})
    assert found == [{"rank": r} for r in range(size)]
    x = t.ones(2)
    dist.all_reduce(x)
    assert x.tolist() == [size] * 2
    dist.barrier()
    dist.barrier(device_ids=[0], async_op=True).wait()
    dist.monitored_barrier(timeout=timedelta(seconds=20))
    groups = [dist.new_group([r, (r + 1) % size]) for r in range(size)] if size > 2 else []
    for r, group in enumerate(groups):
        if group != dist.GroupMember.NON_GROUP_MEMBER:
            x = t.full((2,), float(rank), device=GPU)
            dist.all_reduce(x, group=group)
            assert x.tolist() == [float(r + (r + 1) % size)] * 2
            assert dist.get_backend(group) == "nccl"
    alone = dist.new_group([rank]) if size == 1 else None
    assert alone is None or alone.size() == 1
    host = dist.new_group(backend="gloo")
    x = t.full((2,), float(rank), device=GPU)
    dist.all_reduce(x, group=host)
    assert x.tolist() == [size * (size - 1) / 2] * 2 and host.nccl is None
    if size == 2:
        other = t.full((2,), float(rank + 1), device="cuda:1")  # a communicator of its own
        dist.all_reduce(other)
        assert other.tolist() == [3, 3] and other.device.index == 1
        assert t.cuda.current_device() == 0


def messages() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    after, before = (rank + 1) % size, (rank - 1) % size
    for x in layouts(t.arange(6.0, device=GPU) + rank):
        y = layouts(t.zeros(6, device=GPU))[1]
        if rank == 0:
            dist.send(x, 1)
            dist.recv(y, size - 1)
        else:
            assert dist.recv(y, before) == before
            dist.send(y + 0, after)
        assert y.tolist() == (t.arange(6.0).reshape(3, 2)).tolist()
    y = t.zeros(6, device=GPU)
    ops = [
        dist.P2POp(dist.isend, t.arange(6.0, device=GPU) + 10 * rank, after),
        dist.P2POp(dist.irecv, y, before),
    ]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    assert y.tolist() == [10.0 * before + i for i in range(6)]
    turned = layouts(t.zeros(6, device=GPU))[1]
    ops = [dist.P2POp(dist.irecv, turned, before), dist.P2POp(dist.isend, y, after)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    assert turned.flatten().tolist() == [10.0 * ((rank - 2) % size) + i for i in range(6)]
    if rank == 0:  # a message that is taken after a collective does not hold it up
        work = dist.isend(y, 1)
        dist.all_reduce(y + 0)
        work.wait()
    else:
        dist.all_reduce(y + 0)
        if rank == 1:
            dist.recv(y, 0)
    with pytest.raises(RuntimeError, match="Backend nccl does not support recvAnysource"):
        dist.recv(y)


def streams() -> None:
    """The host never waits; the current stream does; nothing is read too early or freed."""
    import cupy
    from cupy import _counts
    from cupy.cuda import memory

    from lucid_gpu.devices import cuda_memory

    size, mine = dist.get_world_size(), dist.get_rank() + 1
    total = size * (size + 1) / 2
    x = t.full((4,), float(mine), device=GPU)
    pointer = x.array
    work = dist.all_reduce(x, async_op=True)
    assert np.isnan(pointer.get()).all()  # poison: nothing has waited
    with _counts.noted() as asked:
        work.wait()
        y = x + 1
        z = y.array
    assert not [one for one in asked if one[0] == "wait"], asked
    assert z.get().tolist() == [total + 1] * 4
    assert work.is_completed()

    own = t.cuda.Stream()  # a stream that does not wait for the null stream
    with t.cuda.stream(own):
        x = t.full((4,), float(mine), device=GPU)
        dist.all_reduce(x)
        y = x * 2
        found = y.array
    own.synchronize()
    assert found.get().tolist() == [2 * total] * 4
    side = t.cuda.Stream()
    x = t.full((4,), float(mine), device=GPU)
    work = dist.all_reduce(x, async_op=True)
    with t.cuda.stream(side):
        work.wait()
        y = x + 0
        found = y.array
    side.synchronize()
    assert found.get().tolist() == [total] * 4
    work.wait()

    base = t.full((2, 4), float(mine), device=GPU)
    gaps = base[:, ::2]
    parts = [t.zeros(2, 2, device=GPU) for _ in range(size)]
    works = [dist.all_reduce(gaps, async_op=True), dist.all_gather(parts, gaps, async_op=True)]
    with t.cuda.stream(side):  # which reads memory that another stream's pool lent
        for work in works:
            work.wait()
        del work, works
        world = dist.group.WORLD
        assert world is not None
        cupy.cuda.Stream.null.synchronize()
        world.progress()
        assert not world.under_way
        found = [one.array for one in (gaps, *parts)]
    held = [event._stream for event, _ in cuda_memory._held]
    assert held.count(side._cupy.ptr) >= 2, held
    side.synchronize()
    assert found[0].get().tolist() == [[total] * 2] * 2
    assert [p.get()[0, 0] for p in found[1:]] == [r + 1 for r in range(size)]

    works = []
    for _ in range(20):  # what nobody holds lives until its event has passed
        works.append(dist.all_reduce(t.full((33,), float(mine), device=GPU), async_op=True))
        t.zeros(33, device=GPU).array
    kept = works[-1].result()[0]
    for work in works:
        work.wait()
    assert kept.tolist() == [total] * 33
    parts = [t.zeros(2, 2, device=GPU).t() for _ in range(size)]
    work = dist.all_gather(parts, t.full((2, 2), float(mine), device=GPU).t(), async_op=True)
    future = work.get_future().then(lambda done: done.value()[0].sum())
    assert future.wait().item() == 4
    assert [p[0, 0].item() for p in parts] == [float(r + 1) for r in range(size)]
    cupy.cuda.runtime.deviceSynchronize()
    dist.all_reduce(x)
    x.tolist()
    world.progress()
    assert not [work for work in world.under_way if not work.settled()]
    memory._check_all()
    assert memory._faults == []


def net() -> Any:
    t.manual_seed(0)
    return nn.Sequential(
        nn.Linear(3, 20), nn.Tanh(), nn.Linear(20, 20), nn.Tanh(), nn.Linear(20, 2)
    )


def trains() -> None:
    """A step of DistributedDataParallel is the step of one process on the whole batch."""
    rank, size = dist.get_rank(), dist.get_world_size()
    t.manual_seed(1)
    whole = t.randn(4 * size, 3)
    plain = net().to(GPU)
    spread = nn.parallel.DistributedDataParallel(
        net().to(GPU) if rank == 0 else net().to(GPU).double().float(), bucket_cap_mb=0.001
    )
    for model, x in ((plain, whole), (spread, whole[4 * rank : 4 * rank + 4])):
        optimizer = t.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            model(x.to(GPU)).square().mean().backward()
            optimizer.step()
    import cupy
    from cupy import _counts

    cupy.cuda.runtime.deviceSynchronize()
    inputs = whole[4 * rank : 4 * rank + 4].to(GPU)
    with _counts.noted() as asked:  # buckets travel and come back, and nothing waits on the host
        spread(inputs).square().mean().backward()
        for p in spread.parameters():
            assert p.grad is not None and p.grad.array.shape  # computed
    assert not [one for one in asked if one[0] in ("wait", "fetch")], asked
    mine = [p.tolist() for p in spread.parameters()]
    for p, q in zip(plain.parameters(), spread.parameters()):
        np.testing.assert_allclose(q.tolist(), p.tolist(), 1e-4, 1e-6)
    every: list[Any] = [None] * size
    dist.all_gather_object(every, mine)
    assert all(one == mine for one in every)


def shards() -> None:
    """Sharded parameters: gathered and scattered by NCCL, they train as one process does."""
    rank, size = dist.get_rank(), dist.get_world_size()
    t.manual_seed(1)
    whole = t.randn(4 * size, 3)
    plain, spread = net().to(GPU), net().to(GPU)
    for layer in spread:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    fully_shard(spread)
    norms = []
    for model, x in ((plain, whole), (spread, whole[4 * rank : 4 * rank + 4])):
        optimizer = t.optim.AdamW(model.parameters(), lr=0.02)
        for _ in range(3):
            optimizer.zero_grad()
            model(x.to(GPU)).square().mean().backward()
            norms.append(nn.utils.clip_grad_norm_(model.parameters(), 0.3).item())
            optimizer.step()
    np.testing.assert_allclose(norms[3:], norms[:3], 1e-5)
    for p, q in zip(plain.parameters(), spread.parameters()):
        assert q.device.type == GPU and len(q.to_local()) < max(p.shape[0], 2)
        np.testing.assert_allclose(q.full_tensor().tolist(), p.tolist(), 1e-4, 1e-6)
    from cupy.cuda import memory

    memory._check_all()
    assert memory._faults == []


def chosen() -> None:
    """Which backend sends what by NCCL; groups are made and ended again."""
    for backend, by_nccl in ((None, True), ("cpu:gloo,cuda:nccl", True), ("gloo", False)):
        dist.init_process_group(backend, timeout=timedelta(seconds=60))
        group, size = dist.group.WORLD, dist.get_world_size()
        assert group is not None and dist.is_nccl_available()
        x, y = t.ones(3, device=GPU), t.ones(3)
        dist.all_reduce(x)
        dist.all_reduce(y)
        assert x.tolist() == y.tolist() == [size] * 3
        assert (group.nccl is not None) == by_nccl
        dist.barrier()
        dist.destroy_process_group()


PARTS = {f.__name__: f for f in (reductions, moves, beside, messages, streams, trains, shards)}


def numbers() -> None:
    """The engine's tables hold NCCL's numbers."""
    from cupy.cuda import nccl as library

    from lucid_gpu.distributed.engines import nccl

    for name, number in nccl._TYPES.items():
        theirs = {"bool": "UINT8", "complex64": "FLOAT32", "complex128": "FLOAT64"}.get(name, name)
        assert number == getattr(library, f"NCCL_{theirs.upper()}")
    for op, number in nccl._OPS.items():
        assert number == getattr(library, f"NCCL_{op.name.replace('PRODUCT', 'PROD')}")


def deterministic() -> None:
    """NCCL is told to add in one order while a communicator is made, and only then."""
    import os

    from cupy.cuda import nccl as library

    seen = []

    class Asked(library.NcclCommunicator):
        def __init__(self, *args: Any) -> None:
            seen.append((os.environ.get("NCCL_ALGO"), os.environ.get("NCCL_PROTO")))
            super().__init__(*args)

    library.NcclCommunicator = Asked
    os.environ["NCCL_PROTO"] = "LL"  # what the user says stays
    from lucid_gpu.distributed.engines.nccl import NCCLEngine

    for wanted in (False, True):
        t.use_deterministic_algorithms(wanted)
        one = NCCLEngine(_One(), [0], timedelta(seconds=5))
        one.barrier()
        one.close()
    assert seen == [(None, "LL"), ("Ring", "LL")]
    assert "NCCL_ALGO" not in os.environ and os.environ["NCCL_PROTO"] == "LL"


def engine() -> None:
    """A communicator of one rank, which needs no MPI."""
    import cupy
    from cupy.cuda import memory

    from lucid_gpu.distributed.engines.nccl import NCCLEngine
    from lucid_gpu.distributed.reductions import ReduceOp

    one = NCCLEngine(_One(), [0], timedelta(seconds=5))
    x = cupy.arange(6, dtype=np.float32)
    done: Any = one.all_reduce(x, ReduceOp.AVG)
    assert np.isnan(x.get()).all()
    done.follow()
    assert (x + 0).get().tolist() == [0, 1, 2, 3, 4, 5] and done.test()
    for name, rest in (
        ("all_gather", ()),
        ("reduce_scatter", (ReduceOp.SUM,)),
        ("gather", (0,)),
        ("all_to_all", ([6], [6])),
    ):
        into = cupy.zeros(6, np.float32)
        getattr(one, name)(into, x, *rest).follow()
        assert (into + 0).get().tolist() == [0, 1, 2, 3, 4, 5]
    barrier = one.barrier()
    while not barrier.test():
        pass
    one.close()
    memory._check_all()
    assert memory._faults == []


class _One:
    rank, size = 0, 1


def refusals() -> None:
    """What the stand-in refuses: else the tests above would prove little."""
    import cupy
    from cupy.cuda import memory, nccl

    def asks(status: int, call: Any, *args: Any) -> None:
        with pytest.raises(nccl.NcclError) as caught:
            call(*args)
        assert caught.value.status == status

    comm = nccl.NcclCommunicator(1, nccl.get_unique_id(), 0)
    stream = cupy.cuda.Stream(non_blocking=True)
    a, b = cupy.ones(4, "f"), cupy.zeros(4, "f")
    on_host = np.ones(4, "f")
    asks(4, comm.broadcast, on_host.ctypes.data, b.data.ptr, 4, 7, 0, stream.ptr)
    asks(4, comm.broadcast, a.data.ptr, b.data.ptr, 4000, 7, 0, stream.ptr)
    asks(4, comm.broadcast, a.data.ptr, b.data.ptr, 4, 17, 0, stream.ptr)
    asks(4, comm.broadcast, a.data.ptr, b.data.ptr, 4, 7, 1, stream.ptr)
    with cupy.cuda.Device(1):
        far, elsewhere = cupy.ones(4, "f"), cupy.cuda.Stream(non_blocking=True)
    asks(4, comm.broadcast, far.data.ptr, b.data.ptr, 4, 7, 0, stream.ptr)
    asks(5, comm.broadcast, a.data.ptr, b.data.ptr, 4, 7, 0, elsewhere.ptr)
    asks(5, nccl.groupEnd)
    nccl.groupStart()
    comm.allGather(a.data.ptr, b.data.ptr, 4, 7, stream.ptr)
    stream.synchronize()
    assert b.get().tolist() == [0] * 4  # a group that is open has launched nothing
    asks(5, comm.destroy)
    nccl.groupEnd()
    assert np.isnan(b.get()).all()
    stream.synchronize()
    assert b.get().tolist() == [1] * 4 and memory._faults == []

    def fault(meanwhile: Any) -> str:
        c, d = [cupy.ones(4, "f")], [cupy.zeros(4, "f")]
        comm.allGather(c[0].data.ptr, d[0].data.ptr, 4, 7, stream.ptr)
        meanwhile(c, d)
        stream.synchronize()
        return str(memory._faults.pop())

    assert "freed while it ran" in fault(lambda c, d: c.clear())
    assert "freed while it ran" in fault(lambda c, d: d.clear())
    assert "what it reads was written" in fault(lambda c, d: c[0].fill(3))
    assert "what it writes was written" in fault(lambda c, d: d[0].fill(3))
    freed = cupy.ones(4, "f").data.ptr
    asks(4, comm.allGather, freed, b.data.ptr, 4, 7, stream.ptr)
    comm.abort()
    asks(4, comm.check_async_error)
    assert memory._faults == []


ALONE = {f.__name__: f for f in (numbers, deterministic, engine, refusals)}
FAULTS = {
    "late": (
        "time.sleep(600)",
        r"all_reduce\(float32 \[3\], SUM\) timed out after 2 s on rank 0: rank 1 has not come",
    ),
    "late-first": (
        "time.sleep(600)",
        r"NCCL's communicator of ranks \[0, 1\]\(\) timed out after 2 s on rank 0: rank 1 has not",
    ),
    "collective": (
        "dist.broadcast(t.ones(3, device=GPU), 0); time.sleep(600)",
        r"ranks make different calls: rank \d called .*(broadcast|all_reduce)",
    ),
    "dtype": (
        "dist.all_reduce(t.ones(3, device=GPU).int()); time.sleep(600)",
        r"ranks make different calls: .*int32 \[3\]",
    ),
    "count": (
        "dist.all_reduce(t.ones(5, device=GPU)); time.sleep(600)",
        r"ranks make different calls: .*float32 \[5\]|NCCL: NCCL_ERROR_INVALID_USAGE",
    ),
    "silent": (  # NCCL does not notice, and waits
        "dist.all_reduce(t.ones(5, device=GPU)); time.sleep(600)",
        r"ranks make different calls: .*float32 \[5\]",
    ),
    "exits": (
        "sys.exit(0)",
        r"rank 1 has come to its end, and rank 0 waits for it in all_reduce\(float32 \[3\], SUM\)",
    ),
    "raises": ("raise ValueError('boom')", r"rank 1 failed \(ValueError: boom\)"),
    "killed": ("os.kill(os.getpid(), 9)", r"EXIT CODE: 9"),
}


def faulty(what: str) -> None:
    """Rank 0 waits for its GPU, where only the watching thread can end it."""
    import os  # noqa: F401
    import time  # noqa: F401

    if what == "silent":
        from cupy.cuda import nccl

        nccl.NcclCommunicator.check_async_error = lambda self: None
    dist.init_process_group("nccl", timeout=timedelta(seconds=600))
    x = t.ones(3, device=GPU)
    dist.all_reduce(t.ones(1))  # by the host; a busy machine takes long to come here
    assert dist.group.WORLD is not None
    dist.group.WORLD.timeout = timedelta(seconds=2)
    if what != "late-first":
        dist.all_reduce(t.ones(3, device=GPU))
    dist.barrier() if what != "late-first" else None
    if dist.get_rank() == 1:
        exec(FAULTS[what][0])
    else:
        dist.all_reduce(x)
        print("came through with", x.tolist(), flush=True)
    dist.destroy_process_group()


def started(*words: str, size: int) -> tuple[int, str]:
    command = [str(MPIEXEC), "-n", str(size), sys.executable, str(STANDIN), __file__, *words]
    return ended(command)


@mpi
@pytest.mark.parametrize("size", slow_but([2, 3], 2))
def test_several_ranks(size: int) -> None:
    status, said = started("several", size=size)
    assert status == 0, said


@mpi
def test_the_backend_is_chosen_by_the_device() -> None:
    status, said = started("chosen", size=2)
    assert status == 0, said


@mpi
@pytest.mark.parametrize("part", ALONE)
def test_one_rank(part: str) -> None:
    status, said = started(part, size=1)
    assert status == 0, said


@mpi
@pytest.mark.parametrize("what", slow_but(FAULTS, "silent", "raises"))
def test_the_job_ends_and_says_why(what: str) -> None:
    status, said = started("faulty", what, size=2)
    assert status, said
    assert re.search(FAULTS[what][1], said), said
    assert "came through" not in said


def test_one_rank_moves_within_its_device(device: str, tmp_path: Path) -> None:
    dist.init_process_group("nccl", f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        x = layouts(t.arange(6.0, device=device))[1]
        parts = [t.zeros(3, 2, device=device)]
        dist.all_reduce(x, dist.ReduceOp.AVG)
        dist.all_gather(parts, x)
        dist.reduce_scatter(x, parts)
        assert x.tolist() == parts[0].tolist() == [[0, 1], [2, 3], [4, 5]]
        y = t.zeros(6, device=device)
        works = [dist.all_to_all_single(y, x.flatten(), async_op=True)]
        works.append(dist.all_gather(parts, x + 1, async_op=True))
        for work in works:
            work.wait()
        assert y.tolist() == [0, 1, 2, 3, 4, 5] and parts[0].tolist() == (x + 1).tolist()
        assert parts[0].device == y.device == x.device and x.device.type == device
    finally:
        dist.destroy_process_group()


def test_without_a_gpu_it_says_so(tmp_path: Path) -> None:
    if cupy_backend.problem() is None:
        pytest.skip("there is a GPU")
    assert not dist.is_nccl_available() and not dist.is_backend_available("nccl")
    with pytest.raises(
        ValueError, match="ProcessGroupNCCL is only supported with GPUs, no GPUs fo"
    ):
        dist.init_process_group("nccl", f"file://{tmp_path}/store", rank=0, world_size=2)
    assert not dist.is_initialized()


def main(words: list[str]) -> None:
    if words[0] == "faulty":
        faulty(words[1])
    elif words[0] == "several":
        dist.init_process_group("nccl", timeout=timedelta(seconds=60))
        for name, part in PARTS.items():
            if words[1:] in ([], [name]):
                part()
        dist.destroy_process_group()
    else:
        {**ALONE, "chosen": chosen}[words[0]]()


if __name__ == "__main__":
    main(sys.argv[1:])
