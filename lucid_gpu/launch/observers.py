"""Who is told of each kernel that ran, and what they are told of a hand-written one."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

from lucid_gpu.device import device

# Called with a plan (see `lucid_gpu.fusion.plan`) or a `Launched` after each kernel.
observers: list[Callable[[Any], None]] = []
debug = os.environ.get("LUCID_DEBUG", "") not in ("", "0")


class Operand(NamedTuple):
    """An array a kernel read or wrote."""

    dtype: Any  # NumPy's
    shape: tuple[int, ...]


class Launched(NamedTuple):
    """A launch of a hand-written kernel.

    ``shape`` is that of the first array written; bytes count each array once.
    """

    name: str
    device: device
    shape: tuple[int, ...]
    loads: tuple[Operand, ...]
    stores: tuple[Operand, ...]
    bytes_read: int
    bytes_written: int
    source: str
    ops: tuple[str, ...] = ()
    reduction: None = None
