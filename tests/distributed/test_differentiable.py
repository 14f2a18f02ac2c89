"""`distributed.nn`: gradients of collectives."""

from __future__ import annotations

import sys
from typing import Any

import pytest

import lucid_gpu
from lucid_gpu import distributed
from lucid_gpu.distributed import nn
from lucid_gpu.distributed.nn import functional
from tests.distributed.processes import MPIEXEC, mpi, run


def test_gradients_of_one_process() -> None:
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        x = lucid_gpu.tensor([1.0, 2.0], requires_grad=True)
        y = nn.all_reduce(x * 3)
        assert y.requires_grad and x.tolist() == [1.0, 2.0]
        (part,) = nn.all_gather(y**2)
        (first,) = lucid_gpu.autograd.grad(part.sum(), x, create_graph=True)
        assert first.tolist() == [18.0, 36.0]
        assert lucid_gpu.autograd.grad(first.sum(), x)[0].tolist() == [18.0, 18.0]
    finally:
        distributed.destroy_process_group()


def every_collective() -> None:
    """Each against what the ranks' numbers say, whose gradients are weighed by the rank."""
    size, rank = distributed.get_world_size(), distributed.get_rank()
    everyone = range(size)
    weight = float(rank + 1)
    total = float(sum(r + 1 for r in everyone))

    def leaf(*numbers: float) -> Any:
        return lucid_gpu.tensor(numbers, requires_grad=True)

    x = leaf(rank + 1.0, 2.0)
    y = functional.broadcast(x, src=1 % size)
    assert y.tolist() == [1 % size + 1.0, 2.0]
    (y * weight).sum().backward()
    assert x.grad.tolist() == ([total] * 2 if rank == 1 % size else [0.0] * 2)

    x = leaf(rank + 1.0)
    y = functional.reduce(x, dst=0)
    assert rank or y.item() == total
    (y * weight).sum().backward()
    assert x.grad.item() == 1  # rank 0's

    x = leaf(rank + 1.0)
    parts = functional.gather(x, dst=0)
    assert [p.item() for p in parts] == [(r + 1.0) * (rank == 0) for r in everyone]
    sum(p * (r + 2.0) for r, p in enumerate(parts)).backward()
    assert x.grad.item() == rank + 2

    xs = [leaf(10.0 * rank + r) for r in everyone]
    y = functional.scatter(xs, src=0)
    assert y.item() == rank
    (y * weight).backward()
    assert [t.grad.item() for t in xs] == [(r + 1.0) * (rank == 0) for r in everyone]

    xs = [leaf(rank + 1.0) for _ in everyone]
    y = functional.reduce_scatter(lucid_gpu.empty(1), xs)
    assert y.item() == total
    (y * weight).backward()
    assert [t.grad.item() for t in xs] == [r + 1.0 for r in everyone]

    xs = [leaf(10.0 * rank + r) for r in everyone]
    parts = functional.all_to_all([lucid_gpu.empty(1) for _ in everyone], xs)
    assert [p.item() for p in parts] == [10.0 * r + rank for r in everyone]
    sum(p * weight for p in parts).backward()
    assert [t.grad.item() for t in xs] == [r + 1.0 for r in everyone]

    x = leaf(*[10.0 * rank + r for r in everyone])
    y = functional.all_to_all_single(lucid_gpu.empty(size), x)
    assert y.tolist() == [10.0 * r + rank for r in everyone]
    (y * weight).sum().backward()
    assert x.grad.tolist() == [r + 1.0 for r in everyone]

    x, whole = leaf(rank + 1.0), lucid_gpu.empty(size)
    y = functional._all_gather_base(whole, x)
    assert y.tolist() == whole.tolist() == [r + 1.0 for r in everyone]
    (y * weight).sum().backward()
    assert x.grad.item() == total
    assert distributed._all_gather_base is distributed.all_gather_into_tensor


@mpi
@pytest.mark.parametrize("size", [2, 3])
def test_collectives_of_several_ranks(size: int) -> None:
    run([str(MPIEXEC), "-n", str(size), sys.executable, __file__])


if __name__ == "__main__":
    distributed.init_process_group("gloo")
    every_collective()
    distributed.destroy_process_group()
