"""`torch.fx` for files that import it: `wrap` marks nothing, and tracing refuses."""

from __future__ import annotations

from typing import Any, NoReturn

from lucid_gpu.nn import Module

__all__ = [
    "Graph",
    "GraphModule",
    "Interpreter",
    "Node",
    "Proxy",
    "Tracer",
    "symbolic_trace",
    "wrap",
]


def _refuse(name: str) -> NoReturn:
    raise RuntimeError(
        f"lucid_gpu.fx.{name}: modules are not traced into graphs; read intermediate values by "
        "forward hooks (Module.register_forward_hook)"
    )


def wrap(fn_or_name: Any) -> Any:
    """The function itself."""
    return fn_or_name


def symbolic_trace(root: Any, concrete_args: Any = None) -> NoReturn:
    """Refuse with a RuntimeError that names what to write instead."""
    _refuse("symbolic_trace")


class GraphModule(Module):
    """What no module is: for `isinstance`; making one refuses."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        _refuse(type(self).__name__)


class Tracer:
    """What `torch.fx` traces with; making one refuses."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        _refuse(type(self).__name__)


class Interpreter(Tracer):
    """What runs graphs; making one refuses."""


class Graph(Tracer):
    """What tracing gives; making one refuses."""


class Node(Tracer):
    """A part of a graph; making one refuses."""


class Proxy(Tracer):
    """What stands for a value while tracing; no value is one."""
