"""Memory that several processes see: anonymous files, which each of them maps."""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref
from typing import Any

import numpy as np

from lucid_gpu.core.owner import owner_of
from lucid_gpu.ops.strides import address, base_array
from lucid_gpu.tensor import Tensor

_files: weakref.WeakKeyDictionary[mmap.mmap, int] = weakref.WeakKeyDictionary()


def is_shared(self: Tensor) -> bool:
    """Whether other processes may see the memory: a GPU's, or what `share_memory_` moved."""
    return self.device.type == "cuda" or _memory_of(self) is not None


def parts_of(tensor: Tensor) -> tuple[int, Any]:
    """A shared tensor on the CPU as a file's descriptor and what `mapped` takes beside it."""
    memory = _memory_of(tensor)
    assert memory is not None
    array = base_array(tensor)
    offset = address(array) - address(owner_of(array)) if array.size else 0
    return _files[memory], (array.dtype, array.shape, offset, array.strides)


def mapped(descriptor: int, kind: Any, shape: Any, offset: int = 0, strides: Any = None) -> Any:
    """An array in a file, whose descriptor is closed with the array's memory."""
    memory = mmap.mmap(descriptor, 0)
    _files[memory] = descriptor
    weakref.finalize(memory, os.close, descriptor)
    whole = np.frombuffer(memory, np.uint8)
    return np.ndarray(tuple(shape), kind, whole, offset, strides)


def shared_bytes(size: int) -> Any:
    """A row of bytes that other processes see."""
    return mapped(_anonymous(size), np.uint8, (size,))


def _memory_of(tensor: Tensor) -> mmap.mmap | None:
    base = owner_of(base_array(tensor)).base
    base = getattr(base, "obj", base)
    return base if isinstance(base, mmap.mmap) and base in _files else None


def _anonymous(size: int) -> int:
    """A file without a name, of so many bytes, at least one: none cannot be mapped."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("lucid_gpu tensor")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, max(size, 1))
    return descriptor


METHODS = (is_shared,)
