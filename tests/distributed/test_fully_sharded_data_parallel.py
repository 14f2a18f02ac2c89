"""`FullyShardedDataParallel` on real ranks, beside one process and `fully_shard`."""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Any

import pytest

import lucid_gpu as t
import lucid_gpu.distributed as dist
from lucid_gpu import nn
from lucid_gpu.distributed.fsdp import (
    CPUOffload,
    FSDPModule,
    FullStateDictConfig,
    FullyShardedDataParallel,
    MixedPrecision,
    ShardingStrategy,
    StateDictType,
)
from lucid_gpu.distributed.fsdp.wrap import (
    ModuleWrapPolicy,
    always_wrap_policy,
    lambda_auto_wrap_policy,
    size_based_auto_wrap_policy,
    transformer_auto_wrap_policy,
)
from lucid_gpu.distributed.tensor import DTensor
from tests.distributed.processes import MPIEXEC, mpi, on_this_rank, one_rank, run
from tests.distributed.test_fully_sharded import (
    Block,
    Language,
    batches,
    close,
    made,
    perceptron,
    train,
    whole,
)
from tests.slow import slow_but


def groups_of(model: Any) -> int:
    return len([m for m in model.modules() if isinstance(m, FSDPModule)])


def trained() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    policies = {
        None: 1,
        ModuleWrapPolicy({Block}): 3,
        functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block}): 3,
        functools.partial(size_based_auto_wrap_policy, min_num_params=500): 3,
        functools.partial(
            lambda_auto_wrap_policy, lambda_fn=lambda m: isinstance(m, nn.LayerNorm)
        ): 3,
    }
    data = batches(Language, 2, size)
    one = made(Language)
    expected = train(one, data, None)
    for policy, count in policies.items():
        for strategy in (ShardingStrategy.FULL_SHARD, ShardingStrategy.SHARD_GRAD_OP):
            many = FullyShardedDataParallel(
                made(Language), auto_wrap_policy=policy, sharding_strategy=strategy
            )
            assert isinstance(many.module, Language) and groups_of(many) == count
            names = [n for n, _ in many.named_parameters()]
            assert names == [n for n, _ in one.named_parameters()]
            assert all(isinstance(p, DTensor) for p in many.parameters())
            close([t.tensor(train(many.train(), data, rank))], [t.tensor(expected)])
            close(whole(many), list(one.parameters()))
            assert many.blocks is many.module.blocks
    layers = FullyShardedDataParallel(made(perceptron), auto_wrap_policy=always_wrap_policy)
    assert groups_of(layers) == 9 and isinstance(layers[0], nn.Linear)
    mesh = dist.init_device_mesh("cpu", (size, 1), mesh_dim_names=("replicate", "shard"))
    hybrid = FullyShardedDataParallel(
        made(Language), sharding_strategy=ShardingStrategy.HYBRID_SHARD, device_mesh=mesh
    )
    close([t.tensor(train(hybrid, data, rank))], [t.tensor(expected)])


def states() -> None:
    rank = dist.get_rank()
    policy = ModuleWrapPolicy({nn.Linear})
    model = FullyShardedDataParallel(made(perceptron), auto_wrap_policy=policy)
    plain = made(perceptron)
    state = model.state_dict()
    assert [*state] == [*plain.state_dict()] and not any(
        isinstance(v, DTensor) for v in state.values()
    )
    close([*state.values()], [*plain.state_dict().values()], 0.0)
    t.manual_seed(1)
    other = FullyShardedDataParallel(perceptron(), auto_wrap_policy=policy)
    assert str(other.load_state_dict(state)) == "<All keys matched successfully>"
    close(whole(other), whole(model), 0.0)
    with FullyShardedDataParallel.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
        rows = model.state_dict()
    assert [*rows] == [*state] and all(isinstance(v, DTensor) for v in rows.values())
    other.load_state_dict({k: v.clone() for k, v in rows.items()})
    config = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
    with FullyShardedDataParallel.state_dict_type(model, StateDictType.FULL_STATE_DICT, config):
        assert len(model.state_dict()) == (0 if rank else len(state))
    outer = nn.ModuleDict({"inner": model})
    assert [*outer.state_dict()] == [f"inner.{k}" for k in state]
    outer.load_state_dict({f"inner.{k}": v + 1 for k, v in state.items()})
    close(whole(model), [v + 1 for v in state.values()], 0.0)
    with pytest.raises(RuntimeError, match="Missing key"):
        model.load_state_dict({})
    with FullyShardedDataParallel.summon_full_params(model):
        assert model.module[0].weight.shape == (40, 3)
        with t.no_grad():
            model.module[0].weight.fill_(2.0)
    assert (model.module[0].weight.full_tensor() == 2).all()
    with FullyShardedDataParallel.summon_full_params(model, writeback=False), t.no_grad():
        model.module[0].weight.fill_(3.0)
    assert (model.module[0].weight.full_tensor() == 2).all()


def gradients() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    data = batches(perceptron, 2, size)
    one, many = made(perceptron), FullyShardedDataParallel(made(perceptron))
    for batch in data:
        one(batch).square().mean().backward()
    with many.no_sync():
        many(data[0][2 * rank : 2 * rank + 2]).square().mean().backward()
    many(data[1][2 * rank : 2 * rank + 2]).square().mean().backward()
    norm = many.clip_grad_norm_(0.1)
    assert abs(norm.item() - nn.utils.clip_grad_norm_(one.parameters(), 0.1).item()) < 1e-5
    close([p.grad.full_tensor() for p in many.parameters()], [p.grad for p in one.parameters()])


def precision() -> None:
    rank = dist.get_rank()
    seen: dict[str, Any] = {}
    t.manual_seed(rank)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    model[1].register_forward_hook(lambda m, a, y: seen.update(norm=a[0].dtype))
    model[2].register_forward_hook(lambda m, a, y: seen.update(linear=(a[0].dtype, m.weight.dtype)))
    mixed = MixedPrecision(param_dtype=t.bfloat16, reduce_dtype=t.float32)
    model = FullyShardedDataParallel(model, mixed_precision=mixed, sync_module_states=True)
    model(t.ones(4, 3)).float().sum().backward()
    assert seen == {"norm": t.float32, "linear": (t.bfloat16, t.bfloat16)}
    assert all(p.grad.dtype == t.float32 for p in model.parameters())
    values = [v.tolist() for v in model.state_dict().values()]
    every: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(every, [v for v in values if isinstance(v, list)][:2])
    assert all(one == every[0] for one in every)
    kept = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2))
    model = FullyShardedDataParallel(kept, ignored_modules=[kept[0]], device_id="cpu")
    assert type(kept[0].weight) is nn.Parameter and isinstance(kept[1].weight, DTensor)


def refused() -> None:
    def wrapped(**options: Any) -> Any:
        return FullyShardedDataParallel(nn.Linear(2, 2), **options)

    for options, sentence in (
        ({"sharding_strategy": ShardingStrategy.NO_SHARD}, "DistributedDataParallel"),
        ({"sharding_strategy": ShardingStrategy.HYBRID_SHARD}, "device_mesh of two dimensions"),
        ({"cpu_offload": CPUOffload(True)}, "parameters stay on their device"),
        ({"param_init_fn": print}, "initialize the module before"),
        ({"mixed_precision": MixedPrecision(keep_low_precision_grads=True)}, "parameters' type"),
        ({"process_group": (None, None)}, "pass device_mesh"),
    ):
        with pytest.raises(NotImplementedError, match=sentence):
            wrapped(**options)
    with pytest.raises(AttributeError, match="nothing"):
        wrapped().nothing
    context = FullyShardedDataParallel.summon_full_params(wrapped(), rank0_only=True)
    with pytest.raises(NotImplementedError), context:
        pass


PARTS = {f.__name__: f for f in (trained, states, gradients, precision, refused)}


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
