"""NumPy's compiled loops, called one after another without the interpreter between them.

A ufunc holds compiled SIMD loops, one a combination of types, all of one C signature. The C file
``_native.c`` beside this one finds them and calls the loops of a table in turn. The arithmetic is
NumPy's to the last bit; what goes away is the interpreter (a third of a microsecond a call) and its
lock. Where the C file was not compiled, the same calls are made from Python.

`lucid_gpu.devices.recording` writes such tables as one writes NumPy.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

try:
    import lucid_gpu.devices._native as _native
except ImportError:  # it is optional: without a compiler there is none
    _native = None  # type: ignore[assignment]

__all__ = [
    "OWN",
    "POINTER",
    "TABLE",
    "address",
    "addresses",
    "available",
    "compiled",
    "has_loop",
    "loop_of",
    "point",
    "product_ufunc",
    "walk",
    "windows",
]

POINTER = np.dtype(np.intp)
TABLE = 0  # first word of an entry that stands for another table: address, entries, times


def compiled() -> bool:
    """Whether the C file was compiled for this Python."""
    return _native is not None


@functools.cache
def available() -> bool:
    """Whether tables can be walked, and ``LUCID_NATIVE_LOOPS=0`` does not say otherwise."""
    return compiled() and os.environ.get("LUCID_NATIVE_LOOPS") != "0"


class Own:
    """Loops of ours, beside those of ufuncs: of a name in `lucid_gpu.fusion.special`."""

    signature = None

    def __init__(self, name: str) -> None:
        self.__name__ = name
        own = {} if _native is None else _native.own_loops()
        self.loops = {types: (at, 0) for (of, types), at in own.items() if of == name}
        self.types = [*self.loops]


OWN = {name: Own(name) for name in ("where", "cast", "sign")}


@functools.cache
def has_loop(ufunc: Any, signature: str) -> bool:
    """Whether a ufunc has a loop for types such as ``"ff->f"``."""
    return signature in ufunc.types


@functools.cache
def loop_of(ufunc: Any, signature: str) -> tuple[int, int] | None:
    """Address and data of a ufunc's loop for types such as ``"ff->f"``, or None."""
    if type(ufunc) is Own:
        return ufunc.loops.get(signature)
    return _native.find_loop(ufunc, signature)


def _address(array: Any) -> int:
    """Where an array's first element lies."""
    if not isinstance(array, np.ndarray):
        raise TypeError(f"expected a NumPy array, got {type(array).__name__}")
    return int(array.ctypes.data)


def _addresses(arrays: Sequence[Any]) -> list[int]:
    return [_address(array) for array in arrays]


address = _address if _native is None else _native.address
addresses = _addresses if _native is None else _native.addresses


walk: Any = None if _native is None else _native.walk  # all only where `available`
point: Any = None if _native is None else _native.point
windows: Any = None if _native is None else _native.windows
product_ufunc: Any = None if _native is None else _native.product_ufunc
