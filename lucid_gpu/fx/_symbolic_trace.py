"""`symbolic_trace`, and what else PyTorch has in the file of that name."""

from __future__ import annotations

import functools
from types import FunctionType
from typing import Any

from lucid_gpu.fx._compatibility import compatibility
from lucid_gpu.fx.graph import Graph
from lucid_gpu.fx.graph_module import GraphModule
from lucid_gpu.fx.proxy import Proxy
from lucid_gpu.fx.tracer import (
    PH,
    PHBase,
    PHWithMeta,
    ProxyableClassMeta,
    Tracer,
    _assert_is_none,
    _autowrap_check,
    _create_wrapped_func,
    _orig_module_call,
    _orig_module_getattr,
    _patch_wrapped_functions,
    is_fx_symbolic_tracing,
    is_fx_tracing,
)
from lucid_gpu.fx.wrapping import Patcher as _Patcher
from lucid_gpu.fx.wrapping import wrap
from lucid_gpu.nn import Module

__all__ = [
    "PH",
    "FunctionType",
    "Graph",
    "GraphModule",
    "PHBase",
    "PHWithMeta",
    "Proxy",
    "ProxyableClassMeta",
    "ScriptObject",
    "Tracer",
    "_Patcher",
    "_assert_is_none",
    "_autowrap_check",
    "_create_wrapped_func",
    "_orig_module_call",
    "_orig_module_getattr",
    "_patch_wrapped_functions",
    "compatibility",
    "functools",
    "is_fx_symbolic_tracing",
    "is_fx_tracing",
    "symbolic_trace",
    "wrap",
]


class ScriptObject:
    """What no value is: for `isinstance`."""


def symbolic_trace(root: Any, concrete_args: dict[str, Any] | None = None) -> GraphModule:
    """Trace a module or function into a module that runs its graph.

    Parameters
    ----------
    root : Module or function
    concrete_args : dict, optional
        Arguments, by name, that are values while it is traced instead of proxies.

    Returns
    -------
    GraphModule
    """
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    name = type(root).__name__ if isinstance(root, Module) else root.__name__
    return GraphModule(tracer.root, graph, name)
