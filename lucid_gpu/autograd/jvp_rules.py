"""Tangents of the ops that are not elementwise.

`from_vjp` serves any op. `RULES` says, by an op's vjp, how the op acts on tangents where running
the vjp twice would be wasteful, or where the op saved too little because nothing needed a gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from lucid_gpu.autograd.backward import grad
from lucid_gpu.ops import (
    convolution,
    cumsum,
    index_add,
    indexing,
    matmul,
    reductions,
    rolled,
    shape,
)
from lucid_gpu.ops.record import OpNode, constant
from lucid_gpu.tape.modes import inference_mode, state
from lucid_gpu.tensor import Tensor


class Call(NamedTuple):
    """An op as it was recorded: see `ops.record.record`.

    Attributes
    ----------
    inputs, tangents : sequences
        A tangent is None where an input has none.
    results : tuple of Tensor
    """

    vjp: Callable[..., Any]
    inputs: Sequence[Tensor]
    tangents: Sequence[Tensor | None]
    saved: Sequence[Tensor | None]
    results: tuple[Tensor, ...]
    attributes: dict[str, Any]


Tangents = Sequence["Tensor | None"]


def from_vjp(call: Call) -> Tangents:
    """The derivative of ``<vjp(u), t>`` by ``u``."""
    directions = [t for t in call.tangents if t is not None]
    record_tangent = bool(state.grad)
    with inference_mode(False):
        cotangents = [_probe(result) for result in call.results]
        pulled = call.vjp(_node_of(call), *cotangents)
        pairs = [
            (g, t)
            for g, t in zip(pulled, call.tangents, strict=True)
            if g is not None and t is not None and g.requires_grad
        ]
    probes = [u for u in cotangents if u.requires_grad]
    assert directions
    if not pairs:
        return [constant(0.0, u) if u.requires_grad else None for u in cotangents]
    found = iter(
        grad(
            [g for g, _ in pairs],
            probes,
            [t for _, t in pairs],
            create_graph=record_tangent,
            materialize_grads=True,
        )
    )
    return [next(found) if u.requires_grad else None for u in cotangents]


def _probe(result: Tensor) -> Tensor:
    """A cotangent to differentiate by; its value does not matter."""
    zeros = constant(0.0 if result.dtype.category >= 2 else 0, result)
    return zeros.requires_grad_() if result.dtype.category >= 2 else zeros


def _node_of(call: Call) -> OpNode:
    """What the op's vjp reads, whether or not the op itself was recorded."""
    node = OpNode(call.inputs, call.vjp, ())
    node.needs_input_grad = tuple([t is not None for t in call.tangents])
    kept = [s if s is None or not s.is_inference() else s.clone() for s in call.saved]
    node.saved = tuple([None if s is None else (s, s._version) for s in kept])
    node.__dict__.update(call.attributes)
    return node


# --- linear in one input ------------------------------------------------------------------------


def _alias(call: Call) -> Tangents:
    return [_only(call).alias()]


def _only(call: Call) -> Tensor:
    (t,) = call.tangents
    assert t is not None
    return t


def _sum(call: Call) -> Tangents:
    total = reductions.sum(_only(call), call.attributes["dims"])
    return [total.reshape(tuple(call.results[0].shape))]


def _flip(call: Call) -> Tangents:
    return [shape.flip(_only(call), *call.attributes["dims"])]


def _roll(call: Call) -> Tangents:
    return [rolled.rolled(_only(call), call.attributes["shifts"], call.attributes["dims"])]


def _cumsum(call: Call) -> Tangents:
    t, reverse = _only(call), call.attributes["reverse"]
    return [cumsum.running_sum(t, call.attributes["dim"], t.dtype, reverse)]


def _reshape(call: Call) -> Tangents:
    return [shape.reshape(_only(call), tuple(call.results[0].shape))]


def _take(call: Call) -> Tangents:
    taken = indexing.getitem_parsed(_only(call), call.attributes["index"])
    return [taken.reshape(tuple(call.results[0].shape))]


def _place(call: Call) -> Tangents:
    where = tuple(call.results[0].shape)
    return [indexing.place(_only(call), call.attributes["index"], where)]


# --- linear in several inputs, or in each ---------------------------------------------------------


def _zeros(tangent: Tensor | None, like: Tensor) -> Tensor:
    return constant(0.0, like) if tangent is None else tangent


def _cat(call: Call) -> Tangents:
    parts = [_zeros(t, x) for t, x in zip(call.tangents, call.inputs, strict=True)]
    return [shape.cat(parts, call.attributes["dim"])]


def _with_values(call: Call) -> Tangents:
    rest, values = [_zeros(t, x) for t, x in zip(call.tangents, call.inputs, strict=True)]
    return [indexing.with_values(rest, call.attributes["index"], values)]


def _added(call: Call) -> Tangents:
    rest, part = [_zeros(t, x) for t, x in zip(call.tangents, call.inputs, strict=True)]
    return [call.attributes["again"](rest, part)]


def _bilinear(product: Callable[..., Tensor], *settings: str) -> Callable[[Call], Tangents]:
    def rule(call: Call) -> Tangents:
        (a, b), (t_a, t_b) = call.inputs, call.tangents
        more = [call.attributes[name] for name in settings]
        if t_b is None:
            assert t_a is not None
            return [product(t_a, b, *more)]
        last = product(a, t_b, *more)
        return [last if t_a is None else product(t_a, b, *more) + last]

    return rule


RULES: dict[Any, Callable[[Call], Tangents]] = {
    shape._reshape_vjp: _reshape,
    indexing._getitem_vjp: _take,
    shape._same_vjp: _alias,
    shape._flip_vjp: _flip,
    rolled._roll_vjp: _roll,
    shape._cat_vjp: _cat,
    reductions._sum_vjp: _sum,
    cumsum._cumsum_vjp: _cumsum,
    indexing._place_vjp: _place,
    indexing._with_values_vjp: _with_values,
    index_add._added_vjp: _added,
    matmul._product_vjp: _bilinear(matmul._product),
    matmul._linear_vjp: _bilinear(matmul.linear),
    convolution._convolved_vjp: _bilinear(convolution._convolved, "window", "groups"),
    convolution._input_gradient_vjp: _bilinear(
        convolution._input_gradient, "shape", "window", "groups"
    ),
    convolution._weight_gradient_vjp: _bilinear(convolution._weight_gradient, "window", "groups"),
}
