"""cupyx of the stand-in for CuPy: no GPU is here."""

from __future__ import annotations

from typing import Any

from cupyx import scipy


def scatter_add(a: Any, slices: Any, value: Any) -> None:
    a.scatter_add(slices, value)


def scatter_max(a: Any, slices: Any, value: Any) -> None:
    a.scatter_max(slices, value)


def scatter_min(a: Any, slices: Any, value: Any) -> None:
    a.scatter_min(slices, value)
