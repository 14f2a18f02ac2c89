"""``backends.mkl``: Intel's library, which only NumPy may call."""

from __future__ import annotations

from typing import Any

__all__ = ["VERBOSE_OFF", "VERBOSE_ON", "is_available", "verbose"]

VERBOSE_OFF, VERBOSE_ON = 0, 1


def is_available() -> bool:
    """Whether ops call MKL: they do not."""
    return False


class verbose:
    """A block in which MKL says what it is called for; here nothing calls it."""

    def __init__(self, enable: int) -> None:
        self.enable = enable

    def __enter__(self) -> verbose:
        return self

    def __exit__(self, *error: Any) -> None:
        """Do nothing."""
