"""Files that ``torch.save`` wrote: zip archives since version 1.6, a row of pickles before.

An archive holds ``data.pkl``, the object with numbers in the place of storages, and a record for
each storage, uncompressed.
"""

from __future__ import annotations

import io
import mmap
import sys
import zipfile
import zlib
from collections.abc import Callable
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from lucid_gpu.dtypes import dtype
from lucid_gpu.ops.borrowed import from_array_shared
from lucid_gpu.ops.storages import TypedStorage, UntypedStorage
from lucid_gpu.serialization import options
from lucid_gpu.serialization.errors import Damage
from lucid_gpu.serialization.locations import RestoreLocation
from lucid_gpu.serialization.pickle_machine import run, text
from lucid_gpu.serialization.torch_globals import build, call, find, trusted_global
from lucid_gpu.serialization.torch_storages import StorageType
from lucid_gpu.tensor import Tensor, from_array

__all__ = ["Trust", "pickle_of", "read_legacy", "read_zip"]

# a storage's key, size in bytes and type -> its bytes as an array
_Content = Callable[[str, int, dtype], Any]
_DEFAULT_ORDERS: dict[Any, str] = {
    options.LoadEndianness.NATIVE: sys.byteorder,
    options.LoadEndianness.BIG: "big",
}


class _Storages:
    """The storages of a file, each made when it is first named."""

    def __init__(
        self, content: _Content, restore_location: RestoreLocation, shared: bool = False
    ) -> None:
        self.content, self.restore_location, self.shared = content, restore_location, shared
        self.made: dict[str, Tensor] = {}
        self.sizes: dict[str, int] = {}

    def named(self, identity: Any) -> TypedStorage:
        """What a persistent id of a pickle stands for."""
        if type(identity) is not tuple or len(identity) < 5 or identity[0] != "storage":
            raise Damage("its pickle refers to what is no storage")
        _, kind, key, where, count = identity[:5]
        if len(identity) > 5 and identity[5] is not None:
            raise Damage("it holds a view of a storage, as PyTorch wrote before 0.4")
        if not isinstance(kind, StorageType) or type(count) is not int or count < 0:
            raise Damage("its pickle refers to a storage of no known type")
        size, key = count * kind.dtype.itemsize, text(key)
        if self.sizes.setdefault(key, size) > size:
            raise Damage(f"its storage {key!r} has two sizes")
        if key not in self.made:
            array = self.content(key, size, kind.dtype)
            content = (from_array_shared if self.shared else from_array)(array)
            self.made[key] = self.restore_location(content, text(where))
        memory: UntypedStorage = UntypedStorage._of(self.made[key])
        return TypedStorage(wrap_storage=memory, dtype=kind.dtype)


class Trust(NamedTuple):
    """How a file is unpickled that may run code."""

    pickle_module: Any
    arguments: dict[str, Any]


def _object(file: io.BytesIO, storages: _Storages, trust: Trust | None) -> Any:
    """The object of the pickle that begins where the file stands."""
    if trust is None:
        most = 2 * file.getbuffer().nbytes + 10_000
        return run(file, find, storages.named, call, build, most)

    class Unpickler(trust.pickle_module.Unpickler):  # type: ignore[name-defined]
        def find_class(self, module: str, name: str) -> Any:
            known = trusted_global(module, name)
            return super().find_class(module, name) if known is None else known

        def persistent_load(self, identity: Any) -> Any:
            return storages.named(identity)

    return Unpickler(file, **trust.arguments).load()


# --- archives -------------------------------------------------------------------------------------


def read_zip(
    file: BinaryIO, size: int, restore_location: RestoreLocation, trust: Trust | None, mapped: bool
) -> Any:
    """The object of an archive."""
    try:
        archive = _Archive(file, size, mapped)
    except (zipfile.BadZipFile, NotImplementedError) as error:
        raise Damage(f"it is a damaged zip archive ({error})") from None
    data = archive.record("data.pkl").tobytes()
    storages = _Storages(archive.storage, restore_location, mapped and options.maps_shared())
    return _object(io.BytesIO(data), storages, trust)


def pickle_of(file: BinaryIO, size: int) -> bytes:
    """The pickle of an archive, as it stands in it.

    ValueError for a file of another kind, and for TorchScript's.
    """
    expected = "Expected input to be a checkpoint returned by torch.save"
    file.seek(0)
    if file.read(4) != b"PK\x03\x04":
        raise ValueError(expected)
    try:
        content: bytes = _Archive(file, size, False).record("data.pkl").tobytes()
    except (zipfile.BadZipFile, NotImplementedError) as error:
        raise ValueError(expected) from error
    except Damage as damage:
        raise ValueError(f"{expected}, but {damage}") from None
    return content


class _Archive:
    """The records of a zip file, which lie in it as they are."""

    def __init__(self, file: BinaryIO, size: int, mapped: bool) -> None:
        self.file = file
        # One map for all records: each takes an open file, of which a process may have a thousand.
        self.pages: Any = None
        if mapped:
            access = mmap.ACCESS_WRITE if options.maps_shared() else mmap.ACCESS_COPY
            self.pages = mmap.mmap(file.fileno(), 0, access=access)
        listed = zipfile.ZipFile(file).infolist()
        self.records = {i.filename: i for i in listed}
        # set_crc32_options(False) of PyTorch writes zeros, and so does skip_data for all storages
        self.checked = [
            any(i.CRC for i in listed if ("/data/" in i.filename) is storages)
            for storages in (False, True)
        ]
        if len(self.records) != len(listed):
            raise Damage("two of its records have one name")
        if min((i.header_offset for i in listed), default=0) > 0:
            raise Damage("the archive that ends it begins later in it: load reads one from there")
        pickles = [
            name for name in self.records if name.endswith("/data.pkl") or name == "data.pkl"
        ]
        if len(pickles) != 1:
            raise Damage("it is a zip archive, but not one that torch.save wrote")
        self.folder = pickles[0][: -len("data.pkl")]
        if f"{self.folder}constants.pkl" in self.records:
            raise Damage("it is a TorchScript program; in PyTorch save its state_dict()")
        if sum(i.file_size for i in self.records.values()) > size:
            raise Damage("its records are announced as larger than the file")
        self.order = _DEFAULT_ORDERS.get(options.load.endianness, "little")
        if f"{self.folder}byteorder" in self.records:
            self.order = self.record("byteorder").tobytes().decode("latin1")
        if self.order not in ("little", "big"):
            raise Damage(f"Unknown endianness type: {self.order!r}")

    def record(self, name: str) -> Any:
        """The bytes of a record, as an array of our own or as the file's pages."""
        info = self.records.get(self.folder + name)
        if info is None:
            raise Damage(f"its record {name!r} is missing")
        if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size:
            raise Damage(f"its record {name!r} is compressed, which torch.save never does")
        if info.header_offset < 0:
            raise Damage(f"its record {name!r} begins before the file")
        self.file.seek(info.header_offset)
        head = self.file.read(30)
        if len(head) < 30 or head[:4] != b"PK\x03\x04":
            raise Damage(f"the head of its record {name!r} is damaged")
        gap = int.from_bytes(head[26:28], "little") + int.from_bytes(head[28:30], "little")
        start = info.header_offset + 30 + gap
        if self.pages and name != "data.pkl" and info.file_size:
            return np.frombuffer(self.pages, np.uint8, info.file_size, start)
        content = np.empty(info.file_size, np.uint8)
        self.file.seek(start)
        if self.file.readinto(content.data) != info.file_size:  # type: ignore[attr-defined]
            raise Damage(f"it ends inside its record {name!r}")
        if zlib.crc32(content.data) != info.CRC and self.checked["/data/" in info.filename]:
            raise Damage(f"its record {name!r} does not match its checksum")
        return content

    def storage(self, key: str, size: int, kind: dtype) -> Any:
        if options.skips_data():
            return np.zeros(size, np.uint8)
        content = self.record(f"data/{key}")
        if self.order != sys.byteorder and kind.itemsize > 1:
            whole = content[: content.nbytes // kind.itemsize * kind.itemsize]
            content = whole.view(kind.numpy).byteswap().view(np.uint8)
        if content.nbytes < size:
            raise Damage(f"its storage {key!r} holds {content.nbytes} bytes, not {size}")
        return content


# --- rows of pickles ------------------------------------------------------------------------------

_MAGIC = 0x1950A86A20F9469CFC6C


def read_legacy(
    file: BinaryIO, size: int, restore_location: RestoreLocation, trust: Trust | None, mapped: bool
) -> Any:
    """The object of a file without an archive.

    The sizes of the storages stand in the object's pickle, and their bytes behind it: so the pickle
    is read twice.
    """
    file.seek(0)
    data = io.BytesIO(file.read())
    nothing = _Storages(lambda key, size, kind: np.empty(0, np.uint8), restore_location)
    if _magic(data, nothing) != _MAGIC:
        raise Damage(
            "it is a pickle, but not one that torch.save wrote, and unpickling runs code; save the "
            "object with lucid_gpu.save"
        )
    if mapped:
        raise Damage("it is no zip archive, and only those can be mapped; load it without mmap")
    _object(data, nothing, None)
    if not _object(data, nothing, None).get("little_endian", True):
        raise Damage("it was written on a machine of another byte order")
    start = data.tell()
    sizes = _sizes(data, size, trust)
    contents: dict[str, Any] = {}
    for key in map(text, _object(data, nothing, None)):
        if key not in sizes:
            raise Damage(f"its storage {key!r} is named nowhere")
        data.seek(8, 1)  # its number of elements, which the pickle says too
        contents[key] = np.frombuffer(bytearray(data.read(sizes[key])), np.uint8)
        if contents[key].nbytes != sizes[key]:
            raise Damage(f"it ends inside its storage {key!r}")
    file.seek(data.tell())  # where another object may begin
    data.seek(start)
    return _object(data, _Storages(lambda key, size, kind: contents[key], restore_location), trust)


def _magic(data: io.BytesIO, nothing: _Storages) -> Any:
    try:
        return _object(data, nothing, None)
    except (Damage, ValueError):
        return None


def _sizes(data: io.BytesIO, limit: int, trust: Trust | None) -> dict[str, int]:
    """The storages that the pickle names, which is passed over."""
    sizes: dict[str, int] = {}
    left = limit
    blank = np.zeros(0, np.uint8)

    def content(key: str, size: int, kind: dtype) -> Any:
        nonlocal left
        left -= size
        if left < 0:
            raise Damage(f"its storage {key!r} is announced as larger than the file")
        sizes[key] = size
        return np.zeros(size, np.uint8) if size else blank

    _object(data, _Storages(content, lambda t, where: t), trust)
    return sizes
