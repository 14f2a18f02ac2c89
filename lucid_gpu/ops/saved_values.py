"""What built-in nodes saved, for people who look: ``grad_fn._saved_self``, ``_raw_saved_self``.

No backward pass asks here. A region keeps what its whole gradient reads; to show what its last op
saved, that op is looked at alone, and once hooks are registered on a saved value it *is* alone: the
node goes on as one of those that `lucid_gpu.ops.per_op_graph` makes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from lucid_gpu.core.node import SECOND_TIME, AccumulateGrad, Node
from lucid_gpu.core.program import SHARED, Assembly, Program, extents_at, intern, leaf_of, relocate
from lucid_gpu.core.saved import Saved, is_written, saved
from lucid_gpu.core.value import Expr
from lucid_gpu.device import CPU
from lucid_gpu.dtypes import bool as boolean
from lucid_gpu.dtypes import dtype, float32
from lucid_gpu.fusion.building import boundary, of_constant, without_grad
from lucid_gpu.fusion.inside import replay
from lucid_gpu.fusion.optable import TABLE, Op
from lucid_gpu.fusion.region import RegionNode, edge_of, observe, region_node
from lucid_gpu.ops.packing import Packed
from lucid_gpu.ops.per_op_graph import Alone, alone_of, evaluate_gradient, operand_names, vjp_alone
from lucid_gpu.ops.record import OpNode, tied, unpack
from lucid_gpu.ops.registry import attach
from lucid_gpu.tape.modes import state
from lucid_gpu.tensor import Tensor, _tensor, from_array

_NUMBERS = ("exponent", "min", "max")  # shown as numbers where they are
_OF_NODE = {
    "MmBackward0": ("self", "mat2"),
    "BmmBackward0": ("self", "mat2"),
    "CumprodBackward0": ("self", "result"),
    "LogcumsumexpBackward0": ("self", "result"),
    "SoftmaxBackward0": ("result",),
    "LogSoftmaxBackward0": ("result",),
    "PolarBackward0": ("result",),
    "ScatterReduceBackward0": ("self", "src", "result"),
    "NativeBatchNormBackward0": ("input", "weight"),
    "NativeLayerNormBackward0": ("input", "weight"),
    "LinalgCholeskyExBackward0": ("L",),
    "LinalgDetBackward0": ("A", "result"),
    "LinalgEigBackward0": ("eigenvalues", "eigenvectors"),
    "LinalgEighBackward0": ("eigenvalues", "eigenvectors"),
    "LinalgInvExBackward0": ("inverse",),
    "LinalgLuBackward0": ("P", "L", "U"),
    "LinalgLuFactorExBackward0": ("pivots", "LU"),
    "LinalgPinvBackward0": ("self", "result"),
    "LinalgQrBackward0": ("Q", "R"),
    "LinalgSlogdetBackward0": ("A",),
    "LinalgSolveExBackward0": ("A", "result"),
    "LinalgSvdBackward0": ("U", "S", "Vh"),
    "AddcdivBackward0": ("tensor1", "tensor2"),
    "AddcmulBackward0": ("tensor1", "tensor2"),
    "BinaryCrossEntropyWithLogitsBackward0": ("self", "target"),
    "EluBackward0": ("self_or_result",),
    "FmaxBackward0": ("self", "other"),
    "FminBackward0": ("self", "other"),
    "MaskedFillBackward0": ("mask",),
    "LerpBackward1": ("self", "end"),
    "GluBackward0": (),
    "HuberLossBackward0": ("self", "target"),
    "Logaddexp2Backward0": ("self", "other"),
    "MseLossBackward0": ("self", "target"),
    "SmoothL1LossBackward0": ("self", "target"),
    "SoftMarginLossBackward0": ("self", "target"),
    "SpecialXlog1PyBackward0": ("self", "other"),
}  # PyTorch's names of what nodes save in their order, where it is not one operand, `self`

FREED = (
    "Calling register_hooks on a saved tensor after it has been freed. Saved intermediate values "
    "of the graph are freed when you call .backward() or autograd.grad(). Specify "
    "retain_graph=True if you need to backward through the graph a second time or if you need to "
    "access saved variables after calling backward."
)


class SavedTensor:
    """One saved tensor of a node, as the node keeps it; nodes make them.

    Raises
    ------
    RuntimeError
        If one is constructed, with whatever arguments.
    """

    _node: Node
    _entries: str
    _index: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError("Trying to create a SavedTensor object from Python is forbidden.")

    @classmethod
    def _of(cls, node: Node, entries: str, index: Any) -> SavedTensor:
        """One of a node: what its attribute ``entries`` holds at a place.

        ``index`` is a number, or a function that finds it, or None where nothing was needed.
        """
        saved = cls.__new__(cls)
        saved._node, saved._entries, saved._index = node, entries, index
        return saved

    def _resolved_index(self) -> int | None:
        index: int | None = self._index() if callable(self._index) else self._index
        return index

    def _entry(self) -> Any:
        if self._node._released:
            raise RuntimeError(FREED)
        index = self._resolved_index()
        return None if index is None else getattr(self._node, self._entries)[index]

    @property
    def data(self) -> Any:
        """What the pack hook returned, or the tensor itself."""
        entry = self._entry()
        return entry.data if isinstance(entry, Packed) else self.unpack()

    def unpack(self) -> Tensor | None:
        """The saved tensor, as it was, of its shape."""
        return unpack((self._entry(),), self._node)[0]

    def register_hooks(
        self,
        pack_hook: Callable[[Tensor], Any] | None = None,
        unpack_hook: Callable[[Any], Tensor] | None = None,
    ) -> None:
        """Let a pair of hooks keep this one tensor; see `autograd.graph.saved_tensors_hooks`.

        Raises
        ------
        RuntimeError
            If nothing is saved, the graph was freed, or hooks are set already.
        TypeError
            For an argument that is not callable.
        """
        for hook in (pack_hook, unpack_hook):
            if not callable(hook):
                raise TypeError(
                    "register_hooks(): incompatible function arguments: expected two functions, "
                    f"pack_hook and unpack_hook, got {hook!r}"
                )
        entry = self._entry()
        if entry is None:
            raise RuntimeError(
                "Calling register_hooks on a saved tensor with value None is forbidden"
            )
        if isinstance(entry, Packed):
            raise RuntimeError(
                "Calling register_hooks on a saved tensor whose hooks have already been set. "
                "Hint: only one pair of hooks is allowed at a time."
            )
        value, edge = self.unpack(), None
        assert value is not None
        if value.requires_grad:
            source, output = value._edge()
            edge = None if source is self._node else source, output
        packed = Packed(value.detach(), edge, (pack_hook, unpack_hook))
        index, entries = self._resolved_index(), list(getattr(self._node, self._entries))
        assert index is not None
        entries[index] = packed
        setattr(self._node, self._entries, tuple(entries))


# --- nodes that keep one entry a saved tensor -----------------------------------------------------


def _names_of(node: Any) -> Sequence[str]:
    alone: Alone | None = getattr(node, "alone", None)
    if alone is not None:
        return alone.rule.names
    return _OF_NODE.get(type(node).__name__, ("self",)) if node.saved else ()


def _check_name(node: Any, name: str) -> None:
    """Refuse names of what ops of this kind never save."""
    alone: Alone | None = getattr(node, "alone", None)
    known = _ever_saved(alone.rule.program) if alone is not None else _names_of(node)
    if name not in known:
        raise _no_attribute(node, name)


def _no_attribute(node: Node, name: str) -> AttributeError:
    return AttributeError(f"{type(node).__name__!r} object has no attribute '_saved_{name}'")


def _index_of(node: Any, name: str) -> int | None:
    names = _names_of(node)
    return names.index(name) if name in names else None


def _saved_by_node(node: Any, name: str) -> Any:
    _check_name(node, name)
    index = _index_of(node, name)
    if index is None:
        return _number_alone(node, name)
    if node._released:
        raise RuntimeError(SECOND_TIME)
    entry = node.saved[index]
    value, output = unpack((entry,), node)[0], getattr(entry, "output", None)
    return value if output is None else _in_its_memory(node, output, value)


def _in_its_memory(node: Any, output: int, value: Tensor | None) -> Tensor | None:
    """A saved result as another tensor on its memory, which sees later writes; else ``value``."""
    tensor = node.result_shown(output)
    if tensor is None:
        return value
    other: Tensor = tensor.detach()
    other._attach(node, output)
    return other


def _number_alone(node: Any, name: str) -> Any:
    alone: Alone | None = getattr(node, "alone", None)
    if alone is None:
        return None
    program, numbers = alone.rule.program, alone.numbers

    def value(index: int) -> Any:
        ins = program.instructions[index]
        if ins.op == "scalar":
            return numbers[ins.value]
        return ins.value[1] if ins.op == "constant" else None

    return _number(program, name, value)


def _raw_of_node(node: Any, name: str) -> SavedTensor:
    _check_name(node, name)
    return SavedTensor._of(node, "saved", lambda: _index_of(node, name))


# --- regions --------------------------------------------------------------------------------------


def _open(node: RegionNode) -> None:
    """Let a region's node keep what its last op saves, one entry a tensor, and go backward so."""
    alone = _look(node)
    assert alone is not None
    entries = []
    for leaf in alone.rule.saves:
        if leaf < len(alone.sources):
            value = alone.tensors[alone.sources[leaf]]._expr
            entry = saved(value)
            entry.tensor = _tensor_on(_fresh(node, value))
        else:
            value = without_grad(_result(node)._expr)
            kept = node.result or saved(value)
            entry = Saved(kept.program, kept.shape, kept.variable, kept.version)
            entry.tensor, entry.output = _tensor(value), 0
        entries.append(entry)
    observe(node)  # regions that took this op in are opened too
    node._edges = tuple([edge_of(t._expr) for t in alone.tensors])
    node.saved, node.alone = tuple(entries), alone._replace(tensors=[])
    node.made_by, node.leaves, node.output = None, (), None


def _back_alone(cotangent: Tensor, node: RegionNode) -> Sequence[Tensor | None]:
    """The gradient of a region whose last op stands alone."""
    if node._released:
        raise RuntimeError(SECOND_TIME)
    for entry in node.also:
        if entry.written:
            raise entry.refusal(node, None)
    gradients, kinds = vjp_alone(node, cotangent), TABLE[node.program.root.op].ties
    if kinds is None or not state.grad:
        return gradients
    return [tied(node, gradient, tie) for gradient, tie in zip(gradients, kinds)]


def _look(node: RegionNode) -> Alone | None:
    """The last op of a region, alone."""
    if node.made_by is not None:
        op, *operands = node.made_by
    else:
        root = node.program.root
        op, operands = TABLE[root.op], [_operand(node, a) for a in root.args]
    to = node.program.dtype if op.rule == "cast" else None
    shape = node.shape if op.rule == "identity" else None
    values = [_tensor(o) if isinstance(o, Expr) else o for o in operands]
    return alone_of(op, values, to, shape, keep_operands=False)


def _vjp_of_last(node: RegionNode, cotangents: Sequence[Any]) -> list[Any]:
    """The gradients of a region's last op alone, None for a number among its operands."""
    if node.alone is not None:
        return list(node.vjp(cotangents))
    node._check_versions()
    if node.composed:
        return _vjp_of_composition(node, cotangents)
    alone = _look_unless_freed(node)
    assert alone is not None
    values: list[Any] = [*alone.numbers, None, cotangents[0]]
    for leaf in alone.rule.saves:
        own = leaf == len(alone.sources)
        values[leaf] = _result(node) if own else alone.tensors[alone.sources[leaf]]
    gradients = evaluate_gradient(alone.rule.gradient, values, alone.shape)
    results: list[Any] = [None] * len(alone.tensors)
    for leaf, gradient in gradients.items():
        results[alone.sources[leaf]] = gradient
    return results + [None] * (len(node.next_functions) - len(results))


def _vjp_of_composition(node: RegionNode, cotangents: Sequence[Any]) -> list[Any]:
    """The gradients of a composition's operands, as `next_functions` has them."""
    edges, entry = node.next_functions, node.composition
    if entry is None or edges == node._edges:
        return list(node.vjp(cotangents))
    done: dict[int, Expr] = {}
    for operand in map(node.operand_of, entry.operands):
        if operand is not None and operand.program.needs_grad and not operand.program.is_load:
            done[id(operand)] = boundary(operand, region_node(operand))
    alone = region_node(replay(node.value(), done, top=True))
    gradients = dict(zip(alone._edges, alone.vjp(cotangents), strict=True))
    return [gradients.pop(edge, None) for edge in edges]  # a sum goes to an edge once


def _operand(node: RegionNode, index: int) -> Any:
    """An operand inside a region as a value of its own; numbers as they are."""
    known = node.program.instructions
    while known[index].op == "cast":
        (index,) = known[index].args
    ins = known[index]
    if ins.op == "constant":
        return ins.value[1]
    if ins.op == "scalar":
        return node.leaves[ins.value].array
    instructions = Assembly(known).extract(index)
    used = sorted(
        {leaf for i in instructions if (leaf := leaf_of(i)) is not None},
        key=lambda leaf: (ins.op == "boundary" and leaf == ins.value, leaf),
    )
    position_of = {leaf: i for i, leaf in enumerate(used)}
    compact = [relocate(i, range(len(instructions)), position_of) for i in instructions]
    program = intern(compact, len(used), node.program.device, node.program.marks & SHARED)
    leaves = tuple([node.leaves[leaf] for leaf in used])
    return Expr(program, leaves, None, extents_at(program.axes, node.shape))


def _saved_by_region(node: RegionNode, name: str) -> Any:
    if node.alone is not None:
        return _saved_by_node(node, name)
    if name not in _names(node):
        raise _no_attribute(node, name)
    if node.composed:
        return _saved_by_composition(node, name)
    alone = _look_unless_freed(node)
    if alone is None or name not in alone.rule.names:
        return _number(node.program, name, partial(_operand, node))
    if name == "result":
        return _in_its_memory(node, 0, _result(node))
    value = alone.tensors[alone.sources[alone.rule.saves[alone.rule.names.index(name)]]]._expr
    return _tensor_on(_fresh(node, value))


def _saved_by_composition(node: RegionNode, name: str) -> Tensor:
    entry = node.composition
    if node._released or entry is None:
        raise RuntimeError(SECOND_TIME)
    operand = node.operand_of(entry.saved[list(_names(node)).index(name)])
    if operand is None or (operand.program.is_load and not operand.leaves[0].filled):
        raise AttributeError(
            f"{node.name()}._saved_{name} was not kept: the gradient does not read it. Keep the "
            "tensor itself."
        )
    return _tensor_on(_fresh(node, operand))


def _look_unless_freed(node: RegionNode) -> Alone | None:
    if node._released and node.facts.saves:
        raise RuntimeError(SECOND_TIME)
    return _look(node)


def _number(program: Program, name: str, value: Callable[[int], Any]) -> Any:
    """The last op's operand of this name if it is a Python number, else None."""
    names = operand_names(program.root.op)[: len(program.root.args)]
    if name not in names[1:]:
        return None
    operand = value(program.root.args[names.index(name)])
    if operand is None or isinstance(operand, Expr):
        return None
    if name in _NUMBERS:
        return operand
    return _tensor(of_constant(operand, program.dtype, (), program.device))


def _raw_of_region(node: RegionNode, name: str) -> SavedTensor:
    if node.composed or name not in _ever_saved(node.program):
        raise _no_attribute(node, name)

    def find_index() -> int | None:
        if node.alone is None:
            alone = _look(node)
            if alone is None or name not in alone.rule.names:
                return None
            _open(node)
        return _index_of(node, name)

    return SavedTensor._of(node, "saved", find_index)


def _fresh(node: RegionNode, value: Expr) -> Expr:
    """A saved operand, unless it was written since."""
    if is_written(value):
        raise saved(value).refusal(node, None)
    return value


def _result(node: RegionNode) -> Tensor:
    """A region's value, with the region as its history."""
    if node.result is not None and node.result.written:
        raise node.result.refusal(node, node.name())
    program = node.program
    if node.output is not None:
        array = node.output.array
        return from_array(array, program.dtype, program.device, node)
    value = Expr(program, node.leaves, None, node.shape)
    value.node = node
    return _tensor(value)


def _tensor_on(value: Expr) -> Tensor:
    """The tensor that has a value, where it is a leaf of the graph or its `grad_fn` was asked for.

    Else another with its history.
    """
    node, output = edge_of(value)
    known: Tensor | None = None
    if type(node) is AccumulateGrad:
        known = node.variable
        if known is not None and known._expr.leaves != value.leaves:
            known = None
    elif node is not None:
        known = node.result_shown(output)
    if known is not None:
        return known
    return _tensor(value).alias()  # a write into it is no write of the tensor that was saved


_ever: dict[Any, frozenset[str]] = {}


def _ever_saved(program: Program) -> frozenset[str]:
    """What PyTorch's nodes of a program's last op save, were every operand to want a gradient."""
    root = program.root
    numbers = tuple([program.instructions[a].op in ("constant", "scalar") for a in root.args])
    if root.op != "pow":
        numbers = (False,) * len(numbers)
    names = _ever.get((root.op, numbers))
    if names is None:
        alone = alone_of(TABLE[root.op], _samples(TABLE[root.op], numbers), float32, ())
        names = frozenset(alone.rule.names if alone is not None else ())
        if root.op == "pow":
            names |= {"self", "exponent"}
        _ever[root.op, numbers] = names
    return names


def _samples(op: Op, numbers: Sequence[bool]) -> list[Any]:
    values = [2.0 if number else _sample(0.0, float32)._mark() for number in numbers]
    if op.rule == "select":
        values[0] = _sample(True, boolean)
    return values


def _sample(number: Any, d: dtype) -> Tensor:
    return _tensor(of_constant(number, d, (), CPU))


def _names(node: Any) -> Iterable[str]:
    """What a node can be asked for."""
    if isinstance(node, RegionNode):
        if not node.composed:
            return _ever_saved(node.program)
        entry = node.composition
        count = len(entry.saved) if entry is not None else sys.maxsize
        return _OF_NODE.get(type(node).__name__, ("self",))[:count]
    alone: Alone | None = getattr(node, "alone", None)
    return _names_of(node) if alone is None else _ever_saved(alone.rule.program)


_READERS: dict[str, tuple[Callable[[Any, str], Any], Callable[[Any, str], Any]]] = {
    "_saved_": (_saved_by_node, _saved_by_region),
    "_raw_saved_": (_raw_of_node, _raw_of_region),
}


def _read(node: Any, name: str) -> Any:
    """An attribute that a node does not have itself."""
    for prefix, readers in _READERS.items():
        if name.startswith(prefix):
            return readers[isinstance(node, RegionNode)](node, name.removeprefix(prefix))
    raise AttributeError(f"{type(node).__name__!r} object has no attribute {name!r}")


def _listed(node: Any) -> list[str]:
    return [*object.__dir__(node), *(prefix + name for prefix in _READERS for name in _names(node))]


attach(Tensor, _back_alone)
attach(RegionNode, vjp_alone=_vjp_of_last)
for _owner in (OpNode, RegionNode):
    attach(_owner, __getattr__=_read, __dir__=_listed)
