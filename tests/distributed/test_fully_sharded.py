"""`fully_shard` on real ranks: training beside one process, what is kept, and what is refused."""

from __future__ import annotations

import copy
import sys
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lucid_gpu as t
import lucid_gpu.distributed as dist
from lucid_gpu import nn
from lucid_gpu.distributed import checkpoint as dcp
from lucid_gpu.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    fully_shard,
    register_fsdp_forward_method,
)
from lucid_gpu.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from lucid_gpu.distributed.tensor import DTensor, Shard, distribute_tensor
from lucid_gpu.serialization import CheckpointError
from lucid_gpu.utils.checkpoint import checkpoint
from tests.distributed.processes import MPIEXEC, mpi, on_this_rank, one_rank, run
from tests.slow import slow_but


def perceptron() -> Any:
    """Rows of 40, 5, 3 and 1: some ranks have fewer than others, or none."""
    layers = [nn.Linear(3, 40), nn.LayerNorm(40), nn.Tanh(), nn.Linear(40, 5), nn.GELU()]
    return nn.Sequential(*layers, nn.Linear(5, 3), nn.Tanh(), nn.Linear(3, 1))


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.norm, self.up = nn.LayerNorm(width), nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x: Any) -> Any:
        x = x + self.attention(x, x, x, need_weights=False)[0]
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Language(nn.Module):
    """A small transformer whose first and last weights are one parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.position = nn.Parameter(t.randn(1, 6, 8))
        self.blocks = nn.ModuleList([Block(8), Block(8)])
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, x: Any) -> Any:
        h = self.embedding(x) + self.position
        for block in self.blocks:
            h = block(h)
        return self.head(h)


def made(kind: Any) -> Any:
    t.manual_seed(0)
    return kind()


def sharded(kind: Any, **options: Any) -> Any:
    model = made(kind)
    inner = [
        m
        for m in model.modules()
        if isinstance(m, Block) or (kind is perceptron and [*m.parameters(False)])
    ]
    for module in inner:
        fully_shard(module, **options)
    return fully_shard(model, **options)


def batches(kind: Any, steps: int, size: int) -> list[Any]:
    t.manual_seed(3)
    if kind is Language:
        return [t.randint(0, 11, (2 * size, 6)) for _ in range(steps)]
    return [t.randn(2 * size, 3) for _ in range(steps)]


def train(model: Any, data: list[Any], rank: int | None, limit: float = 0.3) -> list[float]:
    """Steps over all of each batch, or over a rank's part; gives the norms of gradients."""
    # Gradients of attention's key biases are zero but for rounding, which Adam would make steps of.
    inner = getattr(model, "module", model)
    kind = t.optim.SGD if isinstance(inner, Language) else t.optim.AdamW
    optimizer = kind(model.parameters(), lr=0.02)
    norms = []
    for batch in data:
        part = batch if rank is None else batch[2 * rank : 2 * rank + 2]
        y = model(part)
        if isinstance(y, t.Tensor) and y.shape[-1] == 11:
            loss = nn.functional.cross_entropy(y.flatten(0, 1), part.flatten())
        else:
            loss = y.square().mean()
        optimizer.zero_grad()
        loss.backward()
        norms.append(nn.utils.clip_grad_norm_(model.parameters(), limit).item())
        optimizer.step()
    return norms


def whole(model: Any) -> list[Any]:
    return [p.full_tensor() for p in model.parameters()]


def close(one: Any, other: Any, tolerance: float = 1e-5) -> None:
    assert len(one) == len(other)
    for a, b in zip(one, other):
        assert t.allclose(a, b.detach(), rtol=tolerance, atol=tolerance), (a - b).abs().max()


def as_one_process_on_the_big_batch() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    for kind in (perceptron, Language):
        data = batches(kind, 4, size)
        one = made(kind)
        expected = train(one, data, None)
        for options in ({}, {"reshard_after_forward": True}, {"reshard_after_forward": False}):
            many = sharded(kind, **options)
            assert [n for n, _ in many.named_parameters()] == [n for n, _ in one.named_parameters()]
            norms = train(many, data, rank)
            close([t.tensor(norms)], [t.tensor(expected)])
            values = whole(many)
            close(values, list(one.parameters()))
            lists = [v.tolist() for v in values]
            every: list[Any] = [None] * size
            dist.all_gather_object(every, lists)
            assert all(other == lists for other in every)
            again = sharded(kind, **options)
            assert train(again, data, rank) == norms
            assert [v.tolist() for v in whole(again)] == lists


def rows() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    model = made(perceptron)
    before = [p.detach().clone() for p in model.parameters()]
    objects = list(model.parameters())
    assert fully_shard(model) is model and isinstance(model, FSDPModule)
    assert type(model).__name__ == "FSDPSequential" and isinstance(model, nn.Sequential)
    for p, old, same in zip(model.parameters(), before, objects):
        assert p is same and isinstance(p, DTensor) and isinstance(p, nn.Parameter)
        assert p.placements == (Shard(0),) and p.device_mesh.size() == size
        parts = t.chunk(old, size)
        mine = parts[rank].tolist() if rank < len(parts) else []
        assert p.to_local().tolist() == mine
        assert p.full_tensor().tolist() == p.tolist() == old.tolist()
        assert distribute_tensor(old, p.device_mesh, [Shard(0)]).to_local().tolist() == mine
        own = distribute_tensor(old, p.device_mesh, p.placements, src_data_rank=None)
        assert isinstance(own, DTensor) and own.full_tensor().tolist() == old.tolist()
    state = model.state_dict()
    assert all(isinstance(v, DTensor) for v in state.values())
    other = fully_shard(perceptron())
    other.load_state_dict({k: v.clone() for k, v in state.items()})
    other.load_state_dict(state, assign=True)
    close(whole(other), before, 0.0)
    sum(model(t.ones(1, 3))).sum().backward()
    assert all(isinstance(p.grad, DTensor) and p.grad.shape == p.shape for p in objects)


def memory() -> None:
    """Whole parameters live during forward, and from backward's first use to its end, only."""
    model = sharded(Language, reshard_after_forward=True)
    seen: list[Any] = []

    def look(module: Any, *_: Any) -> None:
        for p in module.parameters(recurse=False):
            seen.append((weakref.ref(p.array), p.shape))

    for module in model.modules():
        module.register_forward_hook(look)
    loss = model(batches(Language, 1, 1)[0]).float().square().mean()
    alive = [shape for array, shape in seen if array() is not None]
    assert seen and not alive, alive
    loss.backward()
    for module in model.modules():
        if isinstance(module, FSDPModule):
            assert module._fsdp_group._values is None
    kept = sum(p.rows.nbytes + p.grad.rows.nbytes for p in model.parameters())
    size = dist.get_world_size()
    plain = sum(2 * p.nbytes for p in made(Language).parameters())
    assert kept <= plain / size + 2 * 4 * sum(
        p[0].numel() if p.ndim > 1 else 1 for p in made(Language).parameters()
    )


def frozen() -> None:
    """Parameters without gradients are let go of, too, once backward has passed them."""
    rank, size = dist.get_rank(), dist.get_world_size()
    data = batches(perceptron, 1, size)[0]
    found = []
    for shards in (False, True):
        model = made(perceptron)
        model[3].requires_grad_(False)
        model[5].weight.requires_grad_(False)
        if shards:
            for layer in (model[0], model[3], model[5]):
                fully_shard(layer, reshard_after_forward=True)
            fully_shard(model)
        x = (data[2 * rank : 2 * rank + 2] if shards else data).requires_grad_()
        model(x).square().mean().backward()
        grads = [p.grad for p in model.parameters()]
        found.append([g.full_tensor() if isinstance(g, DTensor) else g for g in grads])
        if shards:
            groups = [m._fsdp_group for m in model.modules() if isinstance(m, FSDPModule)]
            assert len(groups) == 4 and all(g._values is None for g in groups)
    assert [g is None for g in found[0]] == [g is None for g in found[1]]
    close([g for g in found[1] if g is not None], [g for g in found[0] if g is not None])


def accumulated() -> None:
    """Without synchronization whole gradients add up on each rank."""
    rank, size = dist.get_rank(), dist.get_world_size()
    data = batches(perceptron, 3, size)
    one, many = made(perceptron), sharded(perceptron)
    for i, batch in enumerate(data):
        one(batch).square().mean().backward()
        many.set_requires_gradient_sync(i == 2)
        many(batch[2 * rank : 2 * rank + 2]).square().mean().backward()
        if i < 2:
            assert all(p.grad is None for p in many.parameters())
    close([p.grad.full_tensor() for p in many.parameters()], [p.grad for p in one.parameters()])
    many = sharded(perceptron)  # two forwards, then their backwards
    losses = [many(b[2 * rank : 2 * rank + 2]).square().mean() for b in data]
    for loss in losses[::-1]:
        loss.backward()
    close([p.grad.full_tensor() for p in many.parameters()], [p.grad for p in one.parameters()])
    for module in many.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(2.0 * size)
    many.zero_grad()
    sum(many(b[2 * rank : 2 * rank + 2]).square().mean() for b in data).backward()
    close([p.grad.full_tensor() * 2 for p in many.parameters()], [p.grad for p in one.parameters()])


class Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList([nn.Linear(4, 4, bias=False) for _ in range(5)])

    def forward(self, x: Any, which: list[int]) -> Any:
        return sum([self.experts[i](x) for i in which])


def unused() -> None:
    """Ranks use other parameters; one that no rank uses has no gradient."""
    rank, size = dist.get_rank(), dist.get_world_size()
    model = fully_shard(made(Experts))
    model(t.ones(1, 4), [rank, 3]).sum().backward()
    for i, expert in enumerate(model.experts):
        grad = expert.weight.grad
        if i == 4 or size <= i < 3:
            assert grad is None
        else:
            share = 1.0 if i == 3 else 1 / size
            assert t.allclose(grad.full_tensor(), t.full((4, 4), share))


def gathered_by_hand() -> None:
    class Generates(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x: Any) -> Any:
            return self.layer(x)

        def generate(self, x: Any) -> Any:
            return self.layer(x) * 2

    model, x = made(Generates), t.ones(2, 4)
    expected = model(x).detach()
    rows = fully_shard(model, reshard_after_forward=True).layer.weight
    for options in ({}, {"async_op": True}):
        handle = model.unshard(**options)
        if handle is not None:
            handle.wait()
        assert model.layer.weight.shape == (3, 4) and t.equal(model.layer(x), expected)
        model.layer(x).sum().backward()
        model.reshard()
        assert model.layer.weight is rows
        assert t.equal(model.layer.weight.grad.full_tensor(), t.full((3, 4), 2.0))
        model.zero_grad()
    for reshards in (False, True):  # in both cases modules see rows after a forward
        model.set_reshard_after_forward(reshards)
        model.unshard()
        assert t.equal(model(x), expected) and model.layer.weight is rows
        assert all(hasattr(p, "sharding") for p in model.parameters())
    register_fsdp_forward_method(model, "generate")
    assert t.equal(model.generate(x), 2 * expected)
    with pytest.raises(ValueError, match="does not have a method nothing"):
        register_fsdp_forward_method(model, "nothing")
    with t.no_grad():
        model.set_reshard_after_forward(False)
        assert t.equal(model(x), expected)
        model.layer.weight.add_(1)  # whole values that are kept are too old then
        assert t.allclose(model(x), expected + 4)
    with pytest.raises(RuntimeError, match="modified by an inplace"):
        model.set_reshard_after_forward(True)
        y = model(x.clone().requires_grad_())
        with t.no_grad():
            model.layer.weight.add_(1)
        y.sum().backward()


class Fails(nn.Linear):
    def forward(self, x: Any) -> Any:
        if len(x) == 1:
            raise KeyError("x")
        return super().forward(x)


def restored() -> None:
    """A forward that raises leaves rows behind, and the next one works."""
    model = fully_shard(Fails(4, 3), reshard_after_forward=True, offload_policy=CPUOffloadPolicy())
    rows = model.weight
    with pytest.raises(KeyError):
        model(t.ones(1, 4))
    assert model.weight is rows and isinstance(rows, DTensor)
    assert model._fsdp_group._values is None and not model._fsdp_group._before
    with t.autograd.graph.disable_saved_tensors_hooks("not here"):
        loss = model(t.ones(2, 4)).sum()
    loss.backward()
    assert model.weight is rows and t.equal(rows.grad.full_tensor(), t.full((3, 4), 2.0))


def prefetched() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    data = batches(Language, 3, size)
    plain, ahead = sharded(Language), sharded(Language)
    one, two = ahead.blocks
    ahead.set_modules_to_forward_prefetch([one])
    one.set_modules_to_forward_prefetch([two])
    two.set_modules_to_backward_prefetch([one])
    assert train(plain, data, rank) == train(ahead, data, rank)
    assert [v.tolist() for v in whole(plain)] == [v.tolist() for v in whole(ahead)]


def recomputed() -> None:
    """Checkpoints around sharded layers, and inside of them."""
    rank, size = dist.get_rank(), dist.get_world_size()

    class Around(Language):
        def forward(self, x: Any) -> Any:
            h = self.embedding(x) + self.position
            for block in self.blocks:
                h = checkpoint(block, h, use_reentrant=False)
            return self.head(h)

    data = batches(Language, 3, size)
    norms = train(sharded(Language), data, rank)
    # other ops are fused, whose sums may come in another order
    np.testing.assert_allclose(train(sharded(Around), data, rank), norms, rtol=1e-6)


def mixed() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    policy = MixedPrecisionPolicy(t.bfloat16, t.float32, t.float64)
    model, plain, seen = sharded(perceptron, mp_policy=policy), made(perceptron), []
    model[3].register_forward_hook(
        lambda m, a, y: seen.append((m.weight.dtype, a[0].dtype, y.dtype))
    )
    data = batches(perceptron, 1, size)[0]
    y = model(data[2 * rank : 2 * rank + 2])
    assert y.dtype == t.float64 and seen == [(t.bfloat16, t.bfloat16, t.bfloat16)]
    y.square().mean().backward()
    plain(data).square().mean().backward()
    for p, q in zip(model.parameters(), plain.parameters()):
        assert p.dtype == p.grad.dtype == t.float32
        assert t.allclose(p.grad.full_tensor(), q.grad, rtol=0.1, atol=0.05)


def scaled() -> None:
    """A gradient that overflows on one rank's rows: no rank steps."""
    model = sharded(perceptron)
    optimizer, scaler = t.optim.SGD(model.parameters(), lr=0.1), ShardedGradScaler("cpu")
    for bad in (False, True):
        before = [v.tolist() for v in whole(model)]
        optimizer.zero_grad()
        scaler.scale(model(t.ones(2, 3)).square().sum()).backward()
        if bad and dist.get_rank() == 0:
            model[0].weight.grad.to_local()[0] = float("inf")
        scaler.step(optimizer)
        scaler.update()
        assert (before == [v.tolist() for v in whole(model)]) == bad
    for kind in (t.optim.Muon, t.optim.Adafactor, t.optim.LBFGS):
        with pytest.raises(NotImplementedError, match="reads whole parameters"):
            kind([p for p in model.parameters() if p.ndim == 2]).step()


def copies() -> None:
    """Ranks in two dimensions: copies of the model, and rows of each."""
    rank, size = dist.get_rank(), dist.get_world_size()
    data = batches(perceptron, 3, size)
    one = made(perceptron)
    expected = train(one, data, None)
    for shape in ((size, 1), (1, size)):
        mesh = dist.init_device_mesh("cpu", shape, mesh_dim_names=("replicate", "shard"))
        model = sharded(perceptron, mesh=mesh)
        close([t.tensor(train(model, data, rank))], [t.tensor(expected)])
        close(whole(model), list(one.parameters()))


class Scalar(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(t.tensor(1.0))

    def forward(self, x: Any) -> Any:
        return x * self.w


def refused() -> None:
    size = dist.get_world_size()
    model = fully_shard(nn.Linear(2, 2))
    with pytest.raises(AssertionError, match="can only be applied to a module once"):
        fully_shard(model)
    with pytest.raises(AssertionError, match="FSDP does not support deepcopy"):
        copy.deepcopy(model)
    with pytest.raises(ValueError, match="reshard_after_forward should be a bool, got"):
        model.set_reshard_after_forward("x")
    with pytest.raises(ValueError, match="containers that do not implement forward: ModuleList"):
        fully_shard(nn.ModuleList([nn.Linear(2, 2)]))
    with pytest.raises(ValueError, match="Change w to a 1D tensor with numel equal to 1"):
        fully_shard(Scalar())
    turned = nn.Linear(2, 3)
    turned.weight = nn.Parameter(t.randn(2, 3).t())
    with pytest.raises(NotImplementedError, match="does not support non-contiguous parameters yet"):
        fully_shard(turned)
    assert type(turned.weight) is nn.Parameter and turned.bias.shape == (3,)  # nothing was done
    tied = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    tied[1].weight = tied[0].weight
    fully_shard(tied[0])
    with pytest.raises(ValueError, match=r"'1\.weight' is shared with a parameter already managed"):
        fully_shard(tied)
    used = nn.Linear(2, 2)
    used(t.ones(2)).sum().backward()
    with pytest.raises(RuntimeError, match="parameter weight has a gradient already"):
        fully_shard(used)
    with pytest.raises(RuntimeError, match="Can't access the shape of an uninitialized"):
        fully_shard(nn.LazyLinear(2))
    with pytest.raises(ValueError, match="should be a bool or an int"):
        fully_shard(nn.Linear(2, 2), reshard_after_forward="x")
    with pytest.raises(ValueError, match="it should be a factor of"):
        fully_shard(nn.Linear(2, 2), reshard_after_forward=7)
    three = dist.init_device_mesh("cpu", (1, 1, size), mesh_dim_names=("a", "b", "c"))
    with pytest.raises(ValueError, match="expects a 1D or 2D DeviceMesh"):
        fully_shard(nn.Linear(2, 2), mesh=three)
    with pytest.raises(AssertionError, match="init the 2D mesh for HSDP with mesh_dim_names"):
        fully_shard(nn.Linear(2, 2), mesh=dist.init_device_mesh("cpu", (1, size)))
    pair = [nn.Linear(2, 2), nn.Linear(2, 2)]
    pair[1].weight = pair[0].weight
    fully_shard(pair)
    pair[1](pair[0](t.ones(1, 2))).sum().backward()
    assert pair[0].weight is pair[1].weight and pair[0].weight.grad is not None


PARTS = {
    f.__name__: f
    for f in (
        as_one_process_on_the_big_batch,
        rows,
        memory,
        frozen,
        accumulated,
        unused,
        gathered_by_hand,
        restored,
        prefetched,
        recomputed,
        mixed,
        scaled,
        copies,
        refused,
    )
}


def stepped(model: Any) -> Any:
    """An optimizer with states, and what `checkpoint.save` takes."""
    optimizer = t.optim.AdamW(model.parameters(), lr=0.02)
    model(t.ones(2, 3)).square().sum().backward()
    optimizer.step()
    return {"model": model, "optimizer": optimizer, "epoch": 3}


def saved(folder: str) -> None:
    state = stepped(sharded(perceptron))
    for _ in range(2):  # the second replaces the first
        dcp.save(state, checkpoint_id=folder)


def loaded(folder: str) -> None:
    """By any number of ranks, in rows or whole."""
    expected = stepped(made(perceptron))
    for shards in (True, False):
        t.manual_seed(1)
        model = perceptron()
        state = stepped(fully_shard(model) if shards else model)
        state["epoch"] = 0
        dcp.load(state, checkpoint_id=folder)
        assert state["epoch"] == 3
        close(
            whole(model) if shards else list(model.parameters()), [*expected["model"].parameters()]
        )
        for p, q in zip(model.parameters(), expected["model"].parameters()):
            got, wanted = state["optimizer"].state[p], expected["optimizer"].state[q]
            assert got["step"] == wanted["step"] == 1
            rows = got["exp_avg_sq"].full_tensor() if shards else got["exp_avg_sq"]
            assert t.allclose(rows, wanted["exp_avg_sq"], rtol=1e-4, atol=1e-9)


@pytest.mark.slow
@mpi
def test_another_number_of_ranks_reads_a_checkpoint(tmp_path: Path) -> None:
    for size, what in ((2, "saved"), (3, "loaded"), (2, "loaded")):
        run([str(MPIEXEC), "-n", str(size), sys.executable, __file__, what, str(tmp_path / "c")])
    names = sorted(p.name for p in (tmp_path / "c").iterdir())
    assert len(names) == 3 and names[-1] == "metadata.json"


def test_rows_and_whole_tensors_read_each_other(tmp_path: Path) -> None:
    dist.init_process_group("gloo", f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        saved(str(tmp_path / "rows"))
        loaded(str(tmp_path / "rows"))
        dcp.save(stepped(made(perceptron)), checkpoint_id=tmp_path / "whole")
        loaded(str(tmp_path / "whole"))
        other = {"model": fully_shard(nn.Sequential(nn.Linear(3, 41)))}
        with pytest.raises(CheckpointError, match=r"model.0.weight has shape \[40, 3\] in the che"):
            dcp.load(other, checkpoint_id=tmp_path / "rows")
    finally:
        dist.destroy_process_group()


def several(*what: str) -> None:
    one = {"saved": saved, "loaded": loaded}
    on_this_rank([lambda: one[what[0]](what[1])] if what else PARTS.values())


@mpi
@pytest.mark.parametrize("size", slow_but([2, 3], 2))
def test_several_ranks(size: int) -> None:
    run([str(MPIEXEC), "-n", str(size), sys.executable, __file__])


@pytest.mark.parametrize("part", PARTS)
def test_one_rank(part: str, tmp_path: Path) -> None:
    with one_rank(tmp_path):
        PARTS[part]()


if __name__ == "__main__":
    several(*sys.argv[1:])
