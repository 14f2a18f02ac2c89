"""Writing files, all of one or nothing."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from typing import Any, BinaryIO

from lucid_gpu.serialization import safetensors
from lucid_gpu.serialization.structure import packed

__all__ = ["save"]


def save(obj: Any, f: Any, pickle_module: Any = None, pickle_protocol: Any = None) -> None:
    """Write an object to a file, all of it or nothing.

    The bytes go to a new file beside the target, which then takes its name: a full disk, an
    interrupt or a kill leaves an older file of that name as it was. The new file has the older
    one's permissions, a symbolic link keeps pointing where it points, and devices and pipes
    (``/dev/null``) are written directly, as file objects are.

    Parameters
    ----------
    obj : object
        Tensors, NumPy arrays, numbers, strings, bytes and None, in dicts, lists, tuples and sets of
        any depth. Tensors are stored without their history. Other objects, such as whole modules,
        are pickled into the file, and only ``load(weights_only=False)`` reads it.
    f : str, path or binary file object
    pickle_module, pickle_protocol
        Taken for the sake of scripts.

    Raises
    ------
    TypeError
        For an object that cannot be pickled; the message says where in ``obj`` it is.
    OSError
        Where the file cannot be written.
    """
    if not isinstance(f, (str, os.PathLike)) and not hasattr(f, "write"):
        raise AttributeError(
            "expected 'f' to be string, path, or a file-like object with a 'write' attribute, got "
            f"{type(f).__name__}: save(obj, f)"
        )
    pieces = safetensors.pieces(*packed(obj))
    if hasattr(f, "write"):
        for piece in pieces:
            f.write(piece)
        return
    with _replacing(os.fspath(f)) as file:
        for piece in pieces:
            file.write(piece)


@contextlib.contextmanager
def _replacing(path: str) -> Iterator[BinaryIO]:
    """A new file that takes the place of ``path`` if all goes well, and vanishes if not."""
    target = os.path.realpath(path)  # a link goes on pointing where it points
    folder, name = os.path.split(target)
    if not os.path.isdir(folder):
        raise FileNotFoundError(errno.ENOENT, "Parent directory does not exist", folder)
    earlier = os.stat(target) if os.path.exists(target) else None
    if earlier and not stat.S_ISREG(earlier.st_mode):  # /dev/null stays a device
        with open(target, "wb") as file:
            yield file
        return
    if earlier and not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
    temporary = os.path.join(folder, f".{name}.{secrets.token_hex(4)}.tmp")
    try:
        with open(temporary, "xb") as file:
            if earlier:
                os.chmod(temporary, stat.S_IMODE(earlier.st_mode))
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
