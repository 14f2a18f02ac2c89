"""Functions that tracing records as one step: which, and exchanged for how long.

A module's global is another function only while a trace runs (`Patcher`), because the user named
it: by `wrap`, or as ``autowrap_functions`` or ``autowrap_modules`` of a tracer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from lucid_gpu.fx.callers import top_level

__all__ = ["WRAPPED", "Patcher", "wrap"]

Named = TypeVar("Named")
WRAPPED: list[tuple[dict[str, Any], str]] = []  # a module's globals, and the name there


def wrap(fn_or_name: Named) -> Named:
    """Let tracing record calls of a function as one step, instead of what it does.

    Parameters
    ----------
    fn_or_name : callable or str
        A global of the module that calls this at its top level; a decorator does.

    Returns
    -------
    callable or str
        The argument.

    Raises
    ------
    NotImplementedError
        Inside of a function.
    """
    if not callable(fn_or_name) and not isinstance(fn_or_name, str):
        raise RuntimeError(
            "Unsupported type for global function! Must be either a callable or string name"
        )
    name = fn_or_name if isinstance(fn_or_name, str) else fn_or_name.__name__  # type: ignore[attr-defined]
    names = top_level()
    if not any(known is names and other == name for known, other in WRAPPED):
        WRAPPED.append((names, name))
    return fn_or_name


class Patcher:
    """A ``with`` during which globals and methods are exchanged."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []
        self._seen: list[Any] = []

    def patch(
        self, frame_dict: dict[str, Any], name: str, new_fn: Any, deduplicate: bool = True
    ) -> None:
        """Exchange a global of a module; one that is missing is taken away again."""
        if deduplicate and getattr(frame_dict.get(name), "__fx_already_patched", False):
            return
        if deduplicate:
            new_fn.__fx_already_patched = True
        if name in frame_dict:
            old = frame_dict[name]
            self._undo.append(lambda: frame_dict.__setitem__(name, old))
        else:
            self._undo.append(lambda: frame_dict.__delitem__(name))
        frame_dict[name] = new_fn

    def patch_method(self, cls: type, name: str, new_fn: Any, deduplicate: bool = True) -> None:
        """Exchange a method of a class."""
        old = getattr(cls, name)
        if deduplicate and getattr(old, "__fx_already_patched", False):
            return
        if deduplicate:
            new_fn.__fx_already_patched = True
        own = name in vars(cls)
        self._undo.append(lambda: setattr(cls, name, old) if own else delattr(cls, name))
        setattr(cls, name, new_fn)

    def visit_once(self, thing: Any) -> bool:
        """Whether this object has not been asked about before."""
        new = not any(thing is seen for seen in self._seen)
        if new:
            self._seen.append(thing)
        return new

    def __enter__(self) -> Patcher:
        return self

    def __exit__(self, *error: object) -> None:
        while self._undo:
            self._undo.pop()()
