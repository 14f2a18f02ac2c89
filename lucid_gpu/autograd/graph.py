"""The backward graph's public face: what PyTorch has in ``torch.autograd.graph``."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from lucid_gpu.autograd.saved_hooks import (
    allow_mutation_on_saved_tensors,
    disable_saved_tensors_hooks,
    save_on_cpu,
    saved_tensors_hooks,
)
from lucid_gpu.core.engine import Pass
from lucid_gpu.core.hooks import RemovableHandle
from lucid_gpu.core.node import Node
from lucid_gpu.ops import in_place as _in_place
from lucid_gpu.tape.modes import state
from lucid_gpu.tensor import Tensor

__all__ = [
    "GradientEdge",
    "Node",
    "allow_mutation_on_saved_tensors",
    "disable_saved_tensors_hooks",
    "get_gradient_edge",
    "increment_version",
    "register_multi_grad_hook",
    "save_on_cpu",
    "saved_tensors_hooks",
]


class GradientEdge(NamedTuple):
    """Where a tensor's gradient is computed; `backward` and `grad` accept it as the tensor.

    Attributes
    ----------
    node : Node
    output_nr : int
        Which of the node's outputs the tensor is.
    ownership_token : Node or None
        PyTorch's; here the edge itself keeps the node.
    """

    node: Node
    output_nr: int
    ownership_token: Node | None = None


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """Where the gradient of ``tensor``, of any shape, is computed.

    ``grad(loss, get_gradient_edge(x))`` is ``grad(loss, x)``; the edge does not keep ``x``'s value.

    Raises
    ------
    RuntimeError
        For tensors that do not require grad.
    """
    if not tensor.requires_grad:
        raise RuntimeError(
            "It is not possible to get the gradient edge for a Tensor that does not require "
            "gradients"
        )
    return GradientEdge(*tensor._edge())


def increment_version(tensor: Tensor | Iterable[Tensor]) -> None:
    """Declare that the memory of a tensor, of any shape, was written by other code.

    A backward pass that needs the values before the write then raises, as after an in-place op.

    Parameters
    ----------
    tensor : Tensor or iterable of Tensor
        The tensors that were written, for example by a kernel of your own.

    Raises
    ------
    RuntimeError
        For anything but a tensor or an iterable of tensors.
    """
    tensors = (tensor,) if isinstance(tensor, Tensor) else tensor
    if not isinstance(tensors, Iterable):
        raise RuntimeError(
            f"increment_version expect a Iterable[Tensor] as input, got {type(tensor).__name__}"
        )
    for one in tensors:
        if not isinstance(one, Tensor):
            raise RuntimeError(
                "increment_version expects each element of the iterable to be a tensor, got "
                f"{type(one).__name__}"
            )
        one._own_memory()
        _in_place.count_write(one, "increment_version")


# --- hooks on several tensors ---------------------------------------------------------------------


class _Handles(RemovableHandle):
    """Removes several hooks at once."""

    def __init__(self, handles: Sequence[RemovableHandle]) -> None:
        self.handles = handles

    def remove(self) -> None:
        for handle in self.handles:
            handle.remove()


def register_multi_grad_hook(
    tensors: Sequence[Tensor],
    fn: Callable[[Any], None],
    *,
    mode: str = "all",
) -> RemovableHandle:
    """Call ``fn`` once in each backward pass with the gradients, of their shapes, of tensors.

    Parameters
    ----------
    tensors : sequence of Tensor
    fn : callable
        Under "all", gets a list of one gradient a tensor when the last that the pass comes to is
        known, with None for the others; under "any", the first gradient that is known.
    mode : {"all", "any"}

    Returns
    -------
    RemovableHandle

    Raises
    ------
    ValueError
        For another ``mode``.
    """
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    if mode == "any":
        once = _Once(fn)
        return _Handles([t.register_hook(once) for t in tensors if t.requires_grad])
    gathering = _Gathering([get_gradient_edge(t).node for t in tensors], fn)
    return _Handles([t.register_hook(gathering.hook(i)) for i, t in enumerate(tensors)])


def _this_pass() -> Pass:
    this: Pass | None = state.task
    if this is None:
        raise RuntimeError("expected this hook to be called inside a backward call")
    return this


class _Once:
    """Hands on the first gradient of each pass."""

    def __init__(self, fn: Callable[[Any], None]) -> None:
        self.fn = fn
        self.__name__ = getattr(fn, "__name__", repr(fn))
        self.seen: WeakKeyDictionary[Pass, bool] = WeakKeyDictionary()
        self.lock = threading.Lock()

    def __call__(self, gradient: Any) -> None:
        this = _this_pass()
        with self.lock:
            first = not self.seen.setdefault(this, False)
            self.seen[this] = True
        if first:
            self.fn(gradient)


class _Gathering:
    """Gathers the gradients of each pass until all it comes to are there."""

    def __init__(self, nodes: Sequence[Node], fn: Callable[[Any], None]) -> None:
        self.nodes = nodes
        self.fn = fn
        self.gathered: WeakKeyDictionary[Pass, dict[int, Any]] = WeakKeyDictionary()
        self.lock = threading.Lock()

    def hook(self, index: int) -> Callable[[Any], None]:
        def gather(gradient: Any) -> None:
            self._take(index, gradient)

        return gather

    def _take(self, index: int, gradient: Any) -> None:
        this = _this_pass()
        with self.lock:
            gathered = self.gathered.setdefault(this, {})
            gathered[index] = gradient
        if len(gathered) == sum([node in this.waiting for node in self.nodes]):
            del self.gathered[this]
            self.fn([gathered.get(i) for i in range(len(self.nodes))])
