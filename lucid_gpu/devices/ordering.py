"""The stable order of NumPy's arrays, and the first few in it.

`numpy.sort` of plain integers is several times as fast as a stable `argsort`. So each element and
its place become one integer: the element's rank in the upper bits, the place below. Sorted, their
lower bits are the order, and equal elements cannot change places.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lucid_gpu.devices.blocks import each_of_rows
from lucid_gpu.dtypes import bfloat16

__all__ = ["leading", "stable_argsort"]

FEWEST = 1 << 12  # elements, and of a row: below it both ways are as good
SHORTEST = 32


def stable_argsort(array: Any, dim: int) -> Any:
    """As ``np.argsort(array, dim, kind="stable")``; NaNs are last, in their order."""
    if array.dtype == bfloat16.numpy:  # NumPy's comparisons of it leave NaNs where they are
        array = array.astype(np.float32)
    n = array.shape[dim] if array.ndim else 0
    if array.size < FEWEST or n < SHORTEST:
        return array.argsort(dim, "stable")
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


def leading(array: Any, dim: int, k: int, largest: bool) -> Any:
    """Where the k largest or smallest along a dimension are, in order, without sorting the others.

    None where there are NaNs.
    """
    rows = np.moveaxis(array, dim, -1)
    n = rows.shape[-1]
    shape, rows = (*rows.shape[:-1], k), np.ascontiguousarray(rows).reshape(-1, n)
    parts = each_of_rows(len(rows), n, lambda block: _leading_of_rows(rows[block], k, largest))
    if not parts or any(part is None for part in parts):
        return None
    where = np.concatenate(parts).reshape(shape)
    return np.ascontiguousarray(np.moveaxis(where, -1, dim))


def _leading_of_rows(rows: Any, k: int, largest: bool) -> Any:
    """`leading` of each row, in two passes over them.

    The k-th best of the best elements of some groups is no better than the k-th best of all, and
    few elements are as good as it. Equals keep their order.
    """
    count, n = rows.shape
    groups = min(max(8 * k, 32), n)
    cut = n // groups * groups
    best: Any = np.maximum if largest else np.minimum
    tops = best.reduce(rows[:, :cut].reshape(count, -1, groups), 1)
    rank = groups - k if largest else k - 1
    edge = np.partition(tops, rank, 1)[:, rank : rank + 1]
    among = rows >= edge if largest else rows <= edge
    if rows.dtype.kind == "f" and (np.isnan(tops).any() or np.isnan(rows[:, cut:]).any()):
        return None  # which come last when sorted
    candidates = np.flatnonzero(among)
    row = candidates // n
    values = rows.reshape(-1)[candidates]
    ends = np.searchsorted(row, np.arange(count + 1))
    if largest:  # as sorting in descending order: backwards
        order = len(candidates) - 1 - np.lexsort((values[::-1], -row[::-1]))
        order = order[::-1]
    else:
        order = np.lexsort((values, row))
    return candidates[order[ends[:-1, None] + np.arange(k)]] - np.arange(count)[:, None] * n
