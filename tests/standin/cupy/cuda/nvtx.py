"""cupy.cuda.nvtx: ranges for a profiler, checked for balance and otherwise forgotten."""

from __future__ import annotations

import threading

_open = threading.local()
available = True


def RangePush(message: str, id_color: int = -1) -> None:
    if not isinstance(message, str):
        raise TypeError(f"expected str, got {type(message)}")
    _open.names = [*getattr(_open, "names", ()), message]


def RangePop() -> None:
    _open.names = getattr(_open, "names", [])[:-1]


def Mark(message: str, id_color: int = -1) -> None:
    if not isinstance(message, str):
        raise TypeError(f"expected str, got {type(message)}")
