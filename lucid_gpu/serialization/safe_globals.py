"""Functions and classes of the user that files may name."""

from __future__ import annotations

from typing import Any

__all__ = ["add_safe_globals", "clear_safe_globals", "get_safe_globals", "safe_globals"]

_allowed: dict[str, Any] = {}  # by the name files know them under
_given: dict[str, Any] = {}  # as they were handed in


def _name_of(thing: Any) -> str:
    if not isinstance(thing, tuple):
        return f"{thing.__module__}.{thing.__qualname__}"
    if len(thing) != 2:
        raise ValueError(
            f"Expected tuple of length 2 (global, str of callable full path), but got {thing!r}"
        )
    if not isinstance(thing[1], str):
        raise TypeError(f"Expected second item in tuple to be str of callable full path: {thing!r}")
    return thing[1]


def add_safe_globals(safe_globals: list[Any]) -> None:
    """Let files of ``torch.save`` name these functions and classes, and `load` call them.

    Parameters
    ----------
    safe_globals : list of callable, or of (callable, str)
        With the name files know it under, where that is another.

    Raises
    ------
    TypeError
        For a name that is no string.
    ValueError
        For a tuple of another length.
    """
    given = {_name_of(thing): thing for thing in safe_globals}
    _given.update(given)
    _allowed.update({n: t[0] if isinstance(t, tuple) else t for n, t in given.items()})


def get_safe_globals() -> list[Any]:
    """What `add_safe_globals` was given."""
    return list(_given.values())


def clear_safe_globals() -> None:
    """Forget what `add_safe_globals` was given."""
    _allowed.clear()
    _given.clear()


class safe_globals:
    """`add_safe_globals` for a ``with`` block."""

    def __init__(self, safe_globals: list[Any]) -> None:
        self._things = safe_globals
        self._before: list[Any] = []

    def __enter__(self) -> None:
        self._before = get_safe_globals()
        add_safe_globals(self._things)

    def __exit__(self, *exception: Any) -> None:
        clear_safe_globals()
        add_safe_globals(self._before)
