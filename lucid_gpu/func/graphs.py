"""Inputs set apart for a transformation, and results cut loose from it.

A transformation differentiates by fresh tensors that stand for its inputs. What it returns keeps a
graph only if that leads somewhere besides: to a tensor of the user's that requires grad, or to the
inputs of a transformation further out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from lucid_gpu.core.node import AccumulateGrad, Node
from lucid_gpu.tape.modes import state
from lucid_gpu.tensor import Tensor


class Apart(Node):
    """Where the inputs of a transformation begin, if they have a history of their own."""

    stands_for_leaf = True

    def vjp(self, cotangents: Sequence[Any]) -> Sequence[Any]:
        return cotangents


@contextmanager
def transforming() -> Iterator[None]:
    """While the function of a transformation runs: what would mark leaves in it is refused."""
    state.transforms += 1
    try:
        yield
    finally:
        state.transforms -= 1


def fresh(tensor: Tensor) -> Tensor:
    """A tensor of the same value to differentiate by; gradients pass on to the original's."""
    if tensor._wrapper is not None:
        wrapped: Tensor = tensor._wrapper.level.over(tensor, fresh)
        return wrapped
    apart = tensor.clone() if tensor.is_inference() else tensor.detach()
    if not tensor.requires_grad:
        return apart._mark(True, "only Tensors of floating point dtype")
    apart._attach(Apart((tensor._edge(),)))
    return apart


def parts_of(tensor: Tensor) -> Iterator[Tensor]:
    """The ordinary tensors that a wrapped one consists of; an ordinary one itself."""
    if tensor._wrapper is None:
        yield tensor
        return
    for part in tensor._wrapper.level.parts(tensor):
        yield from parts_of(part)


def _beginning(part: Tensor) -> Any:
    """The node where a fresh tensor's graph begins: a dual is a view of it."""
    node = part._edge()[0]
    while node is not None and not isinstance(node, (AccumulateGrad, Apart)):
        ((node, _),) = node._edges
    return node


class Ends:
    """The fresh inputs of a transformation, as the ends of graphs."""

    def __init__(self, inputs: Iterable[Tensor]) -> None:
        self.nodes = {_beginning(part) for tensor in inputs for part in parts_of(tensor)}
        self.depth = state.transforms
        for node in self.nodes:
            if type(node) is AccumulateGrad:
                node.metadata[_DEPTH] = self.depth

    def lead_elsewhere(self, tensors: Iterable[Any]) -> bool:
        """Whether the tensors depend on anything that requires grad besides these inputs."""
        seen: set[Node] = set()
        stack = [p._edge()[0] for t in tensors if isinstance(t, Tensor) for p in parts_of(t)]
        while stack:
            node = stack.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            if type(node) is AccumulateGrad:
                known = node.metadata
                if node in self.nodes or known.get(_OVER) or known.get(_DEPTH, 0) > self.depth:
                    continue
                return True
            stack.extend([target for target, _ in node._edges])
        return False

    def leave_written(self) -> None:
        """Tensors of the user's that were written inside keep the values, and no history here."""
        if not state.took_history:
            return
        written, state.took_history = state.took_history, []
        for reference in written:
            tensor = reference()
            if tensor is None or not tensor.requires_grad or tensor._wrapper is not None:
                continue
            if self.lead_elsewhere((tensor,)):
                if state.transforms:
                    state.took_history.append(reference)
            else:
                views = tensor._memory().others(tensor)
                for one in (tensor, *[view for view in views if view._base is tensor]):
                    one._cut()

    def close(self) -> None:
        """The transformation is over: nobody will differentiate by these inputs again."""
        for node in self.nodes:
            if type(node) is AccumulateGrad:
                node.metadata[_OVER] = True


_OVER = "transformation is over"
_DEPTH = "how many transformations it was made in"
