"""Loading a state dict: all of it is checked before any of it is written."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from lucid_gpu.autograd.swapping import swap_tensors
from lucid_gpu.nn.modules.conversion import Conversion
from lucid_gpu.nn.parameter import Parameter, UninitializedBuffer, UninitializedParameter
from lucid_gpu.tape.door import type_name
from lucid_gpu.tape.modes import no_grad
from lucid_gpu.tensor import Tensor

_LAZY = (UninitializedParameter, UninitializedBuffer)


class IncompatibleKeys(NamedTuple):
    """What `Module.load_state_dict` did not find, and what it did not expect."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return (
            f"_IncompatibleKeys(missing_keys={self.missing_keys}, "
            f"unexpected_keys={self.unexpected_keys})"
        )


class Problems(list[str]):
    """The errors of a load, and what is to be written if there are none."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[Callable[[], None]] = []


def load(module: Any, state_dict: Mapping[str, Any], strict: bool, assign: bool) -> Any:
    """See `Module.load_state_dict`."""
    if not isinstance(state_dict, Mapping):
        raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
    versions = getattr(state_dict, "_metadata", None)
    state: Any = OrderedDict(state_dict)
    if versions is not None:
        state._metadata = versions
    missing: list[str] = []
    unexpected: list[str] = []
    problems = Problems()
    visited: list[Any] = []
    for one, own, prefix in _with_entries(module, state, ""):
        local = {} if versions is None else dict(versions.get(prefix[:-1], {}))
        if assign:
            local["assign_to_params_buffers"] = True
        one._load_from_state_dict(own, prefix, local, True, missing, unexpected, problems)
        visited.append(one)
    forgiving = any(one._load_state_dict_post_hooks for one in visited)
    if not problems and (forgiving or not strict or not (missing or unexpected)):
        with no_grad():
            for write in problems.writes:
                write()
    incompatible = IncompatibleKeys(missing, unexpected)
    _call_hooks(visited, incompatible)
    if strict:
        problems[:0] = key_problems(missing, unexpected)
    if problems:
        raise RuntimeError(
            f"Error(s) in loading state_dict for {type(module).__name__}:\n\t"
            + "\n\t".join(problems)
        )
    return incompatible


def _with_entries(
    module: Any, own: Mapping[str, Any], prefix: str
) -> Iterator[tuple[Any, Mapping[str, Any], str]]:
    """Each module with its part of a state, children after what was done to their parent."""
    yield module, own, prefix
    for name, child in module._modules.items():
        if child is not None:
            below = f"{prefix}{name}."
            part = {k: v for k, v in own.items() if k.startswith(below)}
            yield from _with_entries(child, part, below)


def _call_hooks(visited: list[Any], incompatible: IncompatibleKeys) -> None:
    """Hooks run children first; what they leave of the keys counts."""
    for one in reversed(visited):
        for hook in one._load_state_dict_post_hooks.values():
            if hook(one, incompatible) is not None:
                raise RuntimeError(
                    "Hooks registered with ``register_load_state_dict_post_hook`` are not expected "
                    "to return new values, if incompatible_keys need to be modified, it should be "
                    "done inplace."
                )


def load_own(
    module: Any,
    state_dict: Mapping[str, Any],
    prefix: str,
    local_metadata: dict[str, Any],
    strict: bool,
    missing_keys: list[str],
    unexpected_keys: list[str],
    error_msgs: list[str],
) -> None:
    """See `Module._load_from_state_dict`."""
    for hook in tuple(module._load_state_dict_pre_hooks.values()):
        hook(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
    assign = bool(local_metadata.get("assign_to_params_buffers"))
    writes: list[Callable[[], None]] = []
    own = dict(module._own_state())
    for name, value in own.items():
        key = prefix + name
        if key not in state_dict:
            missing_keys.append(key)
            continue
        entry = state_dict[key]
        if isinstance(entry, Tensor) and not value.ndim and entry.ndim == 1 and entry.numel():
            entry = entry[0]  # PyTorch 0.3 kept numbers as vectors of one
        wrong = value_problems(key, value, entry)
        if not (assign or wrong) and value.device.type != entry.device.type:
            wrong = _problems_without_elements(key, value, entry)
        error_msgs += wrong
        if not wrong:
            writes.append(_writing(module, name, entry, assign))
    extra = f"{prefix}_extra_state"
    if module._has_own("set_extra_state"):
        if extra in state_dict:  # now: it may make the children that the entries below are for
            with no_grad():
                module.set_extra_state(state_dict[extra])
        else:
            missing_keys.append(extra)
    elif extra in state_dict:
        unexpected_keys.append(extra)
    for key in state_dict:
        if key.startswith(prefix) and key != extra:
            name, *rest = key[len(prefix) :].split(".", 1)
            if (name not in module._modules) if rest else (name not in own):
                unexpected_keys.append(key)
    if isinstance(error_msgs, Problems):
        error_msgs.writes += writes
    else:  # called by hand
        with no_grad():
            for write in writes:
                write()


def _writing(module: Any, name: str, value: Tensor, assign: bool) -> Callable[[], None]:
    def write() -> None:
        own = getattr(module, name)
        if isinstance(own, _LAZY):
            if isinstance(value, _LAZY):
                return
            own.materialize(value.shape)
        if Conversion.swap:
            _swap(own, value, assign)
        elif not assign or hasattr(own, "sharding"):  # rows of a parameter stay these rows
            own.copy_(value)
        elif isinstance(own, Parameter):
            kept = isinstance(value, Parameter)
            module._parameters[name] = value if kept else Parameter(value, own.requires_grad)
        else:
            module._buffers[name] = value

    return write


def _swap(own: Tensor, value: Tensor, assign: bool) -> None:
    """Take what `Tensor.module_load` gives, by exchange."""
    new = own.module_load(value, assign=assign)
    if new is own or new is value:
        raise RuntimeError(
            "module_load returned one of self or other, please .detach() the result if returning "
            "one of the inputs in module_load"
        )
    if isinstance(own, Parameter):
        made = isinstance(new, Parameter)
        kept = new.requires_grad_(own.requires_grad) if made else Parameter(new, own.requires_grad)
        new = kept
    swap_tensors(own, new)


def _problems_without_elements(key: str, own: Tensor, value: Tensor) -> list[str]:
    """What is said of a copy from the device meta; of one to it, a warning."""
    if own.device.type == "meta":
        warnings.warn(
            f"for {key}: copying from a non-meta parameter in the checkpoint to a meta parameter "
            "in the current model, which is a no-op. (Did you mean to pass `assign=True` to "
            "assign items in the state dictionary to their corresponding key in the module "
            "instead of copying them in place?)",
            stacklevel=2,
        )
    if value.device.type != "meta":
        return []
    return [
        f'While copying the parameter named "{key}", whose dimensions in the model are '
        f"{own.shape} and whose dimensions in the checkpoint are {value.shape}, an exception "
        "occurred : ('Cannot copy out of meta tensor; no data!',)."
    ]


def _quoted(names: list[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def key_problems(missing: list[str], unexpected: list[str]) -> list[str]:
    """What is said of keys that are not there, and of those that should not be."""
    problems = []
    if missing:
        problems.append(f"Missing key(s) in state_dict: {_quoted(missing)}. ")
    if unexpected:
        problems.append(f"Unexpected key(s) in state_dict: {_quoted(unexpected)}. ")
    return problems


def value_problems(name: str, own: Tensor, value: Any) -> list[str]:
    """What is said of a value that cannot be taken."""
    if not isinstance(value, Tensor):
        kind = type_name(value)
        return [
            f'While copying the parameter named "{name}", expected torch.Tensor or Tensor-like '
            f"object from checkpoint but received {kind if ' ' in kind else type(value)}"
        ]
    if isinstance(own, _LAZY):
        return []  # it takes any shape
    if tuple(value.shape) != tuple(own.shape):
        return [
            f"size mismatch for {name}: copying a param with shape {value.shape} from checkpoint, "
            f"the shape in current model is {own.shape}."
        ]
    return []
