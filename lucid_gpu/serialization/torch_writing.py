"""Files that ``torch.load`` reads: zip archives, as ``torch.save`` writes them.

The object's pickle names PyTorch's functions where tensors, types and devices stand, so that both
libraries read it; storages are records beside it, each written once.
"""

from __future__ import annotations

import hashlib
import io
import math
import os
import pickle
import sys
import zipfile
from collections import OrderedDict
from collections.abc import Iterator
from functools import cache, singledispatch
from typing import Any, NamedTuple

from lucid_gpu.core.owner import CONJUGATED, NEGATED
from lucid_gpu.device import device
from lucid_gpu.devices import backend
from lucid_gpu.dtypes import dtype
from lucid_gpu.nn.parameter import Buffer, Parameter, UninitializedTensorMixin
from lucid_gpu.ops.mirrors import bits_of
from lucid_gpu.ops.storages import TypedStorage, UntypedStorage
from lucid_gpu.ops.strides import _memory
from lucid_gpu.ops.tensor_types import NAMES
from lucid_gpu.serialization import options
from lucid_gpu.storage import Size, layout
from lucid_gpu.tensor import Tensor

__all__ = ["Archive"]

_HEAD, _LARGE_HEAD, _PADDING_HEAD = 30, 20, 4  # bytes of a record's head and of its extra fields


class _Global(NamedTuple):
    """Something of PyTorch's that a pickle names."""

    module: str
    name: str

    def __call__(self) -> None:
        """Nothing: pickle asks for what can be called."""


def _utils(name: str) -> _Global:
    return _Global("torch._utils", name)


_TENSOR, _SPARSE = _utils("_rebuild_tensor_v2"), _utils("_rebuild_sparse_tensor")
_META = _utils("_rebuild_meta_tensor_no_storage")
_PARAMETER = _utils("_rebuild_parameter")
_PARAMETER_WITH_STATE = _utils("_rebuild_parameter_with_state")
_FROM_TYPE = _Global("torch._tensor", "_rebuild_from_type_v2")
_PLAIN_TENSOR = _Global("torch", "Tensor")
_LAYOUT, _SIZE = _Global("torch.serialization", "_get_layout"), _Global("torch", "Size")
_DEVICE, _UNTYPED = _Global("torch", "device"), _Global("torch.storage", "UntypedStorage")
_STORAGES = {d: _Global("torch", name.replace("Tensor", "Storage")) for d, name in NAMES.items()}


class _Memory(NamedTuple):
    """A storage of the file."""

    key: str
    kind: Any  # the type of its elements
    content: Any  # an array of bytes on its device
    where: device


class Archive:
    """An object as records of a zip file.

    Parameters
    ----------
    obj : object
    pickle_module : module, optional
        Whose `Pickler` takes apart what is no tensor; it is written in Python, as dill's is.
    pickle_protocol : int
    byte_order : bool
        Whether to say how the bytes of a number lie.

    Raises
    ------
    TypeError
        For an object that cannot be pickled.
    RuntimeError
        For one memory as elements of two types.
    """

    def __init__(
        self, obj: Any, pickle_module: Any, pickle_protocol: int, byte_order: bool
    ) -> None:
        self._memories: dict[Any, _Memory] = {}
        self._alive: list[Any] = []  # so that an address is not given out twice
        self._byte_order = byte_order
        data = io.BytesIO()
        pickler = _pickler_of(pickle_module)(data, protocol=pickle_protocol)
        pickler.archive = self
        try:
            pickler.dump(obj)
        except RecursionError:
            raise TypeError("save cannot store an object that is so deep") from None
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise TypeError(
                f"save cannot store the {type(obj).__name__}: something in it cannot be pickled "
                f"({error}); for a module or an optimizer save its state_dict()"
            ) from error
        self._pickle = data.getbuffer()

    def memory(self, start: Any, count: int, kind: dtype, where: device) -> _Memory:
        """The record of a memory: of an array at its start, with so many elements in all."""
        size = count * kind.itemsize
        key: Any = (str(where), _address(start), size) if size else (len(self._memories),)
        known = self._memories.get(key)
        if known is None:
            strided = backend(where).xp.lib.stride_tricks.as_strided
            row = strided(start, (count,), (kind.itemsize,)).view("uint8")
            known = _Memory(str(len(self._memories)), kind, row, where)
            self._memories[key] = known
            self._alive.append(start)
        if known.kind is not kind:
            raise RuntimeError(
                "Cannot save multiple tensors or storages that view the same data as different "
                f"types: {known.kind.name} and {kind.name}; save x.clone() of one of them"
            )
        return known

    def write(self, file: Any, path: Any) -> None:
        """Write the records to a file; ``path``, where it has one, gives the folder's name."""
        stem = os.path.splitext(os.path.basename(os.fspath(path)))[0] if path else ""
        folder = stem if stem and stem.isascii() else "archive"
        stream: Any = _Stream(file)
        with zipfile.ZipFile(stream, "w") as archive:
            for name, content in self._records():
                _write_record(archive, stream, f"{folder}/{name}", content)
                if options.skips_data() and name.startswith("data/"):
                    archive.infolist()[-1].CRC = 0
            sums = "".join([f"{record.filename}{record.CRC:08x}" for record in archive.infolist()])
            digest = hashlib.sha256(sums.encode()).digest()[:16]
            identity = f"{int.from_bytes(digest, 'big'):040d}".encode()
            _write_record(archive, stream, f"{folder}/.data/serialization_id", memoryview(identity))

    def _records(self) -> Iterator[tuple[str, Any]]:
        yield "data.pkl", self._pickle
        # from 1 on PyTorch reckons where storages begin, by the layout that its own writer has
        yield ".format_version", memoryview(b"0")
        yield ".storage_alignment", memoryview(str(options.save.storage_alignment).encode())
        if self._byte_order:
            yield "byteorder", memoryview(sys.byteorder.encode())
        for memory in self._memories.values():
            yield f"data/{memory.key}", self._content(memory)
        yield "version", memoryview(b"3\n")

    def _content(self, memory: _Memory) -> memoryview:
        if options.skips_data():
            return memoryview(bytes(math.prod(memory.content.shape)))
        content: memoryview = backend(memory.where).to_numpy(memory.content).data
        return content


class _Stream:
    """A file that only grows, which is all a pipe or a file open for appending can do."""

    def __init__(self, file: Any) -> None:
        self.file, self.size = file, 0

    def write(self, data: Any) -> int:
        """Write all of it: a file without a buffer may take a part, 2 GiB of a record for one."""
        count = memoryview(data).nbytes
        taken = self.file.write(data)
        while isinstance(taken, int) and taken < count:
            more = self.file.write(memoryview(data).cast("B")[taken:])
            if not more:
                raise OSError(f"{self.file!r} took {taken} of {count} bytes, and then no more")
            taken += more
        self.size += count
        return count

    def flush(self) -> None:
        """What is written is flushed once, at the end."""


def _write_record(archive: Any, stream: _Stream, name: str, content: memoryview) -> None:
    """A record that begins at a multiple of ``storage_alignment``."""
    info, size = zipfile.ZipInfo(name), content.nbytes
    large = size * 1.05 > zipfile.ZIP64_LIMIT  # as zipfile judges
    begins = stream.size + _HEAD + len(name.encode()) + _LARGE_HEAD * large + _PADDING_HEAD
    padding = -begins % options.save.storage_alignment
    info.extra = b"FB" + padding.to_bytes(2, "little") + b"Z" * padding
    with archive.open(info, "w", force_zip64=large) as record:
        record.write(content)


def _address(array: Any) -> int:
    interface = getattr(array, "__cuda_array_interface__", None) or array.__array_interface__
    address: int = interface["data"][0]
    return address


# --- the pickle -----------------------------------------------------------------------------------


def _pickler_of(pickle_module: Any) -> Any:
    own = pickle_module is None or pickle_module is pickle
    base: Any = pickle._Pickler if own else pickle_module.Pickler
    if not issubclass(base, pickle._Pickler):
        raise TypeError(
            f"the Pickler of {pickle_module.__name__} is compiled, and cannot be taught PyTorch's "
            "names: leave pickle_module out, or pass one written in Python, as dill's is"
        )
    return type("Pickler", (_Pickling, base), {})


_PLAIN = frozenset(pickle._Pickler.dispatch)  # types that pickle has a way of its own for


class _Pickling:
    """What a pickler does about tensors, and names that are PyTorch's; it is mixed into one."""

    archive: Archive

    def persistent_id(self, obj: Any) -> Any:
        """What stands for a storage."""
        if type(obj) in _PLAIN:
            return None
        if isinstance(obj, _Memory):
            memory, kind = obj, _STORAGES[obj.kind]
        elif isinstance(obj, (TypedStorage, UntypedStorage)):
            memory, kind = self._memory_of(obj)
        else:
            return None
        count = math.prod(memory.content.shape) // memory.kind.itemsize
        if kind is _UNTYPED:
            count *= memory.kind.itemsize
        return "storage", kind, memory.key, _location(memory.where), count

    def _memory_of(self, storage: Any) -> tuple[_Memory, _Global]:
        """The record of a storage object, and its type."""
        held = storage._held
        kind = storage.dtype if isinstance(storage, TypedStorage) else held.dtype
        if storage._part != slice(None) or held.dtype is not kind:
            held = storage._bytes.view(kind).clone()  # a part, or elements of another type
        start, _, count = _memory(held)
        memory = self.archive.memory(start, count, kind, held.device)
        if isinstance(storage, TypedStorage):
            return memory, _STORAGES[kind]
        return memory, _UNTYPED

    def save_global(self, obj: Any, name: Any = None) -> None:
        """Name something of PyTorch's, or of another module."""
        if not isinstance(obj, (_Global, dtype)):
            super().save_global(obj, name)  # type: ignore[misc]
            return
        module, name = obj if isinstance(obj, _Global) else ("torch", obj.name)
        pickler: Any = self
        if pickler.proto >= 4:
            pickler.save(module)
            pickler.save(name)
            pickler.write(pickle.STACK_GLOBAL)
        else:
            pickler.write(pickle.GLOBAL + f"{module}\n{name}\n".encode())
        pickler.memoize(obj)

    def reducer_override(self, obj: Any) -> Any:
        """How pickle takes an object apart, if not by the object's own word."""
        kind = type(obj)
        return NotImplemented if kind in _PLAIN else _reduced.dispatch(kind)(obj, self.archive)


# --- how objects are taken apart ------------------------------------------------------------------


@singledispatch
def _reduced(obj: Any, archive: Archive) -> Any:
    return NotImplemented


@_reduced.register
def _(obj: _Global, archive: Archive) -> Any:
    return obj.name


@_reduced.register
def _(obj: dtype, archive: Archive) -> Any:
    return obj.name


@_reduced.register
def _(obj: device, archive: Archive) -> Any:
    return _DEVICE, (obj.type,) if obj.index is None else (obj.type, obj.index)


@_reduced.register
def _(obj: Size, archive: Archive) -> Any:
    return _SIZE, (tuple(obj),)


@_reduced.register
def _(obj: layout, archive: Archive) -> Any:
    return _LAYOUT, (f"torch.{obj.name}",)


@_reduced.register
def _(obj: UninitializedTensorMixin, archive: Archive) -> Any:
    kind = _Global("torch.nn.parameter", type(obj).__name__)
    return kind, (obj.requires_grad, obj.device, obj.dtype)


@_reduced.register
def _(obj: Tensor, archive: Archive) -> Any:
    kind = type(obj)
    if obj._is_sparse:
        size = Size(obj.shape)
        if not obj.is_sparse:
            rows = obj.crow_indices(), obj.col_indices(), obj.detach().values(), size
            return _SPARSE, (obj.layout, rows)
        parts = obj._indices(), obj._values(), size, obj.is_coalesced()
        return _SPARSE, (obj.layout, parts)
    if kind.__reduce_ex__ is not Tensor.__reduce_ex__:
        return NotImplemented
    state = {k: v for k, v in obj.__dict__.items() if k[0] != "_"}
    if kind is Parameter:
        arguments: Any = obj.detach(), obj.requires_grad, OrderedDict()
        return (_PARAMETER_WITH_STATE, (*arguments, state)) if state else (_PARAMETER, arguments)
    function, values = _dense(obj, archive)
    if kind is Tensor and not state:
        return function, values
    if kind is Buffer:
        state["_is_buffer"] = True
    named = _PLAIN_TENSOR if kind in (Tensor, Buffer) else kind
    return _FROM_TYPE, (function, named, values, state)


def _dense(t: Tensor, archive: Archive) -> tuple[_Global, tuple[Any, ...]]:
    """PyTorch's function for a tensor, and what it is given."""
    grad = t.requires_grad
    hooks: Any = OrderedDict()
    if t.device.type == "meta":
        return _META, (t.dtype, tuple(t.shape), t.stride(), grad)
    if any(step < 0 for step in t.stride()):  # PyTorch has none
        t = t.detach().contiguous()
    start, offset, count = _memory(t)
    memory = archive.memory(start, count, t.dtype, t.device)
    bits = bits_of(t)
    marks = (("conj", bits & CONJUGATED), ("neg", bits & NEGATED))
    metadata = ({name: True for name, on in marks if on},) if bits else ()
    return _TENSOR, (memory, offset, tuple(t.shape), t.stride(), grad, hooks, *metadata)


@cache
def _location(where: device) -> str:
    return f"cuda:{where.index or 0}" if where.type == "cuda" else str(where)
