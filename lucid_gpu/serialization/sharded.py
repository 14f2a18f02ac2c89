"""Checkpoints of several ranks: a file of each, and what lies where.

A folder holds ``metadata.json``, which names for each entry the file that has it, or for one whose
rows ranks share (`distributed.tensor.DTensor`) its shape and the file of each part. Files of a new
checkpoint have new names, and metadata takes the old one's place once all ranks have written: a
process that is killed before leaves the old checkpoint whole.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Iterator
from typing import Any

from lucid_gpu import distributed as dist
from lucid_gpu.ops.shape import cat
from lucid_gpu.serialization.errors import CheckpointError
from lucid_gpu.serialization.loading import load as load_file
from lucid_gpu.serialization.saving import save as save_file
from lucid_gpu.tape.modes import no_grad
from lucid_gpu.tensor import Tensor

__all__ = ["load", "save"]

_METADATA = "metadata.json"
_FORMAT = "lucid_gpu.distributed.checkpoint 1"
_FILE = re.compile(r"[0-9a-f]{8}-[0-9]+\.(pt|safetensors)")  # the second from before


def _entries(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """What nested dictionaries and lists hold, by names joined with dots."""
    if isinstance(value, (dict, list)) and value:
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, one in items:
            yield from _entries(one, (*path, str(key)))
    else:
        yield ".".join(path), value


def _named(state_dict: dict[str, Any]) -> dict[str, Any]:
    """The entries by their names.

    ValueError where two have one name, as ``{"a.b": x, "a": {"b": y}}``.
    """
    named: dict[str, Any] = {}
    for name, value in _entries(state_dict):
        if name in named:
            raise ValueError(
                f"duplicated flatten key {name}: keys of nested dictionaries and places in lists, "
                "joined with dots, name an entry; rename one of the two"
            )
        named[name] = value
    return named


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


Part = tuple[str, int, int]  # an entry's name, its first row and the one after its last; or 0, -1


def _part(name: str, value: Any) -> Part:
    """What of an entry this rank has: all of it, or rows."""
    return (name, *value.sharding.rows()) if hasattr(value, "sharding") else (name, 0, -1)


def _shape(value: Any) -> list[int]:
    """The whole shape of a tensor of which this rank has all, or rows."""
    return list(value.sharding.shape if hasattr(value, "sharding") else value.shape)


def _writers(sizes: list[dict[Part, int]]) -> dict[Part, int]:
    """Which rank writes each part: of those that have it, the one with the least so far."""
    load = [0] * len(sizes)
    writers: dict[Part, int] = {}
    for name in sorted({n for rank in sizes for n in rank}):
        holders = [rank for rank, has in enumerate(sizes) if name in has]
        writers[name] = min(holders, key=lambda rank: (load[rank], rank))
        load[writers[name]] += sizes[writers[name]][name]
    return writers


def _apart(entries: dict[str, Any]) -> dict[str, Any]:
    """Entries whose memories hold nothing else: a file has whole memories, each of one type."""
    kinds: dict[int, Any] = {}
    apart = dict(entries)
    for name, value in entries.items():
        if isinstance(value, Tensor) and not value.is_meta:
            memory = value.untyped_storage()
            kind = kinds.setdefault(memory._cdata, value.dtype)
            if memory.nbytes() > value.nbytes or kind is not value.dtype:
                apart[name] = value.detach().clone()
    return apart


def save(
    state_dict: dict[str, Any], *, checkpoint_id: str | os.PathLike[str], process_group: Any = None
) -> None:
    """Write a checkpoint; all ranks call it.

    What several ranks have under one name is equal, and written by one of them; of parameters after
    `distributed.fsdp.fully_shard`, and of their optimizer's states, each writes its rows.

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
    ValueError
        If two entries have one name.
    """
    folder = os.fspath(checkpoint_id)
    entries = _named(_plain(state_dict))
    sizes = {_part(n, v): v.nbytes if isinstance(v, Tensor) else 0 for n, v in entries.items()}
    shapes = {n: _shape(v) for n, v in entries.items() if hasattr(v, "sharding")}
    described = _everyone((sizes, shapes, secrets.token_hex(4)), process_group)
    writers, token = _writers([one for one, _, _ in described]), described[0][2]
    rank = dist.get_rank(process_group) if dist.is_initialized() else 0
    mine = {
        n: v.to_local() if n in shapes else v
        for n, v in entries.items()
        if writers[_part(n, v)] == rank
    }
    error: Exception | None = None
    try:
        os.makedirs(folder, exist_ok=True)
        save_file(_apart(mine), os.path.join(folder, f"{token}-{rank}.pt"))
    except (OSError, TypeError, ValueError, RuntimeError) as failed:
        error = failed
    _agree(error, process_group, "save")
    if rank == 0:
        try:
            _finish(folder, token, writers, shapes)
        except OSError as failed:
            error = failed
    _agree(error, process_group, "save")


def _finish(
    folder: str, token: str, writers: dict[Part, int], shapes: dict[str, list[int]]
) -> None:
    """Put the new metadata in the old one's place, and remove files that nothing names any more."""
    files: dict[str, Any] = {name: {"shape": shapes[name], "rows": []} for name in shapes}
    for (name, start, end), rank in writers.items():
        own = f"{token}-{rank}.pt"
        if name not in shapes:
            files[name] = own
        elif end > start:
            files[name]["rows"].append([start, end, own])
    target = os.path.join(folder, _METADATA)
    with open(f"{target}.new", "w") as file:
        json.dump({"format": _FORMAT, "entries": files}, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{target}.new", target)
    for name in os.listdir(folder):
        if _FILE.fullmatch(name) and not name.startswith(f"{token}-"):
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
        Accepted and ignored: each rank reads what it needs.

    Raises
    ------
    CheckpointError
        If there is no whole checkpoint, or tensors differ in shape.
    RuntimeError
        For a name that the checkpoint does not have. Nothing has been written then.
    ValueError
        If two entries have one name.
    """
    folder = os.fspath(checkpoint_id)
    files = _metadata(folder)
    plain = _plain(state_dict)
    wanted = _named(plain)
    for name in wanted:
        if name not in files:
            raise RuntimeError(f"Missing key in checkpoint state_dict: {name}.")
    read = _read(folder, files, wanted)
    with no_grad():
        filled = _filled(plain, (), read)
    for key, value in state_dict.items():
        if hasattr(value, "load_state_dict"):
            value.load_state_dict(filled[key])
        else:
            state_dict[key] = filled[key]


def _read(folder: str, files: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
    """What a checkpoint has of the entries wanted: of tensors the rows that this rank has."""
    needed: dict[str, list[tuple[str, int, int]]] = {}  # by file: entries and rows, -1 for all
    for name, value in wanted.items():
        entry = files[name]
        if isinstance(entry, str):
            needed.setdefault(entry, []).append((name, 0, -1))
            continue
        _check_shape(name, entry["shape"], value)
        first, last = (
            _part(name, value)[1:] if hasattr(value, "sharding") else (0, entry["shape"][0])
        )
        for start, end, file in entry["rows"]:
            if start < last and first < end:
                needed.setdefault(file, []).append((name, start, end))
    parts: dict[str, list[tuple[int, Any]]] = {}
    for file in sorted(needed):
        content = load_file(os.path.join(folder, file))
        for name, start, end in needed[file]:
            parts.setdefault(name, []).append(
                (start, _rows(name, content[name], start, end, wanted[name]))
            )
    entries: dict[str, Any] = {}
    for name, value in wanted.items():
        some = [part for _, part in sorted(parts.get(name, ()), key=lambda part: part[0])]
        if not some:  # no rows
            some = [value.to_local()]
        entries[name] = some[0] if len(some) == 1 else cat(some)
    return entries


def _rows(name: str, content: Any, start: int, end: int, value: Any) -> Any:
    """Of rows that a file has, or of a whole entry, what this rank wants."""
    if end < 0:
        if isinstance(value, Tensor):
            _check_shape(name, list(content.shape), value)
        end = len(content) if hasattr(value, "sharding") else end
    if not hasattr(value, "sharding"):
        return content
    first, last = value.sharding.rows()
    return content[max(first - start, 0) : min(last, end) - start].clone()


def _check_shape(name: str, shape: list[int], value: Any) -> None:
    if not isinstance(value, Tensor):
        raise CheckpointError(f"{name} is a tensor in the checkpoint, and not here")
    if shape != _shape(value):
        raise CheckpointError(
            f"{name} has shape {shape} in the checkpoint, and {_shape(value)} here"
        )


def _metadata(folder: str) -> dict[str, Any]:
    path = os.path.join(folder, _METADATA)
    try:
        with open(path) as file:
            metadata = json.load(file)
        files = metadata["entries"]
        known = metadata["format"] == _FORMAT and all(
            isinstance(file, str) and os.path.basename(file) == file
            for entry in files.values()
            for file in ([entry] if isinstance(entry, str) else [f for *_, f in entry["rows"]])
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
    loaded = read[".".join(path)]
    if not isinstance(value, Tensor):
        return loaded
    held = value.to_local() if hasattr(value, "sharding") else value
    held.copy_(loaded)
    return value
