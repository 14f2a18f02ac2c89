"""Hooks, uneven inputs, sharded optimizers, SyncBatchNorm and meshes, on real ranks."""

from __future__ import annotations

import copy
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lucid_gpu as t
import lucid_gpu.distributed as dist
from lucid_gpu import nn
from lucid_gpu.distributed.algorithms.ddp_comm_hooks import default_hooks
from lucid_gpu.distributed.algorithms.join import Join
from lucid_gpu.nn.parallel import DistributedDataParallel
from lucid_gpu.utils.checkpoint import checkpoint
from tests.distributed.processes import MPIEXEC, mpi, run
from tests.slow import slow_but


def net() -> Any:
    t.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 40), nn.Tanh(), nn.Linear(40, 2))


def gradients(module: Any) -> list[Any]:
    return [p.grad.clone() for p in module.parameters()]


def same_everywhere(values: Any) -> None:
    """Bit for bit."""
    every: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(every, values)
    assert all(one == every[0] for one in every)


def hooks() -> None:
    rank = dist.get_rank()
    t.manual_seed(rank)
    x = t.randn(5, 3)

    def trained(hook: Any) -> list[Any]:
        wrapped = DistributedDataParallel(net(), bucket_cap_mb=0.0001)
        if hook is not None:
            wrapped.register_comm_hook(None, hook)
        wrapped(x).square().sum().backward()
        return gradients(wrapped)

    expected = trained(None)
    for hook, tolerance in (
        (default_hooks.allreduce_hook, 0.0),
        (default_hooks.fp16_compress_hook, 1e-2),
        (default_hooks.bf16_compress_hook, 1e-1),
        (default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook), 1e-2),
        (default_hooks.bf16_compress_wrapper(default_hooks.allreduce_hook), 1e-1),
    ):
        for got, one in zip(trained(hook), expected):
            assert got.dtype == t.float32 and t.allclose(got, one, rtol=tolerance, atol=tolerance)
            same_everywhere(got.tolist())
    seen = []

    def counting(state: Any, bucket: Any) -> Any:
        shapes = [g.shape for g in bucket.gradients()]
        assert shapes == [p.shape for p in bucket.parameters()]
        seen.append((bucket.index(), bucket.is_last()))
        future = t.futures.Future()
        future.set_result(bucket.buffer() * 0 + rank)
        return future

    assert all((g == rank).all() for g in trained(counting))
    assert [i for i, _ in seen] == list(range(len(seen))) and seen[-1][1] and len(seen) > 1
    wrapped = DistributedDataParallel(net())
    wrapped.register_comm_hook(None, counting)
    with pytest.raises(RuntimeError, match="can only be called once"):
        wrapped.register_comm_hook(None, counting)


def views() -> None:
    """Gradients that are views of their bucket: the same bits, and no memory of their own."""
    rank = dist.get_rank()

    def trained(as_view: bool, to_none: bool, hook: Any = None) -> tuple[list[Any], Any]:
        t.manual_seed(10 + rank)
        wrapped = DistributedDataParallel(
            net(), bucket_cap_mb=0.0003, gradient_as_bucket_view=as_view
        )
        if hook is not None:
            wrapped.register_comm_hook(None, hook)
        optimizer = t.optim.SGD(wrapped.parameters(), lr=0.1, momentum=0.9)
        found = []
        for step in range(4):
            x = t.randn(5, 3)
            if step == 2:
                with wrapped.no_sync():
                    wrapped(x).square().sum().backward()
            wrapped(x).square().sum().backward()
            found.append([g.tolist() for g in gradients(wrapped)])
            optimizer.step()
            optimizer.zero_grad(set_to_none=to_none)
        return [*found, [p.tolist() for p in wrapped.parameters()]], wrapped

    for to_none in (True, False):
        for hook in (None, default_hooks.bf16_compress_hook):
            expected, _ = trained(False, to_none, hook)
            got, wrapped = trained(True, to_none, hook)
            assert got == expected
            same_everywhere(got[-1])
    flats = wrapped._flats.values()
    grads = [p.grad for p in wrapped.parameters()]
    assert len(flats) > 1 and sum(f.numel() for f in flats) == sum(g.numel() for g in grads)
    assert all(any(np.shares_memory(g.array, f.array) for f in flats) for g in grads)
    arrays = [g.array.ctypes.data for g in grads]
    wrapped(t.randn(5, 3)).sum().backward()
    assert [p.grad.array.ctypes.data for p in wrapped.parameters()] == arrays
    wrapped = DistributedDataParallel(
        Skips(), find_unused_parameters=True, gradient_as_bucket_view=True
    )
    for _ in range(2):
        wrapped(t.ones(1, 2), True).sum().backward()
        assert wrapped.module.b.weight.grad is None
        assert t.equal(wrapped.module.a.weight.grad, t.ones(1, 2))
        wrapped.zero_grad()
    wrapped = DistributedDataParallel(nn.Linear(1, 1, bias=False), gradient_as_bucket_view=True)
    with wrapped.join(divide_by_initial_world_size=False):
        for _ in range(rank + 1):
            wrapped.zero_grad()
            wrapped(t.ones(1, 1)).sum().backward()
            assert wrapped.module.weight.grad.item() == 1.0


class Skips(nn.Module):
    """Uses its parameters on some ranks only."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(2, 1), nn.Linear(2, 1)

    def forward(self, x: Any, used: bool) -> Any:
        return self.a(x) if used else x.sum(1, keepdim=True)


def unused() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    wrapped = DistributedDataParallel(Skips(), find_unused_parameters=True)
    for needs in (True, False):
        wrapped.zero_grad()
        x = t.ones(1, 2, requires_grad=needs)
        loss = wrapped(x, rank > 0).sum()
        if loss.requires_grad:
            loss.backward()
        expected = t.full((1, 2), (size - 1) / size)
        assert t.allclose(wrapped.module.a.weight.grad, expected)
        assert wrapped.module.b.weight.grad is None


def uneven() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    for divide in (True, False):
        wrapped = DistributedDataParallel(nn.Linear(1, 1, bias=False))
        wrapped.module.weight.data.fill_(1.0)
        optimizer = t.optim.SGD(wrapped.parameters(), lr=1.0)
        with wrapped.join(divide_by_initial_world_size=divide):
            for _ in range(rank + 1):
                optimizer.zero_grad()
                wrapped(t.ones(1, 1)).sum().backward()
                optimizer.step()
        steps = [(size - i) / (size if divide else size - i) for i in range(size)]
        assert abs(wrapped.module.weight.item() - (1 - sum(steps))) < 1e-6
    wrapped = DistributedDataParallel(nn.BatchNorm1d(2))
    with wrapped.join():
        for _ in range(rank + 1):
            wrapped(t.randn(4, 2)).sum().backward()
    same_everywhere([b.tolist() for b in wrapped.buffers()])
    with (
        pytest.raises(RuntimeError, match="exhausted"),
        wrapped.join(throw_on_early_termination=True),
    ):
        for _ in range(rank + 1):
            wrapped(t.randn(4, 2)).sum().backward()
    wrapped(t.randn(4, 2)).sum().backward()  # as before


def synced() -> None:
    """Batches of unequal size, beside one process that has all of them."""
    rank, size = dist.get_rank(), dist.get_world_size()
    t.manual_seed(7)
    for shape in ((3,), (3, 5)):
        whole, scale = t.randn(3 * size + size * (size - 1) // 2, *shape), t.randn(*shape)
        start = sum(3 + r for r in range(rank))
        plain = nn.BatchNorm1d(3).train()
        plain.weight.data.copy_(t.tensor([0.5, 2.0, -1.0]))
        mine: Any = nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(copy.deepcopy(plain)))
        assert type(mine[0]) is nn.SyncBatchNorm
        x = whole.clone().requires_grad_()
        part = whole[start : start + 3 + rank].clone().requires_grad_()
        for _ in range(2):
            loss = (plain(x).tanh() * scale).sum()
            y = mine(part)
            own = (y.tanh() * scale).sum()
        loss.backward()
        own.backward()
        assert t.allclose(part.grad, x.grad[start : start + 3 + rank], rtol=1e-4, atol=1e-6)
        for name in ("weight", "bias"):
            total = getattr(mine[0], name).grad
            dist.all_reduce(total)
            assert t.allclose(total, getattr(plain, name).grad, rtol=1e-4, atol=1e-5)
        for got, expected in zip(mine.buffers(), plain.buffers()):
            assert t.allclose(got.double(), expected.double(), rtol=1e-5, atol=1e-6)
        assert t.allclose(mine.eval()(part), plain.eval()(x)[start : start + 3 + rank], atol=1e-5)
    half = nn.SyncBatchNorm(2).train()(t.randn(4, 2).bfloat16())
    assert half.dtype == t.bfloat16


def sharded() -> None:
    """ZeRO beside one optimizer that has all states: bit for bit."""
    from lucid_gpu.distributed.optim import ZeroRedundancyOptimizer

    rank, size = dist.get_rank(), dist.get_world_size()
    t.manual_seed(rank)
    plain, spread = DistributedDataParallel(net()), DistributedDataParallel(net())

    def grouped(model: Any) -> Any:
        one, *rest = model.parameters()
        return [{"params": [one], "lr": 0.02}, {"params": rest}]

    whole = t.optim.AdamW(grouped(plain), lr=0.1)
    zero = ZeroRedundancyOptimizer(grouped(spread), t.optim.AdamW, lr=0.1)
    schedules = [t.optim.lr_scheduler.StepLR(o, 2, 0.5) for o in (whole, zero)]

    def steps(count: int) -> None:
        for _ in range(count):
            x = t.randn(4, 3)
            for model, optimizer, schedule in zip((plain, spread), (whole, zero), schedules):
                optimizer.zero_grad()
                model(x).square().sum().backward()
                optimizer.step()
                schedule.step()

    steps(3)
    states = sum(v.numel() for s in zero.optim.state.values() for v in s.values() if t.is_tensor(v))
    assert states <= 2 * 202 / size + 2 * 120
    zero.consolidate_state_dict(to=size - 1)
    if rank < size - 1:
        with pytest.raises(RuntimeError, match="Optimizer state has not been consolidated"):
            zero.state_dict()
    saved = [zero.state_dict()] if rank == size - 1 else [None]
    dist.broadcast_object_list(saved, size - 1)
    assert saved[0] is not None
    expected = whole.state_dict()
    assert saved[0]["param_groups"] == expected["param_groups"]
    assert saved[0]["state"].keys() == expected["state"].keys()
    for n, state in expected["state"].items():
        assert (saved[0]["state"][n]["exp_avg"] == state["exp_avg"]).all()
    zero = ZeroRedundancyOptimizer(grouped(spread), t.optim.AdamW, lr=9.0)
    zero.load_state_dict(saved[0])
    schedules[1].optimizer = zero
    steps(2)
    for p, q in zip(plain.parameters(), spread.parameters()):
        assert (p == q).all()
    model = DistributedDataParallel(net())
    zero = ZeroRedundancyOptimizer(model.parameters(), t.optim.SGD, lr=0.1)
    with Join([model, zero]):
        for _ in range(rank + 1):
            zero.zero_grad()
            model(t.randn(4, 3)).sum().backward()
            zero.step()
    same_everywhere([p.tolist() for p in model.parameters()])


def meshes() -> None:
    size, rank = dist.get_world_size(), dist.get_rank()
    line = dist.init_device_mesh("cpu", (size,))
    x = t.ones(1)
    dist.all_reduce(x, group=line.get_group())
    assert (
        x.item() == size and line.get_local_rank() == rank and line.mesh.tolist() == [*range(size)]
    )
    mesh = dist.init_device_mesh("cpu", (1, size), mesh_dim_names=("outer", "inner"))
    assert mesh.shape == (1, size) and mesh.ndim == 2 and mesh.size(1) == size
    assert mesh.get_coordinate() == [0, rank] and mesh.get_local_rank("inner") == rank
    assert dist.get_process_group_ranks(mesh.get_group("outer")) == [rank]
    assert dist.get_process_group_ranks(mesh["inner"].get_group()) == list(range(size))
    with pytest.raises(RuntimeError, match="needs to be specified when"):
        mesh.get_group()
    with pytest.raises(RuntimeError, match="Mesh should not be bigger than default world size"):
        dist.init_device_mesh("cpu", (size + 1,))


def layouts() -> None:
    """Inputs and outputs that are not row-major, of scatter and reduce_scatter."""
    rank, size = dist.get_rank(), dist.get_world_size()
    parts = [(t.arange(6.0) + 10 * i).reshape(2, 3).t() for i in range(size)]
    out = t.zeros(2, 3).t()
    dist.scatter(out, parts if rank == 0 else None, 0)
    assert out.tolist() == parts[rank].tolist()
    dist.reduce_scatter(out, parts)
    assert out.tolist() == (size * parts[rank]).tolist()
    whole = t.arange(6.0 * size).reshape(2, 3 * size).t()
    dist.reduce_scatter_tensor(out, whole)
    assert out.tolist() == (size * whole[3 * rank : 3 * rank + 3]).tolist()
    wide = t.zeros(3, 4)[:, ::2]
    dist.reduce_scatter_tensor(wide, whole, dist.ReduceOp.AVG)
    assert wide.tolist() == whole[3 * rank : 3 * rank + 3].tolist()


def chained() -> None:
    """A hook whose callbacks make calls: in one order on all ranks, whichever rank is slow."""
    last = dist.get_rank() == dist.get_world_size() - 1
    t.manual_seed(dist.get_rank())
    x = t.randn(5, 3)

    def trained(hook: Any) -> list[Any]:
        wrapped = DistributedDataParallel(net(), bucket_cap_mb=0.0001)
        if hook is not None:
            wrapped.register_comm_hook(None, hook)
        wrapped(x).square().sum().backward()
        return gradients(wrapped)

    def twice(state: Any, bucket: Any) -> Any:
        time.sleep(0.05 * last)  # what travels meanwhile has come when this rank goes on
        flat = bucket.buffer()
        whole = dist.all_reduce(flat, dist.ReduceOp.AVG, async_op=True).get_future()

        def again(future: Any) -> Any:
            mean = future.value()[0]
            dist.all_reduce(mean, dist.ReduceOp.MAX)  # of equal values
            return mean

        return whole.then(again)

    for got, one in zip(trained(twice), trained(None), strict=True):
        assert got.tolist() == one.tolist()


class Again(nn.Module):
    """Defined in another order than used; one layer under two checkpoints, one not used."""

    def __init__(self) -> None:
        super().__init__()
        self.last, self.norm = nn.Linear(4, 2), nn.BatchNorm1d(4)
        self.spare, self.twice, self.first = nn.Linear(2, 2), nn.Linear(4, 4), nn.Linear(3, 4)

    def forward(self, x: Any) -> Any:
        x = self.first(x)
        for _ in range(2):
            x = checkpoint(lambda y: self.twice(y).tanh(), x, use_reentrant=True)
        return self.last(self.norm(x))


def graphs() -> None:
    """Static graphs and buckets in the order gradients come: those of all ranks' models."""
    rank, size = dist.get_rank(), dist.get_world_size()
    for as_view in (False, True):
        t.manual_seed(3)
        plain = Again()
        kept = {k: v.clone() for k, v in plain.state_dict().items()}
        wrapped = DistributedDataParallel(
            copy.deepcopy(plain), None, bucket_cap_mb=1e-5, gradient_as_bucket_view=as_view
        )
        wrapped._set_static_graph()
        cut = wrapped._buckets
        for step in range(3):
            sums = [t.zeros_like(p) for p in plain.parameters()]
            for r in range(size):
                t.manual_seed(100 * step + r)
                x = t.randn(5, 3)
                if r == rank:
                    mine = x.requires_grad_()
                plain.load_state_dict(kept)  # buffers are rank 0's on all
                plain.zero_grad()
                plain(x).square().sum().backward()
                if r == 0:
                    after = {k: v.clone() for k, v in plain.state_dict().items()}
                for total, p in zip(sums, plain.parameters()):
                    total += 0 if p.grad is None else p.grad / size
            kept = after
            wrapped.zero_grad()
            wrapped(mine).square().sum().backward()
            for (name, p), total in zip(wrapped.module.named_parameters(), sums, strict=True):
                if name.startswith("spare"):
                    assert p.grad is None
                else:
                    assert t.allclose(p.grad, total, rtol=1e-4, atol=1e-6), (name, step)
            same_everywhere([p.grad.tolist() for p in wrapped.parameters() if p.grad is not None])
        place = {id(p): n for n, p in wrapped.module.named_parameters()}
        order = [place[id(wrapped._trained[i])] for b in wrapped._buckets for i in b]
        assert order.index("last.weight") < order.index("first.weight") and cut != wrapped._buckets
        wrapped.eval()
        with t.no_grad():
            wrapped(mine)
        same_everywhere([b.tolist() for b in wrapped.buffers()])  # rank 0's, as in PyTorch


PARTS = {
    f.__name__: f
    for f in (hooks, chained, views, unused, uneven, synced, sharded, meshes, layouts, graphs)
}


def several() -> None:
    dist.init_process_group("gloo")
    for part in PARTS.values():
        part()
    dist.destroy_process_group()


@mpi
@pytest.mark.parametrize("size", slow_but([2, 3, 4], 2))
def test_several_ranks(size: int) -> None:
    run([str(MPIEXEC), "-n", str(size), sys.executable, __file__])


@pytest.mark.parametrize("part", PARTS)
def test_one_rank(part: str, tmp_path: Path) -> None:
    dist.init_process_group("gloo", f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        if part not in ("uneven", "unused"):  # they need a rank that differs
            PARTS[part]()
    finally:
        dist.destroy_process_group()


def test_a_context_needs_members() -> None:
    with pytest.raises(ValueError, match="requires at least one joinable"):
        Join([])


if __name__ == "__main__":
    several()
