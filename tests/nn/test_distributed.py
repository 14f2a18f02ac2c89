"""`DistributedDataParallel`: gradients of one rank, and the big batch's on several."""

from __future__ import annotations

import copy
import random
import sys
from pathlib import Path
from typing import Any

import pytest

import lucid_gpu as t
import lucid_gpu.distributed as dist
from lucid_gpu import nn
from lucid_gpu.nn.parallel import DistributedDataParallel
from lucid_gpu.nn.parallel.distributed import _cut
from tests.distributed.processes import MPIEXEC, mpi, run
from tests.oracle import torch_module


@pytest.fixture
def alone(tmp_path: Path) -> Any:
    dist.init_process_group("nccl", f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def model() -> Any:
    return nn.Sequential(nn.Linear(3, 400), nn.BatchNorm1d(400), nn.Tanh(), nn.Linear(400, 2))


class Branches(nn.Module):
    """Uses one of its two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.never = nn.Linear(2, 1), nn.Linear(2, 1), nn.Linear(2, 1)

    def forward(self, x: Any, which: str) -> Any:
        return {"y": getattr(self, which)(x)}


def gradients(module: Any) -> list[Any]:
    return [None if p.grad is None else p.grad.clone() for p in module.parameters()]


def test_one_rank_has_its_own_gradients(alone: Any) -> None:
    plain, x = model(), t.randn(8, 3)
    plain(x).square().sum().backward()
    expected = gradients(plain)
    plain.zero_grad()
    wrapped = DistributedDataParallel(plain)
    assert next(iter(wrapped.state_dict())) == "module.0.weight"
    with wrapped.no_sync():
        wrapped(x).square().sum().backward()
    wrapped(x).square().sum().backward()
    for got, one in zip(gradients(plain), expected):
        assert t.allclose(got, 2 * one, rtol=1e-4, atol=1e-4)


def test_unused_parameters_are_named(alone: Any) -> None:
    wrapped, x = DistributedDataParallel(Branches()), t.ones(1, 2)
    wrapped(x, "a")["y"].sum().backward()
    with pytest.raises(RuntimeError, match=r"(?s)Expected to have finished reduction.*b\.weight"):
        wrapped(x, "a")
    wrapped = DistributedDataParallel(Branches(), find_unused_parameters=True)
    for which in ("a", "b"):
        wrapped(x, which)["y"].sum().backward()
    assert wrapped.module.a.weight.grad.tolist() == [[1.0, 1.0]]
    assert wrapped.module.never.weight.grad is None


def test_what_is_refused(alone: Any) -> None:
    with pytest.raises(RuntimeError, match="doesn't have any parameter that requires a gradient"):
        DistributedDataParallel(nn.ReLU())
    with pytest.raises(ValueError, match="device_ids can only be None or contain a single element"):
        DistributedDataParallel(nn.Linear(1, 1), device_ids=[0, 1])


def test_a_copy_reduces_its_own_gradients(alone: Any) -> None:
    wrapped = DistributedDataParallel(nn.Linear(2, 1))
    other = copy.deepcopy(wrapped)
    other(t.ones(1, 2)).sum().backward()
    assert other.module.weight.grad.tolist() == [[1.0, 1.0]]
    assert wrapped.module.weight.grad is None
    wrapped.process_group = dist.new_group([0])
    with pytest.raises(RuntimeError, match="DDP Pickling/Unpickling are only supported when"):
        copy.deepcopy(wrapped)


def test_buckets_are_torch_s() -> None:
    torch = torch_module()
    draw = random.Random(0)
    for _ in range(50):
        sizes = [draw.choice((1, 300, 5000, 40000, 300000)) for _ in range(draw.randint(1, 12))]
        cap = draw.choice((1000, 100000, 2 << 20))
        parameters = [nn.Parameter(t.zeros(n)) for n in sizes]
        found = _cut(parameters, cap, range(len(sizes))[::-1])
        tensors = [torch.zeros(n) for n in reversed(sizes)]  # as backward comes to them
        limits = [min(1 << 20, cap), cap]
        assign = torch.distributed._compute_bucket_assignment_by_size
        expected, _ = assign(tensors, limits, [False] * len(sizes))
        assert found == [[len(sizes) - 1 - i for i in bucket] for bucket in expected]


def test_without_a_group() -> None:
    with pytest.raises(ValueError, match="Default process group has not been initialized"):
        DistributedDataParallel(nn.Linear(1, 1))


def several() -> None:
    """What each process does."""
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    t.manual_seed(rank)
    net = nn.Sequential(nn.Linear(3, 400), nn.Tanh(), nn.Linear(400, 700), nn.Linear(700, 2))
    wrapped = DistributedDataParallel(net, bucket_cap_mb=1)
    assert len(wrapped._buckets) > 1
    firsts: list[Any] = [None] * size
    dist.all_gather_object(firsts, [p.tolist() for p in net.parameters()])
    assert firsts[0] == firsts[rank]
    t.manual_seed(100)
    x = t.randn(4 * size, 3)
    wrapped(x[4 * rank : 4 * rank + 4]).square().mean().backward()
    got = gradients(net)
    net.zero_grad()
    net(x).square().mean().backward()
    for one, whole in zip(got, gradients(net)):
        assert t.allclose(one, whole, rtol=1e-4, atol=1e-6)
    dist.all_gather_object(firsts, [g.tolist() for g in got])
    assert firsts[0] == firsts[rank]  # bit for bit
    wrapped = DistributedDataParallel(Branches(), find_unused_parameters=True)
    wrapped(t.ones(1, 2), "a" if rank else "b")["y"].sum().backward()
    module = wrapped.module
    assert module.b.weight.grad.tolist() == [[1 / size] * 2]
    assert t.allclose(module.a.weight.grad, t.full((1, 2), (size - 1) / size))
    assert module.never.weight.grad is None
    norm = DistributedDataParallel(nn.BatchNorm1d(2))
    norm(t.full((4, 2), float(rank)) * t.arange(4)[:, None])
    norm(t.ones(4, 2)).sum().backward()
    with pytest.raises(RuntimeError, match="DDP expects same model across all ranks"):
        DistributedDataParallel(nn.Linear(rank + 1, 1))
    dist.destroy_process_group()


@mpi
def test_two_ranks_have_the_big_batch_s_gradients() -> None:
    run([str(MPIEXEC), "-n", "2", sys.executable, __file__])


if __name__ == "__main__":
    several()
