"""Functions and classes of the user that files may name."""

from __future__ import annotations

from typing import Any

__all__ = ["add_safe_globals", "clear_safe_globals", "get_safe_globals", "safe_globals"]

_allowed: dict[str, Any] = {}  # by the name files know them under


def _named(things: list[Any]) -> dict[str, Any]:
    return dict(
        (thing[1], thing[0])
        if isinstance(thing, tuple)
        else (f"{thing.__module__}.{thing.__qualname__}", thing)
        for thing in things
    )


def add_safe_globals(safe_globals: list[Any]) -> None:
    """Let files of ``torch.save`` name these functions and classes, and `load` call them.

    Parameters
    ----------
    safe_globals : list of callable, or of (callable, str)
        With the name files know it under, where that is another.
    """
    _allowed.update(_named(safe_globals))


def get_safe_globals() -> list[Any]:
    """What `add_safe_globals` was given."""
    return list(_allowed.values())


def clear_safe_globals() -> None:
    """Forget what `add_safe_globals` was given."""
    _allowed.clear()


class safe_globals:
    """`add_safe_globals` for a ``with`` block."""

    def __init__(self, safe_globals: list[Any]) -> None:
        self._things = safe_globals
        self._before: dict[str, Any] = {}

    def __enter__(self) -> None:
        self._before = dict(_allowed)
        add_safe_globals(self._things)

    def __exit__(self, *exception: Any) -> None:
        _allowed.clear()
        _allowed.update(self._before)
