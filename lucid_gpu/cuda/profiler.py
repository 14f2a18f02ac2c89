"""When NVIDIA's profilers record: ``nsys profile --capture-range=cudaProfilerApi``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from lucid_gpu.cuda.gpus import cupy

__all__ = ["profile", "start", "stop"]


def start() -> None:
    """Let the profiler record from here on; RuntimeError if there is no GPU."""
    cupy().cuda.runtime.profilerStart()


def stop() -> None:
    """Let it record no more."""
    cupy().cuda.runtime.profilerStop()


@contextlib.contextmanager
def profile() -> Iterator[None]:
    """Let it record inside a block."""
    start()
    try:
        yield
    finally:
        stop()
