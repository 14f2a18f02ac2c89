"""lucid_gpu.accelerator: GPUs as newer scripts ask for them, without the word cuda.

``accelerator.current_accelerator()`` is ``device("cuda")`` where a GPU can be used, else None.
The other functions are those of `lucid_gpu.cuda`.
"""

from __future__ import annotations

from lucid_gpu.cuda import current_device as current_device_index
from lucid_gpu.cuda import (
    current_stream,
    device_count,
    empty_cache,
    get_device_capability,
    is_available,
    max_memory_allocated,
    max_memory_reserved,
    memory_allocated,
    memory_reserved,
    memory_stats,
    reset_accumulated_memory_stats,
    reset_peak_memory_stats,
    set_stream,
    synchronize,
)
from lucid_gpu.cuda import device as device_index
from lucid_gpu.cuda import mem_get_info as get_memory_info
from lucid_gpu.cuda import set_device as set_device_index
from lucid_gpu.device import device

__all__ = [
    "current_accelerator",
    "current_device_index",
    "current_stream",
    "device_count",
    "device_index",
    "empty_cache",
    "get_device_capability",
    "get_memory_info",
    "is_available",
    "max_memory_allocated",
    "max_memory_reserved",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
    "set_device_index",
    "set_stream",
    "synchronize",
]


def current_accelerator(check_available: bool = False) -> device | None:
    """The device of GPUs, without a number; None where none can be used (always checked)."""
    return device("cuda") if is_available() else None
