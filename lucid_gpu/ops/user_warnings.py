"""Warnings that name the user's own line."""

from __future__ import annotations

import warnings

from lucid_gpu.core.planning import call_stack, user_line

__all__ = ["is_warn_always_enabled", "set_warn_always", "warn_user", "warn_user_once"]

_always = False
_warned_once: set[str] = set()  # messages of `warn_user_once`


def set_warn_always(b: bool) -> None:
    """Let warnings of this package come each time, not once a line, where filters let them.

    TypeError for anything but a bool.
    """
    global _always
    if not isinstance(b, bool):
        raise TypeError(f"setWarnOnlyOnce expects a bool, but got {type(b).__name__}")
    _always = b


def is_warn_always_enabled() -> bool:
    """What `set_warn_always` said; False at first."""
    return _always


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the innermost line outside of this package."""
    if _always:  # without the user's module, which remembers what was said at a line
        warnings.warn_explicit(message, category, *user_line())
        return
    stack, own = call_stack()
    # `warn` passes over the import system's frames as it counts.
    counted = [line for line in stack[:own] if "importlib._bootstrap" not in line.filename]
    warnings.warn(message, category, stacklevel=len(counted))


def warn_user_once(message: str) -> None:
    """Warn once in a process, or each time where `set_warn_always` asks for it."""
    if _always or message not in _warned_once:
        _warned_once.add(message)
        warn_user(message)
