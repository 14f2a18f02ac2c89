"""Nodes of the backward graph. Values are opaque here: anything with ``+`` will do."""

from __future__ import annotations

import itertools
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

_sequence = itertools.count()
_accumulating = threading.RLock()  # several threads may go backward to one leaf

Edge = tuple["Node | None", int]

SECOND_TIME = (
    "Trying to backward through the graph a second time (or directly access saved tensors after "
    "they have already been freed). Saved intermediate values of the graph are freed when you call "
    ".backward() or autograd.grad(). Specify retain_graph=True if you need to backward through the "
    "graph a second time or if you need to access saved tensors after calling backward."
)


class RemovableHandle:
    """What registering a hook returns; `remove` takes the hook away."""

    __slots__ = ("hooks", "key")
    _keys = itertools.count()

    def __init__(self, hooks: OrderedDict[int, Any]) -> None:
        self.hooks = hooks
        self.key = next(self._keys)

    def remove(self) -> None:
        self.hooks.pop(self.key, None)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


class Hooks:
    """The hooks of one node, made when the first is registered.

    ``tensor`` and ``retain`` hold, for each output, what is called with that output's gradient;
    ``pre`` sees all gradients before the node runs, ``post`` its results after.
    """

    __slots__ = ("post", "pre", "retain", "tensor")

    def __init__(self) -> None:
        self.tensor: dict[int, OrderedDict[int, Any]] = {}
        self.retain: dict[int, Any] = {}
        self.pre: OrderedDict[int, Any] = OrderedDict()
        self.post: OrderedDict[int, Any] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self.pre or self.post or self.retain or any(self.tensor.values()))


def add_hook(hooks: OrderedDict[int, Any], hook: Callable[..., Any]) -> RemovableHandle:
    """Register a hook among others; it runs after them."""
    handle = RemovableHandle(hooks)
    hooks[handle.key] = hook
    return handle


class Node:
    """A recorded function: where its gradient comes from is the engine's affair, where it goes is
    ``edges``.

    A subclass defines `vjp`, which takes one cotangent an output (None where undefined) and returns
    one an edge.
    """

    # What most nodes never change stays on the class: making a node is part of every op.
    hooks: Hooks | None = None
    outputs = 1
    released = False
    reads_cotangent = False  # will its vjp ask for the bytes of the cotangent

    def __init__(self, edges: tuple[Edge, ...] = ()) -> None:
        self.edges = edges
        self.sequence = next(_sequence)

    def name(self) -> str:
        return type(self).__name__

    @property
    def next_functions(self) -> tuple[Edge, ...]:
        return self.edges

    @property
    def metadata(self) -> dict[str, Any]:
        """A dictionary for the user's own notes on this node."""
        found: dict[str, Any] = self.__dict__.setdefault("_metadata", {})
        return found

    def vjp(self, cotangents: Sequence[Any]) -> Sequence[Any]:
        raise NotImplementedError

    def prepare(self) -> None:
        """Called before a pass in which somebody observes gradients inside fused regions."""

    def release(self) -> None:
        """Let go of what was saved; a later `vjp` raises."""
        self.released = True

    def all_hooks(self) -> Hooks:
        if self.hooks is None:
            self.hooks = Hooks()
        return self.hooks

    def register_hook(self, hook: Callable[[Any, Any], Any]) -> RemovableHandle:
        """Call ``hook(grad_inputs, grad_outputs)`` after this node ran."""
        return add_hook(self.all_hooks().post, hook)

    def register_prehook(self, hook: Callable[[Any], Any]) -> RemovableHandle:
        """Call ``hook(grad_outputs)`` before this node runs."""
        return add_hook(self.all_hooks().pre, hook)

    def __repr__(self) -> str:
        return f"<{self.name()} object at {id(self):#x}>"


class AccumulateGrad(Node):
    """The end of the graph: adds a gradient to a leaf's ``.grad``.

    It does not hold the leaf, which holds it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.sequence = 1 << 62  # ahead of everything else that is ready
        self.grad: Any = None
        self.post_accumulate: OrderedDict[int, Any] | None = None
        self.variable_reference: Any = None

    def refer_to(self, leaf: Any) -> None:
        """Set the leaf; once it is gone, nobody can ask for its gradient, which may read it."""
        own = weakref.ref(self)

        def forget(_: Any) -> None:
            node = own()
            if node is not None:
                node.grad = None

        self.variable_reference = weakref.ref(leaf, forget)

    @property
    def variable(self) -> Any:
        """The leaf tensor, or None once it is gone."""
        return None if self.variable_reference is None else self.variable_reference()

    def accumulate(self, cotangent: Any, create_graph: bool) -> None:
        """Add a gradient to the leaf's: in place, unless the addition is itself recorded."""
        if cotangent is None:
            return
        with _accumulating:
            if self.grad is None:
                self.grad = cotangent.alias()  # no copy, and no object shared between two leaves
            elif create_graph:
                self.grad = self.grad + cotangent
            else:
                self.grad.add_(cotangent)
        if self.post_accumulate:
            variable = self.variable
            for hook in tuple(self.post_accumulate.values()):
                if hook(variable) is not None:
                    raise RuntimeError(
                        "hooks registered with register_post_accumulate_grad_hook should return "
                        "None"
                    )
