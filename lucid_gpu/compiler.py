"""`compile` for programs that call it: ops fuse without it, so it changes nothing.

What ``torch.compile`` finds by tracing a function is found here while the program runs: see
docs/internals.md. There are no graph breaks, and nothing is compiled twice for another shape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = [
    "allow_in_graph",
    "assume_constant_result",
    "compile",
    "cudagraph_mark_step_begin",
    "disable",
    "is_compiling",
    "is_dynamo_compiling",
    "is_exporting",
    "reset",
    "set_stance",
]


def compile(
    model: Callable[..., Any] | None = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: Any = "inductor",
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    disable: bool = False,
) -> Any:
    """The model or function itself; without one, a decorator.

    Parameters
    ----------
    model : callable, optional
    fullgraph, dynamic, backend, mode, options, disable
        Taken as PyTorch takes them; there is nothing for them to choose.

    Raises
    ------
    RuntimeError
        For an argument that is not callable.
    """
    if model is None:
        return lambda model: model
    if not callable(model):
        raise RuntimeError(f"compile() takes a module or a function, got {type(model).__name__}")
    return model


def disable(fn: Callable[..., Any] | None = None, recursive: bool = True, **options: Any) -> Any:
    """The function itself; without one, a decorator."""
    return (lambda fn: fn) if fn is None else fn


def is_compiling() -> bool:
    """Whether a function is being traced: never."""
    return False


def is_dynamo_compiling() -> bool:
    """Whether a function is being traced: never."""
    return False


def is_exporting() -> bool:
    """Whether a model is being exported: never."""
    return False


def allow_in_graph(fn: Any) -> Any:
    """The function itself: there is no graph that it could be kept out of."""
    return fn


def assume_constant_result(fn: Any) -> Any:
    """The function itself, which is called each time."""
    return fn


def cudagraph_mark_step_begin() -> None:
    """Do nothing: steps are captured by `cuda.graph` alone."""


def reset() -> None:
    """Nothing: no compiled functions are kept."""


@contextmanager
def set_stance(
    stance: str = "default",
    *,
    skip_guard_eval_unsafe: bool = False,
    force_backend: Any = None,
) -> Iterator[None]:
    """A context manager or decorator that changes nothing: there is one way to run.

    Parameters
    ----------
    stance, skip_guard_eval_unsafe, force_backend
        Taken as PyTorch takes them.
    """
    yield
