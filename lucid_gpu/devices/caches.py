"""How large the processor's caches are, asked when a kernel is first cut into pieces for them.

Pieces decide how long a kernel takes, and nothing else: what is added up must not be cut by these
sizes, for the order of a sum would then differ from machine to machine.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

__all__ = ["Caches", "caches"]

FOLDER = Path("/sys/devices/system/cpu/cpu0/cache")  # of Linux, one below it for each cache


class Caches(NamedTuple):
    """Bytes of a core's data caches, the first two levels."""

    first: int
    second: int


USUAL = Caches(48 * 1024, 2048 * 1024)  # where the system tells nothing
LEAST = Caches(8 * 1024, 128 * 1024)
MOST = Caches(1024 * 1024, 64 * 1024 * 1024)


@functools.cache
def caches() -> Caches:
    """The sizes that the system tells, within reason, or usual ones."""
    names = ("SC_LEVEL1_DCACHE_SIZE", "SC_LEVEL2_CACHE_SIZE")
    sizes = [_of_system(name) or _of_folder(level) for level, name in enumerate(names, 1)]
    return Caches(*[_within(i, size) for i, size in enumerate(sizes)])


def _within(level: int, size: int) -> int:
    return min(max(size, LEAST[level]), MOST[level]) if size > 0 else USUAL[level]


def _of_system(name: str) -> int:
    """Bytes, or 0 where the C library does not know."""
    try:
        return max(os.sysconf(name), 0)
    except (AttributeError, OSError, ValueError):  # no such function, no answer, no such name
        return 0


def _of_folder(level: int) -> int:
    """Bytes of a level's data cache as the kernel lists them, or 0."""
    try:
        folders = sorted(FOLDER.glob("index*"))
    except OSError:
        return 0
    for folder in folders:
        parts = _texts(folder, ("level", "type", "size"))
        if len(parts) == 3 and parts[0] == str(level) and parts[1] in ("Data", "Unified"):
            return _bytes(parts[2])
    return 0


def _texts(folder: Path, names: Sequence[str]) -> list[str]:
    try:
        return [(folder / name).read_text().strip() for name in names]
    except (OSError, UnicodeDecodeError):
        return []


def _bytes(text: str) -> int:
    """A size such as ``48K``, in bytes."""
    scale = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:], 1)
    digits = text.rstrip("KMG")
    return int(digits) * scale if digits.isdecimal() else 0
