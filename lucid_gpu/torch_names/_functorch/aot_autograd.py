"""`torch._functorch.aot_autograd`: graphs of gradients for a compiler, which there is none of."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NoReturn

__all__ = [
    "aot_function",
    "aot_module",
    "aot_module_simplified",
    "compiled_function",
    "compiled_module",
    "make_boxed_compiler",
    "make_boxed_func",
]


def refuse(name: str) -> NoReturn:
    """Raise the RuntimeError of a function that would need a compiler."""
    raise RuntimeError(
        f"lucid_gpu.{name}: gradients are not traced into graphs; call the function or module "
        "itself, whose elementwise ops fuse"
    )


def make_boxed_func(f: Callable[..., Any]) -> Callable[[list[Any]], Any]:
    """The function, of one list of its arguments."""

    @functools.wraps(f)
    def boxed(args: list[Any]) -> Any:
        return f(*args)

    boxed._boxed_call = True  # type: ignore[attr-defined]
    return boxed


def make_boxed_compiler(compiler: Callable[..., Any]) -> Callable[..., Any]:
    """A compiler whose functions take one list of their arguments."""

    @functools.wraps(compiler)
    def boxed(graph: Any, inputs: Any) -> Any:
        return make_boxed_func(compiler(graph, inputs))

    return boxed


def aot_function(fn: Any, *args: Any, **settings: Any) -> NoReturn:
    """Refuse with a RuntimeError that says what to write instead."""
    refuse("functorch.compile.aot_function")


def aot_module(mod: Any, *args: Any, **settings: Any) -> NoReturn:
    """Refuse with a RuntimeError that says what to write instead."""
    refuse("functorch.compile.aot_module")


aot_module_simplified = aot_module
compiled_function, compiled_module = aot_function, aot_module
