"""A tensor's memory as an object: what scripts ask of PyTorch's storages."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from numbers import Integral
from typing import Any

from lucid_gpu import dtypes as dt
from lucid_gpu.core.owner import SameMemory
from lucid_gpu.core.saved import counted
from lucid_gpu.core.value import load_as
from lucid_gpu.device import device
from lucid_gpu.devices import backend
from lucid_gpu.devices.copies import part_of
from lucid_gpu.devices.determinism import unwritten
from lucid_gpu.dtypes import dtype
from lucid_gpu.fusion.plan import row_major_strides
from lucid_gpu.ops.creation import empty, tensor
from lucid_gpu.ops.mirrors import in_memory
from lucid_gpu.ops.shape import _sizes, base_array
from lucid_gpu.ops.shared_memory import is_shared, shared_bytes
from lucid_gpu.ops.sources import from_file, frombuffer
from lucid_gpu.ops.strides import (
    Released,
    _memory,
    as_strided_,
    place_of,
    restrided,
    span,
    storage_offset,
)
from lucid_gpu.ops.tensor_types import NAMES
from lucid_gpu.storage import channels_last, channels_last_3d, contiguous_format, preserve_format
from lucid_gpu.tape.modes import is_inference_mode_enabled, no_grad
from lucid_gpu.tensor import Tensor, from_array

__all__ = ["TypedStorage", "UntypedStorage"]


class _StorageBase:
    """The memory that a tensor shares with its views: what storages of both kinds do."""

    _part = slice(None)  # which of the memory's bytes: of a slice
    _held: Tensor  # it lies there
    is_sparse = False
    filename = None  # no storage maps a file with a name

    @classmethod
    def _of(cls, tensor: Tensor) -> Any:
        """The memory a tensor lies in."""
        self = cls.__new__(cls)
        self._held = tensor
        return self

    @property
    def _bytes(self) -> Tensor:
        flat = _flat(self._held)
        seen: Tensor = flat if flat.dtype is dt.uint8 else flat.view(dt.uint8)
        return seen[self._part]

    @property
    def _seen(self) -> Tensor:
        return self._bytes

    def _like(self, elements: Tensor) -> Any:
        """A storage of this kind, of elements in memory of their own."""
        return self.__class__._of(elements)

    @property
    def device(self) -> device:
        """Where the memory is."""
        return self._held.device

    @property
    def is_cuda(self) -> bool:
        """Whether the memory is on a GPU."""
        return self.device.type == "cuda"

    @property
    def _cdata(self) -> int:
        return place_of(self._bytes)

    def data_ptr(self) -> int:
        """Return the address of the first byte, 0 where there is none; see `Tensor.data_ptr`."""
        address: int = self._bytes.data_ptr()
        return address

    def nbytes(self) -> int:
        """How many bytes the memory has."""
        return int(self._bytes.numel())

    def size(self) -> int:
        """How many elements the memory has: here bytes."""
        return len(self)

    def element_size(self) -> int:
        """Bytes of an element."""
        return 1

    def is_shared(self) -> bool:
        """Whether other processes may see the memory."""
        return not isinstance(self._held.array, Released) and is_shared(self._held)

    def is_pinned(self) -> bool:
        """Whether the memory is page-locked."""
        return bool(self._held.is_pinned())

    def resizable(self) -> bool:
        """Whether `resize_` may change the memory: nobody but tensors holds it."""
        return self._part == slice(None) and not self._held._memory().is_lent()

    def resize_(self, size: int) -> Any:
        """Have so many elements, here bytes; the first ones stay, and new ones are uninitialized.

        Tensors on this memory keep their shapes. One whose elements are no longer there cannot be
        read until the memory is large enough again; what was read from it before keeps its values.

        Raises
        ------
        RuntimeError
            For a part of a storage, and memory that a NumPy array or another library holds.
        """
        if size < 0:
            raise RuntimeError(f"resize_: a storage has no {size} elements")
        if not self.resizable():
            raise RuntimeError("Trying to resize storage that is not resizable")
        _resize(self._held, size * self.element_size())
        return self

    def share_memory_(self) -> Any:
        """Move the elements, and all tensors on them, into memory that other processes see.

        RuntimeError on the device meta, where there are none.
        """
        if self.device.type == "meta":
            raise RuntimeError("_share_fd_: only available on CPU")
        if not self.is_shared():
            array = shared_bytes(self.nbytes())
            array[...] = self._bytes.array
            _move(self._held, array)
            self._held._hand_out(forever=True)
        return self

    def copy_(self, source: _StorageBase, non_blocking: bool | None = None) -> Any:
        """Take the bytes of another storage; RuntimeError where it has more or fewer."""
        if source.nbytes() != self.nbytes():
            raise RuntimeError(
                f"size does not match: self was {self.nbytes()} bytes but src was "
                f"{source.nbytes()} bytes"
            )
        if self.device.type != "meta":  # whose memory takes what there is
            with no_grad():
                self._bytes.copy_(source._bytes)
        return self

    def fill_(self, value: Any) -> Any:
        """Let each element, here each byte, be one number."""
        with no_grad():
            self._seen.fill_(value)
        return self

    def clone(self) -> Any:
        """The elements in memory of their own."""
        return self._like(self._seen.detach().clone())

    def cpu(self) -> Any:
        """This storage, or a copy of it on the CPU."""
        return self if self.device.type == "cpu" else self._like(self._seen.detach().cpu())

    def cuda(self, device: Any = None, non_blocking: bool = False) -> Any:
        """A copy on a GPU."""
        return self._like(self._seen.detach().cuda(device))

    def new(self) -> Any:
        """A storage of this kind without elements."""
        return self._like(self._seen.new_empty(0))

    def untyped(self) -> UntypedStorage:
        """The same memory as bytes."""
        untyped: UntypedStorage = UntypedStorage._of(self._held)
        untyped._part = self._part
        return untyped

    def to(self, *, device: Any, non_blocking: bool = False) -> Any:
        """This storage, or a copy of it on another device."""
        there = self._seen.detach().to(device)
        return self if there.device == self.device else self._like(there)

    def get_device(self) -> int | None:
        """The number of the GPU, None on a CPU."""
        return self.device.index

    def __copy__(self) -> Any:
        return self.clone()

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        held = self._held
        copied = memo.setdefault(id(self), self.__class__._of(held._copied_with_memory(memo)))
        copied.__dict__.update({k: v for k, v in self.__dict__.items() if k != "_held"})
        return copied

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + self.nbytes()

    def tolist(self) -> list[Any]:
        """The elements as Python numbers."""
        self._refuse_meta()
        numbers: list[Any] = self._seen.tolist()
        return numbers

    def _refuse_meta(self) -> None:
        """Elements are asked for: on the device meta there are none."""
        if self.device.type == "meta":
            raise NotImplementedError("Not available for 'meta' device type")

    def __len__(self) -> int:
        return self.nbytes() // self.element_size()

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    def _element(self, index: Any) -> Any:
        self._refuse_meta()
        self._check(index)
        return self._seen[index].item()

    def __setitem__(self, index: Any, value: Any) -> None:
        self._check(index)
        with no_grad():
            self._seen[index] = value

    def _check(self, index: Any) -> None:
        if not isinstance(index, (int, slice)):
            raise RuntimeError(f"can't index a {self.__class__} with {index.__class__}")
        if not isinstance(index, slice) and not -len(self) <= index < len(self):
            raise IndexError(f"index {index} out of range for storage of size {len(self)}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, self.__class__) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def _identity(self) -> tuple[Any, ...]:
        return self.device, self._cdata, self.nbytes()

    def __repr__(self) -> str:
        meta = self.device.type == "meta"
        lines = "...\n" if meta else "".join([f" {x}\n" for x in self.tolist()])
        return f"{lines}[lucid_gpu.{self.__class__.__name__}({self._kind()}) of size {len(self)}]"

    def _kind(self) -> str:
        return f"device={self.device}"

    def _as_tensor(self, d: dtype | None) -> Tensor:
        """The elements as a tensor: what ``tensor(storage, dtype=d)`` copies."""
        typed = isinstance(self, TypedStorage)
        kind = d or (dt.get_default_dtype() if typed else dt.int64)
        own = getattr(self, "dtype", kind)
        if own is not kind:
            raise RuntimeError(
                f"Expected a Storage of type {kind.type_name} or an UntypedStorage, but got type "
                f"{own.type_name} for argument 1 'storage'"
            )
        seen = self._bytes
        elements: Tensor = seen[: len(seen) // kind.itemsize * kind.itemsize].view(kind)
        return elements


class UntypedStorage(_StorageBase):
    """The memory that a tensor shares with its views, as a vector of bytes.

    Parameters
    ----------
    source : int or sequence of int, optional
        How many bytes, which are not initialized, or their values.
    device : device, optional
    """

    def __init__(self, source: Any = 0, *, device: Any = None) -> None:
        self._held = _new_memory(source, dt.uint8, device)

    @classmethod
    def from_file(cls, filename: Any, shared: bool = False, nbytes: int = 0) -> UntypedStorage:
        """The memory of a file; see `lucid_gpu.from_file`."""
        made: UntypedStorage = cls._of(from_file(filename, shared, nbytes, dtype=dt.uint8))
        return made

    @staticmethod
    def from_buffer(
        buffer: Any, byte_order: str | None = None, count: int = -1, offset: int = 0, *, dtype: Any
    ) -> UntypedStorage:
        """A copy of a buffer's bytes.

        Parameters
        ----------
        buffer : bytes-like
        byte_order : str, optional
            Of the elements in the buffer, "little", "big" or "native"; for elements of one byte it
            may be left out.
        count, offset : int
            How many elements, all by default, from which byte on.
        dtype : dtype
            Of the elements.

        Raises
        ------
        ValueError
            For elements that the buffer does not have.
        RuntimeError
            Without a ``byte_order`` that is needed.
        """
        d = dt.as_dtype(dtype)
        content, item = memoryview(buffer).cast("B"), d.itemsize
        if byte_order is None and item > 1:
            raise RuntimeError("function missing required argument 'byte_order' (pos 2)")
        if byte_order not in (None, "big", "little", "native"):
            raise ValueError(
                f"invalid byte_order '{byte_order}' (expected 'big', 'little', or 'native')"
            )
        if not 0 <= offset <= content.nbytes:
            raise ValueError(
                "offset must be non-negative and no greater than buffer length "
                f"({content.nbytes}), but got {offset}"
            )
        left = content.nbytes - offset
        if count < 0 and left % item:
            raise ValueError(f"buffer size ({left}) must be a multiple of element size ({item})")
        size = left if count < 0 else count * item
        if size > left:
            raise ValueError(
                f"buffer has only {left // item} elements after offset {offset}, but specified a "
                f"size of {count}"
            )
        made = UntypedStorage(size)
        if size:
            made._held = frombuffer(bytearray(content[offset : offset + size]), dtype=dt.uint8)
            made._held = made._held.clone()
        if byte_order in {"big", "little"} - {sys.byteorder}:
            made.byteswap(d)
        return made

    @classmethod
    def _new_shared(cls, size: int) -> Any:
        return cls(size).share_memory_()

    def type(self) -> str:
        """The name of the class."""
        return "lucid_gpu.storage.UntypedStorage"

    def untyped(self) -> UntypedStorage:
        return self

    def byteswap(self, dtype: Any) -> None:
        """Turn the bytes of each element around, in place."""
        d = dt.as_dtype(dtype)
        part = d.itemsize // 2 if d.is_complex else d.itemsize
        with no_grad():
            self._bytes.copy_(self._bytes.reshape(-1, part).flip(-1).reshape(-1))

    def __getitem__(self, index: Any) -> Any:
        """One element, or a storage on some bytes of this memory."""
        if not isinstance(index, slice):
            return self._element(index)
        self._refuse_meta()
        start, stop, step = index.indices(len(self))
        if step != 1:
            raise RuntimeError(
                f"Trying to slice with a step of {step}, but only a step of 1 is supported"
            )
        first = (self._part.start or 0) + start
        part = self.__class__._of(self._held)
        part._part = slice(first, first + max(stop - start, 0))
        return part


class TypedStorage(_StorageBase):
    """The same as elements of a type.

    Parameters
    ----------
    source : int or sequence of numbers, optional
        How many elements, which are not initialized, or their values.
    dtype : dtype, optional
        The default floating point type by default.
    device : device, optional
    wrap_storage : UntypedStorage, optional
        Memory to see as elements of ``dtype``, instead of new memory.
    """

    def __init__(
        self,
        source: Any = 0,
        *,
        dtype: Any = None,
        device: Any = None,
        wrap_storage: UntypedStorage | None = None,
        _internal: bool = False,
    ) -> None:
        self.dtype = dt.get_default_dtype() if dtype is None else dt.as_dtype(dtype)
        if wrap_storage is None:
            self._held = _new_memory(source, self.dtype, device)
        else:
            self._held = wrap_storage._held

    @classmethod
    def _of(cls, tensor: Tensor) -> Any:
        self = super()._of(tensor)
        self.dtype = tensor.dtype
        return self

    @property
    def _seen(self) -> Tensor:
        flat = _flat(self._held)
        return flat if flat.dtype is self.dtype else flat.view(self.dtype)

    def element_size(self) -> int:
        return self.dtype.itemsize

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            raise RuntimeError("slices are only supported in UntypedStorage.__getitem__")
        return self._element(index)

    def type(self) -> str:
        """The name of the type, such as ``"lucid_gpu.FloatStorage"``."""
        return self._held.type().rpartition(".")[0] + "." + self.pickle_storage_type()

    @property
    def _untyped_storage(self) -> UntypedStorage:
        return self.untyped()

    def pickle_storage_type(self) -> str:
        """The same without the package."""
        return NAMES[self.dtype].replace("Tensor", "Storage")

    def _kind(self) -> str:
        return f"dtype={self.dtype}, device={self.device}"


def _converted(d: dtype) -> Any:
    def method(self: _StorageBase) -> TypedStorage:
        converted: TypedStorage = TypedStorage._of(self._seen.detach().to(d))
        return converted

    method.__doc__ = f"The elements as {d.name}, in memory of their own."
    return method


for _name, _dtype in {
    **dict.fromkeys(["byte"], dt.uint8), "char": dt.int8, "short": dt.int16, "int": dt.int32,
    "long": dt.int64, "bool": dt.bool, "half": dt.float16, "bfloat16": dt.bfloat16,
    "float": dt.float32, "double": dt.float64, "complex_float": dt.complex64,
    "complex_double": dt.complex128,
}.items():  # fmt: skip
    setattr(_StorageBase, _name, _converted(_dtype))


def _new_memory(source: Any, d: dtype, where: Any) -> Tensor:
    if isinstance(source, Integral):
        return empty(int(source), dtype=d, device=where)
    return tensor(list(source), dtype=d, device=where)


# --- memory of another size -----------------------------------------------------------------------


def _where_it_lies(t: Tensor) -> tuple[int, tuple[int, ...]]:
    """The offset and the strides of a tensor in its memory, in bytes."""
    array = t._cell().array
    if isinstance(array, Released):
        return array.offset, array.lies
    _, offset, _ = _memory(t)
    array = base_array(t)
    return offset * array.itemsize, array.strides


def _resize(held: Tensor, size: int) -> None:
    """Give the tensors on a memory another one, of so many bytes, which begins like it."""
    old = _flat(held).view(dt.uint8).array
    if size == old.size:
        return
    d = held.dtype if size % held.dtype.itemsize == 0 else dt.uint8
    memory = backend(held.device).empty((size // d.itemsize,), d, held.device)
    seen, kept = memory.view("uint8"), min(size, old.size)
    if kept:
        seen[:kept] = old[:kept]
    seen[kept:] = 0
    _move(held, memory)


def _move(held: Tensor, memory: Any) -> None:
    """Let all tensors on a memory lie in another one, each where it lay."""
    record = held._memory()
    tensors = [t._keep_order() for t in record.others(None)]
    lies = [_where_it_lies(t) for t in tensors]
    record.cells = []
    for t, (offset, strides) in zip(tensors, lies, strict=True):
        cell = t._expr.leaves[0].again()
        cell.array = _placed(t, offset, strides, memory)
        record.add_cell(cell)
        load_as(t, t._expr.program, cell)
        counted(t._expr, t._memory())


def _placed(t: Tensor, offset: int, strides: tuple[int, ...], memory: Any) -> Any:
    """The array of a tensor in a memory."""
    shape, item = tuple(t.shape), t.dtype.itemsize
    reach = 0 if 0 in shape else item + sum([(n - 1) * s for n, s in zip(shape, strides)])
    if offset + reach > memory.nbytes:
        return Released(offset, strides, memory)
    return part_of(memory, shape, t.dtype.numpy, offset, strides)


def _flat(t: Tensor) -> Tensor:
    """All elements of the memory a tensor lies in, as one row that shares it; see `Tensor.data`."""
    held: Any = in_memory(t).data
    if isinstance(held._cell().array, Released):
        return from_array(_memory(held)[0], held.dtype, held.device)
    strides = held.stride()
    return restrided(held, (_memory(held)[2],), (1,), -storage_offset(held), strides)


def untyped_storage(self: Tensor) -> UntypedStorage:
    """The memory that this tensor shares with its views, as bytes."""
    result: UntypedStorage = UntypedStorage._of(self.data)  # whose writes are not counted
    return result


def share_memory_(self: Tensor) -> Tensor:
    """Move the memory, with tensors of any shape on it, to where other processes see it.

    Processes that are forked afterwards, and those that get it through a queue of
    `lucid_gpu.multiprocessing`, see each other's writes.

    Returns
    -------
    Tensor
        This one, of the same shape and type.
    """
    self.untyped_storage().share_memory_()
    return self


def storage(self: Tensor) -> TypedStorage:
    """The memory that this tensor shares with its views, as elements of its type."""
    result: TypedStorage = TypedStorage._of(self.data)
    return result


def _copied_with_memory(self: Tensor, memo: dict[int, Any]) -> Tensor:
    """A copy in a copy of the whole memory, which is made once for all tensors of a `deepcopy`."""
    record = self._memory()
    start, offset, _ = _memory(self)
    if record.mirror is not None or start.dtype != base_array(self).dtype:
        return self.detach().clone()
    record = record.memory if isinstance(record, SameMemory) else record
    copied = memo.get(id(record))
    if copied is None:
        copied = memo[id(record)] = _flat(self).clone()
    if copied.dtype is not self.dtype:
        copied = copied.view(self.dtype)
    view: Tensor = copied.as_strided(tuple(self.shape), self.stride(), offset).detach()
    return view


def is_storage(obj: object) -> bool:
    """Whether an object is a tensor's memory."""
    return isinstance(obj, _StorageBase)


def set_(
    self: Tensor,
    source: Tensor | UntypedStorage | TypedStorage | None = None,
    storage_offset: int = 0,
    size: Sequence[int] | None = None,
    stride: Sequence[int] | None = None,
) -> Tensor:
    """Take another tensor's memory, shape and strides, in place.

    Parameters
    ----------
    source : Tensor or storage, optional
        Of a storage, or where a size is given, elements from ``storage_offset`` on, row by row
        unless ``stride`` says otherwise; all of them without ``size``. Without a source the tensor
        has no elements, shape (0,).
    storage_offset : int
        In elements of this tensor's type, from the beginning of a storage or of a tensor.
    size, stride : sequence of int, optional

    Raises
    ------
    RuntimeError
        For a source of another type, or more elements than it has.
    """
    if source is None:
        return self._set_to(self.detach().new_empty(0))
    if isinstance(source, _StorageBase):
        if isinstance(source, TypedStorage) and source.dtype is not self.dtype:
            raise RuntimeError(
                f"Expected a Storage of type {self.dtype.type_name} or an UntypedStorage, but got "
                f"type {source.dtype.type_name} for argument 1 'storage'"
            )
        memory = source.untyped()
        size = (memory.nbytes() // self.dtype.itemsize - storage_offset,) if size is None else size
    elif size is None:
        return self._set_to(source)
    else:
        memory = source.untyped_storage()
        storage_offset += source.storage_offset()
    if isinstance(source, _StorageBase) or source.dtype is self.dtype:
        steps = row_major_strides(tuple(size), 1) if stride is None else tuple(stride)
        _check_lies(tuple(size), steps, storage_offset)
        needed = (storage_offset + span(size, steps)) * self.dtype.itemsize
        if 0 not in size and needed > memory.nbytes():
            if tuple(size) == tuple(self.shape) and steps == self.stride():
                raise RuntimeError(
                    f"setStorage: sizes {list(size)}, strides {list(steps)}, storage offset "
                    f"{storage_offset}, and itemsize {self.dtype.itemsize} requiring a storage "
                    f"size of {needed} are out of bounds for storage of size {memory.nbytes()}"
                )
            memory.resize_(needed)
        source = _flat(memory._held)
        source = source if source.dtype is self.dtype else source.view(self.dtype)
        source = source.as_strided(size, steps, storage_offset)
    return self._set_to(source)


def _check_lies(size: tuple[int, ...], stride: tuple[int, ...], offset: int) -> None:
    """Refuse what no tensor's sizes, strides and offset can be."""
    if offset < 0:
        raise RuntimeError(f"Tensor: invalid storage offset {offset}")
    if len(size) != len(stride):
        raise RuntimeError(f"unequal size length ({len(size)}) and stride length ({len(stride)})")
    if any(n < 0 for n in (*size, *stride)):
        raise RuntimeError(
            f"Storage size calculation overflowed with sizes={list(size)} and "
            f"strides={list(stride)}"
        )


# --- other sizes in place -------------------------------------------------------------------------


def resize_(self: Tensor, *sizes: Any, memory_format: Any = None) -> Tensor:
    """Take another shape in place: the memory stays, and grows by zeros where needed.

    Under `use_deterministic_algorithms` it grows by what `empty` is filled with.

    Parameters
    ----------
    memory_format : memory_format, optional
        The order of the dimensions in memory.

    Raises
    ------
    RuntimeError
        For tensors that require grad, and memory that cannot grow: see `UntypedStorage.resize_`.
    """
    if self.requires_grad and not is_inference_mode_enabled():
        raise RuntimeError("cannot resize variables that require grad")
    wanted = _sizes(sizes)
    if any(n < 0 for n in wanted):
        raise RuntimeError(f"resize_: sizes must not be negative, got {list(wanted)}")
    order = None if memory_format is None else memory_format.order
    if order is not None and len(order) != len(wanted):
        raise RuntimeError(
            f"required rank {len(order)} tensor to use {memory_format.name} format, got "
            f"{len(wanted)} sizes"
        )
    if tuple(self.shape) == tuple(wanted) and memory_format is None:
        return self
    count = math.prod(wanted)
    if count * self.dtype.itemsize > sys.maxsize:
        raise RuntimeError(f"Storage size calculation overflowed with sizes={list(wanted)}")
    if math.prod(n for n in wanted[1:] if n) > sys.maxsize:
        raise RuntimeError(f"Stride calculation overflowed with sizes={list(wanted)}")
    _take_sizes(self, wanted, order)
    return self


def _take_sizes(t: Tensor, sizes: tuple[int, ...], order: tuple[int, ...] | None = None) -> None:
    """Let a tensor have other sizes in its memory, which grows where it is too small."""
    order = tuple(range(len(sizes))) if order is None else order
    lying = row_major_strides(tuple([max(sizes[i], 1) for i in order]), 1)
    strides = [lying[order.index(i)] for i in range(len(order))]
    _, offset, count = _memory(t)
    end = offset + math.prod(sizes)
    if end > count:
        memory = t.untyped_storage()
        memory.resize_(end * t.dtype.itemsize)
        fill = unwritten(t.dtype)
        if fill is not None:
            new = backend(t.device).full((end - count,), fill, t.dtype, t.device)
            _flat(memory._held).view(t.dtype).array[count:end] = new
    as_strided_(t, sizes, strides, offset)


def resize_as_(self: Tensor, the_template: Tensor, *, memory_format: Any = None) -> Tensor:
    """`resize_` to another tensor's shape, with `preserve_format` to its memory format too."""
    if memory_format is preserve_format:
        formats = (channels_last, channels_last_3d)
        lies = [f for f in formats if f.order is not None and len(f.order) == the_template.ndim]
        plain = the_template.is_contiguous()
        matching = None if plain else [f for f in lies if the_template.is_contiguous(f)]
        memory_format = matching[0] if matching else contiguous_format
    return resize_(self, tuple(the_template.shape), memory_format=memory_format)


METHODS = (
    set_, share_memory_, storage, untyped_storage, _copied_with_memory, _take_sizes, resize_,
    resize_as_,
)  # fmt: skip
FUNCTIONS = (is_storage, resize_as_)
