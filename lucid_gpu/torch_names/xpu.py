"""`torch.xpu`: Intel's GPUs, of which none is used."""

from __future__ import annotations

__all__ = ["device_count", "empty_cache", "is_available", "manual_seed", "manual_seed_all"]


def device_count() -> int:
    """How many there are: 0."""
    return 0


def is_available() -> bool:
    """Whether there is one: never."""
    return False


def empty_cache() -> None:
    """Do nothing: there is no memory."""


def manual_seed(seed: int) -> None:
    """Do nothing: there is no generator."""


def manual_seed_all(seed: int) -> None:
    """Do nothing: there are no generators."""
