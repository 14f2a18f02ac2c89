"""How many neighboring elements one access moves."""

from __future__ import annotations

from typing import Any

from lucid_gpu.device import device
from lucid_gpu.devices import backend

BYTES = 16  # that one access moves at most


def vector_width(extent: int, where: device, *arrays: Any) -> int:
    """The widest access, in elements, that fits all arrays.

    Parameters
    ----------
    extent : int
        Elements of a row: every row of every array begins a multiple of it from the array's first.
    where : device
    *arrays
        Row-major, perhaps of different types, walked in step.
    """
    width = BYTES // max([a.itemsize for a in arrays])
    address = backend(where).address
    for array in arrays:
        start = address(array)
        while extent % width or start % (width * array.itemsize):
            width //= 2
    return width
