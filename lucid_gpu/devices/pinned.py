"""Page-locked host memory: a GPU copies from it while the host goes on."""

from __future__ import annotations

import math
from collections import deque
from typing import Any

import numpy as np

from lucid_gpu.device import device
from lucid_gpu.devices.cupy_backend import import_cupy
from lucid_gpu.devices.current_gpu import on_gpu

_under_way: deque[tuple[Any, Any]] = deque()  # (event after the copy, the array it reads)


def copied(array: Any) -> Any:
    """A row-major copy of a NumPy array in page-locked memory."""
    memory = import_cupy().cuda.alloc_pinned_memory(max(array.nbytes, 1))
    count = math.prod(array.shape)
    copy = np.frombuffer(memory, np.uint8, count * array.itemsize).view(array.dtype)
    copy = copy.reshape(array.shape)
    copy[...] = array
    return copy


def is_pinned(array: Any) -> bool:
    """Whether a NumPy array lies in page-locked memory that CuPy allocated."""
    while isinstance(array, np.ndarray):
        array = array.base
    memory = array.obj if isinstance(array, memoryview) else array
    return type(memory).__name__ == "PinnedMemoryPointer"


def start_copy(array: Any, where: device) -> Any:
    """An array on a GPU that will hold a page-locked one's elements once its stream comes there.

    The source is kept alive until then; an earlier write changes what arrives.
    """
    cupy = import_cupy()
    with on_gpu(cupy.cuda, where.index):
        stream = cupy.cuda.get_current_stream()
        there = cupy.empty(array.shape, array.dtype)
        there.set(array, stream)
        event = cupy.cuda.Event(disable_timing=True)
        event.record(stream)
    while _under_way and _under_way[0][0].done:
        _under_way.popleft()
    _under_way.append((event, array))
    return there
