"""Living tensors of each thread, noted where they are made, once somebody asks for them.

Streams do: what is pending where they meet is computed there. Until then nothing is noted.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

__all__ = ["begin", "note", "tensors"]

noting = False  # read wherever a tensor is made; `begin` sets it
LEAST = 1024  # tensors noted before those that are gone are forgotten


class _Noted(threading.local):
    def __init__(self) -> None:
        self.references: list[Any] = []
        self.limit = LEAST


_noted = _Noted()


def begin() -> None:
    """Note tensors from now on, on every thread."""
    global noting
    noting = True


def note(tensor: Any) -> None:
    """Note, weakly, a tensor that this thread made."""
    references = _noted.references
    references.append(weakref.ref(tensor))
    if len(references) > _noted.limit:
        _noted.limit = max(LEAST, 2 * len(tensors()))


def tensors() -> list[Any]:
    """Those of this thread that live; the others are forgotten."""
    found = [(r, t) for r in _noted.references if (t := r()) is not None]
    _noted.references = [r for r, _ in found]
    return [t for _, t in found]
