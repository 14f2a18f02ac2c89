"""Nodes: one step of a graph, and the functions that walk through its arguments."""

from __future__ import annotations

import builtins
import inspect
import operator
import sys
import types
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import lucid_gpu
from lucid_gpu.fx.immutable_collections import immutable_dict, immutable_list
from lucid_gpu.nn import functional
from lucid_gpu.tape.overrides import METHODS
from lucid_gpu.tensor import Tensor

if TYPE_CHECKING:
    from lucid_gpu.fx.graph import Graph

__all__ = ["Argument", "Node", "Target", "has_side_effect", "map_aggregate", "map_arg"]

Argument = Any  # a constant, a node, or a container of both
Target = Any  # a function, or the name of a method, module, attribute or placeholder
BaseArgumentTypes = Any
base_types = (
    *(str, int, float, bool, complex),
    *(lucid_gpu.dtype, Tensor, lucid_gpu.device, lucid_gpu.memory_format, lucid_gpu.layout),
)

OPS = ("placeholder", "call_method", "call_module", "call_function", "get_attr", "output", "root")
_PACKAGE = "lucid_gpu"
_KEPT: set[Any] = {
    operator.setitem
}  # functions whose calls stay though nobody reads what they give
_DRAWS = {
    *("rand", "randn", "randint", "randperm", "normal", "bernoulli", "multinomial", "poisson"),
    *("rand_like", "randn_like", "randint_like"),
    *("dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout"),
}


def has_side_effect(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Keep calls of a function where nobody reads its result; gives the function."""
    _KEPT.add(fn)
    return fn


def map_aggregate(a: Argument, fn: Callable[[Any], Any]) -> Any:
    """Apply a function to everything in tuples, lists, dictionaries and slices.

    The lists and dictionaries of the result are immutable.
    """
    if isinstance(a, tuple):
        parts = [map_aggregate(part, fn) for part in a]
        return type(a)(*parts) if hasattr(a, "_fields") else tuple(parts)
    if isinstance(a, list):
        return immutable_list([map_aggregate(part, fn) for part in a])
    if isinstance(a, dict):
        return immutable_dict([(key, map_aggregate(part, fn)) for key, part in a.items()])
    if isinstance(a, slice):
        return slice(*[map_aggregate(part, fn) for part in (a.start, a.stop, a.step)])
    return fn(a)


def map_arg(a: Argument, fn: Callable[[Node], Any]) -> Any:
    """Apply a function to every node in tuples, lists, dictionaries and slices."""
    if not callable(fn):
        raise AssertionError("torch.fx.map_arg(a, fn): fn must be a callable")
    return map_aggregate(a, lambda part: fn(part) if isinstance(part, Node) else part)


# --- how values and targets are written -----------------------------------------------------------


def is_ours(value: Any) -> bool:
    """Whether generated code reaches a function or class below ``torch``."""
    module = getattr(value, "__module__", None)
    return isinstance(module, str) and module.partition(".")[0] in (_PACKAGE, "torch")


def _public_module(value: Any, name: str) -> str | None:
    """Where users find a function or class of this package; None where that is its own file."""
    first = (lucid_gpu, functional) if isinstance(value, type) else (functional, lucid_gpu)
    for guess in (*first, sys.modules[value.__module__]):
        if getattr(guess, name, None) is value:
            return guess.__name__
    return None


def _get_qualified_name(func: Any) -> str:
    """What generated code calls a function: ``torch.nn.functional.relu``."""
    name = func.__name__
    if getattr(builtins, name, None) is func:
        return str(name)
    if getattr(Tensor, name, None) is func and getattr(lucid_gpu, name, None) is not func:
        return f"torch.Tensor.{name}"
    if name == "<lambda>":
        try:
            name = inspect.getsource(func).split("=")[0].strip()
        except Exception as error:
            raise RuntimeError("Unable to represent lambda") from error
    module = func.__module__
    if module is None:
        raise RuntimeError(f"cannot find module for {func}")
    if is_ours(func) and module in sys.modules:
        module = _public_module(func, name) or module
    if module.partition(".")[0] == _PACKAGE:
        module = f"torch{module[len(_PACKAGE) :]}"
    return f"{module}.{name}"


def _type_repr(obj: Any) -> str:
    """How a type is written in annotations."""
    if isinstance(obj, type) and not isinstance(obj, types.GenericAlias):
        if obj.__module__ == "builtins":
            return obj.__qualname__
        if is_ours(obj):
            return _get_qualified_name(obj)
        return f"{obj.__module__}.{obj.__qualname__}"
    if obj is ...:
        return "..."
    if type(obj) in METHODS:
        return obj.__name__
    return repr(obj)


def _format_arg(arg: object) -> str:
    """An argument as graphs are printed: nodes after a percent sign."""
    if hasattr(arg, "_custom_fx_repr_fn"):
        return str(arg._custom_fx_repr_fn())
    if isinstance(arg, list):
        return f"[{', '.join(map(_format_arg, arg))}]"
    if isinstance(arg, tuple):
        return f"({', '.join(map(_format_arg, arg))}{',' if len(arg) == 1 else ''})"
    if isinstance(arg, dict):
        return f"{{{', '.join(f'{k}: {_format_arg(v)}' for k, v in arg.items())}}}"
    return f"%{arg}" if isinstance(arg, Node) else str(arg)


# --- nodes ----------------------------------------------------------------------------------------


class Node:
    """One step of a `Graph`.

    Attributes
    ----------
    graph : Graph
    name : str
        Of the value it gives; unique in its graph.
    op : str
        "placeholder", "get_attr", "call_function", "call_module", "call_method" or "output".
    target : callable or str
        What is called or read.
    args, kwargs : tuple, dict
        With nodes where their values are passed.
    users : dict
        The nodes that read this one, as keys.
    type : object
        An annotation, or None.
    meta : dict
        What passes note.
    """

    def __init__(
        self,
        graph: Graph,
        name: str,
        op: str,
        target: Target,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        return_type: Any = None,
    ) -> None:
        if op not in OPS:
            raise AssertionError(f"op '{op}' is not in _legal_ops")
        if op == "call_function":
            if not callable(target):
                raise ValueError(
                    f"Node [graph = {graph}, name = '{name}'] target {target} has type "
                    f"{_type_repr(type(target))} but a Callable is expected"
                )
        elif not isinstance(target, str):
            raise ValueError(
                f"Node [graph = {graph}, name = '{name}'] target {target} has type "
                f"{_type_repr(type(target))} but a str is expected"
            )
        self.graph = graph
        self._name = name
        self.op = op
        self.target = target
        self.type = return_type
        self.meta: dict[str, Any] = {}
        self.users: dict[Node, None] = {}
        self._input_nodes: dict[Node, None] = {}
        self._prev = self._next = self
        self._erased = False
        self._repr_fn: Callable[[Node], str] | None = None
        self._take_arguments(args, kwargs)

    def _take_arguments(self, args: Any, kwargs: Any) -> None:
        """Set the arguments, and tell the nodes among them who reads them."""
        found: dict[Node, None] = {}

        def note(node: Node) -> Node:
            found[node] = None
            return node

        self._args = map_arg(args, note)
        self._kwargs = map_arg(kwargs, note)
        for node in self._input_nodes:
            if node not in found:
                node.users.pop(self, None)
        self._input_nodes = found
        for node in found:
            node.users.setdefault(self)

    @property
    def name(self) -> str:
        """What its value is called."""
        return self._name

    @name.setter
    def name(self, value: str) -> None:
        for hook in getattr(self.graph.owning_module, "_replace_hooks", None) or ():
            for user in self.users:
                hook(old=self, new=value, user=user)
        self._name = value

    @property
    def args(self) -> tuple[Any, ...]:
        """The positional arguments; those of a placeholder are its default."""
        args: tuple[Any, ...] = self._args
        return args

    @args.setter
    def args(self, a: tuple[Any, ...]) -> None:
        self._take_arguments(a, self._kwargs)

    @property
    def kwargs(self) -> dict[str, Any]:
        """The keyword arguments."""
        kwargs: dict[str, Any] = self._kwargs
        return kwargs

    @kwargs.setter
    def kwargs(self, k: dict[str, Any]) -> None:
        self._take_arguments(self._args, k)

    @property
    def all_input_nodes(self) -> list[Node]:
        """The nodes among the arguments, each once."""
        return list(self._input_nodes)

    @property
    def next(self) -> Node:
        """The node after this one; after the last one, the root."""
        return self._next

    @property
    def prev(self) -> Node:
        """The node before this one; before the first one, the root."""
        return self._prev

    @property
    def stack_trace(self) -> str | None:
        """Where the node was traced, if anyone noted that in ``meta``."""
        return self.meta.get("stack_trace")

    @stack_trace.setter
    def stack_trace(self, trace: str | None) -> None:
        self.meta["stack_trace"] = trace

    # --- its place in the graph

    def prepend(self, x: Node) -> None:
        """Put a node of the same graph before this one."""
        if self.graph is not x.graph:
            raise AssertionError("Attempting to move a Node into a different Graph")
        if self is x:
            return
        x._leave()
        before = self._prev
        before._next, x._prev = x, before
        x._next, self._prev = self, x
        self.graph._moved()

    def append(self, x: Node) -> None:
        """Put a node of the same graph after this one."""
        if self is not x:
            self._next.prepend(x)

    def _leave(self) -> None:
        self._prev._next, self._next._prev = self._next, self._prev

    def _position(self) -> int:
        return self.graph._positions()[self]

    def __lt__(self, other: Node) -> bool:
        return self._position() < other._position()

    def __gt__(self, other: Node) -> bool:
        return self._position() > other._position()

    def __le__(self, other: Node) -> bool:
        return self is other or self < other

    def __ge__(self, other: Node) -> bool:
        return self is other or self > other

    # --- changing it

    def update_arg(self, idx: int, arg: Argument) -> None:
        """Replace a positional argument."""
        args = list(self.args)
        args[idx] = arg
        self.args = tuple(args)

    def insert_arg(self, idx: int, arg: Argument) -> None:
        """Insert a positional argument before another."""
        if not 0 <= idx <= len(self.args):
            raise AssertionError("insert_args index must be between 0 and len(self.args)")
        self.args = (*self.args[:idx], arg, *self.args[idx:])

    def update_kwarg(self, key: str, arg: Argument) -> None:
        """Set a keyword argument."""
        self.kwargs = {**self.kwargs, key: arg}

    def _replace_input_with(self, old_input: Node, new_input: Node) -> None:
        def swap(node: Node) -> Node:
            return new_input if node is old_input else node

        self._take_arguments(map_arg(self._args, swap), map_arg(self._kwargs, swap))

    def replace_input_with(self, old_input: Node, new_input: Node) -> None:
        """Read another node wherever this one reads ``old_input``."""
        for hook in getattr(self.graph.owning_module, "_replace_hooks", None) or ():
            hook(old=old_input, new=new_input.name, user=self)
        self._replace_input_with(old_input, new_input)

    def replace_all_uses_with(
        self,
        replace_with: Node,
        delete_user_cb: Callable[[Node], bool] | None = None,
        *,
        propagate_meta: bool = False,
    ) -> list[Node]:
        """Let all that read this node read another.

        Parameters
        ----------
        delete_user_cb : callable, optional
            Whether a user is changed.
        propagate_meta : bool
            Whether the other node gets this one's ``meta``.

        Returns
        -------
        list of Node
            Those that were changed.
        """
        if propagate_meta:
            if replace_with.meta:
                raise AssertionError(
                    "Called node.replace_all_uses_with(replace_with, propagate_meta=True), but "
                    "replace_with already has .meta keys"
                )
            replace_with.meta.update(self.meta)
        users = [u for u in self.users if delete_user_cb is None or delete_user_cb(u)]
        for user in users:
            user.replace_input_with(self, replace_with)
        return users

    def _rename(self, candidate: str) -> None:
        if candidate != self.name:
            self.name = self.graph._graph_namespace.create_name(candidate, None)
            self.graph._graph_namespace.rename(self, self.name)

    def is_impure(self, impure_random: bool = True) -> bool:
        """Whether the node stays in the graph though nobody reads its value."""
        if self.op in ("placeholder", "output"):
            return True
        if self.op == "call_module":
            if self.graph.owning_module is None:
                raise AssertionError("self.graph.owning_module not set for purity check")
            return bool(
                getattr(self.graph.owning_module.get_submodule(self.target), "_is_impure", False)
            )
        if self.op != "call_function":
            return False
        name = getattr(self.target, "__name__", "")
        if self.target in _KEPT or (is_ours(self.target) and name == "_assert"):
            return True
        if is_ours(self.target) and impure_random and name in _DRAWS:
            return True
        return is_ours(self.target) and name[-1:] == "_" and name[-2:] != "__"

    # --- how it is written

    def __repr__(self) -> str:
        return self._repr_fn(self) if self._repr_fn else self._name

    @staticmethod
    def _pretty_print_target(target: Any) -> str:
        if isinstance(target, str):
            return target
        module = getattr(target, "__module__", None)
        if module in ("builtins", "_operator"):
            return f"{module.lstrip('_')}.{target.__name__}"
        return _get_qualified_name(target)

    def format_node(
        self,
        placeholder_names: list[str] | None = None,
        maybe_return_typename: list[str] | None = None,
        *,
        include_tensor_metadata: bool = False,
    ) -> str | None:
        """One line about the node.

        Parameters
        ----------
        placeholder_names : list, optional
            Where it has an element, a placeholder is added to it and None is returned.
        maybe_return_typename : list of one str, optional
            Takes the annotation of an output.
        include_tensor_metadata : bool
            Whether shapes are written that a pass has noted in ``meta``.
        """
        kind = f"{_type_repr(self.type)} " if self.type is not None else ""
        start = f"%{self.name} : {kind}[num_users={len(self.users)}] = {self.op}"
        if self.op == "placeholder":
            if placeholder_names:
                written = f"{self.target}: {_type_repr(self.type)}" if self.type else self.target
                placeholder_names.append(written)
                return None
            default = f"(default={self.args[0]})" if self.args else ""
            return f"{start}[target={self.target}]{default}"
        if self.op == "output":
            if self.type and maybe_return_typename:
                maybe_return_typename[0] = f" -> {_type_repr(self.type)}"
            return f"return {self.args[0]}"
        target = self._pretty_print_target(self.target)
        if self.op == "get_attr":
            return f"{start}[target={target}]"
        value = self.meta.get("val", self.meta.get("tensor_meta", self.meta.get("example_value")))
        if include_tensor_metadata and isinstance(value, Tensor):
            shape, strides = bracketed(value.shape), bracketed(value.stride())
            noted = f'Tensor "{abbreviated(value.dtype)}{shape}{strides}{value.device}"'
            start = f"%{self.name} : {noted}[num_users={len(self.users)}] = {self.op}"
        arguments = f"args = {_format_arg(self.args)}, kwargs = {_format_arg(self.kwargs)}"
        return f"{start}[target={target}]({arguments})"


def bracketed(extents: Iterable[Any]) -> str:
    """Extents as annotations write them: ``[2, 3]``."""
    return f"[{', '.join(map(str, extents))}]"


def abbreviated(dtype: Any) -> str:
    """An element type as annotations write it: ``f32``."""
    name = str(dtype).rpartition(".")[2]
    kind, bits = name.rstrip("0123456789"), name[len(name.rstrip("0123456789")) :]
    return "b8" if kind == "bool" else f"{'bf' if kind == 'bfloat' else kind[0]}{bits}"
