"""How much memory of a GPU is in use, was in use at most, is kept for reuse.

What is in use is counted by CuPy's pool: `memory_allocated` is exact whenever it is asked. The pool
knows no highest mark. `reset_peak_memory_stats` begins to measure it, with a hook that sees each
allocation and each return of the calling thread (about a microsecond each, and nothing for a
program that never asks); from then on `max_memory_allocated` is exact. Without it the answer is
`max_memory_reserved`, the most the pool has held: never less than the true figure.
"""

from __future__ import annotations

import warnings
from typing import Any

from lucid_gpu.compat.refused import refused
from lucid_gpu.cuda.gpus import cupy, index_of, is_available
from lucid_gpu.devices import cuda_memory
from lucid_gpu.devices.cuda_errors import OutOfMemoryError, size_text
from lucid_gpu.devices.current_gpu import on_gpu

__all__ = [
    "OutOfMemoryError",
    "empty_cache",
    "max_memory_allocated",
    "max_memory_cached",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_cached",
    "memory_reserved",
    "memory_stats",
    "memory_summary",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_peak_memory_stats",
    "set_per_process_memory_fraction",
]


def memory_allocated(device: Any = None) -> int:
    """Bytes in use by tensors and arrays; 0 where there is no GPU."""
    return cuda_memory.used_bytes(cupy(), index_of(device)) if is_available() else 0


def memory_reserved(device: Any = None) -> int:
    """Bytes taken from the GPU, in use or kept for reuse; 0 where there is no GPU."""
    return cuda_memory.reserved_bytes(cupy(), index_of(device)) if is_available() else 0


def max_memory_allocated(device: Any = None) -> int:
    """The most bytes in use since `reset_peak_memory_stats`; 0 without a GPU.

    Before the first reset it is `max_memory_reserved`, which is at least as much.
    """
    if not is_available():
        return 0
    index = index_of(device)
    usage = cuda_memory.usage_of(index)
    return max_memory_reserved(index) if usage is None else usage.peak


def max_memory_reserved(device: Any = None) -> int:
    """The most bytes taken from the GPU since the last reset; 0 without a GPU."""
    return cuda_memory.note_reserved(cupy(), index_of(device)) if is_available() else 0


def memory_cached(device: Any = None) -> int:
    """The older name of `memory_reserved`, in bytes."""
    _renamed("memory_cached", "memory_reserved")
    return memory_reserved(device)


def max_memory_cached(device: Any = None) -> int:
    """The older name of `max_memory_reserved`, in bytes."""
    _renamed("max_memory_cached", "max_memory_reserved")
    return max_memory_reserved(device)


def reset_max_memory_cached(device: Any = None) -> None:
    """The older name of `reset_peak_memory_stats`."""
    _renamed("reset_max_memory_cached", "reset_peak_memory_stats")
    reset_peak_memory_stats(device)


def _renamed(old: str, new: str) -> None:
    warnings.warn(
        f"lucid_gpu.cuda.{old} has been renamed to lucid_gpu.cuda.{new}",
        FutureWarning,
        stacklevel=3,
    )


def reset_peak_memory_stats(device: Any = None) -> None:
    """Measure peaks from now on; does nothing without a GPU."""
    if is_available():
        index = index_of(device)
        cuda_memory.measure_peak(cupy(), index)
        cuda_memory.note_reserved(cupy(), index, afresh=True)


reset_max_memory_allocated = reset_peak_memory_stats


def reset_accumulated_memory_stats(device: Any = None) -> None:
    """Count allocations from now on; nothing happens where there is no GPU."""
    if is_available():
        index = index_of(device)
        usage = cuda_memory.usage_of(index)
        if usage is not None:
            usage.allocated = usage.freed = usage.allocations = 0
        cuda_memory.retries.pop(index, None)
        cuda_memory.failures.pop(index, None)


def empty_cache() -> None:
    """Return memory kept for reuse to the GPU; does nothing without a GPU.

    Tensors do not gain memory by it: the pool returns it by itself before an allocation fails.
    """
    if is_available():
        cuda_memory.empty(cupy())


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """The free and the total memory of a GPU in bytes, as the driver counts them."""
    cuda = cupy().cuda
    with on_gpu(cuda, index_of(device)):
        free, total = cuda.runtime.memGetInfo()
    return free, total


def set_per_process_memory_fraction(fraction: float, device: Any = None) -> None:
    """Limit the pool to a fraction of a GPU's memory; beyond it is an `OutOfMemoryError`.

    Raises
    ------
    TypeError, ValueError
        For a fraction that is not a float, or not between 0 and 1.
    """
    if not isinstance(fraction, float):
        raise TypeError("Invalid type for fraction argument, must be `float`")
    if not 0 <= fraction <= 1:
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
    xp = cupy()
    with on_gpu(xp.cuda, index_of(device)):
        xp.get_default_memory_pool().set_limit(fraction=fraction)


def memory_stats(device: Any = None) -> dict[str, Any]:
    """Figures under PyTorch's keys, as far as CuPy's pool has them; empty without a GPU.

    ``allocated`` and ``freed`` count what is measured since `reset_peak_memory_stats`, and are
    left out before.
    """
    if not is_available():
        return {}
    index = index_of(device)
    usage = cuda_memory.usage_of(index)
    figures = {
        "allocated_bytes.all.current": memory_allocated(index),
        "allocated_bytes.all.peak": max_memory_allocated(index),
        "reserved_bytes.all.current": memory_reserved(index),
        "reserved_bytes.all.peak": max_memory_reserved(index),
        "num_alloc_retries": cuda_memory.retries.get(index, 0),
        "num_ooms": cuda_memory.failures.get(index, 0),
    }
    if usage is not None:
        figures["allocated_bytes.all.allocated"] = usage.allocated
        figures["allocated_bytes.all.freed"] = usage.freed
        figures["allocation.all.allocated"] = usage.allocations
    return dict(sorted(figures.items()))


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """A table of `memory_stats`; unless ``abbreviated`` also of the figures of the driver."""
    stats = memory_stats(device)
    if not stats:
        return "no GPU: no memory in use"
    index = index_of(device)
    rows = [("memory of a GPU", "now", "at most")]
    for title, key in (("in arrays", "allocated"), ("reserved", "reserved")):
        figures = [stats[f"{key}_bytes.all.{which}"] for which in ("current", "peak")]
        rows.append((title, size_text(figures[0]), size_text(figures[1])))
    rows.append(("allocations retried", str(stats["num_alloc_retries"]), ""))
    rows.append(("out of memory", str(stats["num_ooms"]), ""))
    if not abbreviated:
        free, total = mem_get_info(index)
        rows += [("free on the device", size_text(free), ""), ("device", size_text(total), "")]
    if cuda_memory.usage_of(index) is None:
        rows.append(("(at most: measured after reset_peak_memory_stats())", "", ""))
    lines = [f"{a:<22}{b:>14}{c:>14}".rstrip() for a, b, c in rows]
    return "\n".join([f"cuda:{index}", *lines])


_INSTEAD = "allocations have no history; memory_summary() and profiler.profile() say what is used"
_dump_snapshot = refused("cuda.memory._dump_snapshot", _INSTEAD)
_record_memory_history = refused("cuda.memory._record_memory_history", _INSTEAD)
_snapshot = refused("cuda.memory._snapshot", _INSTEAD)
