"""State dicts by the names of the model alone: wrapped or not, sharded or not, on any ranks."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lucid_gpu as t
import lucid_gpu.distributed as dist
from lucid_gpu.distributed import checkpoint
from lucid_gpu.distributed.checkpoint import state_dict
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
from tests.slow import slow_but

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
    first = get_optimizer_state_dict(*trained(sharded, 0), options=options)
    flat_options = StateDictOptions(True, cpu_offload=True, flatten_optimizer_state_dict=True)
    flattened = get_optimizer_state_dict(*trained(sharded, 0), options=flat_options)
    assert bool(first) == bool(flattened) == (dist.get_rank() == 0)
    model = sharded(1)
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(model, given, options=options)
    expected = get_state_dict(*trained(plain, 0))
    alike(get_model_state_dict(model, options=WHOLE), expected[0])
    for state in (first, flattened):
        optimizer = t.optim.AdamW(model.parameters(), lr=0.3)
        set_optimizer_state_dict(model, optimizer, state, options=options)
        found = get_optimizer_state_dict(model, optimizer, options=WHOLE)
        alike(found, expected[1])
    both = {"model_state_dict": given, "optim_state_dict": first}
    model = sharded(1)
    optimizer = t.optim.AdamW(model.parameters(), lr=0.3)
    set_state_dict(model, optimizer, **both, options=options)
    alike(get_state_dict(model, optimizer, options=WHOLE), expected)


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
@pytest.mark.parametrize("size", slow_but([2, 3], 2))
def test_several_ranks(size: int, tmp_path: Path) -> None:
    run([str(MPIEXEC), "-n", str(size), sys.executable, __file__, str(tmp_path / "c")])


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


# --- beside PyTorch's, in one process ------------------------------------------------------------


def tied(lib: Any) -> Any:
    """A model whose two layers share a weight; it is known by both names."""
    model = lib.nn.Sequential(lib.nn.Linear(2, 2, bias=False), lib.nn.Linear(2, 2, bias=False))
    model[1].weight = model[0].weight
    return model


def nesting(lib: Any, parameters: Any, deepest: Any = 1, **settings: Any) -> Any:
    """An optimizer whose states are dictionaries of dictionaries."""

    class Nesting(lib.optim.Optimizer):
        def step(self, closure: Any = None) -> None:
            for group in self.param_groups:
                for p in group["params"]:
                    inner = {"x": p.detach().clone(), "n": {"y": deepest}}
                    self.state[p] = {"deep": inner, "k": 2}

    return Nesting(parameters, settings)


def numbered(lib: Any, shared: bool = False) -> Any:
    """A model whose parameters are 1, 2 ..."""
    inner = lib.nn.Sequential(lib.nn.Linear(3, 2, bias=False))
    model = tied(lib) if shared else lib.nn.Sequential(lib.nn.Linear(2, 3), inner)
    with lib.no_grad():
        for i, parameter in enumerate(model.parameters()):
            parameter.fill_(i + 1.0)
    return model


def adam(lib: Any, model: Any, lr: float = 0.1, steps: int = 1) -> Any:
    optimizer = lib.optim.Adam(model.parameters(), lr=lr)
    for _ in range(steps):
        model(lib.ones(4, 2)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return optimizer


def some_of_the_model(lib: Any, dsd: Any) -> Any:
    model = numbered(lib)
    short = dsd.StateDictOptions(keep_submodule_prefixes=False)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    both = dsd.get_state_dict(model, optimizer, submodules={model[1]})
    return (
        dsd.get_model_state_dict(model, submodules={model[1]}),
        dsd.get_model_state_dict(model, submodules={model[1]}, options=short),
        both[0],
        sorted(both[1]["state"]),
    )


def by_submodule(lib: Any, dsd: Any) -> Any:
    model, loose = numbered(lib), dsd.StateDictOptions(strict=False)
    given = {model[1]: {"0.weight": lib.zeros(2, 3)}}
    found = dsd.set_model_state_dict(model, given, options=loose)
    return sorted(found.missing_keys), list(found.unexpected_keys), model.state_dict()


def only_rank_0_without_whole_tensors(lib: Any, dsd: Any) -> Any:
    model, options = numbered(lib), dsd.StateDictOptions(broadcast_from_rank0=True)
    dsd.set_model_state_dict(model, model.state_dict(), options=options)


def no_optimizers(lib: Any, dsd: Any) -> Any:
    return dsd.get_state_dict(numbered(lib), [])[1]


def no_optimizers_to_ask(lib: Any, dsd: Any) -> Any:
    dsd.get_optimizer_state_dict(numbered(lib), [])


def no_optimizers_to_fill(lib: Any, dsd: Any) -> Any:
    dsd.set_optimizer_state_dict(numbered(lib), [], {})


def nothing_to_load(lib: Any, dsd: Any) -> Any:
    model = numbered(lib)
    dsd.set_optimizer_state_dict(model, adam(lib, model), {})


def several_optimizers(lib: Any, dsd: Any) -> Any:
    model = numbered(lib)
    optimizers = [lib.optim.SGD(part.parameters(), lr=0.1) for part in model]
    return [g["params"] for g in dsd.get_state_dict(model, optimizers)[1]["param_groups"]]


def missing_states(lib: Any, dsd: Any, strict: bool = True, group: bool = False) -> Any:
    model = numbered(lib)
    given = dsd.get_optimizer_state_dict(model, adam(lib, model))
    del given["state"]["0.weight"]
    if group:
        given["param_groups"][0]["params"].remove("0.weight")
    optimizer = adam(lib, model, 0.3, 0)
    options = dsd.StateDictOptions(strict=strict)
    dsd.set_optimizer_state_dict(model, optimizer, given, options=options)
    return sorted(dsd.get_optimizer_state_dict(model, optimizer)["state"])


def missing_states_taken(lib: Any, dsd: Any) -> Any:
    return missing_states(lib, dsd, False)


def missing_parameters(lib: Any, dsd: Any) -> Any:
    return missing_states(lib, dsd, True, True)


def no_states(lib: Any, dsd: Any) -> Any:
    model = numbered(lib)
    given = dsd.get_optimizer_state_dict(model, lib.optim.SGD(model.parameters(), lr=0.1))
    optimizer = lib.optim.SGD(model.parameters(), lr=0.3)
    dsd.set_optimizer_state_dict(model, optimizer, given)
    return given, optimizer.param_groups[0]["lr"]


def frozen(lib: Any, dsd: Any) -> Any:
    model = numbered(lib)
    model[0].weight.requires_grad_(False)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    options = dsd.StateDictOptions(ignore_frozen_params=True, strict=False)
    found = dsd.get_state_dict(model, optimizer, options=options)
    given = dict(zip(("model_state_dict", "optim_state_dict"), found))
    loaded = dsd.set_state_dict(model, optimizer, **given, options=options)
    return found, list(loaded.missing_keys)


def other_name(lib: Any, dsd: Any) -> Any:
    model = numbered(lib, True)
    given = dsd.get_optimizer_state_dict(model, adam(lib, model))
    given["state"] = {"1.weight": given["state"]["0.weight"]}
    given["param_groups"][0]["params"] = ["1.weight"]
    optimizer = adam(lib, model, 0.3, 0)
    dsd.set_optimizer_state_dict(model, optimizer, given)
    found = dsd.get_optimizer_state_dict(model, optimizer)
    return found["state"], optimizer.param_groups[0]["lr"]


def its_own_numbers(lib: Any, dsd: Any) -> Any:
    model = numbered(lib)
    given, optimizer = adam(lib, model).state_dict(), adam(lib, model, 0.3, 0)
    dsd.set_optimizer_state_dict(model, optimizer, given)
    return optimizer.state_dict()["state"], optimizer.param_groups[0]["lr"]


def other_groups(lib: Any, dsd: Any) -> Any:
    model, found = numbered(lib), []
    for rates in ((0.5, 0.1), (0.9, 0.9)):
        groups = [{"params": part.parameters(), "lr": lr} for part, lr in zip(model, rates)]
        optimizer = lib.optim.AdamW(groups if not found else groups[::-1])
        if found:
            dsd.set_optimizer_state_dict(model, optimizer, found[0])
        found.append(dsd.get_optimizer_state_dict(model, optimizer))
    return found


def flat_and_back(lib: Any, dsd: Any) -> Any:
    model, options = numbered(lib), dsd.StateDictOptions(flatten_optimizer_state_dict=True)
    optimizer = nesting(lib, model.parameters(), lr=1.0)
    given = dsd.get_optimizer_state_dict(model, optimizer, options=options)
    optimizer = nesting(lib, model.parameters(), lr=2.0)
    dsd.set_optimizer_state_dict(model, optimizer, given, options=options)
    return given, optimizer.state_dict()["state"], optimizer.param_groups[0]["lr"]


def not_to_flatten(lib: Any, dsd: Any) -> Any:
    model, options = numbered(lib), dsd.StateDictOptions(flatten_optimizer_state_dict=True)
    optimizer = nesting(lib, model.parameters(), [1, 2], lr=1.0)
    dsd.get_optimizer_state_dict(model, optimizer, options=options)


def no_rate(lib: Any, dsd: Any) -> Any:
    model = numbered(lib)
    return dsd.get_optimizer_state_dict(model, nesting(lib, model.parameters(), speed=1.0))


def no_step_changes_nothing(lib: Any, dsd: Any) -> Any:
    model = numbered(lib)
    optimizer = lib.optim.AdamW(model.parameters(), lr=lib.tensor(0.1), weight_decay=0.5)
    return dsd.get_state_dict(model, optimizer), optimizer.param_groups[0]["lr"]


def plainly(value: Any) -> Any:
    """Values as Python's, rounded."""
    if isinstance(value, dict):
        return {key: plainly(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plainly(inner) for inner in value]
    if hasattr(value, "tolist"):
        return str(value.dtype).split(".")[-1], np.asarray(value.tolist()).round(5).tolist()
    return value


def outcome(case: Any, lib: Any, dsd: Any) -> Any:
    """What a case gives or raises, and the kinds of its warnings."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            found = plainly(case(lib, dsd))
        except (RuntimeError, ValueError) as error:
            found = type(error), str(error).partition(";")[0].partition(". ")[0].rstrip(".")
    return found, {one.category for one in warned}


CASES = (
    some_of_the_model, by_submodule, only_rank_0_without_whole_tensors, no_optimizers,
    several_optimizers, missing_states, missing_states_taken, missing_parameters, no_states,
    frozen, other_name, its_own_numbers, other_groups, flat_and_back, no_rate,
    no_step_changes_nothing,
)  # fmt: skip
REFUSED = (no_optimizers_to_ask, no_optimizers_to_fill, nothing_to_load, not_to_flatten)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_beside_torch(case: Any) -> None:
    torch = torch_module()
    theirs = pytest.importorskip("torch.distributed.checkpoint.state_dict")
    expected = outcome(case, torch, theirs)
    assert outcome(case, t, state_dict) == expected


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.__name__)
def test_refused_as_by_torch(case: Any) -> None:
    torch = torch_module()
    theirs = pytest.importorskip("torch.distributed.checkpoint.state_dict")
    found = outcome(case, t, state_dict)[0][0]
    assert found is outcome(case, torch, theirs)[0][0]
    assert issubclass(found, RuntimeError)  # NotImplementedError is one


def test_a_step_that_fails_leaves_the_optimizer_as_it_was() -> None:
    model = net(0)
    optimizer = t.optim.LBFGS(model.parameters(), lr=0.7)
    with pytest.raises(TypeError):
        get_optimizer_state_dict(model, optimizer)
    assert optimizer.param_groups[0]["lr"] == 0.7
    assert all(p.grad is None for p in model.parameters())


def test_the_rest_is_loaded_without_the_model() -> None:
    model, optimizer = trained(plain, 0)
    expected = get_optimizer_state_dict(model, optimizer)
    other = t.optim.AdamW(model.parameters(), lr=0.3)
    set_state_dict(model, other, model_state_dict={}, optim_state_dict=expected)
    alike(get_optimizer_state_dict(model, other), expected)


if __name__ == "__main__":
    on_this_rank(PARTS)
