"""Saving and loading, never running code from a file unless the user says so.

`save` writes PyTorch's archives (`torch_writing.py`), which both libraries read. `load` reads those
(`torch_files.py`), safetensors files, and what `save` wrote before: safetensors files with the
structure of the object as JSON in their header (`structure.py`).
"""

from collections.abc import Callable
from typing import Any, TypeAlias

from lucid_gpu.device import device
from lucid_gpu.serialization.errors import CheckpointError
from lucid_gpu.serialization.loading import load
from lucid_gpu.serialization.safe_globals import (
    add_safe_globals,
    clear_safe_globals,
    get_safe_globals,
    safe_globals,
)
from lucid_gpu.serialization.saving import DEFAULT_PROTOCOL, save

# What annotations of packages say of `load`'s argument.
MAP_LOCATION: TypeAlias = Callable[[Any, str], Any] | device | str | dict[str, str] | None

__all__ = [
    "DEFAULT_PROTOCOL",
    "MAP_LOCATION",
    "CheckpointError",
    "SourceChangeWarning",
    "add_safe_globals",
    "clear_safe_globals",
    "default_restore_location",
    "get_safe_globals",
    "load",
    "location_tag",
    "normalize_storage_type",
    "safe_globals",
    "save",
]


class SourceChangeWarning(Warning):
    """PyTorch's warning of whole modules in its oldest files; filters of packages name it."""


def default_restore_location(storage: Any, location: str) -> Any:
    """A tensor or storage on the device of that name, as `load` puts it where it was saved.

    Raises
    ------
    RuntimeError
        If there is no such device.
    """
    return storage.to(device=device(location))


def location_tag(storage: Any) -> str:
    """The name of the device of a tensor or storage, such as "cpu" or "cuda:0"."""
    return str(storage.device)


def normalize_storage_type(storage_type: type) -> type:
    """The type of storages of that name, such as `FloatStorage` for one of PyTorch's on a GPU."""
    from lucid_gpu.ops.storage_types import TYPES

    return TYPES["cpu", storage_type.__name__]
