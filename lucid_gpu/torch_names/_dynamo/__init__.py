"""`torch._dynamo` for code that calls it: nothing is traced, so there is nothing to set."""

from __future__ import annotations

from typing import Any

from lucid_gpu.compiler import (
    allow_in_graph,
    assume_constant_result,
    compile,
    disable,
    is_compiling,
    reset,
)

from . import config, exc, utils
from .eval_frame import OptimizedModule

__all__ = [
    "OptimizedModule",
    "allow_in_graph",
    "assume_constant_result",
    "config",
    "disable",
    "disallow_in_graph",
    "exc",
    "forbid_in_graph",
    "graph_break",
    "is_compiling",
    "is_dynamo_supported",
    "mark_dynamic",
    "mark_static",
    "mark_static_address",
    "optimize",
    "reset",
    "reset_code_caches",
    "run",
    "utils",
]


def optimize(*args: Any, **settings: Any) -> Any:
    """A decorator that gives functions back as they are."""
    return compile


def graph_break(msg: str = "") -> None:
    """Do nothing."""


def is_dynamo_supported() -> bool:
    """Whether functions can be traced: no."""
    return False


def mark_dynamic(t: Any, index: Any, **settings: Any) -> None:
    """Do nothing: programs of one structure are shared by all sizes."""


maybe_mark_dynamic = mark_dynamic


def mark_static(t: Any, index: Any = None) -> None:
    """Do nothing."""


def mark_static_address(t: Any, guard: bool = True) -> None:
    """Do nothing: captured steps hold the memory that they read."""


def reset_code_caches() -> None:
    """Do nothing: there is no compiled code."""


def _same(fn: Any = None) -> Any:
    return fn


disallow_in_graph = forbid_in_graph = run = _same
