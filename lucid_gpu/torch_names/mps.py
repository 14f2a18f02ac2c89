"""`torch.mps`: Apple's GPUs, of which none is used."""

from __future__ import annotations

__all__ = ["device_count", "is_available", "manual_seed"]


def device_count() -> int:
    """How many there are: 0."""
    return 0


def is_available() -> bool:
    """Whether there is one: never."""
    return False


def manual_seed(seed: int) -> None:
    """Do nothing: there is no generator."""
