"""Warnings that name the user's own line."""

from __future__ import annotations

import os
import sys
import warnings

from lucid_gpu.launch.planning import users_frame

__all__ = ["is_warn_always_enabled", "set_warn_always", "warn_user"]

_PACKAGE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")
_always = False


def set_warn_always(b: bool) -> None:
    """Let warnings of this package come each time, not once a line, where filters let them.

    TypeError for what is no bool.
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
    if sys.version_info >= (3, 12) and not _always:
        warnings.warn(message, category, skip_file_prefixes=(_PACKAGE,))
        return
    # An older `warn` counts frames from here and cannot leave out a package's: nobody can know how
    # many of ours there are, so the line is looked for, as for other reports.
    frame = users_frame()
    if frame is None:
        warnings.warn(message, category, stacklevel=2)
        return
    names = frame.f_globals
    file, line, module = frame.f_code.co_filename, frame.f_lineno, names.get("__name__", "<string>")
    registry = {} if _always else names.setdefault("__warningregistry__", {})
    warnings.warn_explicit(message, category, file, line, module, registry)
