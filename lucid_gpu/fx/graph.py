"""Graphs: steps in order, how they are made, copied, moved and taken away."""

from __future__ import annotations

import contextlib
import copy
import inspect
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from lucid_gpu.fx.codegen import (
    CodeGen,
    PythonCode,
    PyTreeCodeGen,
    PyTreeInfo,
    magic_methods,
    reflectable_magic_methods,
)
from lucid_gpu.fx.naming import Namespace as _Namespace
from lucid_gpu.fx.naming import snake_case as _snake_case
from lucid_gpu.fx.node import OPS, Argument, Node, Target, _type_repr, map_arg
from lucid_gpu.nn import Module

if TYPE_CHECKING:
    from lucid_gpu.fx.graph_module import GraphModule

__all__ = ["CodeGen", "Graph", "PythonCode", "magic_methods", "reflectable_magic_methods"]

_PyTreeCodeGen, _PyTreeInfo = PyTreeCodeGen, PyTreeInfo  # PyTorch's names


class _InsertPoint:
    """Where new nodes go; as a ``with``, only inside of it."""

    def __init__(self, graph: Graph, insert: Callable[[Node], None]) -> None:
        self.graph, self.before = graph, graph._insert
        graph._insert = insert

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        self.graph._insert = self.before


class _NodeList:
    """The nodes of a graph in order, which may change while they are walked."""

    def __init__(self, graph: Graph, direction: str = "_next") -> None:
        self.graph, self.direction = graph, direction

    def __len__(self) -> int:
        return self.graph._len

    def __iter__(self) -> Iterator[Any]:
        root = self.graph._root
        node = getattr(root, self.direction)
        while node is not root:
            if not node._erased:
                yield node
            node = getattr(node, self.direction)

    def __reversed__(self) -> Iterator[Any]:
        return iter(_NodeList(self.graph, "_prev" if self.direction == "_next" else "_next"))


_node_list = _NodeList


class Graph:
    """A function as steps in order: what `symbolic_trace` gives, and what passes change.

    Parameters
    ----------
    owning_module : GraphModule, optional
        The module that runs it.
    tracer_cls : type, optional
        The class of the tracer that makes it.
    """

    def __init__(
        self,
        owning_module: GraphModule | None = None,
        tracer_cls: type | None = None,
        tracer_extras: dict[str, Any] | None = None,
    ) -> None:
        self._root = Node(self, "", "root", "", (), {})
        self._insert: Callable[[Node], None] = self._root.prepend
        self._len = 0
        self._order: dict[Node, int] | None = None  # the places of nodes, while none moves
        self._graph_namespace = _Namespace()
        self.owning_module = owning_module
        self._tracer_cls = tracer_cls
        self._tracer_extras = tracer_extras
        self._codegen = CodeGen()

    # --- its nodes

    @property
    def nodes(self) -> _NodeList:
        """The nodes in order; they may be added and erased while they are walked."""
        return _NodeList(self)

    def _moved(self) -> None:
        self._order = None

    def _positions(self) -> dict[Node, int]:
        if self._order is None:
            self._order = {node: index for index, node in enumerate(self.nodes)}
        return self._order

    def output_node(self) -> Node:
        """The output, which is the last node."""
        node = self._root.prev
        if node.op != "output":
            raise AssertionError(f"Expected output node, got op={node.op}")
        return node

    def find_nodes(self, *, op: str, target: Any = None, sort: bool = True) -> list[Node]:
        """The nodes of one kind, and of one target where that is given, in order."""
        if op == "call_function" and target is None:
            raise AssertionError("target must be provided for call_function")
        return [n for n in self.nodes if n.op == op and (target is None or n.target == target)]

    def create_node(
        self,
        op: str,
        target: Target,
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
        name: str | None = None,
        type_expr: Any = None,
    ) -> Node:
        """Add a node at the place of insertion, which is the end unless `inserting_before` is on.

        Parameters
        ----------
        op : {"placeholder", "get_attr", "call_function", "call_module", "call_method", "output"}
        target : callable or str
        args, kwargs : tuple, dict, optional
        name : str, optional
            What its value is to be called; taken names get a number.
        type_expr : object, optional
            An annotation.
        """
        if op not in OPS[:-1]:
            raise AssertionError(f"op '{op}' is not a legal op")
        args, kwargs = () if args is None else args, {} if kwargs is None else kwargs
        if not isinstance(args, tuple):
            raise AssertionError(f"args must be a tuple, got {type(args)}")
        if not isinstance(kwargs, dict):
            raise AssertionError(f"kwargs must be a dict, got {type(kwargs)}")
        candidate = name if name is not None else self._target_to_str(target)
        name = self._graph_namespace.create_name(candidate, None)
        node = Node(self, name, op, target, args, kwargs, type_expr)
        for hook in getattr(self.owning_module, "_create_node_hooks", None) or ():
            hook(node)
        self._graph_namespace.associate_name_with_obj(name, node)
        self._insert(node)
        self._moved()
        self._len += 1
        return node

    def _target_to_str(self, target: Target) -> str:
        if callable(target):
            name = target.__name__
        else:
            name = target
            if name.startswith("__") and name.endswith("__"):
                name = name[2:-2]
        return _snake_case(name)

    def placeholder(
        self, name: str, type_expr: Any = None, default_value: Any = inspect.Signature.empty
    ) -> Node:
        """Add a parameter of the function."""
        args = () if default_value is inspect.Signature.empty else (default_value,)
        return self.create_node("placeholder", name, args=args, type_expr=type_expr)

    def get_attr(self, qualified_name: str, type_expr: Any = None) -> Node:
        """Add a read of a parameter, buffer or attribute of the module."""
        if (
            self.owning_module is not None
            and attribute_at(self.owning_module, qualified_name) is None
        ):
            warnings.warn(
                "Attempted to insert a get_attr Node with no underlying reference in the owning "
                "GraphModule! Call GraphModule.add_submodule to add the necessary submodule, "
                "GraphModule.add_parameter to add the necessary Parameter, or "
                "nn.Module.register_buffer to add the necessary buffer",
                stacklevel=2,
            )
        return self.create_node("get_attr", qualified_name, type_expr=type_expr)

    def call_module(
        self,
        module_name: str,
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
        type_expr: Any = None,
    ) -> Node:
        """Add a call of a submodule."""
        owner = self.owning_module
        if owner is not None and attribute_at(owner, module_name) is None:
            warnings.warn(
                "Attempted to insert a call_module Node with no underlying reference in the owning "
                "GraphModule! Call GraphModule.add_submodule to add the necessary submodule",
                stacklevel=2,
            )
        return self.create_node("call_module", module_name, args, kwargs, type_expr=type_expr)

    def call_method(
        self,
        method_name: str,
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
        type_expr: Any = None,
    ) -> Node:
        """Add a call of a method of the first argument."""
        return self.create_node("call_method", method_name, args, kwargs, type_expr=type_expr)

    def call_function(
        self,
        the_function: Callable[..., Any],
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
        type_expr: Any = None,
        name: str | None = None,
    ) -> Node:
        """Add a call of a function."""
        return self.create_node("call_function", the_function, args, kwargs, name, type_expr)

    def output(self, result: Argument, type_expr: Any = None) -> Node:
        """Add what the function returns."""
        return self.create_node("output", "output", (result,), type_expr=type_expr)

    def inserting_before(self, n: Node | None = None) -> _InsertPoint:
        """Let new nodes go before a node, or to the front; a ``with`` ends that."""
        if n is None:
            return self.inserting_after(self._root)
        if n.graph is not self:
            raise AssertionError("Node to insert before is not in graph.")
        return _InsertPoint(self, n.prepend)

    def inserting_after(self, n: Node | None = None) -> _InsertPoint:
        """Let new nodes go after a node, or to the end; a ``with`` ends that."""
        if n is None:
            return self.inserting_before(self._root)
        if n.graph is not self:
            raise AssertionError("Node to insert after is not in graph.")
        return _InsertPoint(self, n.append)

    def erase_node(self, to_erase: Node) -> None:
        """Take away a node that nobody reads.

        Raises
        ------
        RuntimeError
            If it has users, or belongs to another graph.
        """
        if to_erase.users:
            raise RuntimeError(
                f"Tried to erase Node {to_erase} but it still had {len(to_erase.users)} users in "
                f"the graph: {to_erase.users}!"
            )
        if to_erase.graph is not self:
            raise RuntimeError(f"Attempting to remove {to_erase} from wrong graph!")
        if to_erase._erased:
            warnings.warn(f"erase_node({to_erase}) on an already erased node", stacklevel=2)
            return
        for hook in getattr(self.owning_module, "_erase_node_hooks", None) or ():
            hook(to_erase)
        to_erase._leave()
        to_erase._erased = True
        self._moved()
        self._len -= 1
        to_erase._take_arguments((), {})

    # --- copies

    def node_copy(
        self, node: Node, arg_transform: Callable[[Node], Argument] = lambda x: x
    ) -> Node:
        """Add a copy of a node of another graph.

        Parameters
        ----------
        arg_transform : callable
            From a node of the other graph to this graph's.
        """
        args, kwargs = map_arg(node.args, arg_transform), map_arg(node.kwargs, arg_transform)
        copied = self.create_node(node.op, node.target, args, kwargs, node.name, node.type)
        copied.meta = copy.copy(node.meta)
        return copied

    def graph_copy(
        self, g: Graph, val_map: dict[Node, Node], return_output_node: bool = False
    ) -> Any:
        """Add copies of all nodes of another graph but its output.

        Parameters
        ----------
        val_map : dict
            From its nodes to this graph's; what is there is not copied, and the copies are added.

        Returns
        -------
        object
            What the other graph returns, in nodes of this one; None where it has no output. With
            ``return_output_node``, and the output of the other graph.
        """
        for node in g.nodes:
            if node in val_map:
                continue
            if node.op == "output":
                result = map_arg(node.args[0], lambda n: val_map[n])
                return (result, node) if return_output_node else result
            val_map[node] = self.node_copy(node, lambda n: val_map[n])
        return None

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Graph:
        memo = {} if memo is None else memo
        copied, copies = Graph(tracer_cls=self._tracer_cls), dict[Node, Node]()
        found = copied.graph_copy(self, copies, return_output_node=True)
        copied._codegen = copy.deepcopy(self._codegen)
        for old, new in copies.items():
            new.meta = copy.copy(old.meta)
            memo[id(old)] = new
        if found is not None:
            value, old = found
            last = copied.output(value, type_expr=old.type)
            last.meta = copy.copy(old.meta)
        return copied

    # --- source

    def python_code(
        self, root_module: str, *, verbose: bool = False, **settings: Any
    ) -> PythonCode:
        """The source of the function.

        Parameters
        ----------
        root_module : str
            What the source calls the module: ``"self"``.
        verbose : bool
            Whether shapes that a pass noted are written as annotations.
        """
        names = _Namespace()
        for node in self.nodes:
            node._repr_fn = lambda n: names.create_name(n.name, n)
        try:
            return self._codegen._gen_python_code(self.nodes, root_module, names, verbose=verbose)
        finally:
            for node in self.nodes:
                node._repr_fn = None

    def set_codegen(self, codegen: CodeGen) -> None:
        """Let another object write the source."""
        self._codegen = codegen

    def on_generate_code(self, make_transformer: Callable[[Any], Any]) -> Any:
        """Let a function change the lines of the body of the source.

        Parameters
        ----------
        make_transformer : callable
            From the function that does so now, or None, to the one that shall.

        Returns
        -------
        context manager
            Its end brings back the function of before.
        """
        codegen, before = self._codegen, self._codegen._body_transformer
        codegen._body_transformer = make_transformer(before)
        undo = contextlib.ExitStack()
        undo.callback(lambda: setattr(codegen, "_body_transformer", before))
        return undo

    def process_inputs(self, *args: Any) -> Any:
        """The values of the placeholders, from the arguments of a call."""
        return self._codegen.process_inputs(*args)

    def process_outputs(self, out: Any) -> Any:
        """What a call gives, from the argument of the output."""
        return self._codegen.process_outputs(out)

    def __str__(self) -> str:
        placeholders: list[str] = []
        returns = [""]
        lines = [node.format_node(placeholders, returns) for node in self.nodes]
        first = f"graph({', '.join(placeholders)}){returns[0]}:"
        return "\n    ".join([first, *[line for line in lines if line]])

    def print_tabular(self) -> None:
        """Print a table of the nodes."""
        rows = [[n.op, n.name, n.target, n.args, n.kwargs] for n in self.nodes]
        table = [
            ["opcode", "name", "target", "args", "kwargs"],
            *[[str(c) for c in r] for r in rows],
        ]
        widths = [max(len(row[i]) for row in table) for i in range(5)]
        table.insert(1, ["-" * width for width in widths])
        for row in table:
            print("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip())

    # --- checks

    def lint(self) -> None:
        """Check the graph: each node's arguments come before it, each target exists.

        Raises
        ------
        RuntimeError
            With the first thing that is wrong.
        """
        names: set[str] = set()
        seen: set[Node] = set()
        for node in self.nodes:
            if node.op not in OPS[:-1]:
                raise RuntimeError(f"Node {node} had unknown opcode {node.op}!")
            if node.graph is not self:
                raise RuntimeError(f"Node '{node}' does not belong to this Graph!")
            for arg in node._input_nodes:
                self._check_argument(arg, node, seen)
            seen.add(node)
            if node.name in names:
                raise RuntimeError(f"Node redefined name {node.name}!")
            names.add(node.name)
        if self.owning_module is not None:
            for node in self.nodes:
                _check_target(node, self.owning_module)

    def _check_argument(self, arg: Node, node: Node, seen: set[Node]) -> None:
        if arg.graph is not self:
            raise RuntimeError(
                f"Argument '{arg}' of Node '{node}' does not belong to this Graph, but was used as "
                "an argument! If you are copying nodes from another graph, make sure to use "
                f"``arg_transform`` on node_copy() to remap values\n{self}"
            )
        if arg not in seen:
            raise RuntimeError(
                f"Argument '{arg}' of Node '{node}' was used before it has been defined! Please "
                f"check that Nodes in the graph are topologically ordered\n{self}"
            )

    def eliminate_dead_code(self, is_impure_node: Callable[[Node], bool] | None = None) -> bool:
        """Take away nodes that nobody reads and that do nothing else.

        Parameters
        ----------
        is_impure_node : callable, optional
            Whether a node does something else; `Node.is_impure` otherwise.

        Returns
        -------
        bool
            Whether any was taken away.
        """
        self.lint()
        changed = False
        for node in reversed(self.nodes):
            kept = node.is_impure() if is_impure_node is None else is_impure_node(node)
            if not kept and not node.users:
                self.erase_node(node)
                changed = True
        return changed

    def _clear_nodes(self) -> None:
        for node in reversed(self.nodes):
            node.meta.clear()
            self.erase_node(node)


def attribute_at(root: Any, path: str) -> Any:
    """The attribute of a dotted name; None where a part of it is missing."""
    for part in path.split("."):
        root = getattr(root, part, None)
    return root


def _check_target(node: Node, module: Module) -> None:
    if node.op == "call_function":
        if not callable(node.target):
            raise ValueError(
                f"Node {node} target {node.target} has type {_type_repr(type(node.target))} but a "
                "Callable is expected"
            )
        return
    if not isinstance(node.target, str):
        raise ValueError(
            f"Node {node} target {node.target} has type {_type_repr(type(node.target))} but a str "
            "is expected"
        )
    if node.op not in ("get_attr", "call_module"):
        return
    value: Any = module
    parts = node.target.split(".")
    for i, part in enumerate(parts):
        holder = ".".join(parts[:i])
        inner = getattr(value, part, None)
        if inner is None:
            raise RuntimeError(
                f"Node {node} target {node.target} references nonexistent attribute {part} of "
                f"{holder}"
            )
        if node.op == "call_module" and not isinstance(inner, Module):
            raise RuntimeError(
                f"Node {node} target {node.target} {part} of {holder} does not reference an "
                "nn.Module"
            )
        value = inner
