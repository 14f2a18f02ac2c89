"""Refusing second derivatives that would be wrong."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from lucid_gpu.core.node import Node
from lucid_gpu.core.saved import Saved
from lucid_gpu.ops.packing import Packed
from lucid_gpu.ops.shape import replay
from lucid_gpu.tape.modes import no_grad, state
from lucid_gpu.tensor import Tensor


def once_differentiable(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a backward that must not be differentiated: a second derivative raises."""

    @functools.wraps(function)
    def wrapped(ctx: Any, *cotangents: Any) -> Any:
        with no_grad():
            results = function(ctx, *cotangents)
        if not state.grad or not _depends_on_inputs(ctx, cotangents):
            return results
        many = results if isinstance(results, tuple) else (results,)
        marked = tuple([_refusing(r, ctx) if isinstance(r, Tensor) else r for r in many])
        return marked if isinstance(results, tuple) else marked[0]

    return wrapped


def _depends_on_inputs(ctx: Any, cotangents: Sequence[Any]) -> bool:
    if any(isinstance(c, Tensor) and c.requires_grad for c in cotangents):
        return True
    return any(_has_derivative(entry) for entry in ctx._saved if entry is not None)


def _has_derivative(entry: Any) -> bool:
    """Whether a saved value depends on inputs; it is not unpacked for that."""
    if isinstance(entry, Packed):
        return entry.edge is not None
    return entry.output is not None or not entry.program.independent


class Error(Node):
    """Raises when a gradient arrives."""

    def vjp(self, cotangents: Sequence[Any]) -> Sequence[Any]:
        raise RuntimeError(
            "trying to differentiate twice a function that was marked with @once_differentiable"
        )


def _refusing(result: Tensor, ctx: Any) -> Tensor:
    marked = result.alias()
    if marked.requires_grad:
        marked._cut()
    marked._attach(Error(ctx._edges))
    return marked


class Lacking(Node):
    """Passes gradients on along the first edge, unless the pass wants those that others lack."""

    def __init__(self, own: Any, others: Any, why: str) -> None:
        super().__init__((own, *others))
        self.why = why

    def vjp(self, cotangents: Sequence[Any]) -> Sequence[Any]:
        others = self._edges[1:]
        task = state.task
        if task is None or any(node in task.waiting for node, _ in others):
            raise RuntimeError(self.why)
        return [cotangents[0], *[None] * len(others)]


def refusing_what_lacks(ctx: Any, results: Any, why: str) -> Any:
    """Results of a backward that read an intermediate, differentiable by its cotangents alone."""
    if isinstance(results, tuple):
        return tuple([refusing_what_lacks(ctx, one, why) for one in results])
    if not isinstance(results, Tensor) or results.dtype.category < 2:
        return results
    own = results._edge() if results.requires_grad else (None, 0)
    marked = results.alias()
    if marked.requires_grad:
        marked._cut()
    marked._attach(Lacking(own, ctx._edges, why))
    return marked


def differentiable(ctx: Any, saved: Sequence[Tensor | None]) -> tuple[Tensor | None, ...]:
    """Saved tensors for a backward that is recorded.

    What forward computed on its way has no history: a second derivative would lack a term, and is
    refused by `refusing_what_lacks`. Views of inputs and outputs are made again, with their
    history; constants made in forward, and what has no derivative, pass.
    """
    return tuple(
        [
            tensor
            if tensor is None or tensor.requires_grad or type(entry) is not Saved
            else _with_history(ctx, tensor, index)
            for index, (tensor, entry) in enumerate(zip(saved, ctx._saved, strict=True))
        ]
    )


def _with_history(ctx: Any, tensor: Tensor, index: int) -> Tensor:
    if tensor._expr.program.independent or tensor.dtype.category < 2:
        return tensor
    base = tensor._base
    if base is not None and base.requires_grad:
        return replay(base, tensor._steps)
    ctx._lacking = (
        f"{ctx.name()} saved an intermediate, saved_tensors[{index}] of shape "
        f"{list(tensor.shape)}: it is neither an input nor an output of forward, and was computed "
        "there from inputs that require grad, without being recorded. A second derivative would "
        "silently leave out its derivative. Return it from forward as one more output, or "
        "recompute it in backward from saved inputs, or mark backward with @once_differentiable."
    )
    return tensor
