"""What was asked of the GPU: launches, products, memory, copies, and waiting."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import NamedTuple


class Asked(NamedTuple):
    """One thing that was asked for.

    ``kind`` is a ``launch`` of a kernel, a ``product`` by cuBLAS, a ``function`` of CuPy's, which
    is a kernel too, a ``memset``, a ``copy`` from the host, a ``fetch`` to it, a ``wait``, or an
    ``allocation`` by a pool.
    """

    kind: str
    name: str
    bytes: int


_lists: list[list[Asked]] = []


def note(kind: str, name: str = "", nbytes: int = 0) -> None:
    """Add to the lists of all blocks."""
    for one in _lists:
        one.append(Asked(kind, name, nbytes))


@contextlib.contextmanager
def noted() -> Iterator[list[Asked]]:
    """The list of what is asked for in the block."""
    found: list[Asked] = []
    _lists.append(found)
    try:
        yield found
    finally:
        _lists.remove(found)
