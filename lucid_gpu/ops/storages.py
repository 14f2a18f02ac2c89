"""A tensor's memory as an object: what scripts ask of PyTorch's storages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from lucid_gpu import dtypes as dt
from lucid_gpu.device import device
from lucid_gpu.dtypes import dtype
from lucid_gpu.fusion.plan import row_major_strides
from lucid_gpu.ops.shape import base_array
from lucid_gpu.ops.shared_memory import is_shared
from lucid_gpu.ops.strides import _memory, restrided, storage_offset
from lucid_gpu.storage import SameMemory
from lucid_gpu.tape.modes import no_grad
from lucid_gpu.tensor import Tensor

__all__ = ["TypedStorage", "UntypedStorage"]


class UntypedStorage:
    """The memory that a tensor shares with its views, as a vector of bytes."""

    def __init__(self, elements: Tensor) -> None:
        self._elements = elements

    @property
    def _seen(self) -> Tensor:
        seen: Tensor = self._elements.view(dt.uint8)
        return seen

    @property
    def device(self) -> device:
        """Where the memory is."""
        return self._elements.device

    @property
    def is_cuda(self) -> bool:
        """Whether the memory is on a GPU."""
        return self.device.type == "cuda"

    @property
    def _cdata(self) -> int:
        return self.data_ptr()

    def data_ptr(self) -> int:
        """The address of the first byte; 0 where there is none."""
        address: int = self._elements.data_ptr()
        return address

    def nbytes(self) -> int:
        """How many bytes the memory has."""
        return self._elements.numel() * self._elements.dtype.itemsize

    def size(self) -> int:
        """How many elements the memory has: here bytes."""
        return len(self)

    def element_size(self) -> int:
        """Bytes of an element."""
        return self._seen.dtype.itemsize

    def is_shared(self) -> bool:
        """Whether other processes may see the memory."""
        return is_shared(self._elements)

    def is_pinned(self) -> bool:
        """Whether the memory is page-locked."""
        return bool(self._elements.is_pinned())

    def tolist(self) -> list[Any]:
        """The elements as Python numbers."""
        numbers: list[Any] = self._seen.tolist()
        return numbers

    def __len__(self) -> int:
        return self.nbytes() // self.element_size()

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    def __getitem__(self, index: int) -> Any:
        self._check(index)
        return self._seen[index].item()

    def __setitem__(self, index: Any, value: Any) -> None:
        self._check(index)
        with no_grad():
            self._seen[index] = value

    def _check(self, index: Any) -> None:
        if not isinstance(index, (int, slice)):
            raise RuntimeError(f"can't index a {type(self)} with {type(index)}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def _identity(self) -> tuple[Any, ...]:
        return self.device, self.data_ptr(), self.nbytes()

    def __repr__(self) -> str:
        lines = "".join([f" {x}\n" for x in self.tolist()])
        return f"{lines}[lucid_gpu.{type(self).__name__}({self._kind()}) of size {len(self)}]"

    def _kind(self) -> str:
        return f"device={self.device}"


class TypedStorage(UntypedStorage):
    """The same as elements of the tensor's type."""

    @property
    def _seen(self) -> Tensor:
        return self._elements

    @property
    def dtype(self) -> dtype:
        """The type of its elements."""
        return self._elements.dtype

    def untyped(self) -> UntypedStorage:
        """The same memory as bytes."""
        return UntypedStorage(self._elements)

    def _kind(self) -> str:
        return f"dtype={self.dtype}, device={self.device}"


def _flat(t: Tensor) -> Tensor:
    """All elements of the memory a tensor lies in, as one row that shares it."""
    held: Any = t.detach()
    strides = held.stride()
    return restrided(held, (_memory(held)[2],), (1,), -storage_offset(held), strides)


def untyped_storage(self: Tensor) -> UntypedStorage:
    """The memory that this tensor shares with its views, as bytes."""
    return UntypedStorage(_flat(self))


def storage(self: Tensor) -> TypedStorage:
    """The memory that this tensor shares with its views, as elements of its type."""
    return TypedStorage(_flat(self))


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
    return isinstance(obj, UntypedStorage)


def set_(
    self: Tensor,
    source: Tensor | UntypedStorage | None = None,
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
    if isinstance(source, UntypedStorage):
        held = source._elements
        if isinstance(source, TypedStorage) or held.dtype is self.dtype:
            source = held
        else:
            source = held.view(self.dtype)
        size = (source.numel() - storage_offset,) if size is None else size
    elif size is None:
        return self._set_to(source)
    else:
        storage_offset += source.storage_offset()
    if source.dtype is self.dtype:
        steps = row_major_strides(tuple(size), 1) if stride is None else stride
        source = source.detach().as_strided(size, steps, storage_offset)
    return self._set_to(source)


METHODS = (set_, storage, untyped_storage, _copied_with_memory)
FUNCTIONS = (is_storage,)
