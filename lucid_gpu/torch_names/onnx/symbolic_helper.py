"""`torch.onnx.symbolic_helper`: what functions use that say how an op is exported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from lucid_gpu.compat.refused import refused

__all__ = ["parse_args"]

F = TypeVar("F")


def parse_args(*arg_descriptors: str) -> Callable[[F], F]:
    """A decorator that gives a function back: nothing is exported, so nobody calls it."""
    return lambda fn: fn


def __getattr__(name: str) -> Any:
    """Any other name, of this module and of ``symbolic_opset9``: it refuses when it is called."""
    if name.startswith("__"):
        raise AttributeError(name)
    return refused(f"onnx.{name}", "models are not exported; see lucid_gpu.onnx.export")
