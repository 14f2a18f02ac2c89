"""Writing files, all of one or nothing."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import stat
from collections.abc import Iterator
from typing import Any, BinaryIO

from lucid_gpu.serialization.torch_writing import Archive

try:
    import fcntl
except ImportError:  # Windows, which does not unlink open files
    fcntl = None  # type: ignore[assignment]

__all__ = ["DEFAULT_PROTOCOL", "save"]

DEFAULT_PROTOCOL = 2  # of pickle: PyTorch's, which all its versions read


def save(
    obj: Any,
    f: Any,
    pickle_module: Any = None,
    pickle_protocol: int = DEFAULT_PROTOCOL,
    _use_new_zipfile_serialization: bool = True,
    _disable_byteorder_record: bool = False,
) -> None:
    """Write an object to a file that PyTorch reads too, all of it or nothing.

    The bytes go to a new file beside the target, ``.NAME.*.tmp``, which then takes its name: a full
    disk, an interrupt or a kill leaves an older file of that name as it was. What a kill left half
    written, the next `save` to that name removes. The new file has the older one's permissions, a
    symbolic link keeps pointing where it points, and devices and pipes (``/dev/null``) are written
    directly, as file objects are.

    Parameters
    ----------
    obj : object
        What can be pickled. `load` reads tensors, NumPy arrays, numbers, strings, bytes and None,
        in dicts, lists, tuples and sets of any depth; with other objects, such as whole modules,
        only ``load(weights_only=False)`` does. Tensors are stored without their history, and with
        the whole memory that they lie in, which is stored once for all tensors on it.
    f : str, path or binary file object
    pickle_module : module, optional
        Whose `Pickler` takes apart what is no tensor. It is written in Python, as dill's is.
    pickle_protocol : int
        From 2 on; ``load(weights_only=True)`` of PyTorch reads 2 only.
    _disable_byteorder_record : bool
        Do not say how the bytes of a number lie.
    _use_new_zipfile_serialization
        Accepted for compatibility: there is one format, PyTorch's archive.

    Raises
    ------
    TypeError
        For an object that cannot be pickled.
    RuntimeError
        For tensors of two types on one memory.
    ValueError
        For a protocol before 2.
    OSError
        If the file cannot be written.
    AttributeError
        For anything but a path or a file open for writing bytes.
    FileNotFoundError
        If the folder is not there.
    PermissionError
        If the file must not be written.
    IsADirectoryError
        For a path that names a folder.
    """
    if not isinstance(f, (str, os.PathLike)) and not hasattr(f, "write"):
        raise AttributeError(
            "expected 'f' to be string, path, or a file-like object with a 'write' attribute, got "
            f"{type(f).__name__}: save(obj, f)"
        )
    if 0 <= pickle_protocol < 2:
        raise ValueError(f"save pickles by protocol 2 or a later one, not {pickle_protocol}")
    archive = Archive(obj, pickle_module, pickle_protocol, not _disable_byteorder_record)
    if hasattr(f, "write"):
        archive.write(f, None)
        if hasattr(f, "flush"):  # who reads the file by its name sees all of it
            f.flush()
        return
    with _replacing(os.fspath(f)) as file:
        archive.write(file, f)


@contextlib.contextmanager
def _replacing(path: str) -> Iterator[BinaryIO]:
    """A new file that takes the place of ``path`` if all goes well, and vanishes if not."""
    target = os.path.realpath(path)  # a link goes on pointing where it points
    folder, name = os.path.split(target)
    if not path or os.path.islink(target):  # links that go round
        open(path, "wb").close()  # raises
    if path.endswith(("/", os.sep)):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not os.path.isdir(folder):
        raise FileNotFoundError(errno.ENOENT, "Parent directory does not exist", folder)
    earlier = os.stat(target) if os.path.exists(target) else None
    if earlier and not stat.S_ISREG(earlier.st_mode):  # /dev/null stays a device
        with open(target, "wb") as device:
            yield device
        return
    if earlier and not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
    _sweep(folder, name)
    file, temporary = _new_file(folder, name)
    try:
        with file:
            if earlier:
                os.chmod(temporary, stat.S_IMODE(earlier.st_mode))
            yield file
            file.flush()
            os.fsync(file.fileno())
            if fcntl:  # while it is locked
                os.replace(temporary, target)
        if not fcntl:  # an open file cannot be renamed there
            os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _stem(name: str) -> str:
    """What the names of new files begin with; a file's name is 255 bytes long at most."""
    return "." + name.encode(errors="surrogateescape")[:200].decode(errors="ignore")


def _new_file(folder: str, name: str) -> tuple[BinaryIO, str]:
    """A new file, locked as long as it is open, and where it is."""
    while True:
        path = os.path.join(folder, f"{_stem(name)}.{secrets.token_hex(4)}.tmp")
        try:
            file: BinaryIO = open(path, "xb")  # noqa: SIM115
        except PermissionError as error:
            why = f"{error.strerror}: save makes a new file in the target's folder"
            raise PermissionError(error.errno, why, folder) from None
        _locked(file, wait=True)
        if os.path.exists(path):
            return file, path
        file.close()  # it was swept away before it was locked


def _sweep(folder: str, name: str) -> None:
    """Remove what killed processes left half written; living ones hold a lock on theirs."""
    ours = re.compile(rf"{re.escape(_stem(name))}\.[0-9a-f]{{8}}\.tmp")
    with contextlib.suppress(OSError):
        for entry in [*os.scandir(folder)]:
            if ours.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                with contextlib.suppress(OSError), open(entry.path, "r+b") as file:
                    if _locked(file, wait=False):
                        os.unlink(entry.path)


def _locked(file: BinaryIO, wait: bool) -> bool | None:
    """Whether the file is ours now; None where files cannot be locked, and none is swept."""
    if not fcntl:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True
