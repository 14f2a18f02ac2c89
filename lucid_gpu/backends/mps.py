"""``backends.mps``: Apple's GPUs, of which none is used."""

from __future__ import annotations


def is_available() -> bool:
    """Whether there is such a device: never."""
    return False


def is_built() -> bool:
    """Whether this package could use one: it could not."""
    return False
