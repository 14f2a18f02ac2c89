"""Small matrix products on one thread of the BLAS that NumPy brings.

OpenBLAS splits a product of a million multiplications over all cores, and its threads wait for one
another without giving the core away. Below `SHARED_FROM` that gains nothing on an idle machine, and
on a busy one a product of 20 microseconds takes ten milliseconds.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["SHARED_FROM", "on_few_threads"]

SHARED_FROM = 8_000_000  # multiplications; two threads first gain at about 5 million

_Get = Callable[[], int]
_Set = Callable[[int], None]


def _thread_count() -> tuple[_Get, _Set] | None:
    """OpenBLAS's functions to read and set the number of threads, where NumPy's wheel has them."""
    folders = (Path(np.__file__).parent.parent / "numpy.libs", Path(np.__file__).parent / ".dylibs")
    for path in (p for folder in folders for p in sorted(folder.glob("*openblas*"))):
        try:
            library = ctypes.CDLL(str(path))
        except OSError:
            continue
        for prefix in ("scipy_openblas", "openblas"):
            for suffix in ("64_", ""):
                get = getattr(library, f"{prefix}_get_num_threads{suffix}", None)
                put = getattr(library, f"{prefix}_set_num_threads{suffix}", None)
                if get is not None and put is not None:
                    put.restype = None
                    return get, put
    return None


_found = _thread_count()


def on_few_threads(multiplications: int, product: Callable[..., Any], *args: Any) -> Any:
    """Call ``product(*args)``, on one BLAS thread where the work is too small to share."""
    if _found is None or multiplications >= SHARED_FROM:
        return product(*args)
    get, put = _found
    count = get()
    if count == 1:
        return product(*args)
    put(1)
    try:
        return product(*args)
    finally:
        put(count)
