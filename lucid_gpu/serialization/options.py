"""Settings of `save` and `load`, which ``utils.serialization.config`` shows."""

from __future__ import annotations

import enum
import mmap
import os
import threading
from types import SimpleNamespace
from typing import Any

__all__ = [
    "LoadEndianness",
    "forced_weights_only",
    "get_crc32_options",
    "get_default_load_endianness",
    "get_default_mmap_options",
    "load",
    "maps_shared",
    "save",
    "set_crc32_options",
    "set_default_load_endianness",
    "set_default_mmap_options",
    "skip_data",
    "skips_data",
]

_SHARED = getattr(mmap, "MAP_SHARED", None)  # Windows has neither
_PRIVATE = getattr(mmap, "MAP_PRIVATE", None)


class LoadEndianness(enum.Enum):
    """How the bytes of numbers lie in files that do not say it."""

    NATIVE = 1
    LITTLE = 2
    BIG = 3


# mmap: what `load` takes where it is not said; endianness: how bytes lie in archives that do not
# say it, little by default; mmap_flags: `set_default_mmap_options`. Where records begin is read
# from the file, whatever calculate_storage_offsets says.
load: Any = SimpleNamespace(
    mmap=False, endianness=None, mmap_flags=_PRIVATE, calculate_storage_offsets=False
)
# storage_alignment: at which multiples of bytes storages begin. Records have checksums in any case.
save: Any = SimpleNamespace(
    compute_crc32=True, use_pinned_memory_for_d2h=False, storage_alignment=64
)


def get_crc32_options() -> bool:
    """What `set_crc32_options` was given: True by default."""
    return bool(save.compute_crc32)


def set_crc32_options(compute_crc32: bool) -> None:
    """Accepted for compatibility: `save` writes checksums in any case; `load` needs none."""
    save.compute_crc32 = compute_crc32


def get_default_load_endianness() -> LoadEndianness | None:
    """What `load` takes for archives that do not say it: None, which is little, by default."""
    order: LoadEndianness | None = load.endianness
    return order


def set_default_load_endianness(endianness: LoadEndianness | None) -> None:
    """Say how bytes lie in archives that do not say it; TypeError for what is no order."""
    if not isinstance(endianness, LoadEndianness) and endianness is not None:
        raise TypeError("Invalid argument type in function set_default_load_endianness")
    load.endianness = endianness


def get_default_mmap_options() -> int | None:
    """How `load` maps files: ``mmap.MAP_PRIVATE`` by default, None on Windows."""
    flags: int | None = load.mmap_flags
    return flags


class set_default_mmap_options:
    """Say how `load` maps files, from here on or for a ``with`` block.

    Parameters
    ----------
    flags : int
        ``mmap.MAP_PRIVATE``, or ``mmap.MAP_SHARED``: what is written to tensors is then written to
        the file, which must be writable, and which `load` then refuses for its checksum.

    Raises
    ------
    ValueError
        For other flags.
    RuntimeError
        On Windows.
    """

    def __init__(self, flags: int) -> None:
        if _SHARED is None:
            raise RuntimeError(
                "Changing the default mmap options is currently not supported for Windows"
            )
        if flags not in (_PRIVATE, _SHARED):
            raise ValueError(
                "Invalid argument in function set_default_mmap_options, expected mmap.MAP_PRIVATE "
                f"or mmap.MAP_SHARED, but got {flags}"
            )
        self.prev, load.mmap_flags = load.mmap_flags, flags

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exception: Any) -> None:
        load.mmap_flags = self.prev


def maps_shared() -> bool:
    """Whether what is written to a mapped file's tensors goes to the file."""
    return bool(_SHARED is not None and load.mmap_flags == _SHARED)


# --- files without the bytes of their tensors -----------------------------------------------------


class _Local(threading.local):
    skips = False


_local = _Local()


def skips_data() -> bool:
    """Whether this thread is inside `skip_data`."""
    return _local.skips


class skip_data:
    """Save files that leave room for the bytes of tensors, and load tensors of zeros.

    The room is filled with zeros, and has no checksum, so that the bytes may be written later.

    Parameters
    ----------
    materialize_fake_tensors : bool
        Accepted for compatibility: there are no fake tensors.
    """

    def __init__(self, materialize_fake_tensors: bool = False) -> None:
        self.materialize_fake_tensors = materialize_fake_tensors
        self._before: list[bool] = []

    def __enter__(self) -> None:
        self._before.append(_local.skips)
        _local.skips = True

    def __exit__(self, *exception: Any) -> None:
        _local.skips = self._before.pop()


# --- what the environment says --------------------------------------------------------------------


def _says(name: str) -> bool:
    return os.environ.get(name, "0").lower() in ("1", "y", "yes", "true")


def forced_weights_only() -> bool | None:
    """What ``TORCH_FORCE_WEIGHTS_ONLY_LOAD`` and ``TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD`` ask for.

    RuntimeError where both are set, None where neither is.
    """
    safe, unsafe = _says("TORCH_FORCE_WEIGHTS_ONLY_LOAD"), _says("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD")
    if safe and unsafe:
        raise RuntimeError(
            "Only one of `TORCH_FORCE_WEIGHTS_ONLY_LOAD` or `TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD` "
            "should be set, but both were set."
        )
    return safe if safe or unsafe else None
