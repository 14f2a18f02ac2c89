"""Proxies: what a traced function is called with; what is done with them becomes nodes."""

from __future__ import annotations

import copy
import enum
import operator
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from types import TracebackType
from typing import Any, NoReturn

from lucid_gpu.func.trees import leaves_of
from lucid_gpu.fx.callers import is_asserted, unpacked
from lucid_gpu.fx.graph import Graph, magic_methods, reflectable_magic_methods
from lucid_gpu.fx.node import Argument, Node, Target, base_types, is_ours, map_arg
from lucid_gpu.fx.recorded import recorded
from lucid_gpu.fx.traceback import copied_meta
from lucid_gpu.ops.registry import attach
from lucid_gpu.tape import overrides
from lucid_gpu.tensor import Tensor

__all__ = [
    "Attribute",
    "GraphAppendingTracer",
    "ParameterProxy",
    "Proxy",
    "Scope",
    "ScopeContextManager",
    "TraceError",
    "TracerBase",
]


# Operators of a tensor with a proxy that PyTorch records as another method.
_METHODS = {"__pow__": "pow", "__ipow__": "pow_", "__eq__": "eq"}
# Of the names of nodes: where PyTorch's functions are called so.
_SPACES = {f"lucid_gpu.{name}": f"{name}_" for name in ("fft", "linalg", "special")}


class TraceError(ValueError):
    """What was done with a proxy needs its value."""


class Scope:
    """The module whose forward is traced at this moment."""

    def __init__(self, module_path: str, module_type: Any) -> None:
        self.module_path, self.module_type = module_path, module_type


class ScopeContextManager:
    """A ``with`` during which a scope is another."""

    def __init__(self, scope: Scope, current_scope: Scope) -> None:
        self._scope, self._before = scope, copy.copy(scope)
        scope.module_path, scope.module_type = current_scope.module_path, current_scope.module_type

    def __enter__(self) -> Scope:
        return self._scope

    def __exit__(
        self, kind: type | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._scope.module_path = self._before.module_path
        self._scope.module_type = self._before.module_type


def assert_fn(x: object) -> None:
    """What ``assert`` of a proxy is traced as, by a tracer with ``trace_asserts``."""
    if not x:
        raise AssertionError("Assertion failed")


class TracerBase:
    """What makes nodes of what is done with proxies.

    Attributes
    ----------
    graph : Graph
    trace_asserts : bool
        Whether ``assert`` of a proxy becomes a node instead of an error.
    proxy_buffer_attributes : bool
        Whether buffers are read as proxies, as parameters are.
    """

    graph: Graph
    record_stack_traces = False
    check_mutable_operations = False
    trace_asserts = False
    proxy_buffer_attributes = False
    traced_func_name = "forward"
    scope: Scope
    module_stack: OrderedDict[str, tuple[str, Any]]
    node_name_to_scope: dict[str, tuple[str, Any]]

    def create_node(
        self,
        kind: str,
        target: Target,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        name: str | None = None,
        type_expr: Any = None,
    ) -> Node:
        """Add a node to the graph."""
        if self.check_mutable_operations and kind == "call_function":
            called = getattr(target, "__name__", "")
            called += ".out" if "out" in kwargs else ""
            if is_ours(target) and called.endswith(("_", ".out")) and called[-2:] != "__":
                raise RuntimeError(f"Tried to trace mutable operation aten::{called}")
        node = self.graph.create_node(kind, target, args, kwargs, name, type_expr)
        self.node_name_to_scope[node.name] = (self.scope.module_path, self.scope.module_type)
        if self.module_stack:
            node.meta["nn_module_stack"] = copy.copy(self.module_stack)
        for key, value in copied_meta().items():
            node.meta.setdefault(key, value)
        return node

    def proxy(self, node: Node) -> Proxy:
        """The proxy of a node."""
        return Proxy(node, self)

    def create_proxy(
        self,
        kind: str,
        target: Target,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        name: str | None = None,
        type_expr: Any = None,
        proxy_factory_fn: Callable[[Node], Proxy] | None = None,
    ) -> Proxy:
        """Add a node with arguments that `create_arg` understands; gives its proxy."""
        node = self.create_node(
            kind, target, self.create_arg(args), self.create_arg(kwargs), name, type_expr
        )
        return self.proxy(node) if proxy_factory_fn is None else proxy_factory_fn(node)

    def create_arg(self, a: Any) -> Argument:
        """The argument of a node for a value: nodes in place of proxies.

        Raises
        ------
        NotImplementedError
            For a value that no node takes.
        """
        if isinstance(a, Proxy):
            return a.node
        if hasattr(a, "__fx_create_arg__"):
            return a.__fx_create_arg__(self)
        if isinstance(a, tuple):
            parts = [self.create_arg(part) for part in a]
            return type(a)(*parts) if hasattr(a, "_fields") else type(a)(parts)
        if isinstance(a, list):
            return [self.create_arg(part) for part in a]
        if isinstance(a, dict):
            return {self._key(key): self.create_arg(part) for key, part in a.items()}
        if isinstance(a, (slice, range)):
            return type(a)(*[self.create_arg(part) for part in (a.start, a.stop, a.step)])
        if is_dataclass(a) and not isinstance(a, type):
            made = {f.name: self.create_arg(getattr(a, f.name)) for f in fields(a)}
            return self.create_node("call_function", type(a), (), made)
        if isinstance(a, (*base_types, enum.Enum)) or a is None or a is ...:
            return a
        raise NotImplementedError(f"argument of type: {type(a)}")

    def _key(self, key: Any) -> Any:
        if isinstance(key, str):
            return key
        key = self.create_arg(key)

        def refuse(node: Node) -> NoReturn:
            raise RuntimeError(
                f"Keys for dictionaries used as an argument cannot contain a Node. Got key: {node}"
            )

        map_arg(key, refuse)
        return key

    def to_bool(self, obj: Proxy) -> bool:
        """What ``if proxy`` does: a `TraceError`, unless a subclass knows the value."""
        raise TraceError("symbolically traced variables cannot be used as inputs to control flow")

    def iter(self, obj: Proxy) -> Iterator[Any]:
        """What ``for part in proxy`` does: a `TraceError`, unless a subclass knows the parts."""
        raise TraceError(
            "Proxy object cannot be iterated. This can be attempted when the Proxy is used in a "
            "loop or as a *args or **kwargs function argument. See the torch.fx docs on "
            "pytorch.org for a more detailed explanation of what types of control flow can be "
            "traced, and check out the Proxy docstring for help troubleshooting Proxy iteration "
            "errors"
        )

    def keys(self, obj: Proxy) -> Any:
        """What ``**proxy`` asks for."""
        return Attribute(obj, "keys")()


class GraphAppendingTracer(TracerBase):
    """Adds nodes to a graph while nothing is traced."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.scope = Scope("", None)
        self.module_stack = OrderedDict()
        self.node_name_to_scope = {}


class Proxy:
    """Stands for the value of a node: operators, methods and functions of it add nodes.

    Parameters
    ----------
    node : Node
    tracer : TracerBase, optional
        What adds the nodes; to the node's graph otherwise.

    Notes
    -----
    It has no value, so ``if``, ``for`` and ``len`` raise; ``a, b = proxy`` takes two parts.
    """

    def __init__(self, node: Node, tracer: TracerBase | None = None) -> None:
        overrides.start()  # or the first function of a proxy would run on it before it is asked
        self.tracer = GraphAppendingTracer(node.graph) if tracer is None else tracer
        self.node = node

    def __repr__(self) -> str:
        return f"Proxy({self.node.name})"

    def __getattr__(self, k: str) -> Attribute:
        return Attribute(self, k)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__

    def __setstate__(self, d: dict[str, Any]) -> None:
        self.__dict__ = d

    def __deepcopy__(self, memo: dict[int, Any]) -> Proxy:
        copied = Proxy.__new__(Proxy)
        copied.__dict__.update({k: copy.deepcopy(v, memo) for k, v in self.__dict__.items()})
        return copied

    def __call__(self, *args: Any, **kwargs: Any) -> Proxy:
        return self.tracer.create_proxy("call_method", "__call__", (self, *args), kwargs)

    def __iter__(self) -> Iterator[Any]:
        count = unpacked()
        if count is not None:
            return iter([self[i] for i in range(count)])  # type: ignore[index]
        return self.tracer.iter(self)

    def __abs__(self) -> Proxy:
        return self.tracer.create_proxy("call_function", operator.abs, (self,), {})

    def __bool__(self) -> bool:
        if self.tracer.trace_asserts and is_asserted():
            self.tracer.create_proxy("call_function", assert_fn, (self,), {})
            return True
        return self.tracer.to_bool(self)

    def keys(self) -> Any:
        """What ``**proxy`` asks for."""
        return self.tracer.keys(self)

    def __len__(self) -> int:
        raise RuntimeError(
            "'len' is not supported in symbolic tracing by default. If you want this call to be "
            "recorded, please call torch.fx.wrap('len') at module scope"
        )

    @classmethod
    def __torch_function__(
        cls,
        orig_method: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
    ) -> Proxy:
        """Add a node for a call of a function of `lucid_gpu`, or of a tensor's method."""
        args, kwargs = args or (), kwargs or {}
        found = [leaf.tracer for leaf in leaves_of((args, kwargs)) if isinstance(leaf, cls)]
        tracers = list(dict.fromkeys(found))
        if len(tracers) > 1:
            raise RuntimeError(
                f"Found multiple different tracers {tracers} while trying to trace operations "
                f"{orig_method}"
            )
        name = orig_method.__name__
        if getattr(Tensor, name, None) is orig_method:
            return tracers[0].create_proxy("call_method", _METHODS.get(name, name), args, kwargs)
        args, kwargs = recorded(orig_method, args, kwargs)
        space = _SPACES.get(orig_method.__module__, "")
        called = tracers[0].graph._target_to_str(space + name)
        return tracers[0].create_proxy("call_function", orig_method, args, kwargs, name=called)


class Attribute(Proxy):
    """An attribute of a proxy; a call of it is a method's, and only another use reads it."""

    def __init__(self, root: Proxy, attr: str) -> None:
        self.root, self.attr = root, attr
        self.tracer = root.tracer
        self._node: Node | None = None

    @property
    def node(self) -> Node:  # type: ignore[override]
        """The node that reads the attribute, made when it is first asked for."""
        if self._node is None:
            read = self.tracer.create_proxy("call_function", getattr, (self.root, self.attr), {})
            self._node = read.node
        return self._node

    def __call__(self, *args: Any, **kwargs: Any) -> Proxy:
        return self.tracer.create_proxy("call_method", self.attr, (self.root, *args), kwargs)


class ParameterProxy(Proxy):
    """A parameter while it is traced, whose shape is known: ``if`` may ask for it."""

    def __init__(self, tracer: TracerBase, node: Node, name: str, param: Tensor) -> None:
        super().__init__(node, tracer)
        self.param, self.name = param, name

    def __repr__(self) -> str:
        return f"ParameterProxy({self.name})"

    @property
    def shape(self) -> Any:
        """The parameter's."""
        return self.param.shape

    @property
    def ndim(self) -> int:
        """The parameter's."""
        return self.param.ndim

    def size(self) -> Any:
        """The parameter's."""
        return self.param.shape

    def dim(self) -> int:
        """The parameter's."""
        return self.param.ndim

    def numel(self) -> int:
        """The parameter's."""
        return self.param.numel()

    nelement = numel


def _operator(name: str) -> Callable[..., Proxy]:
    target = getattr(operator, name, None)

    def apply(self: Proxy, *args: Any, **kwargs: Any) -> Proxy:
        return self.tracer.create_proxy("call_function", target, (self, *args), kwargs)

    return apply


def _reflected(name: str) -> Callable[..., Proxy]:
    target = getattr(operator, name, None)

    def apply(self: Proxy, other: Any) -> Proxy:
        return self.tracer.create_proxy("call_function", target, (other, self), {})

    return apply


for _name in magic_methods:
    attach(Proxy, **{f"__{_name.strip('_')}__": _operator(_name)})
for _name in reflectable_magic_methods:
    attach(Proxy, **{f"__r{_name.strip('_')}__": _reflected(_name)})
