"""Elementwise ops one by one: for saved-tensor hooks, which see what each op saves.

A region keeps what its whole gradient reads. Where hooks are set, each elementwise op has a node of
its own that saves what PyTorch's node would; values still fuse, through a boundary, and so do the
gradients, which are written with tensor ops.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from lucid_gpu.core.node import SECOND_TIME
from lucid_gpu.core.program import Program, Shape, derived, extents_at, load_program
from lucid_gpu.core.value import Cell, Expr
from lucid_gpu.device import device
from lucid_gpu.dtypes import dtype
from lucid_gpu.fusion.building import build, of_constant, of_index
from lucid_gpu.fusion.gradient import Elsewhere, Gradient, Part, gradient_of
from lucid_gpu.fusion.optable import HIDDEN, TABLE, Op
from lucid_gpu.fusion.region import RegionNode, title_of
from lucid_gpu.fusion.saving import FROM_OPERANDS, SAVE_ALL, replacements
from lucid_gpu.ops.packing import pack_output
from lucid_gpu.ops.record import OpNode, refuse_inference, save, unpack
from lucid_gpu.ops.reductions import sum_to_shape
from lucid_gpu.ops.registry import attach
from lucid_gpu.tape import costly
from lucid_gpu.tape.modes import OFF, RECORDED, set_mode, state
from lucid_gpu.tensor import Tensor, _tensor, apply

_OPERANDS = {
    "pow": ("self", "exponent"),
    "root": ("self", "exponent"),
    "where": ("condition", "self", "other"),
    "clamp_min": ("self", "min"),
    "clamp_max": ("self", "max"),
}  # PyTorch's names of operands, where they are not self and other
# rows of two operands that have one form, and those whose numbers become tensors, in PyTorch
_ONE_FORM = ("maximum", "minimum", "atan2", "hypot", "logaddexp", "floor_divide")
_NUMBERS_WRAPPED = ("add", "sub", "mul", "div")


class Rule(NamedTuple):
    """What one op saves, and its gradient in terms of that.

    Attributes
    ----------
    program : Program
        The op over one leaf an operand.
    saves : tuple of int
        Leaves to save; ``program.leaves`` is the result. The cotangent is the leaf after it.
    names : tuple of str
        What PyTorch calls them, in whose order it saves.
    gradient : Gradient
    """

    program: Program
    saves: tuple[int, ...]
    names: tuple[str, ...]
    gradient: Gradient


class Alone(NamedTuple):
    """One op on certain operands, looked at by itself.

    Attributes
    ----------
    tensors : list of Tensor
        The operands that are tensors.
    rule : Rule
    sources : list of int
        Which of them each leaf is; -1 for a number.
    numbers : list
        The numbers among the leaves, None for tensors.
    shape : tuple of int
        Of the result.
    """

    tensors: list[Tensor]
    rule: Rule
    sources: list[int]
    numbers: list[Any]
    shape: Shape


def alone_of(
    op: Op,
    operands: Sequence[Any],
    to: Any = None,
    shape: tuple[int, ...] | None = None,
    keep_operands: bool = True,
) -> Alone | None:
    """How an op goes backward by itself; None where it has no gradient.

    Parameters
    ----------
    keep_operands : bool
        Save operands where PyTorch does, though the result would do.
    """
    tensors = [o for o in operands if isinstance(o, Tensor)]
    cells = [Cell(None) for _ in tensors]
    pairs = zip(tensors, cells, strict=True)
    loads = iter([Expr(_load(t), (c,), None, t._expr.shape) for t, c in pairs])
    values = [next(loads) if isinstance(o, Tensor) else o for o in operands]
    alone = build(op, values, RECORDED, to, shape, scheduled=False)
    if not alone.program.needs_grad:
        return None
    sources = [cells.index(cell) if cell in cells else -1 for cell in alone.leaves]
    numbers = [cell.array for cell in alone.leaves]
    rule = _rule(op, alone.program, keep_operands)
    return Alone(tensors, rule, sources, numbers, alone.shape)


def apply_by_op(
    op: Op, operands: Sequence[Any], to: Any = None, shape: tuple[int, ...] | None = None
) -> Tensor | None:
    """Apply an op with a node of its own; None where nothing is recorded."""
    alone = alone_of(op, operands, to, shape)
    if alone is None:
        return None
    tensors, rule, sources, *_ = alone
    node = _node_class(rule.program)(tensors, vjp_alone, ())
    node.alone, node.ties = alone._replace(tensors=[]), op.ties
    node.saved = save([tensors[sources[i]] for i in rule.saves if i < len(sources)])
    mode = set_mode(OFF)
    try:
        compute = partial(apply, op, *operands, to=to, shape=shape)
        if costly.active and op.name not in HIDDEN:
            form = f"{op.name}.{_form(op, operands)}"
            result = costly.run_row(form, tensors[0].device, compute, operands)
        else:
            result = compute()
    finally:
        set_mode(mode)
    node.metas = ((rule.program, alone.shape),)
    result._attach(node)
    if rule.saves and rule.saves[-1] == len(sources):
        node.saved += (pack_output(result, 0, state.hooks[-1]),)
    return result


def _form(op: Op, operands: Sequence[Any]) -> str:
    """Which of PyTorch's forms of an op a row is with these operands."""
    if op.arity == 1 or op.name in _ONE_FORM:
        return "default"
    if op.name == "where":
        return "self"
    kinds = ["Tensor" if isinstance(o, Tensor) else "Scalar" for o in operands]
    if op.name == "pow":
        return "Scalar" if kinds[0] == "Scalar" else f"Tensor_{kinds[1]}"
    return "Tensor" if op.name in _NUMBERS_WRAPPED else kinds[1]


def refuse_inference_operands(op: Op, operands: Sequence[Any], to: Any, shape: Any) -> None:
    """Refuse an op that would save for backward what was made in inference mode."""
    alone = alone_of(op, operands, to, shape)
    if alone is not None:
        for leaf in alone.rule.saves:
            if leaf < len(alone.sources):
                refuse_inference(alone.tensors[alone.sources[leaf]])


def _load(tensor: Tensor) -> Program:
    program = tensor._expr.program
    needs, shape = program.needs_grad, tensor._expr.shape
    return load_program(program.dtype, shape, False, needs, program.device)


def _rule(op: Op, program: Program, keep_operands: bool) -> Rule:
    rule = _rules.get((program, keep_operands))
    if rule is None:
        n = program.leaves
        cotangent = load_program(program.dtype, program.axes, False, False, program.device)
        output = None if keep_operands and op.name in FROM_OPERANDS else (n, False, False)
        gradient = gradient_of(program, cotangent, n + 1, n + 2, False, output)
        reads = gradient.reads
        if reads and op.name in SAVE_ALL and not _has_number(program):
            reads = frozenset(range(n + 1))
        names = _names_of_leaves(op, program)
        names[n] = "~result"  # the last: PyTorch saves it once it is known
        saves = sorted(reads & names.keys(), key=names.__getitem__)
        rule = Rule(program, tuple(saves), tuple([names[i].lstrip("~") for i in saves]), gradient)
        _rules[program, keep_operands] = rule
    return rule


_rules: dict[tuple[Program, bool], Rule] = derived("ops that stand alone")


def _names_of_leaves(op: Op, program: Program) -> dict[int, str]:
    """PyTorch's name of each operand that is a tensor, by leaf."""
    known = program.instructions
    names = {}
    for name, argument in zip(operand_names(op.name), program.root.args, strict=False):
        ins = known[argument]
        while ins.op in ("cast", "identity"):
            ins = known[ins.args[0]]
        if ins.op == "load":
            names[ins.value[0]] = name
    return names


def operand_names(op: str) -> tuple[str, ...]:
    """PyTorch's names of an op's operands."""
    return _OPERANDS.get(op, ("self", "other"))


def _has_number(program: Program) -> bool:
    return any(ins.op in ("constant", "scalar") for ins in program.instructions)


_classes: dict[str, type[Any]] = {}


def _node_class(program: Program) -> type[Any]:
    title = title_of(program)
    node_class = _classes.get(title)
    if node_class is None:
        node_class = _classes[title] = type(title, (OpNode,), {"reads_arrays": False})
    return node_class


def vjp_alone(node: Any, g: Tensor) -> Sequence[Tensor | None]:
    """The vjp of a node whose ``alone`` says what it saved."""
    _, rule, sources, numbers, shape = node.alone
    values = [*numbers, None, g]
    for index, tensor in zip(rule.saves, unpack(node.saved, node), strict=True):
        values[index] = tensor
    results: list[Tensor | None] = [None] * len(node._edges)
    for leaf, gradient in evaluate_gradient(rule.gradient, values, shape).items():
        results[sources[leaf]] = gradient
    return results


def evaluate_gradient(
    gradient: Gradient, leaves: list[Any], space: Shape, marked: bool = False
) -> dict[int, Tensor]:
    """The cotangents of a program's leaves, by tensor ops.

    Parameters
    ----------
    gradient : Gradient
    leaves : list of Tensor, number or None
        What the gradient's programs read.
    space : tuple of int
        The shape of the program's value.
    marked : bool
        See `evaluate`.
    """
    values = list(leaves)
    for step in gradient.steps:
        part = evaluate(step.part, values, space, marked)
        values.append(sum_to_shape(part, extents_at(step.axes, space)))
    return {leaf: evaluate(part, values, space, marked) for leaf, part in gradient.results}


def evaluate(part: Part, leaves: Sequence[Any], space: Shape, marked: bool = False) -> Tensor:
    """The value of a program on tensors, recorded like any other.

    Parameters
    ----------
    space : tuple of int
        The shape that has the axes of the program's instructions.
    marked : bool
        Whether the program says which ops have a gradient: others, as of a detached value, are
        not recorded.
    """
    program = part.program
    made: list[Any] = []
    for ins in program.instructions:
        if ins.op == "load":
            value = leaves[part.leaves[ins.value[0]]]
        elif ins.op == "scalar":
            value = _Number(leaves[part.leaves[ins.value]], ins.dtype, program.device)
        elif ins.op == "index":
            value = _tensor(of_index(extents_at(ins.shape, space), program.device))
        elif ins.op == "constant":
            value = _Number(ins.value[1], ins.dtype, program.device)
        elif ins.op == "boundary":
            value = _leading_to(_tensors([made[ins.args[0]]])[0], leaves[part.leaves[ins.value]])
        else:
            op = TABLE[ins.op]
            mode = state.mode
            if marked and not ins.needs_grad:
                set_mode(state.off)
            try:
                value = apply(
                    op,
                    *_operands([made[a] for a in ins.args], op),
                    to=ins.dtype if op.rule in ("cast", "draw") else None,
                    shape=extents_at(ins.shape, space) if op.rule == "identity" else None,
                )
            finally:
                set_mode(mode)
        made.append(value)
    result: Tensor
    (result,) = _tensors(made[-1:])
    return result.alias() if program.is_load else result  # the cotangent itself, say


class _Number(NamedTuple):
    """A number of a program, with the type that it has there."""

    value: Any
    dtype: dtype
    device: device


def _operands(values: list[Any], op: Op) -> list[Any]:
    """Operands of an op. Numbers stay numbers beside a tensor of their type: no hook sees them."""
    types = {v.dtype for v in values if isinstance(v, Tensor)}
    if op.arity != 2 or any(type(v) is _Number and v.dtype not in types for v in values):
        return _tensors(values)
    return [v.value if type(v) is _Number else v for v in values]


def _tensors(values: Sequence[Any]) -> list[Tensor]:
    return [_tensor(of_constant(*v[:2], (), v[2])) if type(v) is _Number else v for v in values]


def _leading_to(value: Tensor, leaf: Tensor | Cell | None) -> Tensor:
    """A value computed again, whose gradient goes where that of a leaf goes."""
    result = value.detach()
    if state.grad and leaf is not None:
        node, output = leaf._edge() if isinstance(leaf, Tensor) else (leaf.node, leaf.output)
        if node is not None:
            result._attach(node, output)
    return result


def _back_by_ops(cotangent: Tensor, node: RegionNode) -> list[Tensor]:
    """The gradient of a whole region, formula by formula, each op applied like any other."""
    program = node.program
    known = {ins.value[0]: ins for ins in program.instructions if ins.op == "load"}
    values = [_leaf(cell, known.get(i), node) for i, cell in enumerate(node.leaves)]
    output = None
    if node.output is not None:
        output = len(values), False, False
        root = program.root._replace(value=(len(values), None, node.output_free))
        values.append(_leaf(node.output.twin(node), root, node))
    changed = replacements(node.made_by, node.leaves, node.also)
    elsewhere = Elsewhere()
    if changed is not None:
        for i, tensor in changed.leaves.items():
            elsewhere.leaves[i] = len(values)
            values.append(tensor)
        for part, places, tensor in changed.values:
            elsewhere.values.append((part, places, len(values)))
            values.append(tensor)
        elsewhere.compositions.extend(changed.compositions)
        unkept = [i for i, cell in enumerate(node.leaves) if not cell.filled]
        elsewhere.missing = frozenset(unkept)
    like = cotangent._expr.program
    marked = state.grad
    load = load_program(like.dtype, cotangent._expr.shape, False, marked, like.device)
    cotangent_leaf = len(values)
    gradient = gradient_of(
        program, load, cotangent_leaf, cotangent_leaf + 1, marked, output, elsewhere=elsewhere
    )
    results = evaluate_gradient(gradient, [*values, cotangent], node.shape, marked)
    return list(results.values())


def _back_when_freed(cotangent: Tensor, node: RegionNode) -> Sequence[Tensor | None]:
    """The gradient of a region whose saved values are gone, where it does not need them."""
    if state.task is None:
        raise RuntimeError(SECOND_TIME)
    leaves, gradient = node.asked_for()
    if gradient.reads:
        raise RuntimeError(SECOND_TIME)
    gradients = evaluate_gradient(gradient, [*[None] * node.program.leaves, cotangent], node.shape)
    return [gradients.get(leaf) for leaf in leaves]


def _leaf(cell: Cell, load: Any, node: RegionNode) -> Any:
    """A leaf of a region as a tensor, part of the graph if that is recorded, or as a number.

    Where only a gradient leaves the region (a boundary) it is the cell.
    """
    if load is None or cell.array is None:
        return cell.array if cell.node is None else cell
    needs = state.grad and cell.node is not None
    strided, where = not cell.array.flags.c_contiguous, node.program.device
    program = load_program(load.dtype, load.shape, strided, needs, where, free=load.value[2])
    return _tensor(Expr(program, (cell,), None, extents_at(load.shape, node.shape)))


attach(
    Tensor,
    _back_by_ops,
    _back_when_freed,
    _apply_by_op=staticmethod(apply_by_op),
    _refuse_inference_operands=staticmethod(refuse_inference_operands),
)
