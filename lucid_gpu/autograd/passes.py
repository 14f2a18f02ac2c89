"""A pass through the graph, from outputs and cotangents to gradients of inputs or of leaves."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from lucid_gpu.autograd.graph import GradientEdge
from lucid_gpu.fusion import expression
from lucid_gpu.fusion.region import RegionNode, observe, unobserve
from lucid_gpu.fusion.scheduler import begin_pass, end_pass
from lucid_gpu.tape import engine
from lucid_gpu.tape.levels import innermost, open_levels
from lucid_gpu.tape.modes import state
from lucid_gpu.tensor import Tensor, store_written

__all__ = ["edge_of", "gradients", "observed", "roots_of", "run", "run_pass"]


def gradients(
    outputs: Sequence[Any],
    inputs: Sequence[Any],
    cotangents: Sequence[Tensor],
    keep: bool,
    create_graph: bool,
) -> list[Any]:
    """As `autograd.grad`, with None for inputs the pass does not reach."""
    if open_levels:
        level = innermost([*outputs, *inputs, *cotangents])
        if level is not None:
            found: list[Any] = level.grad(outputs, inputs, cotangents, keep, create_graph)
            return found
    return run_pass(outputs, inputs, cotangents, keep, create_graph)


def run_pass(
    outputs: Sequence[Any],
    inputs: Sequence[Any],
    cotangents: Sequence[Tensor],
    keep: bool,
    create_graph: bool,
) -> list[Any]:
    """As `gradients`, through the graph of ordinary tensors; cotangents may be batched."""
    edges = [_wanted(i, t) for i, t in enumerate(inputs)]
    reached = observed(roots_of(outputs, cotangents), keep, create_graph, edges, accumulate=False)
    for gradient in reached.values():
        if not gradient.requires_grad and gradient._wrapper is None:
            gradient._expr = expression.apart(gradient._expr)
    return [reached.get(edge) for edge in edges]


def observed(
    roots: list[Any], keep: bool, create_graph: bool, edges: list[Any], accumulate: bool
) -> dict[Any, Any]:
    """Run a pass for some inputs; regions are opened where one lies inside."""
    for node, _ in edges:
        observe(node)
    try:
        return run(roots, keep, create_graph, edges, accumulate)
    finally:
        for node, _ in edges:
            unobserve(node)


def run(*arguments: Any) -> dict[Any, Any]:
    """A pass, which is where a step of a loop ends."""
    if state.written:
        store_written()
    begin_pass()
    try:
        return engine.backward(*arguments)
    finally:
        end_pass()


def edge_of(tensor: Any) -> tuple[Any, int]:
    """The node that a tensor's gradient goes to, and which of its outputs the tensor is."""
    if isinstance(tensor, GradientEdge):
        return tensor.node, tensor.output_nr
    edge: tuple[Any, int] = tensor._edge()
    return edge


def _wanted(i: int, tensor: Any) -> tuple[Any, int]:
    if isinstance(tensor, Tensor) and not tensor.requires_grad:
        raise RuntimeError(
            f"One of the differentiated Tensors does not require grad: inputs[{i}], of shape "
            f"{list(tensor.shape)}"
        )
    return edge_of(tensor)


def roots_of(outputs: Sequence[Any], cotangents: Sequence[Tensor]) -> list[Any]:
    """Where a pass begins: node, output and cotangent; RuntimeError for what has no node."""
    roots = []
    for i, (output, cotangent) in enumerate(zip(outputs, cotangents)):
        node, number = edge_of(output)
        if node is None:
            raise RuntimeError(
                f"element {i} of tensors does not require grad and does not have a grad_fn"
            )
        tensor = isinstance(output, Tensor)
        if tensor and isinstance(node, RegionNode) and not output._expr.program.is_load:
            node.root = weakref.ref(output)
        roots.append((node, number, cotangent))
    return roots
