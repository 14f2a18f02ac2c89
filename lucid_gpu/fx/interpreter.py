"""Running a graph node by node: `Interpreter`, and `Transformer`, which makes another graph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lucid_gpu.fx.graph import Graph
from lucid_gpu.fx.graph_module import GraphModule
from lucid_gpu.fx.node import Argument, Node, Target, map_aggregate, map_arg
from lucid_gpu.fx.proxy import Proxy
from lucid_gpu.fx.traceback import set_current_meta
from lucid_gpu.fx.tracer import Tracer
from lucid_gpu.nn import Module

__all__ = ["Interpreter", "Transformer"]


# What new nodes of a `Transformer` know of the old.
_CARRIED = ("stack_trace", "nn_module_stack", "source_fn_stack", "from_node", "custom")


class Interpreter:
    """Runs a module's graph; a subclass may do other things for a kind of node.

    Parameters
    ----------
    module : GraphModule or Module
    garbage_collect_values : bool
        Whether values are dropped after their last reader.
    graph : Graph, optional
        Run instead of the module's own.

    Attributes
    ----------
    env : dict
        The values of the nodes that have run.
    """

    def __init__(
        self, module: Module, garbage_collect_values: bool = True, graph: Graph | None = None
    ) -> None:
        self.module: Any = module
        self.submodules = dict(module.named_modules())
        self.graph: Graph = self.module.graph if graph is None else graph
        self.env: dict[Node, Any] = {}
        self.name = "Interpreter"
        self.garbage_collect_values = garbage_collect_values
        self.extra_traceback = True
        self.user_to_last_uses: dict[Node, list[Node]] = {}
        seen: set[Node] = set()
        for node in reversed(self.graph.nodes) if garbage_collect_values else ():
            for read in node.all_input_nodes:
                if read not in seen:
                    seen.add(read)
                    self.user_to_last_uses.setdefault(node, []).append(read)

    def run(
        self,
        *args: Any,
        initial_env: dict[Node, Any] | None = None,
        enable_io_processing: bool = True,
    ) -> Any:
        """What the graph returns for arguments.

        Parameters
        ----------
        initial_env : dict, optional
            Values of nodes that are not run.
        enable_io_processing : bool
            Whether nested arguments are taken apart, and nested results put together.
        """
        self.env = {} if initial_env is None else initial_env
        if enable_io_processing:
            args = self.graph.process_inputs(*args)
        self.args_iter: Iterator[Any] = iter(args)
        for node in self.graph.nodes:
            if node in self.env:
                continue
            try:
                self.env[node] = self.run_node(node)
            except Exception as error:
                if self.extra_traceback:
                    _say_where(error, node)
                raise
            for over in self.user_to_last_uses.get(node, ()):
                del self.env[over]
            if node.op == "output":
                value = self.env[node]
                return self.graph.process_outputs(value) if enable_io_processing else value
        return None

    def boxed_run(self, args_list: list[Any]) -> Any:
        """What the graph returns for arguments in a list, which is emptied."""
        env: dict[Node, Any] = {}
        args = iter(list(args_list))
        for node in self.graph.nodes:
            if node.op == "placeholder":
                env[node] = next(args)
        args_list.clear()
        return self.run(initial_env=env)

    def run_node(self, n: Node) -> Any:
        """The value of a node."""
        with set_current_meta(n):
            args, kwargs = self.fetch_args_kwargs_from_env(n)
            return getattr(self, n.op)(n.target, args, kwargs)

    # --- one method for each kind of node

    def placeholder(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The next argument, or its default."""
        if target.startswith("*"):
            return list(self.args_iter)
        for value in self.args_iter:
            return value
        if args:
            return args[0]
        raise RuntimeError(
            f"Expected positional argument for parameter {target}, but one was not passed in!"
        )

    def get_attr(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The attribute of the module."""
        return self.fetch_attr(target)

    def call_function(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the function gives."""
        return target(*args, **kwargs)

    def call_method(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the method of the first argument gives."""
        self_obj, *rest = args
        return getattr(self_obj, target)(*rest, **kwargs)

    def call_module(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the submodule gives."""
        return self.fetch_attr(target)(*args, **kwargs)

    def output(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What is returned."""
        return args[0]

    # --- values

    def fetch_attr(self, target: str) -> Any:
        """The attribute of the module of a dotted name."""
        value: Any = self.module
        parts = target.split(".")
        for i, part in enumerate(parts):
            if not hasattr(value, part):
                raise RuntimeError(f"Node referenced nonexistent target {'.'.join(parts[: i + 1])}")
            value = getattr(value, part)
        return value

    def fetch_args_kwargs_from_env(self, n: Node) -> tuple[Any, Any]:
        """The arguments of a node, with values in place of nodes."""
        return self.map_nodes_to_values(n.args, n), self.map_nodes_to_values(n.kwargs, n)

    def map_nodes_to_values(self, args: Argument, n: Node) -> Argument:
        """Arguments with values in place of nodes."""

        def load(node: Node) -> Any:
            if node not in self.env:
                raise RuntimeError(
                    f"Node {n} referenced nonexistent value {node}! Run Graph.lint() to diagnose "
                    "such issues"
                )
            return self.env[node]

        return map_arg(args, load)


def _say_where(error: Exception, node: Node) -> None:
    """Add the node to the sentence of an error; a KeyError, which shows its key, stays."""
    told = f"While executing {node.format_node()}\nOriginal traceback:\n{node.stack_trace}"
    if not isinstance(error, KeyError):
        first = f"{error.args[0]}\n\n{told}" if error.args else told
        error.args = (first, *error.args[1:])


class Transformer(Interpreter):
    """Runs a module's graph on proxies, which makes another graph: override a kind of node.

    Parameters
    ----------
    module : GraphModule
    """

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module)
        self.new_graph = Graph()
        self.new_graph.set_codegen(module.graph._codegen)
        self.tracer: Tracer = _AllLeaves(self.new_graph, module)

    def placeholder(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Proxy:
        """A proxy of a new placeholder."""
        defaults = {"default_value": args[0]} if args else {}
        return Proxy(self.new_graph.placeholder(target, **defaults), self.tracer)

    def get_attr(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Proxy:
        """A proxy of a new read."""
        return self.tracer.create_proxy("get_attr", target, args, kwargs)

    def call_module(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the tracer makes of the call."""
        module = self.fetch_attr(target)
        return self.tracer.call_module(module, module.forward, args, kwargs)

    def call_function(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A proxy of a new call."""
        return self.tracer.create_proxy("call_function", target, args, kwargs)

    def transform(self) -> GraphModule:
        """The module with the new graph."""
        result = self.run(enable_io_processing=False)
        if result is not None:
            value = map_aggregate(result, lambda a: a.node if isinstance(a, Proxy) else a)
            last = self.new_graph.output(value)
            last.meta.update(self.graph.output_node().meta)
        return GraphModule(self.module, self.new_graph)

    def run_node(self, n: Node) -> Any:
        """The proxy of a node; the new node gets its ``meta``."""
        result = super().run_node(n)
        if isinstance(result, Proxy):
            for key in _CARRIED:
                if key in n.meta:
                    result.node.meta.setdefault(key, n.meta[key])
        return result


class _AllLeaves(Tracer):
    """Adds nodes to a new graph of a module; calls of all modules are one step."""

    def __init__(self, graph: Graph, root: Module) -> None:
        super().__init__()
        self.graph, self.root = graph, root
        self.tensor_attrs = {}

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        return True
