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
    targets = None if inputs is None else {(id(n), i): (n, i) for n, i in inputs}
    needed = None if targets is None else _leading_to([n for n, _, _ in roots], targets)
    waiting = _count_uses([n for n, _, _ in roots], needed)
    buffers: dict[int, list[Any]] = {}
    ready: list[tuple[int, int, Node]] = []
    for node, output, cotangent in roots:
        _add(buffers, node, output, cotangent)
    queued = set()
    for node, _, _ in roots:
        if waiting.get(id(node), 0) == 0 and id(node) not in queued:
            queued.add(id(node))
            heappush(ready, (-node.sequence, id(node), node))
    before = state.grad
    state.grad = create_graph
    try:
        while ready:
            node = heappop(ready)[2]
            cotangents = buffers.pop(id(node))
            if node.hooks is not None:
                cotangents = _before(node, cotangents)
            if targets is not None:
                for i, cotangent in enumerate(cotangents):
                    key = (id(node), i)
                    if key in targets and cotangent is not None:
                        captured[targets[key]] = cotangent
                if needed is not None and id(node) not in needed:
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
                if target is None or (needed is not None and id(target) not in waiting):
                    continue
                _add(buffers, target, output, result)
                left = waiting[id(target)] - 1
                waiting[id(target)] = left
                if left == 0:
                    heappush(ready, (-target.sequence, id(target), target))
    finally:
        state.grad = before
    return captured


def _add(buffers: dict[int, list[Any]], node: Node, output: int, cotangent: Any) -> None:
    have = buffers.get(id(node))
    if have is None:
        have = buffers[id(node)] = [None] * node.outputs
    earlier = have[output]
    if cotangent is not None:
        have[output] = cotangent if earlier is None else earlier + cotangent


def _count_uses(roots: Sequence[Node], needed: set[int] | None) -> dict[int, int]:
    """How many edges lead into each node that the pass will visit."""
    uses: dict[int, int] = {}
    stack = list(roots)
    seen = {id(n) for n in roots}
    look_inside = observing.count
    while stack:
        node = stack.pop()
        if look_inside and needed is None:
            node.prepare()
        if needed is not None and id(node) not in needed:
            continue
        for target, _ in node.edges:
            if target is None:
                continue
            key = id(target)
            uses[key] = uses.get(key, 0) + 1
            if key not in seen:
                seen.add(key)
                stack.append(target)
    return uses


def _leading_to(roots: Sequence[Node], targets: dict[tuple[int, int], Key]) -> set[int]:
    """Nodes that must run for the targets' gradients to be known (the targets themselves not)."""
    goal = {key[0] for key in targets}
    order: list[Node] = []
    seen: set[int] = set()
    stack = list(roots)
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        order.append(node)
        if observing.count:
            node.prepare()
        stack.extend(t for t, _ in node.edges if t is not None)
    users: dict[int, list[int]] = {}
    for node in order:
        for target, _ in node.edges:
            if target is not None:
                users.setdefault(id(target), []).append(id(node))
    needed: set[int] = set()
    frontier = [key for key in goal if key in seen]
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
