"""``backends.mkldnn``: oneDNN, which nothing here calls."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

__all__ = ["enabled", "flags", "is_available"]

enabled = False


def is_available() -> bool:
    """Whether ops call oneDNN: they do not."""
    return False


@contextlib.contextmanager
def flags(enabled: bool = False, deterministic: bool = False, **settings: object) -> Iterator[None]:
    """A block in which settings of oneDNN hold; they change nothing."""
    yield
