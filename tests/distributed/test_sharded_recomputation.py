"""Code of a sharded block that backward calls again: checkpoints, and Functions like RevNet's.

Random nets on real ranks, each beside the same net in one process without sharding.
"""

from __future__ import annotations

import itertools
import random
import sys
from pathlib import Path
from typing import Any

import pytest

import lucid_gpu as t
import lucid_gpu.distributed as dist
from lucid_gpu import nn
from lucid_gpu.distributed.fsdp import FSDPModule, FullyShardedDataParallel, fully_shard
from lucid_gpu.distributed.fsdp.wrap import ModuleWrapPolicy
from lucid_gpu.utils.checkpoint import checkpoint, checkpoint_sequential
from tests.distributed.processes import MPIEXEC, mpi, on_this_rank, one_rank, run
from tests.distributed.test_fully_sharded import close
from tests.slow import slow_but

WIDTH = 5


class Again(t.autograd.Function):
    """Keeps its input, and computes what it needs again, as reversible nets do."""

    @staticmethod
    def forward(ctx: Any, function: Any, x: Any) -> Any:
        ctx.function = function
        ctx.save_for_backward(x)
        with t.no_grad():
            return function(x)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        x = ctx.saved_tensors[0].detach().requires_grad_()
        with t.enable_grad():
            y = ctx.function(x)
        t.autograd.backward(y, gradient)
        return None, x.grad


def plainly(function: Any, x: Any) -> Any:
    return function(x)


def renewed(function: Any, x: Any) -> Any:
    return checkpoint(function, x, use_reentrant=False)


def reentrant(function: Any, x: Any) -> Any:
    return checkpoint(function, x, use_reentrant=True)


def kept_random(function: Any, x: Any) -> Any:
    return checkpoint(
        lambda x: nn.functional.dropout(function(x), 0.0), x, use_reentrant=False, early_stop=False
    )


WAYS = (plainly, renewed, reentrant, kept_random, Again.apply)


class Block(nn.Module):
    """Parameters of its own and of layers, used in and outside of what is computed again."""

    def __init__(self, ways: Any, inner: Any) -> None:
        super().__init__()
        self.scale = nn.Parameter(t.linspace(0.5, 1.5, WIDTH))
        self.layer, self.other = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.ways, self.inner = ways, inner

    def first(self, x: Any) -> Any:
        x = t.tanh(x * self.scale) ** 2
        return self.ways[1](self.layer, x) * self.scale[1]

    def second(self, x: Any) -> Any:
        return x + t.sin(x @ self.other.weight.t())

    def forward(self, x: Any) -> Any:
        x = self.ways[0](self.first, x)
        if self.inner is not None:
            x = self.ways[2](self.inner, x)
        return self.ways[2](self.second, x) * self.scale


class Net(nn.Module):
    def __init__(self, seed: int) -> None:
        super().__init__()
        draw = random.Random(seed)
        ways = [draw.choices(WAYS, k=3) for _ in range(4)]
        self.blocks = nn.ModuleList(
            [Block(ways[0], None), Block(ways[1], Block(ways[2], None)), Block(ways[3], None)]
        )
        self.head = nn.Parameter(t.linspace(-1, 1, WIDTH))
        self.sequential = draw.random() < 0.3
        for parameter in self.parameters():
            if draw.random() < 0.15:
                parameter.requires_grad_(False)

    def forward(self, x: Any) -> Any:
        if self.sequential:
            return checkpoint_sequential([*self.blocks], 2, x, use_reentrant=False) * self.head
        for block in self.blocks:
            x = block(x)
        return renewed(lambda x: x * self.head, x)


def made(seed: int) -> Any:
    t.manual_seed(seed)
    return Net(seed)


def sharded(seed: int, reshards: Any) -> Any:
    net = made(seed)
    for block in (net.blocks[1].inner, *net.blocks):
        fully_shard(block, reshard_after_forward=reshards)
    return fully_shard(net, reshard_after_forward=reshards)


def wrapped(seed: int, reshards: Any) -> Any:
    return FullyShardedDataParallel(made(seed), auto_wrap_policy=ModuleWrapPolicy({Block}))


def whole(seed: int, reshards: Any) -> Any:
    """All parameters in one group: blocks are not sharded apart."""
    return fully_shard(made(seed), reshard_after_forward=reshards)


def gradients(model: Any, x: Any, synced: Any = None) -> list[Any]:
    for i in range(2):  # they add up
        if synced is not None:
            synced(i == 1)
        model(x.clone().requires_grad_()).square().mean().backward()
    grads = [p.grad for p in model.parameters()]
    return [None if g is None else getattr(g, "full_tensor", g.detach)() for g in grads]


def as_without_checkpoints() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    for seed in range(2 * size):
        t.manual_seed(seed + 100)
        x = t.randn(2 * size, WIDTH)
        expected = gradients(made(seed), x)
        kinds = (sharded, whole, wrapped)
        for kind, reshards in itertools.product(kinds, (None, True, False)):
            if kind is wrapped and reshards is not None:
                continue
            model = kind(seed, reshards)
            found = gradients(model, x[2 * rank : 2 * rank + 2])
            assert [g is None for g in found] == [g is None for g in expected]
            groups = {m._fsdp_group for m in model.modules() if isinstance(m, FSDPModule)}
            assert all(g._values is None for g in groups)
            close([g for g in found if g is not None], [g for g in expected if g is not None])
        model = sharded(seed, True)
        found = gradients(model, x[2 * rank : 2 * rank + 2], model.set_requires_gradient_sync)
        close([g for g in found if g is not None], [g for g in expected if g is not None])


def the_least_example() -> None:
    class Least(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.s = nn.Parameter(t.tensor([0.5, 3.0]))

        def inner(self, x: Any) -> Any:
            return t.tanh(x * self.s) ** 2

        def forward(self, x: Any) -> Any:
            return checkpoint(self.inner, x, use_reentrant=False)

    model = fully_shard(Least())
    model(t.ones(3, 2)).sum().backward()
    close([model.s.grad.full_tensor()], [t.tensor([2.1806, 0.0589])], 1e-4)
    assert model._fsdp_group._values is None and model.s.sharding  # rows again


PARTS = {f.__name__: f for f in (the_least_example, as_without_checkpoints)}


@mpi
@pytest.mark.parametrize("size", slow_but([2, 3], 2))
def test_several_ranks(size: int) -> None:
    run([str(MPIEXEC), "-n", str(size), sys.executable, __file__])


@pytest.mark.parametrize("part", PARTS)
def test_one_rank(part: str, tmp_path: Path) -> None:
    with one_rank(tmp_path):
        PARTS[part]()


if __name__ == "__main__":
    on_this_rank(PARTS.values())
