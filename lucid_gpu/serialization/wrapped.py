"""State dicts of wrapped models and their optimizers by the names of the model alone.

``module.`` of `DistributedDataParallel` is left out, and an optimizer's states have the names of
their parameters: what one kind of training has written, another reads.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from lucid_gpu import distributed as dist
from lucid_gpu.distributed.tensor import as_rows
from lucid_gpu.nn.modules.module import Module
from lucid_gpu.nn.modules.state import IncompatibleKeys
from lucid_gpu.nn.parallel.distributed import DistributedDataParallel
from lucid_gpu.nn.parallel.fully_sharded_data_parallel import (
    FullyShardedDataParallel,
    StateDictType,
)
from lucid_gpu.ops.creation import empty, zeros_like
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
    keep_submodule_prefixes : bool
        With ``submodules=``, names from the model's root on; else from the submodule on.
    strict : bool
        Refuse entries that are missing, or not the model's.
    broadcast_from_rank0 : bool
        Take what rank 0 passes, tensor by tensor; the others may pass an empty dictionary. Needs
        ``full_state_dict``.
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
    """Names and parameters; one that several modules share has several."""
    for raw, parameter in model.named_parameters(remove_duplicate=False):
        yield _name(model, raw), parameter


def _exported(value: Any, options: StateDictOptions) -> Any:
    if isinstance(value, dict):
        return {key: _exported(inner, options) for key, inner in value.items()}
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
    if isinstance(value, dict):
        return {key: _rows_of(inner, own) for key, inner in value.items()}
    if not isinstance(value, Tensor) or hasattr(value, "sharding") or not hasattr(own, "sharding"):
        return value
    if tuple(value.shape) != tuple(own.sharding.shape):
        return value
    return as_rows(value[slice(*own.sharding.rows())].clone(), own.sharding)


@dataclass
class _Sent:
    """A tensor that rank 0 sends after the dictionary that it stands in."""

    shape: tuple[int, ...]
    dtype: Any


def _taken(state: Any, options: StateDictOptions, owns: dict[str, Any]) -> Any:
    """What rank 0 has passed, where it is to be taken from there.

    Tensors follow one by one, and each becomes this rank's rows of what ``owns`` has by its name.
    """
    if not options.broadcast_from_rank0:
        return state
    if not options.full_state_dict:
        raise ValueError("full_state_dict must be True when broadcast_from_rank0 is True.")
    tensors: list[Tensor] = []
    first = dist.get_rank() == 0
    sent = [_noted(state, tensors) if first else None]
    dist.broadcast_object_list(sent, 0)
    if first:
        for tensor in tensors:
            dist.broadcast(tensor.contiguous(), 0)
        return state
    return _received(sent[0], owns, None)


def _noted(value: Any, tensors: list[Tensor]) -> Any:
    """A state with shapes and types where its tensors are; they are added to a list."""
    if isinstance(value, dict):
        return {key: _noted(inner, tensors) for key, inner in value.items()}
    if not isinstance(value, Tensor):
        return value
    tensors.append(value.detach().cpu())
    return _Sent(tuple(value.shape), value.dtype)


def _received(value: Any, owns: dict[str, Any], own: Any) -> Any:
    if isinstance(value, dict):
        return {k: _received(inner, owns, _owner(k, owns, own)) for k, inner in value.items()}
    if not isinstance(value, _Sent):
        return value
    whole = empty(value.shape, dtype=value.dtype)
    dist.broadcast(whole, 0)
    return _rows_of(whole, own)


def _owner(key: Any, owns: dict[str, Any], default: Any) -> Any:
    """The tensor by whose name an entry goes: ``weight``, or ``state.weight.exp_avg``."""
    if not isinstance(key, str):
        return default
    parts = key.removeprefix("state.").split(".") if key not in owns else [key]
    names = (".".join(parts[:end]) for end in range(len(parts), 0, -1))
    return next((owns[name] for name in names if name in owns), default)


# --- models -------------------------------------------------------------------------------------


def _as_rows(model: Module) -> Any:
    """The context in which `FullyShardedDataParallel` gives rows."""
    if not FullyShardedDataParallel.fsdp_modules(model):
        return nullcontext()
    kind = StateDictType.SHARDED_STATE_DICT
    return FullyShardedDataParallel.state_dict_type(model, kind)


def _prefixes(model: Module, modules: Any) -> list[str]:
    """What the names of some modules' entries begin with."""
    return [f"{_name(model, raw)}." for raw, module in model.named_modules() if module in modules]


def _below_submodules(model: Module, entries: dict[str, Any], modules: Any, keep: bool) -> Any:
    warnings.warn(
        "submodules= is deprecated: choose from the state dict of the whole model by its names",
        FutureWarning,
        stacklevel=3,
    )
    prefixes = _prefixes(model, set(modules))
    return {
        name if keep else name[len(prefix) :]: value
        for prefix in prefixes
        for name, value in entries.items()
        if name.startswith(prefix)
    }


def _by_names(model: Module, state: Any) -> dict[str, Any]:
    """A model's state dict, of one that may have submodules as keys and their state dicts."""
    if not any(isinstance(key, Module) for key in state):
        return dict(state)
    warnings.warn(
        "state dicts by submodules are deprecated: pass one by the names of the whole model",
        FutureWarning,
        stacklevel=3,
    )
    return {
        prefix + name: value
        for module, own in state.items()
        for prefix in _prefixes(model, {module})
        for name, value in own.items()
    }


def get_model_state_dict(
    model: Module, *, submodules: Any = None, options: StateDictOptions | None = None
) -> dict[str, Any]:
    """A model's state dict by the names that it has without wrappers.

    With ``submodules``, which is deprecated, only the entries of these.
    """
    options = options or StateDictOptions()
    with _as_rows(model):
        entries = {_name(model, raw): value for raw, value in model.state_dict().items()}
    if submodules:
        entries = _below_submodules(model, entries, submodules, options.keep_submodule_prefixes)
    if options.ignore_frozen_params:
        for name, parameter in _parameters(model):
            if not parameter.requires_grad:
                entries.pop(name, None)
    return _kept({name: _exported(value, options) for name, value in entries.items()}, options)


def set_model_state_dict(
    model: Module, model_state_dict: dict[str, Any], *, options: StateDictOptions | None = None
) -> Any:
    """Load what `get_model_state_dict` gives, whole or rows; what `load_state_dict` returns.

    RuntimeError if entries are missing or too many, unless ``strict`` is False.
    """
    options = options or StateDictOptions()
    loaded = {}
    with _as_rows(model):
        state = model.state_dict()
        owns = {_name(model, raw): own for raw, own in state.items()}
        entries = _taken(_by_names(model, model_state_dict), options, owns)
        for raw, own in state.items():
            name = _name(model, raw)
            if name in entries:
                loaded[raw] = _rows_of(entries.pop(name), own)
        return model.load_state_dict({**loaded, **entries}, options.strict)


# --- optimizers ---------------------------------------------------------------------------------


def _list(optimizers: Any) -> list[Any]:
    return [optimizers] if hasattr(optimizers, "param_groups") else list(optimizers)


def _with_states(optimizer: Any) -> None:
    """Let an optimizer that has made no step have its states: a step of zeros at rate 0."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    if optimizer.state or any(p.grad is not None for p in parameters):
        return
    rates = [(group, group["lr"]) for group in optimizer.param_groups if "lr" in group]
    try:
        for group, _ in rates:
            group["lr"] = 0.0
        for parameter in parameters:
            if parameter.requires_grad:
                parameter.grad = zeros_like(parameter.detach())
        optimizer.step()
    finally:
        optimizer.zero_grad(set_to_none=True)
        for group, rate in rates:
            group["lr"] = rate


def get_optimizer_state_dict(
    model: Module,
    optimizers: Any,
    *,
    submodules: Any = None,
    options: StateDictOptions | None = None,
) -> dict[str, Any]:
    """The state of one or several optimizers by the names of the model's parameters.

    An optimizer that has made no step gets its states first, of zeros. ``submodules``, which is
    deprecated, chooses from the model's state dict alone, as in PyTorch.
    """
    options = options or StateDictOptions()
    optimizer_list = _list(optimizers)
    if not optimizer_list:
        raise RuntimeError("get_optimizer_state_dict: no optimizers were passed")
    names = {p: known[0] for p, known in _names(model).items()}
    states: dict[str, Any] = {}
    groups: list[dict[str, Any]] = []
    for optimizer in optimizer_list:
        _with_states(optimizer)
        state_dict = optimizer.state_dict()
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        for index, state in state_dict["state"].items():
            states[names[parameters[index]]] = _exported(state, options)
        for group in state_dict["param_groups"]:
            groups.append({**group, "params": [names[parameters[i]] for i in group["params"]]})
    whole = {"state": states, "param_groups": groups}
    return _kept(_flat(whole) if options.flatten_optimizer_state_dict else whole, options)


def _names(model: Module) -> dict[Tensor, list[str]]:
    """The names of each parameter."""
    names: dict[Tensor, list[str]] = {}
    for name, parameter in _parameters(model):
        names.setdefault(parameter, []).append(name)
    return names


def _flat_entries(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _flat_entries(f"{name}.{key}", inner)
    elif isinstance(value, (Tensor, int, float)):
        yield name, value
    else:
        raise NotImplementedError(
            f"flatten_optimizer_state_dict: {name} is a {type(value).__name__}, neither a "
            "tensor nor a number"
        )


def _flat(whole: dict[str, Any]) -> dict[str, Any]:
    flat = dict(_flat_entries("state", whole["state"]))
    for group in whole["param_groups"]:
        settings = [(key, value) for key, value in group.items() if key != "params"]
        flat |= {f"param_groups.{n}.{k}": v for n in group["params"] for k, v in settings}
    return flat


def set_optimizer_state_dict(
    model: Module,
    optimizers: Any,
    optim_state_dict: dict[str, Any],
    *,
    options: StateDictOptions | None = None,
) -> None:
    """Load what `get_optimizer_state_dict` gives, whole tensors or rows.

    RuntimeError if a parameter that requires grad has no states, unless ``strict`` is False, or
    the optimizers have none at all. An optimizer's own ``state_dict()`` is taken too.
    """
    options = options or StateDictOptions()
    optimizer_list = _list(optimizers)
    if not optimizer_list:
        raise RuntimeError("set_optimizer_state_dict: no optimizers were passed")
    state_dict = _taken(optim_state_dict, options, dict(_parameters(model)))
    if not state_dict:
        raise RuntimeError("set_optimizer_state_dict: the state dict is empty")
    if "param_groups" not in state_dict:
        state_dict = _nested(state_dict)
    names = _names(model)
    for optimizer in optimizer_list:
        if state_dict["state"] and all(isinstance(key, int) for key in state_dict["state"]):
            _load_by_numbers(optimizer, state_dict)
        else:
            _load_by_names(optimizer, state_dict, names, options.strict)


def _load_by_numbers(optimizer: Any, state_dict: dict[str, Any]) -> None:
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    states = {i: _rows_of(state, parameters[i]) for i, state in state_dict["state"].items()}
    optimizer.load_state_dict({**state_dict, "state": states})


def _load_by_names(
    optimizer: Any, state_dict: dict[str, Any], names: dict[Tensor, list[str]], strict: bool
) -> None:
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    index = {parameter: i for i, parameter in enumerate(parameters)}
    states, groups = {}, []
    for group in optimizer.param_groups:
        settings = {key: value for key, value in group.items() if key != "params"}
        known = {name for p in group["params"] for name in names[p]}
        for other in state_dict["param_groups"]:
            if known.intersection(other["params"]):
                settings |= {key: value for key, value in other.items() if key != "params"}
        groups.append({**settings, "params": [index[p] for p in group["params"]]})
        for parameter in group["params"]:
            own = [
                state_dict["state"][name]
                for name in names[parameter]
                if name in state_dict["state"]
            ]
            if own:
                states[index[parameter]] = _rows_of(own[0], parameter)
            elif strict and state_dict["state"] and parameter.requires_grad:
                raise RuntimeError(
                    f"Missing optimizer state for parameter '{names[parameter][0]}' in checkpoint; "
                    "to load anyway, use StateDictOptions(strict=False)"
                )
    optimizer.load_state_dict({"state": states, "param_groups": groups})


def _nested(flat: dict[str, Any]) -> dict[str, Any]:
    """What `_flat` has made flat; each parameter has a group of its own."""
    settings: dict[str, dict[str, Any]] = {}
    for key, value in flat.items():
        if key.startswith("param_groups."):
            name, _, setting = key.removeprefix("param_groups.").rpartition(".")
            settings.setdefault(name, {})[setting] = value
    states: dict[str, Any] = {}
    for key, value in flat.items():
        words = key.removeprefix("state.").split(".")
        ends = [end for end in range(1, len(words)) if ".".join(words[:end]) in settings]
        if key.startswith("state.") and ends:
            inner = states.setdefault(".".join(words[: ends[-1]]), {})
            for word in words[ends[-1] : -1]:
                inner = inner.setdefault(word, {})
            inner[words[-1]] = value
    groups = [{**own, "params": [name]} for name, own in settings.items()]
    return {"state": states, "param_groups": groups}


# --- both ---------------------------------------------------------------------------------------


def get_state_dict(
    model: Module,
    optimizers: Any,
    *,
    submodules: Any = None,
    options: StateDictOptions | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What `get_model_state_dict` and `get_optimizer_state_dict` give."""
    optimizer_list = _list(optimizers)
    return (
        get_model_state_dict(model, submodules=submodules, options=options),
        get_optimizer_state_dict(model, optimizer_list, options=options) if optimizer_list else {},
    )


def set_state_dict(
    model: Module,
    optimizers: Any,
    *,
    model_state_dict: dict[str, Any],
    optim_state_dict: dict[str, Any],
    options: StateDictOptions | None = None,
) -> Any:
    """Load what `get_state_dict` gives; what the model's `load_state_dict` returns.

    Without optimizers, or with an empty state dict of the model, the rest is loaded.
    """
    optimizer_list = _list(optimizers)
    if optimizer_list:
        set_optimizer_state_dict(model, optimizer_list, optim_state_dict, options=options)
    if not model_state_dict and not (options and options.broadcast_from_rank0):
        return IncompatibleKeys([], [])
    return set_model_state_dict(model, model_state_dict, options=options)
