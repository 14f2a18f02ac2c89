"""Python numbers as a type of elements holds them, and those that it refuses."""

from __future__ import annotations

import functools
import math
from typing import Any

import ml_dtypes
import numpy as np

from lucid_gpu import dtypes as dt
from lucid_gpu.dtypes import dtype
from lucid_gpu.tensor import Tensor

__all__ = ["largest", "number_in", "refuse_beyond", "refuse_unheld"]


def number_in(value: Any, d: dtype) -> Any:
    """A number as a type holds it: cut to integers; whole negative ones go round in unsigned types.

    float32 holds no larger finite number; of 16-bit floats such is infinity, as in PyTorch's fills.
    """
    if isinstance(value, Tensor):
        value = value.item()
    if not isinstance(value, (bool, int, float, complex, np.number, np.bool_)):
        raise TypeError(f"argument 'fill_value' must be Number, not {type(value).__name__}")
    if isinstance(value, complex) and not d.is_complex and d is not dt.bool:
        if value.imag:
            raise dt.overflow(d)
        value = value.real
    if d.category != 1:
        if d is dt.float32:
            refuse_beyond(value, d)
        large = type(value) is int and not -(2**63) <= value < 2**63
        return float(value) if large and d.category == 2 else value
    top, low = int(np.iinfo(d.numpy).max), int(np.iinfo(d.numpy).min)
    if not low and isinstance(value, (int, np.integer)):
        low = -top
    if not low <= value <= top:  # nor is NaN
        raise dt.overflow(d)
    return int(value) % (top + 1) if low == -top else int(value)


@functools.cache
def largest(d: dtype) -> float:
    """The largest finite number of a type of real floats."""
    return float(ml_dtypes.finfo(d.numpy).max)


def refuse_beyond(value: Any, d: dtype) -> None:
    """Refuse a finite number that a type of real floats does not hold."""
    if d.category == 2 and largest(d) < abs(value) < math.inf:
        raise dt.overflow(d)


def refuse_unheld(value: Tensor, d: dtype) -> None:
    """Refuse a tensor of one element, to be filled in, that a type does not hold.

    A tensor of that type is not read, nor one that `vmap` batches.
    """
    if value.dtype is d or d is dt.bool or value._wrapper is not None:
        return
    refuse_beyond(number_in(value, d), d)
