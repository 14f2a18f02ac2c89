"""Where a function keeps a value: a search from the names that its code mentions.

Only what code can name is searched, downward: globals, closures, default arguments and attributes
of the function, and of the functions and classes that it mentions; then what lies inside of these.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from types import FunctionType, MethodType, ModuleType
from typing import Any

Named = tuple[str, Any]

_DEPTH = 10  # how far below the function is searched
_MOST = 100_000  # values that are looked into


def holder_of(function: Callable[..., Any], wanted: Sequence[Any]) -> str | None:
    """The name through which ``function`` keeps one of these values, if there is one.

    Parameters
    ----------
    function : Function class or callable
    wanted : sequence
        Values, compared by identity.
    """
    level: list[Named] = [(getattr(function, "__qualname__", repr(function)), function)]
    seen: dict[int, Any] = {}  # by identity; it holds what it names
    for _ in range(_DEPTH):
        below: list[Named] = []
        for name, value in level:
            if id(value) in seen or len(seen) > _MOST:
                continue
            seen[id(value)] = value
            for held in _inside(name, value):
                if any(held[1] is one for one in wanted):
                    return held[0]
                below.append(held)
        level = below
    return None


def _inside(name: str, value: Any) -> Iterator[Named]:
    """What a value refers to, each with the name by which one comes to it."""
    if isinstance(value, (staticmethod, classmethod, MethodType)):
        yield name, value.__func__
    elif isinstance(value, FunctionType):
        yield from _mentioned(value)
    elif isinstance(value, ModuleType):
        for key, inner in vars(value).copy().items():
            if not isinstance(inner, (ModuleType, FunctionType, type)):
                yield f"{value.__name__}.{key}", inner
    elif isinstance(value, type):
        for key, inner in dict(vars(value)).items():
            yield f"{value.__module__}.{value.__qualname__}.{key}", inner
    elif isinstance(value, dict):
        yield from [(name, inner) for inner in value.values()]
    elif isinstance(value, (list, tuple, set, frozenset, deque)):
        yield from [(name, inner) for inner in value]
    else:
        yield from [(name, inner) for inner in getattr(value, "__dict__", {}).values()]


def _mentioned(function: FunctionType) -> Iterator[Named]:
    """The globals and closed-over names that a function's code mentions, and what it carries."""
    module, own = function.__module__, function.__qualname__
    names = inspect.getclosurevars(function)
    for key, value in names.globals.items():
        yield f"{module}.{key}", value
    for key, value in names.nonlocals.items():
        yield f"{key}, around {own},", value
    for value in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
        yield f"a default argument of {own}", value
    for key, value in vars(function).items():
        yield f"{own}.{key}", value
