"""Saving and loading, never running code from a file unless the user says so.

`save` writes PyTorch's archives (`torch_writing.py`), which both libraries read. `load` reads those
(`torch_files.py`), safetensors files, and what `save` wrote before: safetensors files with the
structure of the object as JSON in their header (`structure.py`).
"""

import pickle  # defaults of packages name it here
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeAlias

from lucid_gpu.compat.refused import refused
from lucid_gpu.device import device
from lucid_gpu.ops.user_warnings import warn_user
from lucid_gpu.serialization.errors import CheckpointError
from lucid_gpu.serialization.loading import get_unsafe_globals_in_checkpoint, load
from lucid_gpu.serialization.locations import default_restore_location, location_tag
from lucid_gpu.serialization.options import (
    LoadEndianness,
    get_crc32_options,
    get_default_load_endianness,
    get_default_mmap_options,
    set_crc32_options,
    set_default_load_endianness,
    set_default_mmap_options,
    skip_data,
)
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
    "LoadEndianness",
    "SourceChangeWarning",
    "add_safe_globals",
    "check_module_version_greater_or_equal",
    "clear_safe_globals",
    "default_restore_location",
    "get_crc32_options",
    "get_default_load_endianness",
    "get_default_mmap_options",
    "get_safe_globals",
    "get_unsafe_globals_in_checkpoint",
    "load",
    "location_tag",
    "normalize_storage_type",
    "register_package",
    "safe_globals",
    "save",
    "set_crc32_options",
    "set_default_load_endianness",
    "set_default_mmap_options",
    "skip_data",
]


class SourceChangeWarning(Warning):
    """PyTorch's warning of whole modules in its oldest files; filters of packages name it."""


def normalize_storage_type(storage_type: type) -> type:
    """The type of storages of that name, such as `FloatStorage` for one of PyTorch's on a GPU."""
    from lucid_gpu.ops.storage_types import TYPES

    return TYPES["cpu", storage_type.__name__]


def check_module_version_greater_or_equal(
    module: ModuleType, req_version_tuple: tuple[Any, ...], error_if_malformed: bool = True
) -> bool:
    """Whether the version of a module is at least that of a tuple, part by part.

    RuntimeError for a version of another form, or a warning and True.
    """
    parts = str(module.__version__).split(".")
    try:
        version = tuple(type(r)(parts[i]) for i, r in enumerate(req_version_tuple))
    except (ValueError, IndexError) as error:
        words = (
            f"'{module.__name__}' module version string is malformed '{module.__version__}' and "
            f"cannot be compared with tuple {req_version_tuple}"
        )
        if error_if_malformed:
            raise RuntimeError(words) from error
        warn_user(f"{words}, but continuing assuming that requirement is met")
        return True
    return version >= req_version_tuple


register_package = refused(
    "serialization.register_package",
    "tensors are on the devices cpu, cuda and meta; load(map_location=function) places others",
)
