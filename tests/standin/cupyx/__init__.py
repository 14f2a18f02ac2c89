"""cupyx of the stand-in for CuPy: no GPU is here."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from cupyx import scipy

_linalg: list[Any] = ["ignore"]  # whether failures of cuSOLVER are looked at


@contextlib.contextmanager
def errstate(
    *,
    divide: Any = None,
    over: Any = None,
    under: Any = None,
    invalid: Any = None,
    linalg: Any = None,
) -> Iterator[None]:
    _linalg.append(_linalg[-1] if linalg is None else linalg)
    try:
        yield
    finally:
        _linalg.pop()


def scatter_add(a: Any, slices: Any, value: Any) -> None:
    a.scatter_add(slices, value)


def scatter_max(a: Any, slices: Any, value: Any) -> None:
    a.scatter_max(slices, value)


def scatter_min(a: Any, slices: Any, value: Any) -> None:
    a.scatter_min(slices, value)
