"""Collectives: one rank beside PyTorch's gloo, several in real processes; errors come first."""

from __future__ import annotations

import importlib
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lucid_gpu
import lucid_gpu.distributed as dist
from tests.distributed import every_type, sequences
from tests.distributed.processes import MPIEXEC, mpi, run
from tests.oracle import torch_module
from tests.slow import slow_but


@pytest.fixture
def alone(tmp_path: Path) -> Any:
    dist.init_process_group("gloo", f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def everything(t: Any) -> list[Any]:
    """What every collective leaves in its tensors, on any number of ranks."""
    d = importlib.import_module(f"{t.__name__}.distributed")
    rank, size = d.get_rank(), d.get_world_size()
    kept: list[Any] = []

    def mine(kind: Any = t.float32) -> Any:
        return (t.arange(6) + 10 * rank).to(kind).reshape(2, 3).t()

    for kind in (t.float32, t.float64, t.bfloat16, t.float16, t.int64, t.uint8):
        for op in (d.ReduceOp.SUM, d.ReduceOp.MIN, d.ReduceOp.MAX, d.ReduceOp.PRODUCT):
            x = mine(kind)
            d.all_reduce(x, op)
            kept.append(x.double().tolist())
    x = mine(t.complex64)
    d.all_reduce(x)
    kept.append(t.view_as_real(x).tolist())
    x = mine()
    work = d.all_reduce(x, async_op=True)
    work.wait()
    kept += [x.tolist(), work.is_completed()]
    x = mine()
    d.broadcast(x, size - 1)
    kept.append(x.tolist())
    x = mine()
    d.reduce(x, 0)
    if rank == 0:
        kept.append(x.tolist())
    parts = [t.zeros(2, 3).t() for _ in range(size)]
    d.all_gather(parts, mine())
    kept.append([p.tolist() for p in parts])
    whole = t.zeros(3 * size, 2)
    d.all_gather_into_tensor(whole, mine())
    kept.append(whole.tolist())
    parts = [t.zeros(3, 2) for _ in range(size)] if rank == 0 else None
    d.gather(mine(), parts, dst=0)
    kept.append(parts and [p.tolist() for p in parts])
    # gloo writes what it scatters in the order of memory where a tensor is not contiguous.
    given = [(mine() + 100 * r).contiguous() for r in range(size)]
    x = t.zeros(3, 2)
    d.scatter(x, given if rank == 0 else None, src=0)
    kept.append(x.tolist())
    d.reduce_scatter(x, given)
    kept.append(x.tolist())
    d.reduce_scatter_tensor(x, t.cat(given))
    kept.append(x.tolist())
    rows = t.arange(2 * size) + 100 * rank
    got = t.zeros_like(rows)
    d.all_to_all_single(got, rows)
    kept.append(got.tolist())
    objects: list[Any] = [None] * size
    d.all_gather_object(objects, {"rank": rank, "text": "x" * rank})
    kept.append(list(objects))
    d.gather_object(("g", rank), objects if rank == 0 else None, dst=0)
    kept.append(list(objects))
    objects = [rank, "text"]
    d.broadcast_object_list(objects, src=0)
    kept.append(objects)
    out = [None]
    d.scatter_object_list(out, [f"for {r}" for r in range(size)] if rank == 0 else None, src=0)
    kept.append(out)
    d.barrier()
    d.monitored_barrier()
    return kept


def test_one_rank_is_as_gloo(alone: Any, tmp_path: Path) -> None:
    ours = everything(lucid_gpu)
    torch = pytest.importorskip("torch")
    torch.distributed.init_process_group("gloo", f"file://{tmp_path}/torch", None, 1, 0)
    try:
        assert ours == everything(torch)
    finally:
        torch.distributed.destroy_process_group()


def test_importing_imports_no_library() -> None:
    code = (
        "import sys, lucid_gpu.distributed as d; assert d.is_available() and d.__all__; "
        "assert not {'mpi4py', 'socket', 'lucid_gpu.distributed.groups'} & set(sys.modules)"
    )
    run([sys.executable, "-c", code])


def test_every_name_is_there() -> None:
    missing = [name for name in dist.__all__ if not hasattr(dist, name)]
    assert not missing and dist.reduce_op is dist.ReduceOp


def test_where_packages_import_names_from(alone: Any) -> None:
    from lucid_gpu.distributed import constants, distributed_c10d

    torch = torch_module()
    theirs = torch.distributed.constants
    assert constants.default_pg_timeout == theirs.default_pg_timeout
    assert constants.default_pg_nccl_timeout in (theirs.default_pg_nccl_timeout, timedelta(0, 600))
    for name in dist.__all__:
        assert getattr(distributed_c10d, name) is getattr(dist, name)
    assert distributed_c10d._get_default_group() is dist.group.WORLD
    assert not distributed_c10d._rank_not_in_group(None)
    assert distributed_c10d._rank_not_in_group(dist.GroupMember.NON_GROUP_MEMBER)
    with pytest.raises(AttributeError, match="distributed_c10d' has no attribute 'nothing'"):
        distributed_c10d.nothing


def test_without_a_group() -> None:
    assert not dist.is_initialized()
    with pytest.raises(ValueError, match="Default process group has not been initialized"):
        dist.all_reduce(lucid_gpu.zeros(2))


def raised(t: Any, what: str) -> tuple[str, str]:
    d = importlib.import_module(f"{t.__name__}.distributed")
    x = t.zeros(2)
    calls = {
        "tensor": lambda: d.all_reduce([x]),
        "list": lambda: d.all_gather(x, x),
        "items": lambda: d.all_gather([1], x),
        "types": lambda: d.all_gather([x.long()], x),
        "complex": lambda: d.all_reduce(x + 1j, d.ReduceOp.MAX),
        "twice": lambda: d.broadcast(x, 0, group_src=0),
        "none": lambda: d.broadcast(x),
        "gather": lambda: d.gather(x, None, 0),
        "scatter": lambda: d.scatter_object_list([], [1], 0),
        "self": lambda: d.send(x, 0),
        "batch": lambda: d.batch_isend_irecv([x]),
        "op": lambda: d.P2POp(d.send, x, 0),
        "splits": lambda: d.all_to_all_single(x, x, [1], [1]),
    }
    with pytest.raises(Exception) as error:
        calls[what]()
    return type(error.value).__name__, str(error.value).replace("lucid_gpu", "torch")


@pytest.mark.parametrize(
    ("what", "kind", "sentence"),
    [
        ("tensor", "TypeError", "Expected parameter `tensor` of type torch.Tensor"),
        ("list", "TypeError", "Expected parameter `tensor_list` of type List[torch.Tensor]"),
        ("items", "TypeError", "with elements of type [<class 'int'>]."),
        ("types", "ValueError", "Invalid usage of tensors with different dtypesFound torch."),
        ("complex", "ValueError", "all_reduce does not support RedOpType.MAX on complex tensors"),
        ("twice", "ValueError", "Can't specify both group_rank and global_rank"),
        ("none", "ValueError", "Must specify global_rank or group_rank"),
        ("gather", "ValueError", "Argument ``gather_list`` must be specified on destination rank."),
        ("scatter", "ValueError", "scatter_object_output_list to be a list of size at least 1."),
        ("self", "ValueError", "destination rank should not be the same as the rank of the cur"),
        ("batch", "ValueError", "Each op is expected to to be of type ``torch.distributed.P2POp``"),
        ("op", "ValueError", "Expected ``op`` to be of type ``torch.distributed.isend`` or"),
        ("splits", "RuntimeError", "Split sizes doesn't match total dim 0 size"),
    ],
)
def test_errors_say_what_pytorch_says(
    what: str, kind: str, sentence: str, alone: Any, tmp_path: Path
) -> None:
    ours = raised(lucid_gpu, what)
    assert ours[0] == kind and sentence in ours[1]
    try:
        import torch
    except ImportError:
        return
    torch.distributed.init_process_group("gloo", f"file://{tmp_path}/torch", None, 1, 0)
    try:
        theirs = raised(torch, what)
    finally:
        torch.distributed.destroy_process_group()
    assert theirs[0] == kind and sentence in theirs[1]


def test_what_cannot_be_written_is_refused_first(alone: Any) -> None:
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
        dist.all_reduce(lucid_gpu.zeros(3).expand(2, 3))
    with pytest.raises(RuntimeError, match="ReduceOp.AVG divides and takes floating point"):
        dist.all_reduce(lucid_gpu.zeros(3, dtype=lucid_gpu.int64), dist.ReduceOp.AVG)


def test_a_parameter_keeps_its_history(alone: Any) -> None:
    w = lucid_gpu.ones(3, requires_grad=True)
    y = (w * w).sum()
    dist.all_reduce(w)
    assert w.is_leaf and w._version == 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


# --- several ranks ------------------------------------------------------------------------------


def bits() -> None:
    """Ops on the bits of integers, which MPI alone has."""
    rank, size = dist.get_rank(), dist.get_world_size()
    for name, of in (("BAND", np.bitwise_and), ("BOR", np.bitwise_or), ("BXOR", np.bitwise_xor)):
        for kind in every_type.WHOLE:
            values = np.array([[12 + r, 7 * r, 5] for r in range(size)])
            x = lucid_gpu.tensor(values[rank]).to(kind)
            dist.all_reduce(x, dist.ReduceOp[name])
            assert x.tolist() == of.reduce(values).tolist()


def several() -> None:
    """What each process does; sums and places are asserted."""
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    t = lucid_gpu
    kept = everything(t)
    total = sum(10 * r for r in range(size))
    assert kept[0] == [[float(size * (i + 3 * j) + total) for j in range(2)] for i in range(3)]
    x = t.full((4,), float(rank), dtype=t.bfloat16)
    dist.all_reduce(x, dist.ReduceOp.AVG)
    assert x.tolist() == [(size - 1) / 2] * 4
    following, before = (rank + 1) % size, (rank - 1) % size
    got = t.zeros(2, 2).t()
    works = dist.batch_isend_irecv(
        [
            dist.P2POp(dist.isend, t.full((2, 2), float(rank)), following),
            dist.P2POp(dist.irecv, got, before),
        ]
    )
    for work in works:
        work.wait()
    assert got.tolist() == [[float(before)] * 2] * 2
    if rank == 0:
        dist.send(t.arange(3), 1, tag=5)
        dist.send_object_list([{"a": 1}, 2], 1)
    elif rank == 1:
        row = t.zeros(3, dtype=t.int64)
        assert dist.recv(row, tag=5) == 0 and row.tolist() == [0, 1, 2]
        objects = [None, None]
        assert dist.recv_object_list(objects, 0) == 0 and objects == [{"a": 1}, 2]
    large, count = t.full((5_000_000,), 3.0), t.tensor([4])
    for source in (0, None):  # a message of another type comes while a large one is on its way
        if rank == 0:
            for work in [dist.isend(large, 1), dist.isend(count, 1)]:
                work.wait()
        elif rank == 1:
            got, number = t.zeros(5_000_000), t.tensor([0])
            dist.recv(got, source)
            dist.recv(number, source)
            assert (got == 3).all() and number.item() == 4
    memory = np.full(3, 1.0 + rank)
    shared = t.from_numpy(memory)
    before = shared * 2
    dist.all_reduce(shared)
    assert memory.tolist() == [size * (size + 1) / 2] * 3  # in the array's own memory
    assert before.tolist() == [2.0 + 2 * rank] * 3  # who read it keeps what was there
    whole = t.full((size, 2), float(rank))
    dist.all_gather_into_tensor(whole, whole[rank])
    assert whole.tolist() == [[float(r)] * 2 for r in range(size)]
    memory.flags.writeable = False
    dist.broadcast(t.from_numpy(memory) if rank == 0 else t.zeros(3, dtype=t.float64), 0)
    last = dist.new_group([size - 1])
    if rank == size - 1:
        y = t.full((2,), 7.0)
        dist.all_reduce(y, group=last)
        assert y.tolist() == [7.0, 7.0] and dist.get_rank(last) == 0
    if rank == 0:
        with pytest.raises(RuntimeError, match="failed to pass monitoredBarrier in 200 ms"):
            dist.monitored_barrier(timeout=timedelta(milliseconds=200))
    x = t.zeros(2)
    if rank == 0:
        with pytest.raises(RuntimeError, match="timed out"):
            dist.irecv(x, 1, tag=3).wait(timedelta(milliseconds=200))
    dist.barrier()
    dist.monitored_barrier()  # what failed takes no message of what comes later
    if rank == 1:
        dist.send(t.ones(2), 0, tag=3)
    elif rank == 0:
        y = t.zeros(2)
        dist.recv(y, 1, tag=3)
        assert y.tolist() == [1, 1] and x.tolist() == [0, 0]
    every_type.reductions("cpu")
    every_type.moves("cpu")
    bits()
    sequences.run(range(3))
    dist.barrier()
    dist.destroy_process_group()


@mpi
@pytest.mark.parametrize("size", slow_but([2, 3, 4], 3))
def test_several_ranks(size: int) -> None:
    run([str(MPIEXEC), "-n", str(size), sys.executable, __file__])


if __name__ == "__main__":
    several()
