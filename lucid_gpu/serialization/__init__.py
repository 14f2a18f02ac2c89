"""Saving and loading, never running code from a file unless the user says so.

`save` writes a `safetensors <https://github.com/huggingface/safetensors>`_ file, which any reader
of that format opens: eight bytes of header length, a JSON header with each tensor's type, shape and
place, then the bytes of the tensors. What else was saved is JSON in the header (`structure.py`).
`load` reads those, any other safetensors file, and what ``torch.save`` writes (`torch_files.py`).
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
from lucid_gpu.serialization.saving import save

DEFAULT_PROTOCOL = 2  # of pickle, which packages hand to `save`; nothing is pickled
# What annotations of packages say of `load`'s argument.
MAP_LOCATION: TypeAlias = Callable[[Any, str], Any] | device | str | dict[str, str] | None

__all__ = [
    "DEFAULT_PROTOCOL",
    "MAP_LOCATION",
    "CheckpointError",
    "add_safe_globals",
    "clear_safe_globals",
    "get_safe_globals",
    "load",
    "safe_globals",
    "save",
]
