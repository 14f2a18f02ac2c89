"""`torch.mps`: Apple's GPUs, of which none is used."""

from __future__ import annotations

__all__ = [
    "current_allocated_memory",
    "device_count",
    "driver_allocated_memory",
    "empty_cache",
    "is_available",
    "manual_seed",
    "synchronize",
]


def device_count() -> int:
    """How many there are: 0."""
    return 0


def is_available() -> bool:
    """Whether there is one: never."""
    return False


def manual_seed(seed: int) -> None:
    """Do nothing: there is no generator."""


def synchronize() -> None:
    """Do nothing: nothing runs."""


def empty_cache() -> None:
    """Do nothing: nothing is kept."""


def current_allocated_memory() -> int:
    """Bytes in use: 0."""
    return 0


def driver_allocated_memory() -> int:
    """Bytes taken: 0."""
    return 0
