"""PyTorch's storages: bytes that several tensors may share, and the tensors on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from lucid_gpu.devices import backend
from lucid_gpu.dtypes import dtype
from lucid_gpu.ops.sources import empty_strided
from lucid_gpu.serialization.errors import Damage
from lucid_gpu.serialization.locations import RestoreLocation
from lucid_gpu.tensor import Tensor, from_array

__all__ = ["Storage", "StorageType", "TypedStorage", "rebuild"]


class StorageType(NamedTuple):
    """What ``torch.FloatStorage`` and the other storage types say: the type of the elements."""

    dtype: dtype


class Storage:
    """Bytes where tensors lie.

    Parameters
    ----------
    content : NumPy array of bytes
    restore_location : callable
        See `locations.placing`.
    where : str
        Where it was saved.
    """

    def __init__(self, content: Any, restore_location: RestoreLocation, where: str) -> None:
        self.bytes = restore_location(from_array(content), where)
        self.first: Tensor | None = None  # the first tensor that was made of it

    def share(self, tensor: Tensor) -> None:
        """Let writes to a tensor be seen by the others on the same bytes."""
        if self.first is None:
            self.first = tensor
            return
        memory = self.first._memory()
        tensor._storage = memory
        memory.add(tensor)
        memory.add_cell(tensor._expr.leaves[0])


class TypedStorage(NamedTuple):
    """A storage and the type that its elements are read as."""

    storage: Storage
    kind: dtype

    def viewed(self, d: dtype) -> TypedStorage:
        return TypedStorage(self.storage, d)


def meta_tensor(d: Any, size: Sequence[int], stride: Sequence[int]) -> Tensor:
    """A tensor on the device meta; sizes and strides count elements.

    Raises
    ------
    Damage
        For a type, sizes or strides that are none.
    """
    counts = [*size, *stride]
    if not isinstance(d, dtype) or len(size) != len(stride) or not all(map(_is_count, counts)):
        raise Damage("a tensor in it has sizes or strides that are no counts, or no type")
    return empty_strided(size, stride, dtype=d, device="meta")


def rebuild(
    storage: TypedStorage,
    offset: int,
    size: tuple[int, ...],
    stride: tuple[int, ...],
    requires_grad: bool = False,
    hooks: Any = None,
    metadata: Any = None,
) -> Tensor:
    """The tensor that lies in a storage with an offset, sizes and strides, counted in elements.

    Raises
    ------
    Damage
        If it would reach beyond the storage.
    """
    if not isinstance(storage, TypedStorage) or not isinstance(storage.kind, dtype):
        raise Damage("a tensor in it lies in no storage")
    size, stride, d = tuple(size), tuple(stride), storage.kind
    if len(size) != len(stride) or not all(_is_count(n) for n in (offset, *size, *stride)):
        raise Damage("a tensor in it has sizes or strides that are no counts, or not as many")
    memory = storage.storage.bytes
    reach = offset + sum((n - 1) * s for n, s in zip(size, stride)) + 1 if 0 not in size else 0
    if reach * d.itemsize > memory.numel():
        raise Damage(
            f"a tensor of sizes {list(size)}, strides {list(stride)} and offset {offset} reaches "
            f"beyond its storage of {memory.numel()} bytes"
        )
    xp = backend(memory.device).xp
    if 0 in size:
        made = from_array(xp.empty(size, d.numpy), d, memory.device)
    else:
        flat = memory.array[: memory.numel() // d.itemsize * d.itemsize].view(d.numpy)
        strides = tuple(s * d.itemsize for s in stride)
        array = xp.lib.stride_tricks.as_strided(flat[offset:], size, strides)
        made = from_array(array, d, memory.device)._keep_order()
        storage.storage.share(made)
    marks = metadata if isinstance(metadata, dict) else {}
    if marks.get("conj"):
        made = made.conj()
    if marks.get("neg"):
        made = -made
    return made.requires_grad_() if requires_grad else made


def _is_count(n: Any) -> bool:
    return type(n) is int and 0 <= n < 1 << 62
