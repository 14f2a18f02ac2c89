"""Settings that every optimizer checks, with PyTorch's sentences."""

from __future__ import annotations

__all__ = ["at_least_zero", "betas_below_one"]


def at_least_zero(name: str, value: float) -> None:
    """Raise ValueError for a negative number."""
    if not value >= 0.0:
        raise ValueError(f"Invalid {name}: {value}")


def betas_below_one(betas: tuple[float, ...]) -> None:
    """Raise ValueError for a decay rate outside ``[0, 1)``."""
    for i, beta in enumerate(betas):
        if not 0.0 <= beta < 1.0:
            raise ValueError(f"Invalid beta parameter at index {i}: {beta}")
