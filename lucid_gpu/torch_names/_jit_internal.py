"""`torch._jit_internal`: the decorators that packages take from there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucid_gpu import jit

__all__ = [
    "Final",
    "Future",
    "_overload",
    "_overload_method",
    "boolean_dispatch",
    "export",
    "ignore",
    "is_scripting",
    "unused",
]

Final, Future = jit.Final, jit.Future
export, ignore, is_scripting, unused = jit.export, jit.ignore, jit.is_scripting, jit.unused
_overload, _overload_method = jit._overload, jit._overload_method


def boolean_dispatch(
    arg_name: str,
    arg_index: int,
    default: bool,
    if_true: Callable[..., Any],
    if_false: Callable[..., Any],
    module_name: str,
    func_name: str,
) -> Callable[..., Any]:
    """A function that calls one of two, as its argument ``arg_name`` says."""

    def dispatched(*args: Any, **kwargs: Any) -> Any:
        asked = args[arg_index] if arg_index < len(args) else kwargs.get(arg_name, default)
        return (if_true if asked else if_false)(*args, **kwargs)

    dispatched.__name__ = func_name
    return dispatched
