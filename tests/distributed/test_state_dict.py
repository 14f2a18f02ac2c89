"""State dicts by the names of the model alone: wrapped or not, sharded or not, on any ranks."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import lucid_gpu as t
import lucid_gpu.distributed as dist
from lucid_gpu.distributed import checkpoint
from lucid_gpu.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
    set_state_dict,
)
from lucid_gpu.distributed.fsdp import FullyShardedDataParallel, fully_shard
from lucid_gpu.nn.parallel import DistributedDataParallel
from tests.distributed.processes import MPIEXEC, mpi, on_this_rank, one_rank, run
from tests.oracle import torch_module

WHOLE = StateDictOptions(full_state_dict=True)


def net(seed: int, lib: Any = t) -> Any:
    lib.manual_seed(seed)
    return lib.nn.Sequential(lib.nn.Linear(3, 7), lib.nn.Tanh(), lib.nn.Linear(7, 2))


def plain(seed: int) -> Any:
    return net(seed)


def replicated(seed: int) -> Any:
    return DistributedDataParallel(net(seed))


def sharded(seed: int) -> Any:
    model = net(seed)
    fully_shard(model[0])
    return fully_shard(model)


def wrapped(seed: int) -> Any:
    return FullyShardedDataParallel(net(seed))


KINDS = (plain, replicated, sharded, wrapped)


def trained(kind: Any, seed: int) -> tuple[Any, Any]:
    model = kind(seed)
    optimizer = t.optim.AdamW(model.parameters(), lr=0.1)
    t.manual_seed(5)
    x = t.randn(4, 3)
    for _ in range(2):
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()
    return model, optimizer


def alike(one: Any, other: Any) -> None:
    """Equal but for rounding, at any depth."""
    if isinstance(one, dict):
        assert list(one) == list(other)
        for key in one:
            alike(one[key], other[key])
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other)
        for mine, theirs in zip(one, other):
            alike(mine, theirs)
    elif isinstance(one, t.Tensor):
        assert t.allclose(one, other, rtol=1e-5, atol=1e-6)
    else:
        assert one == other


def exchange() -> None:
    """What one kind gives, whole, every other kind takes."""
    model, optimizer = trained(plain, 0)
    expected = get_state_dict(model, optimizer, options=WHOLE)
    assert list(expected[0]) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert list(expected[1]["state"]) == list(expected[0])
    for kind in KINDS:
        found = get_state_dict(*trained(kind, 0), options=WHOLE)
        alike(found[0], expected[0])
        alike(found[1]["state"], expected[1]["state"])
        assert [g["params"] for g in found[1]["param_groups"]] == [list(expected[0])]
        model = kind(1)
        optimizer = t.optim.AdamW(model.parameters(), lr=0.3)
        given = dict(zip(("model_state_dict", "optim_state_dict"), expected))
        set_state_dict(model, optimizer, **given, options=WHOLE)
        alike(get_state_dict(model, optimizer, options=WHOLE), expected)
        assert optimizer.param_groups[0]["lr"] == 0.1


def flat() -> None:
    options = StateDictOptions(full_state_dict=True, flatten_optimizer_state_dict=True)
    model, optimizer = trained(sharded, 0)
    found = get_optimizer_state_dict(model, optimizer, options=options)
    assert "state.0.weight.exp_avg" in found and found["param_groups.2.bias.lr"] == 0.1
    model = replicated(1)
    other = t.optim.AdamW(model.parameters(), lr=0.3)
    set_optimizer_state_dict(model, other, found, options=options)
    alike(get_optimizer_state_dict(model, other, options=options), found)


def from_the_first() -> None:
    """Rank 0 has read a file; the others pass nothing."""
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    given = get_model_state_dict(trained(sharded, 0)[0], options=options)
    assert bool(given) == (dist.get_rank() == 0)
    model = sharded(1)
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(model, given, options=options)
    expected = get_model_state_dict(trained(plain, 0)[0])
    alike(get_model_state_dict(model, options=WHOLE), expected)


def saved() -> None:
    """PyTorch's idiom: rows are written, and read into an optimizer that has made no step."""
    folder = [str(sys.argv[1])] if len(sys.argv) > 1 else [""]
    dist.broadcast_object_list(folder, 0)
    model, optimizer = trained(sharded, 0)
    expected = get_state_dict(model, optimizer, options=WHOLE)
    found = get_state_dict(model, optimizer)
    checkpoint.save({"model": found[0], "optim": found[1]}, checkpoint_id=folder[0])
    for kind in (sharded, replicated):
        model = kind(1)
        optimizer = t.optim.AdamW(model.parameters(), lr=0.1)
        found = get_state_dict(model, optimizer)
        state = {"model": found[0], "optim": found[1]}
        checkpoint.load(state, checkpoint_id=folder[0])
        given = {"model_state_dict": state["model"], "optim_state_dict": state["optim"]}
        set_state_dict(model, optimizer, **given)
        alike(get_state_dict(model, optimizer, options=WHOLE), expected)


PARTS = (exchange, flat, from_the_first, saved)


@mpi
@pytest.mark.parametrize("size", [2, 3])
def test_several_ranks(size: int, tmp_path: Path) -> None:
    run([str(MPIEXEC), "-n", str(size), sys.executable, __file__, str(tmp_path / "c")], 120)


def test_one_rank(tmp_path: Path) -> None:
    with one_rank(tmp_path):
        exchange()
        flat()


def test_missing_entries_are_refused() -> None:
    given = get_model_state_dict(net(0))
    del given["2.bias"]
    with pytest.raises(RuntimeError, match=r"2\.bias"):
        set_model_state_dict(net(1), given)
    found = set_model_state_dict(net(1), given, options=StateDictOptions(strict=False))
    assert found.missing_keys == ["2.bias"]


def test_names_and_settings_are_torch_s() -> None:
    torch = torch_module()
    theirs = pytest.importorskip("torch.distributed.checkpoint.state_dict")
    found = []
    for lib, get, options in (
        (t, get_state_dict, StateDictOptions),
        (torch, theirs.get_state_dict, theirs.StateDictOptions),
    ):
        model = net(0, lib)
        optimizer = lib.optim.Adam(model.parameters(), lr=0.1)
        model_state, state = get(model, optimizer)
        flat_state = get(model, optimizer, options=options(flatten_optimizer_state_dict=True))[1]
        found.append(
            (
                list(model_state),
                {name: sorted(own) for name, own in state["state"].items()},
                [group["params"] for group in state["param_groups"]],
                sorted(key for key in flat_state if key.startswith("state.")),
            )
        )
    assert found[0] == found[1]


if __name__ == "__main__":
    on_this_rank(PARTS)
