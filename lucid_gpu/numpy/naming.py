"""The name and the docstring of a function that another function made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["named"]


def named(function: Callable[..., Any], name: str, doc: str = "`numpy.{}`.") -> Callable[..., Any]:
    """A function under the name that its users know, which its docstring gives, too."""
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc.format(name)
    return function
