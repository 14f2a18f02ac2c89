"""Saving and loading, never running code from a file.

The file is a `safetensors <https://github.com/huggingface/safetensors>`_ file, which any reader of
that format opens: eight bytes of header length, a JSON header with each tensor's type, shape and
place, then the bytes of the tensors. Three entries of the header's ``__metadata__`` are ours:

``lucid_gpu.version``
    ``"1"``.
``lucid_gpu.structure``
    What was saved, as JSON. None, booleans, numbers, strings and lists stand for themselves.
    Everything else is an object with one entry that says what it is: ``{"tensor": name}``,
    ``{"array": name}`` (a NumPy array), ``{"dict": [[key, value], ...]}``, ``{"ordered": [...]}``
    (an OrderedDict), ``{"tuple": [...]}``, ``{"bytes": base64}``, ``{"complex": [re, im]}``,
    ``{"float": "nan"}``, ``{"dtype": "float32"}``, ``{"device": "cpu"}``. Without this entry a file
    is a dict of tensors.
``lucid_gpu.crc32``
    CRC-32 of the header without this entry, then of the tensors' bytes.

Tensors are named by their path, such as ``model.0.weight``; one that occurs twice is stored once.
complex128, which the format lacks, is stored as F64 with a last dimension of 2, and its object's
entry is ``"tensor of pairs"`` or ``"array of pairs"``.
"""

from __future__ import annotations

import base64
import contextlib
import json
import math
import os
import secrets
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO

import numpy as np

from lucid_gpu import dtypes as dt
from lucid_gpu.device import device
from lucid_gpu.tensor import Tensor, from_array

__all__ = ["CheckpointError", "load", "save"]

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
_CODE_OF = {d: code for code, d in _CODES.items()}
_PICKLES = {b"PK", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"}
_CRC = "lucid_gpu.crc32"
_STRUCTURE = "lucid_gpu.structure"


class CheckpointError(RuntimeError):
    """A file is damaged, or not of a kind that `load` reads."""


# -- saving ------------------------------------------------------------------------------------


def save(obj: Any, f: Any) -> None:
    """Write an object to a file, all of it or nothing.

    The bytes go to a new file beside the target, which then takes its name: a full disk or an
    interrupt leaves an older file of that name as it was.

    Parameters
    ----------
    obj : object
        Tensors, NumPy arrays, numbers, strings, bytes and None, in dicts, lists and tuples of any
        depth. Tensors are stored without their history.
    f : str, path or binary file object

    Raises
    ------
    TypeError
        For an object of another type; the message says where in ``obj`` it is.
    OSError
        Where the file cannot be written.
    """
    packed = _Packer()
    structure = packed.pack(obj, "")
    pieces = _file_pieces(json.dumps(structure), packed.arrays)
    if hasattr(f, "write"):
        for piece in pieces:
            f.write(piece)
        return
    with _replacing(os.fspath(f)) as file:
        for piece in pieces:
            file.write(piece)


@contextlib.contextmanager
def _replacing(path: str) -> Iterator[BinaryIO]:
    """A new file that takes the name ``path`` if all goes well, and vanishes if not."""
    folder, name = os.path.split(os.path.abspath(path))
    temporary = os.path.join(folder, f".{name}.{secrets.token_hex(4)}.tmp")
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _file_pieces(structure: str, arrays: dict[str, Any]) -> Iterator[Any]:
    """The bytes of a file, in order."""
    # Wide types first, so that every tensor is aligned for readers that map the file.
    order = sorted(arrays.items(), key=lambda item: -item[1].dtype.itemsize)
    metadata = {"lucid_gpu.version": "1", _STRUCTURE: structure}
    header: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for name, array in order:
        d = dt.from_numpy_dtype(array.dtype)
        start, end = end, end + array.nbytes
        header[name] = {
            "dtype": _CODE_OF[d],
            "shape": list(array.shape),
            "data_offsets": [start, end],
        }
    check = zlib.crc32(_dump(header))
    for _, array in order:
        check = zlib.crc32(_bytes_of(array), check)
    metadata[_CRC] = f"{check:08x}"
    text = _dump(header)
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little")
    yield text
    for _, array in order:
        yield _bytes_of(array)


def _dump(header: dict[str, Any]) -> bytes:
    return json.dumps(header, separators=(",", ":")).encode()


def _bytes_of(array: Any) -> Any:
    return array.reshape(-1).view(np.uint8).data if array.size else b""


class _Packer:
    """Splits an object into JSON and named arrays."""

    def __init__(self) -> None:
        self.arrays: dict[str, Any] = {}
        self._names: dict[int, str] = {}
        self._alive: list[Any] = []  # so that an id is not given out twice

    def pack(self, value: Any, path: str) -> Any:
        if isinstance(value, Tensor):
            return self._stored("tensor", value, value.detach().cpu().array, path)
        if isinstance(value, (np.ndarray, np.generic)):
            return self._stored("array", value, np.asarray(value), path)
        kind = type(value)
        if value is None or kind in (bool, int, str):
            return value
        if kind is float:
            return value if math.isfinite(value) else {"float": repr(value)}
        for accepted, pack in _PACKERS:
            if isinstance(value, accepted):
                return pack(self, value, path)
        raise TypeError(
            f"save cannot store the {kind.__name__} at {path or 'the top'!r}: it takes tensors, "
            "NumPy arrays, numbers, strings, bytes, None, and dicts, lists and tuples of them; "
            "for a module or an optimizer save its state_dict()"
        )

    def pairs(self, value: Mapping[Any, Any], path: str) -> list[list[Any]]:
        return [
            [self.pack(key, f"{path}.<key>"), self.pack(item, self._below(path, key))]
            for key, item in value.items()
        ]

    def items(self, value: Any, path: str) -> list[Any]:
        return [self.pack(item, self._below(path, i)) for i, item in enumerate(value)]

    def _below(self, path: str, key: Any) -> str:
        return f"{path}.{key}" if path else str(key)

    def _stored(self, kind: str, owner: Any, array: Any, path: str) -> dict[str, str]:
        try:
            d = dt.from_numpy_dtype(array.dtype)
        except TypeError as error:
            raise TypeError(f"save cannot store the array at {path!r}: {error}") from None
        if d is dt.complex128:
            kind += " of pairs"
        known = self._names.get(id(owner))
        if known is None:
            array = np.asarray(array, d.numpy, order="C")  # native byte order, row-major
            if d is dt.complex128:
                array = array[..., None].view(np.float64)
            known = self._names[id(owner)] = self._free_name(path or "tensor")
            self.arrays[known] = array
            self._alive.append(owner)
        return {kind: known}

    def _free_name(self, path: str) -> str:
        name, number = path, 2
        while name in self.arrays or name == "__metadata__":
            name, number = f"{path}#{number}", number + 1
        return name


_Pack = Callable[[_Packer, Any, str], Any]
_PACKERS: tuple[tuple[Any, _Pack], ...] = (
    (OrderedDict, lambda p, v, path: {"ordered": p.pairs(v, path)}),
    (Mapping, lambda p, v, path: {"dict": p.pairs(v, path)}),
    (list, lambda p, v, path: p.items(v, path)),
    (tuple, lambda p, v, path: {"tuple": p.items(v, path)}),
    ((bytes, bytearray), lambda p, v, path: {"bytes": base64.b64encode(v).decode()}),
    (complex, lambda p, v, path: {"complex": [repr(v.real), repr(v.imag)]}),
    (dt.dtype, lambda p, v, path: {"dtype": v.name}),
    (device, lambda p, v, path: {"device": str(v)}),
    (bool, lambda p, v, path: bool(v)),
    (int, lambda p, v, path: int(v)),  # an enumeration's member, for one
    (float, lambda p, v, path: p.pack(float(v), path)),
    (str, lambda p, v, path: str(v)),
)


# -- loading -----------------------------------------------------------------------------------


def load(f: Any, map_location: Any = None, *, weights_only: bool = True) -> Any:
    """Read what `save` wrote, or any safetensors file, which gives a dict of tensors.

    Parameters
    ----------
    f : str, path or binary file object
    map_location : str or device, optional
        Where tensors go; the CPU by default.
    weights_only : bool
        True; no code is ever run from a file.

    Raises
    ------
    CheckpointError
        For a damaged file, or one of another kind. The message is one sentence.
    OSError
        Where the file cannot be read.
    """
    if not weights_only:
        raise NotImplementedError(
            "load(weights_only=False) would run code from the file; save a state_dict() instead"
        )
    if hasattr(f, "read"):
        name, data = getattr(f, "name", "the file"), f.read()
    else:
        name = os.fspath(f)
        with open(f, "rb") as file:
            data = file.read()
    try:
        header, start = _read_header(data)
        arrays = _read_arrays(header, memoryview(data)[start:])
        return _unpack(header.get("__metadata__", {}), arrays, map_location)
    except _Damage as damage:
        raise CheckpointError(f"cannot load {name}: {damage}") from None
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
        raise CheckpointError(f"cannot load {name}: its header is damaged") from None


class _Damage(Exception):
    """What is wrong with a file."""


def _read_header(data: bytes) -> tuple[dict[str, Any], int]:
    if data[:2] in _PICKLES and data[8:9] != b"{":
        raise _Damage(
            "it is a pickle, such as torch.save writes, and loading one runs code from it; convert "
            "it with safetensors.torch.save_file"
        )
    if len(data) < 8:
        raise _Damage(f"it ends after {len(data)} bytes, before its header")
    length = int.from_bytes(data[:8], "little")
    if length > len(data) - 8:
        if data[8:9] != b"{":
            raise _Damage("it is not a safetensors file")
        raise _Damage(f"it ends after {len(data)} bytes, inside its header")
    header = json.loads(data[8 : 8 + length].decode())
    if not isinstance(header, dict):
        raise _Damage("its header is damaged")
    return header, 8 + length


def _read_arrays(header: dict[str, Any], data: memoryview) -> dict[str, Any]:
    """The arrays of a file, each a copy, after all checks."""
    metadata = header.get("__metadata__", {})
    entries = sorted(
        (item for item in header.items() if item[0] != "__metadata__"),
        key=lambda item: item[1]["data_offsets"],
    )
    expected = 0
    for name, entry in entries:
        start, end = entry["data_offsets"]
        if entry["dtype"] not in _CODES:
            raise _Damage(f"its tensor {name!r} has the unknown type {entry['dtype']!r}")
        size = math.prod(entry["shape"]) * _CODES[entry["dtype"]].itemsize
        if start != expected or end - start != size or min(entry["shape"], default=0) < 0:
            raise _Damage(f"its entry for tensor {name!r} is damaged")
        expected = end
    if expected != len(data):
        kind = "ends too early" if len(data) < expected else "is too long"
        raise _Damage(f"it {kind}: {expected} bytes of tensors are announced, {len(data)} there")
    if _CRC in metadata:
        bare = {k: v for k, v in metadata.items() if k != _CRC}
        check = zlib.crc32(data, zlib.crc32(_dump({**header, "__metadata__": bare})))
        if metadata[_CRC] != f"{check:08x}":
            raise _Damage("its contents do not match its checksum")
    return {
        name: np.array(data[slice(*entry["data_offsets"])], np.uint8)
        .view(_CODES[entry["dtype"]].numpy)
        .reshape(entry["shape"])
        for name, entry in entries
    }


def _unpack(metadata: dict[str, str], arrays: dict[str, Any], map_location: Any) -> Any:
    made: dict[str, Tensor] = {}

    def paired(name: str) -> Any:
        return arrays[name].view(np.complex128)[..., 0]

    def tensor(name: str, array_of: Callable[[str], Any] = arrays.__getitem__) -> Tensor:
        if name not in made:
            value = from_array(array_of(name))
            made[name] = value if map_location is None else value.to(map_location)
        return made[name]

    if _STRUCTURE not in metadata:
        return {name: tensor(name) for name in arrays}

    def pairs(items: Any) -> Any:
        return ((unpack(key), unpack(value)) for key, value in items)

    readers: dict[str, Callable[[Any], Any]] = {
        "tensor": tensor,
        "array": arrays.__getitem__,
        "tensor of pairs": lambda name: tensor(name, paired),
        "array of pairs": paired,
        "dict": lambda items: dict(pairs(items)),
        "ordered": lambda items: OrderedDict(pairs(items)),
        "tuple": lambda items: tuple(map(unpack, items)),
        "bytes": base64.b64decode,
        "complex": lambda parts: complex(*map(float, parts)),
        "float": float,
        "dtype": dt.BY_NAME.__getitem__,
        "device": device,
    }

    def unpack(value: Any) -> Any:
        if isinstance(value, list):
            return [unpack(item) for item in value]
        if isinstance(value, dict):
            ((kind, content),) = value.items()
            return readers[kind](content)
        return value

    return unpack(json.loads(metadata[_STRUCTURE]))
