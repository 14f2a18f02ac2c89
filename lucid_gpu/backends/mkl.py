"""``backends.mkl``: Intel's library, which multiplies matrices on a CPU where it is installed."""

from __future__ import annotations

from typing import Any

from lucid_gpu.devices import blas

__all__ = ["VERBOSE_OFF", "VERBOSE_ON", "is_available", "verbose"]

VERBOSE_OFF, VERBOSE_ON = 0, 1


def is_available() -> bool:
    """Return True where MKL multiplies matrices: the extra ``mkl``, unless ``LUCID_MKL=0``."""
    return blas.mkl is not None


class verbose:
    """A block in which MKL would say what it is called for; here it says nothing."""

    def __init__(self, enable: int) -> None:
        self.enable = enable

    def __enter__(self) -> verbose:
        return self

    def __exit__(self, *error: Any) -> None:
        """Do nothing."""
