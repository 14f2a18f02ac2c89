"""Counters by which the blocks of a launch learn which of them ends last.

A launch leaves each at 0 as it found it (`lucid_is_last_block` of `kernels/block.cuh`), so launches
share them that never run at the same time: those of one stream. As with the free memory of CuPy's
pool, a stream is known by its address. A graph is replayed on any stream: it has its own, and none
of its replays run at the same time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Any

__all__ = ["MOST", "counters", "counters_for"]

MOST = 1024  # of a launch
LEGACY, PER_THREAD = 1, 2  # addresses of default streams: two of the one, one for each thread

_of_streams: dict[tuple[int, int, int], Any] = {}
_of_captures: dict[tuple[int, int], Any] = {}


def counters(cupy: Any, index: int, stream: Any) -> Any:
    """Counters at 0 for a launch on a GPU's current stream, as an array.

    Where somebody else captures the stream they are new, and each replay begins by clearing them.
    """
    ptr = stream.ptr
    known = _of_captures.get((index, ptr))
    if known is not None:
        return known
    if ptr > LEGACY and stream.is_capturing():
        return cupy.zeros(MOST, "u4")
    key = (index, ptr, get_ident() if ptr == PER_THREAD else 0)
    known = _of_streams.get(key)
    if known is None:
        known = _of_streams[key] = cupy.zeros(MOST, "u4")
    return known


@contextmanager
def counters_for(index: int, stream: Any, array: Any) -> Iterator[None]:
    """Have launches on a stream that is captured use the graph's own counters."""
    _of_captures[index, stream.ptr] = array
    try:
        yield
    finally:
        del _of_captures[index, stream.ptr]
