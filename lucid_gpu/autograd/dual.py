"""Duals: tensors with a tangent, and how every op acts on them.

An elementwise row has a diagonal Jacobian, so its tangent is its own gradient formula with the
tangent in place of the cotangent. Any other op's comes from its vjp, which is linear in the
cotangent ``u``: the derivative of ``<vjp(u), t>`` by ``u`` is the tangent. Where that would be a
waste, the op's file has a shorter way beside the vjp (`tape.rules.jvp`). Tangents are pending
values like all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lucid_gpu.autograd.backward import gradients
from lucid_gpu.autograd.dual_function import call, call_on_duals
from lucid_gpu.autograd.grad import grad
from lucid_gpu.core.layout import may_overlap
from lucid_gpu.fusion.building import of_constant
from lucid_gpu.fusion.gradient import Symbol
from lucid_gpu.fusion.optable import NONE, RESULT, TABLE, ZERO, Op
from lucid_gpu.ops.elementwise import spread_copy
from lucid_gpu.ops.in_place import UNNOTICED, _reading_afresh
from lucid_gpu.ops.mirrors import bits_of, in_memory, is_batched
from lucid_gpu.ops.record import OpNode, constant, record, save
from lucid_gpu.ops.shape import replay, view_as, view_of
from lucid_gpu.ops.strides import (
    _memory,
    in_rows_of_memory,
    restrided,
    span,
    storage_offset,
    stride,
)
from lucid_gpu.ops.wrapping import bared, take_off, unwrapped, without, wrap, wrapper_at
from lucid_gpu.tape.levels import Level, Wrapper, innermost
from lucid_gpu.tape.modes import inference_mode, state
from lucid_gpu.tape.rules import JVP, Call
from lucid_gpu.tensor import Tensor, _tensor, apply


class Dual(Wrapper):
    """A tangent."""

    __slots__ = ("tangent",)

    def __init__(self, level: Level, tangent: Tensor) -> None:
        super().__init__(level)
        self.tangent = tangent


class DualLevel(Level):
    """One differentiation along tangents."""

    def make(self, primal: Tensor, tangent: Tensor) -> Tensor:
        """Give a tensor a tangent, in place."""
        return wrap(primal, Dual(self, tangent))

    def enter(self, primal: Tensor, tangent: Tensor, shares: bool = True) -> Tensor:
        """A dual of two tensors, either of which may be batched: batches lie over duals.

        The tangent lies as the primal does, since views of the one are views of the other.

        Parameters
        ----------
        shares : bool
            Whether a write to the dual is one to the primal.
        """
        batch = innermost((primal, tangent))
        if batch is None or not batch.batches:
            laid = laid_out_as(primal, tangent)
            return self.make(view_as(primal, primal) if shares else primal.alias(), laid)
        shares = shares and batch.holds(primal)  # else each example writes its own
        own, moved = batch.own(primal, lies=True), batch.own(tangent)
        dual: Tensor = batch.wrap(self.enter(own, moved, shares))
        return dual

    def leave(self, value: Tensor) -> tuple[Tensor, Tensor | None]:
        """The value and its tangent, if it has one."""
        batch = innermost((value,))
        if batch is not None and batch.batches:
            primal, tangent = self.leave(batch.value(value))
            return batch.wrap(primal), None if tangent is None else batch.wrap(tangent)
        return self.primal(value), self.tangent(value)

    def tangent(self, value: Any) -> Tensor | None:
        """The tangent of a value at this level."""
        dual = wrapper_at(value, self)
        return None if dual is None else dual.tangent

    def primal(self, value: Any) -> Any:
        """The value without its tangent at this level."""
        return without(value, self)

    def release(self, tensor: Tensor) -> None:
        take_off(tensor, self)

    # --- ops --------------------------------------------------------------------------------------

    def apply(self, op: Op, operands: Any, to: Any = None, shape: Any = None) -> Tensor:
        primals = [self.primal(o) for o in operands]
        result = apply(op, *primals, to=to, shape=shape)
        if not op.differentiable or result.dtype.category < 2 or not state.tangents:
            return result
        tangents = [self.tangent(o) for o in operands]
        # a value of its own: gradients of the tangent do not pass through the primal's node
        value = apply(op, *primals, to=to, shape=shape)
        return self.make(result, tangent_of_row(op, value, primals, tangents))

    def record(
        self,
        name: str,
        array: Any,
        inputs: Sequence[Tensor],
        vjp: Any,
        saved: Sequence[Tensor | None] = (),
        dtype: Any = None,
        keeps_output: bool = False,
        **attributes: Any,
    ) -> Any:
        primals = [self.primal(t) for t in inputs]
        known = {id(t): p for t, p in zip(inputs, primals, strict=True)}
        kept = [
            s if s is None else known[id(s)] if id(s) in known else self.primal(s) for s in saved
        ]
        result = record(name, array, primals, vjp, kept, dtype, keeps_output, **attributes)
        if not state.tangents:
            return result
        results = result if isinstance(result, tuple) else (result,)
        if keeps_output:
            kept += results
        tangents = [self.tangent(t) for t in inputs]
        call = Call(vjp, primals, tangents, kept, results, attributes)
        rule = JVP.get(vjp, from_vjp)
        try:
            moved = rule(call)
        except NotImplementedError as error:
            raise NotImplementedError(
                f"Trying to use forward AD with {name.removesuffix('Backward0').lower()} that does "
                f"not support it because it has not been implemented yet: {error}"
            ) from error
        for output, tangent in zip(results, moved, strict=True):
            if tangent is not None:
                leaf = tangent.requires_grad and tangent.is_leaf  # which must not be written
                if tangent._base is not None or any(tangent is t for t in tangents):
                    tangent = tangent.alias()  # no memory is shared, as the result shares none
                self.make(output, tangent.clone() if leaf else tangent)
        return result

    def view(
        self, input: Tensor, name: str, array: Any, vjp: Any, step: Any, **attributes: Any
    ) -> Tensor:
        """A view has a view of the tangent."""
        with bared(input, self):
            result = view_of(input, name, array, vjp, step, **attributes)
        if vjp is None or result.dtype.category < 2:
            return result
        tangent: Any = self.tangent(input)
        make, arguments = step
        viewed = make(tangent, *arguments)
        if not _is_on_memory_of(viewed, tangent) and self._lay_tangents(input):
            viewed = make(self.tangent(input), *arguments)
        return self.make(result, viewed)

    def become(self, tensor: Tensor, change: Any, view_of: Any) -> None:
        """Take a view's shape in place, as ``change(primal, view_of)`` does, with the tangent."""
        views: list[Tensor] = []
        dual: Any
        with bared(tensor, self) as dual:

            def of_primal(before: Tensor) -> Any:
                views.append(view_of(self.make(before, dual.tangent)))
                return self.primal(views[0])

            change(tensor, of_primal)
            dual.tangent = self.tangent(views[0])

    def _lay_tangents(self, input: Tensor) -> bool:
        """Let the tangents on a memory be views of one that lies as they do, unless that overlaps.

        Then a view of the tensor has a view of its tangent, through which it can be written.
        """
        base = input if input._base is None else input._base
        tensors = [t for t in base._memory().others(None) if t is base or t._base is base]
        duals = [(t, d) for t in tensors if (d := wrapper_at(t, self)) is not None]
        if may_overlap(base.shape, stride(base)) or may_overlap(
            duals[0][0].shape, stride(duals[0][0])
        ):
            return False
        whole = _zeros_laid_as(base, duals[0][1].tangent)
        for tensor, dual in duals:
            part = replay(whole, tensor._steps)
            overlaps = may_overlap(part.shape, stride(part))  # of one that comes before
            dual.tangent = part if overlaps else part.copy_(dual.tangent)
        return True

    def detach(self, tensor: Tensor) -> Tensor:
        """Without the tangent, as in PyTorch."""
        return unwrapped(tensor).detach()

    def alias(self, tensor: Tensor) -> Tensor:
        """The same value with the same tangent."""
        return self.make(unwrapped(tensor).alias(), wrapper_at(tensor, self).tangent.alias())

    def over(self, tensor: Tensor, function: Any) -> Tensor:
        """The dual of ``function(primal)`` and ``function(tangent)``."""
        primal, tangent = self.parts(tensor)
        return self.enter(function(primal), function(tangent))

    def parts(self, tensor: Tensor) -> list[Tensor]:
        """What a dual consists of."""
        return [unwrapped(tensor), wrapper_at(tensor, self).tangent]

    def shown(self, tensor: Tensor) -> list[str]:
        """Its tangent, as in PyTorch."""
        return [f"tangent={self.tangent(tensor)!r}"]

    def write(self, target: Tensor, value: Tensor, name: str) -> Tensor:
        """The tangent is written too, in place: views of it, and what it is a view of, see that."""
        moved = self.tangent(value)
        old = target._expr
        if moved is not None and moved._wrapper is None and old.program.is_load:
            moved = _tensor(_reading_afresh(moved._expr, old.leaves[0]))
        with bared(target, self) as dual:
            target._write(self.primal(value), name)
        if not state.tangents:
            return target
        if dual is None and moved is not None:
            self._give_memory_a_tangent(target, moved)
        own = self.tangent(target)
        if own is not None:
            new = constant(0.0, own) if moved is None else spread_copy(moved.to(own.dtype), own)
            own._write(new, UNNOTICED)
        return target

    def _give_memory_a_tangent(self, target: Tensor, moved: Tensor) -> None:
        """Zeros for the base of a tensor, and views of them for all views of that base."""
        base = target if target._base is None else target._base
        zeros = _zeros_laid_as(base, moved)
        for tensor in base._memory().others(None):
            if tensor is base or tensor._base is base:
                tangent = replay(zeros, tensor._steps)
                if wrapper_at(tensor, self) is None:
                    self.make(tensor, tangent)

    def function(self, cls: Any, args: Any) -> Any:
        if not state.tangents:
            return call(cls, [self.primal(a) for a in args])
        return call_on_duals(self, cls, args)

    def grad(
        self,
        outputs: Sequence[Tensor],
        inputs: Sequence[Any],
        cotangents: Sequence[Tensor | None],
        keep: bool,
        create_graph: bool,
    ) -> list[Tensor | None]:
        """A gradient, and how it changes along the tangents.

        With ``y' = J x'`` the gradient ``J^T u`` changes by the gradient of ``y'`` for the
        cotangent ``u``, and by ``J^T u'``.
        """
        ys, xs = [self.primal(y) for y in outputs], [self.primal(x) for x in inputs]
        us: list[Any] = [self.primal(u) for u in cotangents]
        roots: list[Any] = [(y, self.tangent(u)) for y, u in zip(ys, cotangents, strict=True)]
        roots = [(y, u) for y, u in roots if u is not None]
        roots += [(self.tangent(y), u) for y, u in zip(outputs, us, strict=True)]
        roots = [(y, u) for y, u in roots if y is not None and y.requires_grad]
        grads = gradients(ys, xs, us, keep or bool(roots), create_graph)
        primals = [self.primal(g) for g in grads]
        if not roots:
            return primals
        moved = gradients([y for y, _ in roots], xs, [u for _, u in roots], keep, create_graph)
        return [
            g if t is None else self.enter(_or_zeros(g, t), self.primal(t))
            for g, t in zip(primals, moved, strict=True)
        ]


def _is_on_memory_of(view: Tensor, tensor: Tensor) -> bool:
    """Whether what should be a view of a tensor is one; of a batch that is not to be seen."""
    return is_batched(tensor) or in_memory(view)._memory() is in_memory(tensor)._memory()


def _zeros_laid_as(base: Tensor, like: Tensor) -> Tensor:
    """Zeros in memory of their own that lie as a tensor does, gaps too."""
    shape, strides = tuple(base.shape), stride(base)
    memory = like.new_zeros(span(shape, strides), dtype=base.dtype)
    return restrided(memory, shape, strides, 0, (1,))


def laid_out_as(tensor: Tensor, tangent: Tensor) -> Tensor:
    """A tangent in its primal's memory layout: itself, or a copy."""
    if tensor._wrapper is not None or tangent._wrapper is not None:
        return tangent  # in a batch: there is no layout to see
    if bits_of(tensor) != bits_of(tangent):
        return tangent.clone()
    if not tensor.numel():
        return tangent
    strides, offset = stride(tensor), storage_offset(tensor)
    whole = _memory(tensor)[2]  # a view of the primal may take more of it
    if whole <= _memory(tangent)[2] and strides == stride(tangent):
        return tangent
    memory = in_rows_of_memory(tangent, strides, -offset, whole - offset)
    return restrided(memory, tuple(tensor.shape), strides, offset, (1,))


def _or_zeros(value: Tensor | None, like: Tensor) -> Tensor:
    return constant(0.0, like) if value is None else value


# --- recorded ops that have no rule ---------------------------------------------------------------


def from_vjp(call: Call) -> Sequence[Tensor | None]:
    """The derivative of ``<vjp(u), t>`` by ``u``."""
    directions = [t for t in call.tangents if t is not None]
    record_tangent = state.grad
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
    derivatives = iter(
        grad(
            [g for g, _ in pairs],
            probes,
            [t for _, t in pairs],
            create_graph=record_tangent,
            materialize_grads=True,
        )
    )
    return [next(derivatives) if u.requires_grad else None for u in cotangents]


def _probe(result: Tensor) -> Tensor:
    """A cotangent to differentiate by; its value does not matter."""
    zeros = constant(0.0 if result.dtype.category >= 2 else 0, result)
    return zeros._mark() if result.dtype.category >= 2 else zeros


def _node_of(call: Call) -> OpNode:
    """What the op's vjp reads, whether or not the op itself was recorded."""
    node = OpNode(call.inputs, call.vjp, ())
    node.needs_input_grad = tuple([t is not None for t in call.tangents])
    saved = [s if s is None or not s.is_inference() else s.clone() for s in call.saved]
    node.saved = save(saved, seen=False)
    node.__dict__.update(call.attributes)
    return node


# --- rows -----------------------------------------------------------------------------------------


class Value(Symbol):
    """A tensor under the operators that the table's formulas are written in."""

    __slots__ = ("constant", "tensor")

    def __init__(self, tensor: Tensor, constant: Any = None) -> None:
        self.tensor = tensor
        self.constant = constant

    @property
    def dtype(self) -> Any:
        return self.tensor.dtype

    def apply(self, name: str, *operands: Any, to: Any = None, value: Any = None) -> Value:
        tensors = [o.tensor if isinstance(o, Value) else o for o in operands]
        # ``value`` says how the results of programs lie in memory
        return Value(apply(TABLE[name], *tensors, to=to))

    def number(self) -> Any:
        return self.constant


def tangent_of_row(
    op: Op, result: Tensor, primals: Sequence[Any], tangents: Sequence[Tensor | None]
) -> Tensor:
    """The tangent of an elementwise op's result, from those of its operands."""
    operands = [_value(p, result) for p in primals]
    total = None
    ties = op.ties or (None,) * len(operands)
    for formula, tie, operand, tangent in zip(op.vjp, ties, operands, tangents, strict=True):
        if tangent is None or formula is ZERO or formula is NONE:
            continue
        part = _along(op, formula, Value(tangent), Value(result), operand, operands)
        if tie is not None:
            to = Value(result) if tie.to == RESULT else operands[tie.to]
            part = part.apply(tie.row, part, to) if to.tensor.requires_grad else part
        if part is not None:
            total = part if total is None else total + part
    if total is None:
        return constant(0.0, result)
    value = total.cast(result.dtype).tensor
    if value.shape != result.shape:
        return apply(TABLE["identity"], value, shape=tuple(result.shape))
    return value.clone() if any(value is t for t in tangents) else value


def _value(operand: Any, result: Tensor) -> Value:
    if isinstance(operand, Tensor):
        return Value(operand)
    return Value(_tensor(of_constant(operand, result.dtype, (), result.device)), operand)


def _along(op: Op, formula: Any, t: Value, y: Value, x: Value, operands: Sequence[Value]) -> Any:
    """A Jacobian times a tangent, where the formula is the transposed one times a cotangent."""
    if op.rule == "cast":
        return t
    if x.dtype.is_complex and op.name == "abs":
        return (x.sgn().conj_physical() * t).cast(y.dtype)  # the real part
    if op.name == "sgn":
        turned = formula(t.conj_physical(), y, *operands)
        return None if turned is None else turned.conj_physical()
    return formula(t.cast(y.dtype), y, *operands)
