"""Types of storages by element type and device, as PyTorch's first programs name them.

``FloatStorage([1, 2])`` is a `TypedStorage` of float32; ``isinstance(s, FloatStorage)`` asks for
the type and the device.
"""

from __future__ import annotations

import builtins
from typing import Any

from lucid_gpu.dtypes import dtype
from lucid_gpu.ops.storages import TypedStorage, UntypedStorage, is_storage
from lucid_gpu.ops.tensor_types import NAMES
from lucid_gpu.tensor import Tensor


class StorageType(builtins.type):
    """The class of `FloatStorage` and the other types: calling one makes a `TypedStorage`."""

    dtype: dtype
    where: str

    def __call__(cls, *args: Any, wrap_storage: Any = None) -> TypedStorage:
        if len(args) + (wrap_storage is not None) > 1 or is_storage(*args[:1] or (None,)):
            raise TypeError(
                f"{cls.__name__}() takes nothing, a number of elements, a sequence of them, or "
                f"wrap_storage=, got {', '.join([builtins.type(a).__name__ for a in args])}"
            )
        return TypedStorage(*args, wrap_storage=wrap_storage, dtype=cls.dtype, device=cls.where)

    def __instancecheck__(cls, value: Any) -> bool:
        return (
            isinstance(value, TypedStorage)
            and value.dtype is cls.dtype
            and value.device.type == cls.where
        )

    def from_buffer(cls, *args: Any, **named: Any) -> TypedStorage:
        """The bytes of a buffer, copied: see `UntypedStorage.from_buffer`."""
        return cls(wrap_storage=UntypedStorage.from_buffer(*args, dtype=cls.dtype, **named))

    def from_file(cls, filename: Any, shared: bool = False, size: int = 0) -> TypedStorage:
        """The memory of a file, which has so many elements: see `lucid_gpu.from_file`."""
        memory = UntypedStorage.from_file(filename, shared, size * cls.dtype.itemsize)
        return cls(wrap_storage=memory)

    def _new_shared(cls, size: int) -> TypedStorage:
        memory: TypedStorage = cls(size).share_memory_()
        return memory


def _named(d: dtype, where: str) -> StorageType:
    module = "lucid_gpu" if where == "cpu" else f"lucid_gpu.{where}"
    doc = f"Storages of {d.name}: calling this makes one, `isinstance` asks for type and device."
    body = {"__module__": module, "__doc__": doc, "dtype": d, "where": where}
    return StorageType(NAMES[d].replace("Tensor", "Storage"), (TypedStorage,), body)


TYPES: dict[tuple[str, str], StorageType] = {
    (made.where, made.__name__): made
    for made in [_named(d, where) for where in ("cpu", "cuda") for d in NAMES]
}
globals().update({name: made for (where, name), made in TYPES.items() if where == "cpu"})
Storage = TYPES["cpu", "FloatStorage"]  # the first name of it


def storage_type(self: Tensor) -> StorageType:
    """The type of the tensor's storage, such as ``FloatStorage``."""
    return TYPES[self.device.type, NAMES[self.dtype].replace("Tensor", "Storage")]


METHODS = (storage_type,)
