"""Gradients where outputs, inputs or cotangents are batched.

Graphs lead through the values of batched tensors. Where the inputs are batched, the examples do not
meet in them, and one pass gives each example its own gradient. Where only cotangents are batched,
the pass runs with them: every op of it is interpreted as any other op on batched tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lucid_gpu.autograd.backward import gradients, run_pass
from lucid_gpu.func.batching import BatchLevel, beneath, raised
from lucid_gpu.ops.shape import stack
from lucid_gpu.tape.levels import innermost
from lucid_gpu.tensor import Tensor


def grad(
    level: BatchLevel,
    outputs: Sequence[Any],
    inputs: Sequence[Any],
    cotangents: Sequence[Tensor],
    keep: bool,
    create_graph: bool,
) -> list[Any]:
    """`autograd.backward.gradients` as seen by ``level``: None for inputs that are not reached."""
    if not any(level.holds(t) for t in (*outputs, *inputs)):
        lower = innermost((*outputs, *inputs))
        pull = run_pass if lower is None else lower.grad
        grads: list[Any] = pull(outputs, inputs, cotangents, keep, create_graph)
        return grads
    triples = list(zip(outputs, cotangents, strict=True))
    batched = [(o, c) for o, c in triples if level.holds(o) and o.requires_grad]
    shared = [(o, c) for o, c in triples if not level.holds(o)]
    own = [i for i, t in enumerate(inputs) if level.holds(t)]
    others = [i for i, t in enumerate(inputs) if not level.holds(t)]
    results: list[Any] = [None] * len(inputs)
    if batched and own:
        targets = [level.value(inputs[i]) for i in own]
        retain = keep or bool(others)
        for i, g in zip(own, _of_values(level, batched, targets, retain, create_graph)):
            results[i] = g
    if others:
        targets = [inputs[i] for i in others]
        parts = []
        if shared:
            parts.append(_of_shared(shared, targets, keep, create_graph))
        if batched:
            parts.append(_one_by_one(level, batched, targets, keep, create_graph))
        for i, *some in zip(others, *parts):
            results[i] = _sum([g for g in some if g is not None])
    return results


def _sum(terms: list[Any]) -> Any:
    return sum(terms[1:], terms[0]) if terms else None


def _of_values(
    level: BatchLevel, pairs: Any, targets: list[Any], keep: bool, create_graph: bool
) -> list[Any]:
    """All examples in one pass, through the values."""
    outputs = [level.value(o) for o, _ in pairs]
    cotangents = [beneath(c, level) for _, c in pairs]
    grads = gradients(outputs, targets, cotangents, keep, create_graph)
    return [None if g is None else raised(g, level) for g in grads]


def _of_shared(pairs: Any, targets: list[Any], keep: bool, create_graph: bool) -> list[Any]:
    outputs, cotangents = zip(*pairs)
    return gradients(outputs, targets, cotangents, keep, create_graph)


def _one_by_one(
    level: BatchLevel, pairs: Any, targets: list[Any], keep: bool, create_graph: bool
) -> list[Any]:
    """Gradients by inputs that all examples share, but each example's own: a pass an example."""
    rows = []
    for b in range(level.size):
        outputs = [level.value(o)[b] for o, _ in pairs]
        cotangents = [_example(c, level, b) for _, c in pairs]
        retain = keep or b + 1 < level.size
        rows.append(gradients(outputs, targets, cotangents, retain, create_graph))
    columns = [[g for g in column if g is not None] for column in zip(*rows)]
    return [level.wrap(stack(column)) if column else None for column in columns]


def _example(cotangent: Tensor, level: BatchLevel, b: int) -> Tensor:
    """One example of a cotangent that may be batched further in."""
    return beneath(cotangent, level)[b]
