"""Reading files of every kind that `load` knows."""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Callable
from typing import Any, BinaryIO

from lucid_gpu.ops.user_warnings import warn_user
from lucid_gpu.serialization import safetensors
from lucid_gpu.serialization.errors import CheckpointError, Damage
from lucid_gpu.serialization.locations import placing
from lucid_gpu.serialization.options import forced_weights_only, maps_shared
from lucid_gpu.serialization.options import load as config
from lucid_gpu.serialization.structure import unpacked
from lucid_gpu.serialization.torch_files import Trust, pickle_of, read_legacy, read_zip
from lucid_gpu.serialization.torch_globals import is_known, names_of

__all__ = ["get_unsafe_globals_in_checkpoint", "load"]

_IN_PLACE = (io.BufferedReader, io.BufferedRandom, io.BytesIO)  # not read whole first


def load(
    f: Any,
    map_location: Any = None,
    pickle_module: Any = None,
    *,
    weights_only: bool | None = None,
    mmap: bool | None = None,
    **pickle_load_args: Any,
) -> Any:
    """Read what `save` or ``torch.save`` wrote, or any safetensors file.

    Parameters
    ----------
    f : str, path or binary file object
    map_location : str, device, dict or callable, optional
        Where tensors go; by default to where they were saved. A dict maps places, a callable gets
        a tensor on the CPU and its place.
    weights_only : bool
        True by default, unless there is a ``pickle_module``: no code is ever run from the file.
        False admits pickled objects, such as whole modules: loading the file can then run any code.
    mmap : bool
        Map the file instead of reading it: pages are read when touched, and the checksum is not
        looked at. For paths only; ``utils.serialization.config.load.mmap`` by default.
    pickle_module : module, optional
        Whose `Unpickler` makes the objects, where that may run code.
    **pickle_load_args
        For that unpickler.

    Returns
    -------
    object
        A safetensors file of others is a dict of tensors.

    Raises
    ------
    CheckpointError
        For a damaged file, one of another kind, and one that would run code. The message is one
        sentence.
    OSError
        If the file cannot be read.
    ValueError
        For ``mmap`` of what is no path.
    AttributeError
        For anything but a path or a file open for reading bytes.
    """
    restore_location = placing(map_location)
    given, forced = weights_only is not None, forced_weights_only()
    weights_only = pickle_module is None if weights_only is None else weights_only
    if forced is False and not given:
        warn_user(
            "Environment variable TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD detected, since the"
            "`weights_only` argument was not explicitly passed to `torch.load`, forcing "
            "weights_only=False."
        )
    if forced or (forced is False and not given):
        weights_only = forced
    if weights_only and pickle_module is not None:
        raise RuntimeError(
            "Can not safely load weights when explicit pickle_module is specified: say "
            "weights_only=False if you trust the file, or leave pickle_module out"
        )
    arguments = {"encoding": "utf-8", **pickle_load_args}
    mmap = config.mmap if mmap is None else mmap
    trust = None if weights_only else Trust(pickle_module or pickle, arguments)
    if hasattr(f, "read"):
        if mmap:
            raise ValueError("f must be a file path in order to use the mmap argument")
        name = getattr(f, "name", "the file")
        if type(f) in _IN_PLACE and f.seekable() and f.tell() == 0:
            return _loaded(f, name, restore_location, trust, False)
        content = f.read()
        if isinstance(content, str):
            raise TypeError("load reads bytes, and this file gives text: open it with mode 'rb'")
        copy = io.BytesIO(content)
        loaded = _loaded(copy, name, restore_location, trust, False)
        behind = len(content) - copy.tell()
        if behind and getattr(f, "seekable", bool)():  # a row of older files
            f.seek(-behind, 1)
        return loaded
    if not isinstance(f, (str, os.PathLike)):
        raise AttributeError(
            f"{type(f).__name__!r} object has no attribute 'read': load takes a path, or a file "
            "that is open for reading bytes"
        )
    with open(f, "r+b" if mmap and maps_shared() else "rb") as opened:
        file: BinaryIO = opened if opened.seekable() else io.BytesIO(opened.read())  # a pipe
        return _loaded(file, os.fspath(f), restore_location, trust, bool(mmap))


def get_unsafe_globals_in_checkpoint(f: Any) -> list[str]:
    """What an archive names that ``load(weights_only=True)`` refuses, as "module.name".

    Parameters
    ----------
    f : str, path or binary file object

    Raises
    ------
    ValueError
        For a file that `save` or ``torch.save`` did not write.
    """
    if not hasattr(f, "read"):
        with open(f, "rb") as opened:
            return get_unsafe_globals_in_checkpoint(opened)
    start = f.tell()
    content = pickle_of(f, f.seek(0, 2))
    f.seek(start)
    return [name for name in names_of(content) if not is_known(name)]


def _loaded(
    file: BinaryIO, name: Any, restore_location: Any, trust: Trust | None, mapped: bool
) -> Any:
    try:
        reader = _reader(file)
        try:
            return reader(file, file.seek(0, 2), restore_location, trust, mapped)
        finally:
            if reader is not read_legacy:  # which may stand in a row of them
                file.seek(0, 2)
    except Damage as damage:
        raise CheckpointError(f"cannot load {name}: {damage}") from damage.__cause__
    except _SIGNS_OF_DAMAGE as error:
        unknown = type(error) not in _SIGNS_OF_DAMAGE and isinstance(error, RuntimeError)
        if trust or unknown:  # such as a GPU that has no memory left
            raise
        what = str(error).split("\n")[0]
        raise CheckpointError(
            f"cannot load {name}: it is damaged ({type(error).__name__}: {what})"
        ) from None


_SIGNS_OF_DAMAGE = (
    ValueError,
    KeyError,
    TypeError,
    IndexError,
    AttributeError,
    RecursionError,
    OverflowError,
    EOFError,
    RuntimeError,
    NotImplementedError,
)


def _reader(file: BinaryIO) -> Callable[..., Any]:
    file.seek(0)
    first = file.read(9)
    if first[8:] == b"{":  # a header's length can begin with any bytes
        return _read_safetensors
    if first[:4] == b"PK\x03\x04":
        return read_zip
    if first[:1] == b"\x80" and first[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return read_legacy
    return _read_safetensors


def _read_safetensors(
    file: BinaryIO, size: int, restore_location: Any, trust: Trust | None, mapped: bool
) -> Any:
    file.seek(0)
    metadata, arrays = safetensors.read(file, size, mapped)
    return unpacked(metadata, arrays, restore_location, trust is None)
