"""How gradients pass through sparse tensors.

The gradient of a sparse tensor is dense or sparse, as the op that used it computes it; ops on
elements are linear and pass either on. Where values were put into places, only the gradient at
those places is asked for (`listed`), so a product need not compute it anywhere else.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

from lucid_gpu.devices import xp_of
from lucid_gpu.fusion.building import mark_dependent
from lucid_gpu.ops.creation import zeros
from lucid_gpu.ops.record import OpNode
from lucid_gpu.sparse.pattern import Pattern
from lucid_gpu.sparse.tensor import Elements, SparseTensor, refuse, sparse
from lucid_gpu.tape.modes import FORWARD, state
from lucid_gpu.tensor import Tensor, from_array


class SparseNode(OpNode):
    """A recorded op that gave a sparse tensor.

    Attributes
    ----------
    pattern : Pattern
        Of the result.
    listed : bool
        Its gradient is read at listed places only.
    """

    listed = False


@functools.cache
def _kind(name: str) -> type[SparseNode]:
    return type(name, (SparseNode,), {})


def is_listed(s: SparseTensor) -> bool:
    """Whether the gradient of a sparse tensor will be read at listed places only."""
    node = s.grad_fn
    return isinstance(node, SparseNode) and node.listed


def refuse_levels(name: str, inputs: Sequence[Tensor]) -> None:
    """A tangent or a batch must not get lost on the way."""
    for t in inputs:
        if t._wrapper is not None:
            refuse(name.removesuffix("Backward0"), t.device, "it has no forward mode and no vmap")


def recorded(
    name: str,
    pattern: Pattern,
    values: Tensor,
    inputs: Sequence[Tensor],
    vjp: Any,
    **attributes: Any,
) -> SparseTensor:
    """A sparse tensor that an op made of others; ``values`` have no history."""
    refuse_levels(name, inputs)
    result = sparse(Elements(pattern, values))
    if state.grad and any(t.requires_grad for t in inputs):
        node = _kind(name)(inputs, vjp, attributes.pop("saved", ()))
        sources = [t for t in inputs if isinstance(t, SparseTensor)]
        node.__dict__["listed"] = bool(sources) and all(is_listed(s) for s in sources)
        node.__dict__.update(attributes, pattern=pattern)
        node.metas = ((result._expr.program, result._expr.shape),)
        result._attach(node)
    elif state.mode is FORWARD and not all(t._expr.program.independent for t in inputs):
        mark_dependent(result)  # an intermediate of a Function's forward
    return result


def assemble(pattern: Pattern, values: Tensor, name: str) -> SparseTensor:
    """Values put into places."""
    refuse_levels(name, (values,))
    return recorded(name, pattern, values.detach(), (values,), _assemble_vjp, listed=True)


def listed_rows(name: str, numbers: Tensor, values: Tensor, size: tuple[int, ...]) -> SparseTensor:
    """A matrix of rows by number; those of one number add up."""
    return assemble(Pattern(numbers.unsqueeze(0), size, numbers.shape[0] < 2), values, name)


def _assemble_vjp(node: Any, g: Tensor) -> Any:
    return (at_places(g, node.pattern),)


def values_of(s: SparseTensor) -> Tensor:
    """The values, with the sparse tensor's history.

    What is computed of them must depend on sums of elements at one place only, so that their
    gradients are equal.
    """
    elements = s.elements
    if not (state.grad and s.requires_grad):
        return elements.values
    values = elements.values.alias()
    node = _kind("ValuesBackward0")((s,), _values_vjp, ())
    node.__dict__["pattern"] = elements.pattern
    values._attach(node)
    return values


def _values_vjp(node: Any, g: Tensor) -> Any:
    return (gradient(node.pattern, g),)


def gradient(pattern: Pattern, values: Tensor) -> SparseTensor:
    """The gradient of a sparse tensor of this pattern, from that of each element listed."""
    if not (state.grad and values.requires_grad):
        return sparse(Elements(pattern.shown(None), values, once=not pattern.coalesced))
    grouping = pattern.grouping()
    if grouping.first is not None:
        values = values.index_select(0, grouping.first)
    return assemble(grouping.pattern, values, "SparseMaskBackward0")


def at_places(g: Tensor, pattern: Pattern) -> Tensor:
    """What a gradient, sparse or dense, is at each element of a pattern."""
    if not isinstance(g, SparseTensor):
        flat = g.reshape(math.prod(pattern.sparse_size), *pattern.dense_size)
        return flat.index_select(0, pattern.keys)
    unsettled = g._expr.leaves[0].elements  # type: ignore[attr-defined]
    if unsettled.once and unsettled.pattern.is_same(pattern):
        kept: Tensor = unsettled.values
        return kept
    grouping = pattern.grouping()
    if g.pattern.is_same(grouping.pattern):
        values = values_of(g)
        return values if grouping.group is None else values.index_select(0, grouping.group)
    return _looked_up(g, pattern)


def _looked_up(g: SparseTensor, pattern: Pattern) -> Tensor:
    """A sparse tensor's elements at places of another pattern, zero where it lists none."""
    g = g.coalesce()
    values, have, wanted = values_of(g), g.pattern.keys.array, pattern.keys.array
    if not len(have):
        return zeros(pattern.count, *pattern.dense_size, dtype=g.dtype, device=g.device)
    positions = xp_of(g).searchsorted(have, wanted).clip(0, len(have) - 1)
    candidates = values.index_select(0, from_array(positions, None, g.device))
    listed = from_array(have[positions] == wanted, None, g.device)
    return candidates * listed.reshape(-1, *(1,) * len(pattern.dense_size))
