"""Names of values in a graph and in its source: each once, none that Python has taken."""

from __future__ import annotations

import builtins
import keyword
import re
from typing import Any

__all__ = ["TAKEN", "Namespace", "snake_case"]

# The object that may have the name all the same, or one that nothing else is.
TAKEN: dict[str, Any] = {**{word: object() for word in keyword.kwlist}, **vars(builtins)}
_SHAPE = re.compile(r"([a-zA-Z_][0-9a-zA-Z_]*?)(?:_(\d+))?")
_FOREIGN = re.compile("[^0-9a-zA-Z_]+")
_HUMP = re.compile(r"(?<=[a-z])([A-Z])")


def snake_case(s: str) -> str:
    """``MaxPool2d`` as ``max_pool2d``."""
    return _HUMP.sub(r"_\1", s).lower()


class Namespace:
    """Gives names, each once: ``relu``, ``relu_1``, ``relu_2``."""

    def __init__(self) -> None:
        self._of: dict[Any, str] = {}
        self._used: set[str] = set()
        self._last: dict[str, int] = {}  # the number given last, by the name without a number

    def create_name(self, candidate: str, obj: Any) -> str:
        """The name of an object, or a new one like ``candidate`` for None or a new object."""
        if obj is not None and obj in self._of:
            return self._of[obj]
        if _SHAPE.fullmatch(candidate) is None:
            candidate = _FOREIGN.sub("_", candidate) or "_unnamed"
            candidate = f"_{candidate}" if candidate[0].isdigit() else candidate
        match = _SHAPE.fullmatch(candidate)
        assert match is not None
        base, digits = match.groups()
        if digits is None or candidate in self._used:
            number = self._last.get(base, 0)
            if TAKEN.get(candidate, obj) is not obj:
                number += 1
                candidate = f"{base}_{number}"
        else:
            number = int(digits)
        while candidate in self._used:
            number += 1
            candidate = f"{base}_{number}"
        self._used.add(candidate)
        self._last[base] = number
        if obj is not None:
            self._of[obj] = candidate
        return candidate

    def associate_name_with_obj(self, name: str, obj: Any) -> None:
        """Note whose name a given one is."""
        if self._of.setdefault(obj, name) is not name:
            raise AssertionError("obj is already associated")

    def rename(self, obj: Any, name: str) -> None:
        """Give an object another name."""
        self._of[obj] = name
        self._used.add(name)
