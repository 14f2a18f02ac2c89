"""Checkpoints of several ranks: a safetensors file of each, and what lies where.

A folder holds ``metadata.json``, which names for each entry the file that has it. Files of a new
checkpoint have new names, and metadata takes the old one's place once all ranks have written: a
process that is killed before leaves the old checkpoint whole.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from typing import Any

from lucid_gpu import distributed as dist
from lucid_gpu.serialization.errors import CheckpointError
from lucid_gpu.serialization.loading import load as load_file
from lucid_gpu.serialization.saving import save as save_file
from lucid_gpu.tape.modes import no_grad
from lucid_gpu.tensor import Tensor

__all__ = ["load", "save"]

_METADATA = "metadata.json"
_FORMAT = "lucid_gpu.distributed.checkpoint 1"


def _entries(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """What nested dictionaries and lists hold, by names joined with dots."""
    if isinstance(value, (dict, list)) and value:
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, one in items:
            yield from _entries(one, (*path, str(key)))
    else:
        yield ".".join(path), value


def _plain(state_dict: dict[str, Any]) -> dict[str, Any]:
    """The state dicts of modules and optimizers that stand for themselves."""
    return {k: v.state_dict() if hasattr(v, "state_dict") else v for k, v in state_dict.items()}


def _everyone(value: Any, group: Any) -> list[Any]:
    """The values of all ranks; one without a group."""
    if not dist.is_initialized():
        return [value]
    every: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(every, value, group)
    return every


def _agree(error: Exception | None, group: Any, what: str) -> None:
    """Raise on all ranks where one failed."""
    for rank, reason in enumerate(_everyone(None if error is None else str(error), group)):
        if reason is not None:
            raise CheckpointError(f"{what}: rank {rank} of the group failed: {reason}") from error


def _writers(sizes: list[dict[str, int]]) -> dict[str, int]:
    """Which rank writes each entry: of those that have it, the one with the least so far."""
    load = [0] * len(sizes)
    found: dict[str, int] = {}
    for name in sorted({n for rank in sizes for n in rank}):
        holders = [rank for rank, has in enumerate(sizes) if name in has]
        found[name] = min(holders, key=lambda rank: (load[rank], rank))
        load[found[name]] += sizes[found[name]][name]
    return found


def save(
    state_dict: dict[str, Any], *, checkpoint_id: str | os.PathLike[str], process_group: Any = None
) -> None:
    """Write a checkpoint; all ranks call it.

    What several ranks have under one name is equal, and written by one of them.

    Parameters
    ----------
    state_dict : dict
        Nested dictionaries and lists of tensors and plain values; modules and optimizers stand for
        their state dicts.
    checkpoint_id : path
        A folder that all ranks can write. A checkpoint that is there is replaced.
    process_group : ProcessGroup, optional

    Raises
    ------
    CheckpointError
        On all ranks, where one could not write. The old checkpoint is then still there.
    """
    folder = os.fspath(checkpoint_id)
    entries = dict(_entries(_plain(state_dict)))
    sizes = {n: v.nbytes if isinstance(v, Tensor) else 0 for n, v in entries.items()}
    described = _everyone((sizes, secrets.token_hex(4)), process_group)
    writers, token = _writers([one for one, _ in described]), described[0][1]
    rank = dist.get_rank(process_group) if dist.is_initialized() else 0
    mine = {n: v for n, v in entries.items() if writers[n] == rank}
    error: Exception | None = None
    try:
        os.makedirs(folder, exist_ok=True)
        save_file(mine, os.path.join(folder, f"{token}-{rank}.safetensors"))
    except (OSError, TypeError, ValueError) as failed:
        error = failed
    _agree(error, process_group, "save")
    if rank == 0:
        try:
            _finish(folder, token, writers)
        except OSError as failed:
            error = failed
    _agree(error, process_group, "save")


def _finish(folder: str, token: str, writers: dict[str, int]) -> None:
    """Put the new metadata in the old one's place, and remove files that nothing names any more."""
    files = {name: f"{token}-{rank}.safetensors" for name, rank in writers.items()}
    target = os.path.join(folder, _METADATA)
    with open(f"{target}.new", "w") as file:
        json.dump({"format": _FORMAT, "entries": files}, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{target}.new", target)
    for name in os.listdir(folder):
        if name.endswith(".safetensors") and not name.startswith(f"{token}-"):
            os.unlink(os.path.join(folder, name))


def load(
    state_dict: dict[str, Any], *, checkpoint_id: str | os.PathLike[str], process_group: Any = None
) -> None:
    """Read a checkpoint into a state dict; any number of ranks may, at once.

    Parameters
    ----------
    state_dict : dict
        As for `save`: its tensors are written in place, its other values replaced, and modules and
        optimizers load their part.
    checkpoint_id : path
    process_group : ProcessGroup, optional
        Taken and unused: each rank reads what it needs.

    Raises
    ------
    CheckpointError
        Where there is no whole checkpoint, or tensors differ in shape.
    RuntimeError
        For a name that the checkpoint does not have. Nothing has been written then.
    """
    folder = os.fspath(checkpoint_id)
    files = _metadata(folder)
    plain = _plain(state_dict)
    wanted = dict(_entries(plain))
    for name in wanted:
        if name not in files:
            raise RuntimeError(f"Missing key in checkpoint state_dict: {name}.")
    read: dict[str, Any] = {}
    for file in sorted({files[name] for name in wanted}):
        read.update(load_file(os.path.join(folder, file)))
    for name, value in wanted.items():
        if isinstance(value, Tensor) and value.shape != read[name].shape:
            raise CheckpointError(
                f"{name} has shape {list(read[name].shape)} in the checkpoint, and "
                f"{list(value.shape)} here"
            )
    with no_grad():
        filled = _filled(plain, (), read)
    for key, value in state_dict.items():
        if hasattr(value, "load_state_dict"):
            value.load_state_dict(filled[key])
        else:
            state_dict[key] = filled[key]


def _metadata(folder: str) -> dict[str, str]:
    path = os.path.join(folder, _METADATA)
    try:
        with open(path) as file:
            found = json.load(file)
        files = found["entries"]
        known = found["format"] == _FORMAT and all(
            isinstance(name, str) and os.path.basename(name) == name for name in files.values()
        )
    except FileNotFoundError:
        raise CheckpointError(f"{folder} holds no checkpoint: there is no {_METADATA}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        known, files = False, {}
    if not known:
        raise CheckpointError(f"{path} is damaged, or of another program")
    return dict(files)


def _filled(value: Any, path: tuple[str, ...], read: dict[str, Any]) -> Any:
    """A value with what was read: tensors in place."""
    if isinstance(value, dict) and value:
        for key in value:
            value[key] = _filled(value[key], (*path, str(key)), read)
        return value
    if isinstance(value, list) and value:
        value[:] = [_filled(one, (*path, str(i)), read) for i, one in enumerate(value)]
        return value
    found = read[".".join(path)]
    return value.copy_(found) if isinstance(value, Tensor) else found
