"""Safetensors files: a JSON header, then the bytes of the arrays."""

from __future__ import annotations

import json
import math
import mmap
import zlib
from typing import Any, BinaryIO

import numpy as np

from lucid_gpu import dtypes as dt
from lucid_gpu.serialization.errors import Damage

__all__ = ["read"]

_CODES = {
    "BOOL": dt.bool,
    "U8": dt.uint8,
    "I8": dt.int8,
    "I16": dt.int16,
    "I32": dt.int32,
    "I64": dt.int64,
    "F16": dt.float16,
    "BF16": dt.bfloat16,
    "F32": dt.float32,
    "F64": dt.float64,
    "C64": dt.complex64,
}
_CRC = "lucid_gpu.crc32"  # of the header without this entry, then of the tensors' bytes
_MOST_HEADER = 100_000_000  # bytes; the format's own limit
_MOST_DIMENSIONS = 64  # NumPy's


def _dump(header: dict[str, Any]) -> bytes:
    return json.dumps(header, separators=(",", ":")).encode()


def read(file: BinaryIO, size: int, mapped: bool) -> tuple[dict[str, str], dict[str, Any]]:
    """Metadata and arrays of a file that stands at its beginning.

    With ``mapped`` the arrays are the file's pages, read when touched and private when written; the
    checksum is then not looked at.

    Raises
    ------
    Damage
        Before any memory is taken for what the file does not hold.
    """
    header = _header(file, size)
    metadata = header.pop("__metadata__", {})
    start = file.tell()
    entries = _checked(header, size - start)
    if mapped:
        memory: Any = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        return metadata, {name: _array(memory, entry, start) for name, entry in header.items()}
    bare = {"__metadata__": {k: v for k, v in metadata.items() if k != _CRC}, **header}
    check = zlib.crc32(_dump(bare))
    arrays = {}
    for name, entry in entries:
        content = np.empty(entry["data_offsets"][1] - entry["data_offsets"][0], np.uint8)
        if file.readinto(content.data) != content.nbytes:  # type: ignore[attr-defined]
            raise Damage("it ended while it was read")
        check = zlib.crc32(content.data, check)
        arrays[name] = content.view(_CODES[entry["dtype"]].numpy).reshape(entry["shape"])
    if _CRC in metadata and metadata[_CRC] != f"{check:08x}":
        raise Damage("its contents do not match its checksum")
    return metadata, {name: arrays[name] for name in header}


def _array(memory: Any, entry: dict[str, Any], start: int) -> Any:
    d = _CODES[entry["dtype"]].numpy
    count = math.prod(entry["shape"])
    if not count:
        return np.empty(entry["shape"], d)
    offset = start + entry["data_offsets"][0]
    raw = np.frombuffer(memory, np.uint8, count * d.itemsize, offset)
    return raw.view(d).reshape(entry["shape"])


def _header(file: BinaryIO, size: int) -> dict[str, Any]:
    first = file.read(9)
    if size < 8:
        raise Damage(f"it ends after {size} bytes, before its header")
    length = int.from_bytes(first[:8], "little")
    if length > size - 8:
        if first[8:] != b"{":
            raise Damage("it is neither a safetensors file nor one of torch.save")
        raise Damage(f"it ends after {size} bytes, inside its header")
    if length > _MOST_HEADER:
        raise Damage(f"its header of {length} bytes is longer than the format allows")
    header = json.loads(
        (first[8:] + file.read(max(length - 1, 0)))[:length].decode(), object_pairs_hook=_unique
    )
    if not isinstance(header, dict):
        raise Damage("its header is damaged")
    file.seek(8 + length)
    return header


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) != len(pairs):
        raise Damage("a name stands twice in its header")
    return entries


def _checked(header: dict[str, Any], room: int) -> list[tuple[str, dict[str, Any]]]:
    """The entries in the order of their bytes, which follow each other without gaps."""
    entries = sorted(header.items(), key=lambda item: item[1]["data_offsets"])
    expected = 0
    for name, entry in entries:
        start, end = entry["data_offsets"]
        if entry["dtype"] not in _CODES:
            raise Damage(f"its tensor {name!r} has the unknown type {entry['dtype']!r}")
        shape = entry["shape"]
        counts = type(shape) is list and type(entry["data_offsets"]) is list  # "" has no entries
        if not counts or not all(type(n) is int and n >= 0 for n in (*shape, start, end)):
            raise Damage(f"its entry for tensor {name!r} is damaged")
        # Bounds first: a product of long numbers takes for ever.
        fits = len(shape) <= _MOST_DIMENSIONS and max(shape, default=0) <= 1 << 62
        size = math.prod(shape) * _CODES[entry["dtype"]].itemsize if fits else -1
        if start != expected or end - start != size:
            raise Damage(f"its entry for tensor {name!r} is damaged")
        expected = end
    if expected != room:
        kind = "ends too early" if room < expected else "is too long"
        raise Damage(f"it {kind}: {expected} bytes of tensors are announced, {room} there")
    return entries
