"""The backward pass: every node once, after all that feeds it, without recursion."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Any

from lucid_gpu.tape.modes import state
from lucid_gpu.tape.node import AccumulateGrad, Node

Key = tuple[Node, int]


class observing:
    """Counts who may want to see gradients inside fused regions (hooks, non-leaf inputs).

    While nobody does, regions go backward as a whole.
    """

    count = 0


def backward(
    roots: Sequence[tuple[Node, int, Any]],
    retain_graph: bool,
    create_graph: bool,
    inputs: Sequence[Key] | None = None,
    accumulate: bool = True,
) -> dict[Key, Any]:
    """Run the graph backward from ``roots``.

    Parameters
    ----------
    roots : sequence of (node, output, cotangent)
    retain_graph : bool
        Keep what nodes saved, for another pass.
    create_graph : bool
        Record the pass itself.
    inputs : sequence of (node, output), optional
        Run only what leads to these, and return their gradients.
    accumulate : bool
        Whether the gradients of leaves end in their ``.grad``.

    Returns
    -------
    dict
        Gradients of ``inputs`` that the pass reached.
    """
    captured: dict[Key, Any] = {}
    targets = None if inputs is None else set(inputs)
    starts = [node for node, _, _ in roots]
    needed = None if targets is None else _leading_to(starts, targets)
    visited = None if needed is None or inputs is None else needed.union([n for n, _ in inputs])
    waiting = _count_uses(starts, needed)
    buffers: dict[Node, list[Any]] = {}
    ready: list[tuple[int, int, Node]] = []
    for node, output, cotangent in roots:
        if node not in buffers:
            buffers[node] = [None] * node.outputs
            if node not in waiting:
                heappush(ready, (-node.sequence, id(node), node))
        _add(buffers[node], output, cotangent)
    before = state.grad
    state.grad = create_graph and state.recording
    try:
        while ready:
            node = heappop(ready)[2]
            cotangents = buffers.pop(node)
            if needed is not None and node in needed:
                _capture(captured, targets, node, cotangents)
            if node.hooks is not None:
                cotangents = _before(node, cotangents)
            if needed is not None and node not in needed:
                _capture(captured, targets, node, cotangents)
                continue
            if type(node) is AccumulateGrad:
                if accumulate:
                    node.accumulate(cotangents[0], create_graph)
                continue
            results = node.vjp(cotangents)
            if node.hooks is not None and node.hooks.post:
                results = _after(node, results, cotangents)
            if not retain_graph:
                node.release()
            for (target, output), result in zip(node.edges, results, strict=False):
                if target is None or (visited is not None and target not in visited):
                    continue
                have = buffers.get(target)
                if have is None:
                    have = buffers[target] = [None] * target.outputs
                if result is not None:
                    earlier = have[output]
                    have[output] = result if earlier is None else earlier + result
                left = waiting[target] - 1
                waiting[target] = left
                if left == 0:
                    heappush(ready, (-target.sequence, id(target), target))
    finally:
        state.grad = before
    return captured


def _capture(
    captured: dict[Key, Any], targets: set[Key] | None, node: Node, cotangents: list[Any]
) -> None:
    """Note the gradients asked for; as in PyTorch, hooks have run only where the pass ends."""
    for i, cotangent in enumerate(cotangents):
        if cotangent is not None and targets is not None and (node, i) in targets:
            captured[node, i] = cotangent


def _add(have: list[Any], output: int, cotangent: Any) -> None:
    earlier = have[output]
    have[output] = cotangent if earlier is None else earlier + cotangent


def _count_uses(roots: Sequence[Node], needed: set[Node] | None) -> dict[Node, int]:
    """How many edges lead into each node that the pass will visit."""
    uses: dict[Node, int] = {}
    stack = list(dict.fromkeys(roots))
    seen = set(stack)
    look_inside = observing.count
    while stack:
        node = stack.pop()
        if look_inside and needed is None:
            node.prepare()
        if needed is not None and node not in needed:
            continue
        for target, _ in node.edges:
            if target is None:
                continue
            if target in uses:
                uses[target] += 1
            else:
                uses[target] = 1
                if target not in seen:
                    seen.add(target)
                    stack.append(target)
    return uses


def _leading_to(roots: Sequence[Node], targets: set[Key]) -> set[Node]:
    """Nodes that must run for the targets' gradients to be known (the targets themselves not)."""
    order: list[Node] = []
    seen: set[Node] = set()
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        order.append(node)
        if observing.count:
            node.prepare()
        stack.extend(t for t, _ in node.edges if t is not None)
    users: dict[Node, list[Node]] = {}
    for node in order:
        for target, _ in node.edges:
            if target is not None:
                users.setdefault(target, []).append(node)
    needed: set[Node] = set()
    frontier = [node for node, _ in targets if node in seen]
    while frontier:
        for user in users.get(frontier.pop(), ()):
            if user not in needed:
                needed.add(user)
                frontier.append(user)
    return needed


def _before(node: Node, cotangents: list[Any]) -> list[Any]:
    """Tensor hooks, then the node's own, then what retain_grad keeps."""
    hooks = node.hooks
    assert hooks is not None
    for output, some in hooks.tensor.items():
        for hook in tuple(some.values()):
            if cotangents[output] is None:
                continue
            answer = hook(cotangents[output])
            if answer is not None:
                cotangents[output] = answer
    for hook in tuple(hooks.pre.values()):
        answer = hook(tuple(cotangents))
        if answer is not None:
            cotangents = list(answer) if isinstance(answer, (tuple, list)) else [answer]
    for output, keep in hooks.retain.items():
        if cotangents[output] is not None:
            keep(cotangents[output])
    return cotangents


def _after(node: Node, results: Sequence[Any], cotangents: list[Any]) -> Sequence[Any]:
    assert node.hooks is not None
    for hook in tuple(node.hooks.post.values()):
        answer = hook(tuple(results), tuple(cotangents))
        if answer is not None:
            results = tuple(answer) if isinstance(answer, (tuple, list)) else (answer,)
    return results
