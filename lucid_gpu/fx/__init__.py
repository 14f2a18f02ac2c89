"""Modules and functions as graphs: traced, changed and run again, under `torch.fx`'s names.

`symbolic_trace` calls a function with proxies; what it does with them becomes a `Graph` of nodes,
and a `GraphModule` runs the Python source written of that. Nothing is compiled further: its ops
are those of `lucid_gpu`, and fuse as they do anywhere.
"""

import os as _os

from lucid_gpu.fx._symbolic_trace import PH, ProxyableClassMeta, Tracer, symbolic_trace, wrap
from lucid_gpu.fx.graph import CodeGen, Graph
from lucid_gpu.fx.graph_module import GraphModule
from lucid_gpu.fx.immutable_collections import immutable_dict, immutable_list
from lucid_gpu.fx.interpreter import Interpreter, Transformer
from lucid_gpu.fx.node import Node, has_side_effect, map_aggregate, map_arg
from lucid_gpu.fx.proxy import Attribute, Proxy, TraceError
from lucid_gpu.fx.subgraph_rewriter import replace_pattern

__path__ = [*__path__, _os.path.join(_os.path.dirname(__path__[0]), "torch_names", "fx")]

__all__ = [
    "PH",
    "Attribute",
    "CodeGen",
    "Graph",
    "GraphModule",
    "Interpreter",
    "Node",
    "Proxy",
    "ProxyableClassMeta",
    "TraceError",
    "Tracer",
    "Transformer",
    "has_side_effect",
    "immutable_dict",
    "immutable_list",
    "map_aggregate",
    "map_arg",
    "replace_pattern",
    "symbolic_trace",
    "wrap",
]
