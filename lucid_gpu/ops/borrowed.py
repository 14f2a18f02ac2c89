"""Tensors on memory that somebody else owns: arrays of users', of other libraries, of processes."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from lucid_gpu import dtypes as dt
from lucid_gpu.devices import backend_of_array
from lucid_gpu.tensor import Tensor, _mark_shared, from_array

__all__ = ["from_array_shared"]


def from_array_shared(array: Any, read_only: bool = False) -> Tensor:
    """A tensor that shares an array, which other code may write and which may be read-only."""
    array_backend = backend_of_array(array)
    assert array_backend is not None
    dt.require_native(array.dtype)
    d = dt.from_numpy_dtype(array.dtype)
    view = array.view(np.ndarray) if array_backend.type == "cpu" else array.view()
    result = from_array(view, d, array_backend.device_of(array))._keep_order()
    storage = result._memory()
    storage.lend(result._expr.leaves[0])
    storage.lent_part = weakref.ref(view)
    on_cpu = array_backend.type == "cpu"
    storage.read_only = read_only or (on_cpu and not view.flags.writeable)
    forever = storage.read_only or array_backend.is_borrowed(storage.owner)
    if forever:
        storage.idle_references = -1
    _mark_shared(result)
    return result
