"""Ranges and marks that NVIDIA's profilers (Nsight Systems) show on their time line."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from lucid_gpu.compat.refused import refused
from lucid_gpu.cuda.gpus import cupy

__all__ = ["mark", "range", "range_end", "range_pop", "range_push", "range_start"]


class _Depth(threading.local):
    """How many ranges a thread has open."""

    now = 0


_depth = _Depth()


def _nvtx() -> Any:
    nvtx = cupy().cuda.nvtx
    if not nvtx.available:
        raise RuntimeError("NVTX functions not installed. Are you sure you have a CUDA build?")
    return nvtx


def range_push(msg: str) -> int:
    """Open a range inside those that are open; returns its depth, counted from 0.

    Raises
    ------
    RuntimeError
        If there is no GPU.
    """
    _nvtx().RangePush(msg)
    _depth.now += 1
    return _depth.now - 1


def range_pop() -> int:
    """Close the innermost range; returns its depth, -1 where none was open."""
    nvtx = _nvtx()
    if not _depth.now:
        return -1
    nvtx.RangePop()
    _depth.now -= 1
    return _depth.now


def mark(msg: str) -> None:
    """Mark this moment."""
    _nvtx().Mark(msg)


@contextlib.contextmanager
def range(msg: str, *args: Any, **kwargs: Any) -> Iterator[None]:
    """A range for a block or, as a decorator, a function; arguments go to ``msg.format``."""
    range_push(msg.format(*args, **kwargs))
    try:
        yield
    finally:
        range_pop()


_NESTED = "CuPy has nested ranges only; write range_push(msg) and range_pop()"
range_start = refused("cuda.nvtx.range_start", _NESTED)
range_end = refused("cuda.nvtx.range_end", _NESTED)
