"""`torch.SymInt` and its functions: sizes that a compiler leaves open. Here they are numbers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

from lucid_gpu.tape.overrides import overridable

__all__ = [
    "SymBool",
    "SymFloat",
    "SymInt",
    "sym_float",
    "sym_int",
    "sym_ite",
    "sym_max",
    "sym_min",
    "sym_not",
    "sym_sum",
]


class _Symbol:
    def __new__(cls, *args: Any) -> NoReturn:
        raise TypeError(f"{cls.__name__}: nothing is traced, so sizes are Python's numbers")


class SymInt(_Symbol):
    """An open integer: for annotations and `isinstance`; nothing is one."""


class SymFloat(_Symbol):
    """An open float: for annotations and `isinstance`; nothing is one."""


class SymBool(_Symbol):
    """An open bool: for annotations and `isinstance`; nothing is one."""


@overridable
def sym_int(a: Any) -> int:
    """The number without its fraction."""
    return int(a)


@overridable
def sym_float(a: Any) -> float:
    """The number as a float."""
    return float(a)


@overridable
def sym_not(a: Any) -> bool:
    """The opposite of a bool."""
    return not a


@overridable
def sym_max(a: Any, b: Any) -> Any:
    """The larger number, a float where one of them is."""
    larger = a if a >= b else b
    return float(larger) if isinstance(a, float) or isinstance(b, float) else larger


@overridable
def sym_min(a: Any, b: Any) -> Any:
    """The smaller number, a float where one of them is."""
    smaller = a if a <= b else b
    return float(smaller) if isinstance(a, float) or isinstance(b, float) else smaller


@overridable
def sym_sum(args: Iterable[Any]) -> Any:
    """The sum of numbers."""
    return sum(args)


@overridable
def sym_ite(b: bool, t: Any, f: Any) -> Any:
    """``t`` if ``b``, else ``f``."""
    return t if b else f
