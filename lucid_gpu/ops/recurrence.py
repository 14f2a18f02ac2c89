"""The walk of a recurrent layer along its sequences, as one op.

Each step of the walk is one product of the state and the recurrent weights, and one kernel for the
cell's formula; backward, one kernel for the formula's gradient and one product. The gradient of the
weights is one product for the whole sequence. Sequences of several lengths are packed: step ``t``
has ``sizes[t]`` rows, the longest first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lucid_gpu.devices import backend
from lucid_gpu.ops.matmul import linear
from lucid_gpu.ops.record import record, saves_for
from lucid_gpu.ops.recurrent_cells import CELLS, Cell, Weights
from lucid_gpu.ops.shape import cat
from lucid_gpu.tape import costly
from lucid_gpu.tape.levels import innermost, open_levels
from lucid_gpu.tape.modes import enable_grad, is_grad_enabled, state
from lucid_gpu.tensor import Tensor, from_array

__all__ = ["CELLS", "Cell", "Weights", "walk"]


def walk(
    cell: Cell,
    x: Tensor,
    sizes: tuple[int, ...],
    start: Sequence[Tensor],
    weights: Weights,
    reverse: bool,
) -> tuple[Tensor, ...]:
    """The outputs of all steps, shape (rows, out), and the last states.

    Parameters
    ----------
    x : Tensor, shape (rows, gates * hidden)
        What the inputs give the gates.
    sizes : tuple of int
        Rows of each step; they never grow.
    start : sequence of Tensor, shapes (sizes[0], out) and (sizes[0], hidden)
    weights : Weights
    reverse : bool
        Go from the last step to the first.
    """
    operands = [t for t in (x, *start, *weights) if t is not None]
    if costly.active or (open_levels and innermost(operands) is not None):
        return _composed(cell, x, sizes, start, weights, reverse)
    walked = _walk_for(cell, x, sizes, weights, reverse)
    walked.recorded = state.grad and any(t.requires_grad for t in operands)
    arrays = x.array, [s.array for s in start], weights.arrays()
    result: tuple[Tensor, ...] = record(
        "RecurrentBackward0",
        tuple(backend(x.device).call(_NAME, walked.forward, *arrays)),
        operands,
        _walk_vjp,
        (x, *start, *weights),
        x.dtype,
        kept=walked,
    )
    if walked.recorded:
        saves_for(result[0], _saved_by_steps(cell, operands, len(sizes)))
    return result


def _saved_by_steps(cell: Cell, operands: Sequence[Tensor], steps: int) -> dict[int, Sequence[int]]:
    """Whose gradients read the states and weights in PyTorch, where each step is some ops."""
    everything = range(len(operands))
    needs = [t.requires_grad for t in operands]
    w = 1 + cell.states
    product = [i for i in (1, w, w + 1) if i in everything]
    if steps > 1:
        return {1: (), w: everything, w + 1: ()}
    by_state: dict[int, Sequence[int]] = {1: product if needs[w] else ()}
    if cell.states == 2:
        by_state[2] = [i for i in everything if i != 2] if any(needs[:2] + needs[3:]) else ()
    return {**by_state, w: product if needs[1] else (), w + 1: ()}


_NAME = "a recurrent layer"  # of the call of a walk, there or back


def _walk_for(
    cell: Cell, x: Tensor, sizes: tuple[int, ...], weights: Weights, reverse: bool
) -> Any:
    """The fastest walk that there is for such operands."""
    from lucid_gpu.ops.native_walk import NativeWalk, suits
    from lucid_gpu.ops.recurrent_walk import Walk

    kind = NativeWalk if len(sizes) > 1 and suits(cell, x, weights) else Walk
    return kind(cell, x, sizes, reverse)


def _walk_vjp(node: Any, *cotangents: Tensor) -> Sequence[Any]:
    cell: Cell = node.kept.cell
    x, *start = node.saved_values[: 1 + cell.states]
    weights = Weights(*node.saved_values[1 + cell.states :])
    operands = [t for t in (x, *start, *weights) if t is not None]
    levels = open_levels and innermost([*operands, *cotangents]) is not None
    if is_grad_enabled() or levels or not node.kept.goes_back_from([s.array for s in start]):
        return _vjp_composed(node.kept, x, start, weights, cotangents)
    arrays = weights.arrays(), [g.array for g in cotangents]
    gradients = backend(x.device).call(_NAME, node.kept.backward, *arrays)
    return [from_array(a, x.dtype, x.device) for a in gradients]


def _composed(
    cell: Cell,
    x: Tensor,
    sizes: tuple[int, ...],
    start: Sequence[Tensor],
    weights: Weights,
    reverse: bool,
) -> tuple[Tensor, ...]:
    """The walk as single ops, differentiable to any order."""
    from lucid_gpu.ops.recurrent_walk import Carried, in_order, split, steps_of

    carried = Carried(start, (sizes[-1] if reverse else sizes[0]), cat)
    outputs = []
    for first, count in steps_of(sizes, reverse):
        states = carried.at(count)
        r = linear(states[0], weights.w, weights.bias)
        parts = split(x[first : first + count], cell.gates), split(r, cell.gates)
        after, _ = cell.step(*parts, states)
        if weights.projection is not None:
            after[0] = linear(after[0], weights.projection)
        outputs.append(after[0])
        carried.values = after
    return (cat(in_order(outputs, reverse)), *carried.finals())


def _vjp_composed(
    walked: Any, x: Tensor, start: Sequence[Tensor], weights: Weights, cotangents: Sequence[Tensor]
) -> list[Any]:
    """The gradients, to be differentiated again.

    One operand may be made of another, as ``x`` is of a state that is the input, too: views of them
    are apart.
    """
    from lucid_gpu.autograd.backward import gradients

    record_again = is_grad_enabled()
    with enable_grad():
        x, *start = (t.view_as(t) for t in (x, *start))
        weights = Weights(*[t if t is None else t.view_as(t) for t in weights])
        results = _composed(walked.cell, x, walked.sizes, start, weights, walked.reverse)
    operands = [t for t in (x, *start, *weights) if t is not None]
    wanted = [t for t in operands if t.requires_grad]
    remaining = iter(gradients(results, wanted, cotangents, True, record_again))
    return [next(remaining) if t.requires_grad else None for t in operands]
