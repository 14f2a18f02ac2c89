"""Copies of CuPy's arrays into another order, by a kernel that folders above generate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_by: Callable[[Any, Any], bool] | None = None


def reorder_by(function: Callable[[Any, Any], bool]) -> None:
    """Have ``function(out, source)`` write arrays of CuPy where it says that it did."""
    global _by
    _by = function


def fill(out: Any, source: Any) -> None:
    """``out[...] = source``, of CuPy and of one shape."""
    if _by is None or not _by(out, source):
        out[...] = source


def in_rows(xp: Any, array: Any) -> Any:
    """The elements in row-major order, on the current device: the array itself, or a copy."""
    if array.flags.c_contiguous:
        return array
    copy = xp.empty(array.shape, array.dtype)
    fill(copy, array)
    return copy
