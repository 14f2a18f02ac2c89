"""PyTorch's storages: bytes that several tensors may share, and the tensors on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from lucid_gpu.devices import backend
from lucid_gpu.dtypes import dtype
from lucid_gpu.ops.sources import empty_strided
from lucid_gpu.ops.storages import TypedStorage
from lucid_gpu.serialization.errors import Damage
from lucid_gpu.tensor import Tensor, from_array

__all__ = ["StorageType", "meta_tensor", "rebuild"]


class StorageType(NamedTuple):
    """What ``torch.FloatStorage`` and the other storage types say: the type of the elements."""

    dtype: dtype


def _share(memory: Tensor, made: Tensor) -> None:
    """Let writes to a tensor be seen by the others on the same bytes."""
    record = memory._memory()
    made._storage = record
    record.add(made, made._expr.leaves[0])


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
    try:
        return empty_strided(size, stride, dtype=d, device="meta")
    except MemoryError as error:
        raise Damage(str(error)) from None


def rebuild(
    storage: TypedStorage,
    offset: int,
    size: tuple[int, ...],
    stride: tuple[int, ...],
    requires_grad: bool = False,
    hooks: Any = None,
    metadata: Any = None,
    kind: dtype | None = None,
) -> Tensor:
    """The tensor that lies in a storage with an offset, sizes and strides, counted in elements.

    They are of the storage's type, or of a ``kind``.

    Raises
    ------
    Damage
        If it would reach beyond the storage.
    """
    if not isinstance(storage, TypedStorage):
        raise Damage("a tensor in it lies in no storage")
    d = storage.dtype if kind is None else kind
    if not isinstance(d, dtype):
        raise Damage("a tensor in it has no type")
    size, stride, memory = tuple(size), tuple(stride), storage._held
    if len(size) != len(stride) or not all(_is_count(n) for n in (offset, *size, *stride)):
        raise Damage("a tensor in it has sizes or strides that are no counts, or not as many")
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
        _share(memory, made)
    marks = metadata if isinstance(metadata, dict) else {}
    if marks.get("conj"):
        made = made.conj()
    if marks.get("neg"):
        made = made._neg_view()
    return made.requires_grad_() if requires_grad else made


def _is_count(n: Any) -> bool:
    return type(n) is int and 0 <= n < 1 << 62
