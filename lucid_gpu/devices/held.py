"""Memory that others look at where it lies, as graphs do: a tensor that has it keeps it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

__all__ = ["hold", "is_held", "owner_of", "release"]

# Of each holder its memory, as `address` tells it: one step of a dict to enter, one to leave, for
# a graph may be deleted in any thread and in the middle of anything.
by: dict[int, frozenset[int]] = {}


def owner_of(array: Any) -> Any:
    """The array of NumPy's that has the memory of another one."""
    owner, base = array, array.base
    while base is not None:  # `as_strided` of NumPy puts an object of its own between two arrays
        owner = base if type(base) is np.ndarray else owner
        base = getattr(base, "base", None)
    return owner


def is_held(array: Any) -> bool:
    """Whether somebody looks at this memory: who would move it is to write it."""
    if array is None:
        return False
    own = address(array)
    return any(own in memory for memory in list(by.values()))


def hold(holder: Any, places: Iterable[int]) -> None:
    """Let somebody hold memory: ids of its owners, addresses of a GPU's below zero."""
    by[id(holder)] = frozenset(places)


def release(holder: Any) -> None:
    """Let go of it."""
    by.pop(id(holder), None)


def address(array: Any) -> int:
    """A number for an array's memory."""
    return id(owner_of(array)) if type(array) is np.ndarray else -array.data.mem.ptr
