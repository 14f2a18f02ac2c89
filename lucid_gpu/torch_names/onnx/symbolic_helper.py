"""`torch.onnx.symbolic_helper`: the decorator of functions that say what is exported."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

__all__ = ["parse_args"]

F = TypeVar("F")


def parse_args(*arg_descriptors: str) -> Callable[[F], F]:
    """A decorator that gives a function back: nothing is exported, so nobody calls it."""
    return lambda fn: fn
