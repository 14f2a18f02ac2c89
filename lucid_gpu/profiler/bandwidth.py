"""How fast a device copies memory: the yardstick of every kernel that is bound by it."""

from __future__ import annotations

import functools
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from lucid_gpu import dtypes as dt
from lucid_gpu.device import CPU, device
from lucid_gpu.devices import backend, resolve
from lucid_gpu.devices.current_gpu import on_gpu
from lucid_gpu.devices.threads import get_num_threads

__all__ = ["copy_bandwidth"]

REPEATS = 20
_CPU_BYTES = 1 << 26
_GPU_BYTES = 1 << 28  # more than any cache


def copy_bandwidth(where: Any = None) -> float:
    """Bytes per second that a copy reads and writes, measured once per process.

    The median of 20 copies within the device, after some that are not counted: 256 MiB on a GPU,
    by events; 64 MiB on the CPU, by the clock, on as many threads as kernels run on.

    Parameters
    ----------
    where : device, str or None
        The CPU if left out.
    """
    return _measured(resolve(where))


@functools.cache
def _measured(where: device) -> float:
    seconds = _on_gpu(where) if where.type == "cuda" else _on_cpu()
    size = _GPU_BYTES if where.type == "cuda" else _CPU_BYTES
    return 2 * size / statistics.median(seconds[REPEATS // 4 :])


def _on_cpu() -> list[float]:
    count = get_num_threads()
    arrays = [
        backend(CPU).empty((_CPU_BYTES // 4 // count,), dt.float32, CPU) for _ in range(2 * count)
    ]
    for array in arrays:
        array.fill(1)
    copy, sources, targets = backend(CPU).xp.copyto, arrays[:count], arrays[count:]
    seconds = []
    with ThreadPoolExecutor(count) as team:
        for _ in range(REPEATS):
            start = time.perf_counter()
            list(team.map(copy, targets, sources))
            seconds.append(time.perf_counter() - start)
    return seconds


def _on_gpu(where: device) -> list[float]:
    xp = backend(where).xp
    with on_gpu(xp.cuda, where.index):
        source, target = (backend(where).empty((_GPU_BYTES // 4,), dt.float32, where) for _ in "st")
        source.fill(1)
        marks = [xp.cuda.Event() for _ in range(REPEATS + 1)]
        marks[0].record()
        for mark in marks[1:]:
            xp.copyto(target, source)
            mark.record()
        marks[-1].synchronize()
        elapsed = xp.cuda.get_elapsed_time
        return [elapsed(a, b) / 1e3 for a, b in zip(marks, marks[1:])]
