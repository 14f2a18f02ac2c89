"""Copies that bring elements into another order in memory."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["write"]

LINE = 64  # bytes of a cache line
ALIASED = 1024  # steps of so many bytes, and multiples, meet in few places of the L1 cache


def write(out: Any, source: Any) -> None:
    """``out[...] = source``, of one shape.

    NumPy walks in the order of ``out``. Where the source's elements then lie far apart by a power
    of two, each of its cache lines is gone before its next element is read, unless no more lines
    are read at a time than fit beside one another: as many as elements fill one line.
    """
    strip = LINE // source.itemsize
    if (
        isinstance(source, np.ndarray)
        and source.ndim > 1
        and source.shape[-1] > strip > 1
        and source.strides[-1] % ALIASED == 0 != source.strides[-1]
    ):
        for start in range(0, source.shape[-1], strip):
            out[..., start : start + strip] = source[..., start : start + strip]
    else:
        out[...] = source
