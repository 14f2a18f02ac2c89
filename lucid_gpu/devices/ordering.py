"""The stable order of NumPy's arrays.

`numpy.sort` of plain integers is several times as fast as a stable `argsort`. So each element and
its place become one integer: the element's rank in the upper bits, the place below. Sorted, their
lower bits are the order, and equal elements cannot change places.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["stable_argsort"]

FEWEST = 1 << 12  # elements, and of a row: below it both ways are as good
SHORTEST = 32


def stable_argsort(array: Any, dim: int) -> Any:
    """As ``np.argsort(array, dim, kind="stable")``; NaNs are last, in their order."""
    if array.dtype.name == "bfloat16":  # NumPy's comparisons of it leave NaNs where they are
        array = array.astype(np.float32)
    n = array.shape[dim] if array.ndim else 0
    if array.size < FEWEST or n < SHORTEST:
        return np.argsort(array, axis=dim, kind="stable")
    bits = (n - 1).bit_length()
    ranks = _ranks(array, 63 - bits)
    if ranks is None:
        return np.argsort(array, axis=dim, kind="stable")
    keys = np.moveaxis(ranks, dim, -1)
    keys = np.left_shift(keys, bits, order="C")
    keys |= np.arange(n)
    keys.sort(axis=-1)
    keys &= (1 << bits) - 1
    return np.moveaxis(keys, -1, dim)


def _ranks(array: Any, bits: int) -> Any:
    """Integers of so many bits that are in order as the elements are; None where there are none."""
    kind = array.dtype.kind
    if kind in "iu":
        low, high = int(array.min()), int(array.max())
        if max(high, -low) >= 1 << 62 or (high - low) >> bits:
            return None
        return array.astype(np.int64) - low
    if array.dtype != np.float32 or bits < 32:
        return None
    whole = (array + np.float32(0)).view(np.int32)  # of -0.0 comes 0.0
    whole = np.where(whole < 0, whole ^ 0x7FFFFFFF, whole)
    unknown = np.isnan(array)
    if unknown.any():
        whole[unknown] = 0x7FFFFFFF
    return whole.astype(np.int64)
