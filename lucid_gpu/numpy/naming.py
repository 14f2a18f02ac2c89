"""The name and the docstring of a function that another function made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucid_gpu.ops import registry

__all__ = ["named"]


def named(function: Callable[..., Any], name: str, doc: str = "`numpy.{}`.") -> Callable[..., Any]:
    """A function under the name that its users know, which its docstring gives, too."""
    return registry.named(function, name, doc.format(name))
