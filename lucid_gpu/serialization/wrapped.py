"""State dicts of wrapped models and their optimizers by the names of the model alone.

``module.`` of `DistributedDataParallel` is left out, and an optimizer's states have the names of
their parameters: what one kind of training has written, another reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from lucid_gpu import distributed as dist
from lucid_gpu.distributed.tensor import as_rows
from lucid_gpu.nn.modules.module import Module
from lucid_gpu.nn.parallel.distributed import DistributedDataParallel
from lucid_gpu.nn.parallel.fully_sharded_data_parallel import (
    FullyShardedDataParallel,
    StateDictType,
)
from lucid_gpu.ops.creation import zeros_like
from lucid_gpu.tensor import Tensor

__all__ = [
    "StateDictOptions",
    "get_model_state_dict",
    "get_optimizer_state_dict",
    "get_state_dict",
    "set_model_state_dict",
    "set_optimizer_state_dict",
    "set_state_dict",
]


@dataclass
class StateDictOptions:
    """How state dicts are given and taken.

    Attributes
    ----------
    full_state_dict : bool
        Whole tensors in the place of this rank's rows; all ranks call then.
    cpu_offload : bool
        Tensors on the CPU; with ``full_state_dict``, on rank 0 only, and nothing elsewhere.
    ignore_frozen_params : bool
        Leave out parameters that do not require grad.
    strict : bool
        Refuse entries that are missing, or not the model's.
    broadcast_from_rank0 : bool
        Take what rank 0 passes; the others may pass an empty dictionary.
    flatten_optimizer_state_dict : bool
        Optimizer's states in one dictionary: ``"state.<parameter>.exp_avg"``.
    """

    full_state_dict: bool = False
    cpu_offload: bool = False
    ignore_frozen_params: bool = False
    keep_submodule_prefixes: bool = True
    strict: bool = True
    broadcast_from_rank0: bool = False
    flatten_optimizer_state_dict: bool = False


_WRAPPED = {DistributedDataParallel: "module", FullyShardedDataParallel: "_fsdp_wrapped_module"}


def _name(model: Module, raw: str) -> str:
    """An entry's name without those of wrappers."""
    kept: list[str] = []
    module: Module | None = model
    for part in raw.split("."):
        wraps = any(isinstance(module, kind) and part == own for kind, own in _WRAPPED.items())
        if not wraps:
            kept.append(part)
        module = None if module is None else module._modules.get(part)
    return ".".join(kept)


def _parameters(model: Module) -> Iterator[tuple[str, Tensor]]:
    for raw, parameter in model.named_parameters():
        yield _name(model, raw), parameter


def _given(value: Any, options: StateDictOptions) -> Any:
    if not isinstance(value, Tensor):
        return value
    if options.full_state_dict and hasattr(value, "full_tensor"):
        value = value.full_tensor()
    return value.cpu() if options.cpu_offload else value


def _kept(state: dict[str, Any], options: StateDictOptions) -> dict[str, Any]:
    alone = not dist.is_initialized() or dist.get_rank() == 0
    return state if alone or not (options.full_state_dict and options.cpu_offload) else {}


def _rows_of(value: Any, own: Any) -> Any:
    """This rank's rows of a whole tensor, where its parameter is sharded."""
    if not isinstance(value, Tensor) or hasattr(value, "sharding") or not hasattr(own, "sharding"):
        return value
    if tuple(value.shape) != tuple(own.sharding.shape):
        return value
    return as_rows(value[slice(*own.sharding.rows())].clone(), own.sharding)


def _taken(state: dict[str, Any], options: StateDictOptions) -> dict[str, Any]:
    if not options.broadcast_from_rank0:
        return state
    given = [state]
    dist.broadcast_object_list(given, 0)
    return given[0]


def _refuse_submodules(submodules: Any) -> None:
    if submodules:
        raise NotImplementedError("submodules= is not here: pass the submodule as the model")


# --- models -------------------------------------------------------------------------------------


def _as_rows(model: Module) -> Any:
    """The context in which `FullyShardedDataParallel` gives rows."""
    if not FullyShardedDataParallel.fsdp_modules(model):
        return nullcontext()
    kind = StateDictType.SHARDED_STATE_DICT
    return FullyShardedDataParallel.state_dict_type(model, kind)


def get_model_state_dict(
    model: Module, *, submodules: Any = None, options: StateDictOptions | None = None
) -> dict[str, Any]:
    """A model's state dict by the names that it has without wrappers."""
    _refuse_submodules(submodules)
    options = options or StateDictOptions()
    with _as_rows(model):
        found = {_name(model, raw): value for raw, value in model.state_dict().items()}
    if options.ignore_frozen_params:
        for name, parameter in _parameters(model):
            if not parameter.requires_grad:
                found.pop(name, None)
    return _kept({name: _given(value, options) for name, value in found.items()}, options)


def set_model_state_dict(
    model: Module, model_state_dict: dict[str, Any], *, options: StateDictOptions | None = None
) -> Any:
    """Load what `get_model_state_dict` gives, whole or rows; what `load_state_dict` returns.

    RuntimeError where entries are missing or too many, unless ``strict`` is False.
    """
    options = options or StateDictOptions()
    given = dict(_taken(model_state_dict, options))
    found = {}
    with _as_rows(model):
        for raw, own in model.state_dict().items():
            name = _name(model, raw)
            if name in given:
                found[raw] = _rows_of(given.pop(name), own)
        return model.load_state_dict({**found, **given}, options.strict)


# --- optimizers ---------------------------------------------------------------------------------


def _list(optimizers: Any) -> list[Any]:
    return list(optimizers) if isinstance(optimizers, (list, tuple, set)) else [optimizers]


def _with_states(optimizer: Any) -> None:
    """Let an optimizer that has made no step have its states: a step of zeros at rate 0."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    if optimizer.state or any(p.grad is not None for p in parameters):
        return
    rates = [group["lr"] for group in optimizer.param_groups]
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    for parameter in parameters:
        if parameter.requires_grad:
            parameter.grad = zeros_like(parameter.detach())
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate


def get_optimizer_state_dict(
    model: Module,
    optimizers: Any,
    *,
    submodules: Any = None,
    options: StateDictOptions | None = None,
) -> dict[str, Any]:
    """The state of one or several optimizers by the names of the model's parameters.

    An optimizer that has made no step gets its states first, of zeros.
    """
    _refuse_submodules(submodules)
    options = options or StateDictOptions()
    names = {parameter: name for name, parameter in _parameters(model)}
    states: dict[str, Any] = {}
    groups: list[dict[str, Any]] = []
    for optimizer in _list(optimizers):
        _with_states(optimizer)
        found = optimizer.state_dict()
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        for index, state in found["state"].items():
            own = {key: _given(value, options) for key, value in state.items()}
            states[names[parameters[index]]] = own
        for group in found["param_groups"]:
            groups.append({**group, "params": [names[parameters[i]] for i in group["params"]]})
    whole = {"state": states, "param_groups": groups}
    return _kept(_flat(whole) if options.flatten_optimizer_state_dict else whole, options)


def _flat(whole: dict[str, Any]) -> dict[str, Any]:
    found = {f"state.{n}.{k}": v for n, state in whole["state"].items() for k, v in state.items()}
    for group in whole["param_groups"]:
        settings = [(key, value) for key, value in group.items() if key != "params"]
        found |= {f"param_groups.{n}.{k}": v for n in group["params"] for k, v in settings}
    return found


def set_optimizer_state_dict(
    model: Module,
    optimizers: Any,
    optim_state_dict: dict[str, Any],
    *,
    options: StateDictOptions | None = None,
) -> None:
    """Load what `get_optimizer_state_dict` gives, whole tensors or rows."""
    options = options or StateDictOptions()
    given = _taken(optim_state_dict, options)
    names = {parameter: name for name, parameter in _parameters(model)}
    for optimizer in _list(optimizers):
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        index = {parameter: i for i, parameter in enumerate(parameters)}
        states, groups = {}, []
        for group in optimizer.param_groups:
            own = [p for p in group["params"] if names[p] in _named(given)]
            settings = _settings(given, names[own[0]]) if own else {}
            kept = {key: value for key, value in group.items() if key != "params"}
            groups.append({**kept, **settings, "params": [index[p] for p in group["params"]]})
            for parameter in own:
                state = _state(given, names[parameter])
                states[index[parameter]] = {k: _rows_of(v, parameter) for k, v in state.items()}
        optimizer.load_state_dict({"state": states, "param_groups": groups})


def _named(given: dict[str, Any]) -> set[str]:
    """The parameters that an optimizer's state dict, flat or not, speaks of."""
    if "param_groups" in given:
        return {name for group in given["param_groups"] for name in group["params"]}
    return {key.split(".", 1)[1].rsplit(".", 1)[0] for key in given}


def _settings(given: dict[str, Any], name: str) -> dict[str, Any]:
    if "param_groups" in given:
        group = next(group for group in given["param_groups"] if name in group["params"])
        return {key: value for key, value in group.items() if key != "params"}
    return _below(given, f"param_groups.{name}.")


def _state(given: dict[str, Any], name: str) -> dict[str, Any]:
    if "state" in given:
        found: dict[str, Any] = given["state"].get(name, {})
        return found
    return _below(given, f"state.{name}.")


def _below(given: dict[str, Any], prefix: str) -> dict[str, Any]:
    return {key[len(prefix) :]: value for key, value in given.items() if key.startswith(prefix)}


# --- both ---------------------------------------------------------------------------------------


def get_state_dict(
    model: Module,
    optimizers: Any,
    *,
    submodules: Any = None,
    options: StateDictOptions | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What `get_model_state_dict` and `get_optimizer_state_dict` give."""
    return (
        get_model_state_dict(model, submodules=submodules, options=options),
        get_optimizer_state_dict(model, optimizers, submodules=submodules, options=options),
    )


def set_state_dict(
    model: Module,
    optimizers: Any,
    *,
    model_state_dict: dict[str, Any],
    optim_state_dict: dict[str, Any],
    options: StateDictOptions | None = None,
) -> Any:
    """Load what `get_state_dict` gives; what the model's `load_state_dict` returns."""
    set_optimizer_state_dict(model, optimizers, optim_state_dict, options=options)
    return set_model_state_dict(model, model_state_dict, options=options)
