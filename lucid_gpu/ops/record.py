"""How an op that is not elementwise is recorded: one function, one node class a name."""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import numpy as np

from lucid_gpu import dtypes as dt
from lucid_gpu.core import saved
from lucid_gpu.core.layout import dense_order
from lucid_gpu.core.node import SECOND_TIME, Node, sequence, watching
from lucid_gpu.core.program import INFERENCE, Program, Shape, load_program
from lucid_gpu.core.saved import Follows, Saved, Saver, variable_on, version_of
from lucid_gpu.core.saved import saved as saved_of
from lucid_gpu.core.value import Expr, Like, Variable, give, mark_of, order_of
from lucid_gpu.fusion import building, region
from lucid_gpu.fusion.optable import RESULT as OF_RESULT
from lucid_gpu.fusion.optable import TABLE, Tie
from lucid_gpu.fusion.pending_reductions import Pending
from lucid_gpu.fusion.saving import composed
from lucid_gpu.ops.laying import lay
from lucid_gpu.ops.packing import Packed, pack, pack_output
from lucid_gpu.tape import modes
from lucid_gpu.tape.levels import innermost, open_levels
from lucid_gpu.tape.modes import FORWARD, OFF, RECORDED, state
from lucid_gpu.tape.native import core
from lucid_gpu.tape.rules import Call
from lucid_gpu.tensor import Tensor, _stored, _tensor, _wrapped, apply, of_pending

Vjp = Callable[..., Sequence[Any]]
Order = (
    tuple[int, ...] | list[tuple[int, ...] | None] | Callable[..., tuple[int, ...] | None] | None
)
F = TypeVar("F", bound=Callable[..., Any])


def unsaved(tensor: Tensor) -> Tensor:
    """An operand that PyTorch's op does not save: ours reads what it holds now."""
    if not state.grad:
        return tensor
    other = tensor.alias()
    value = other._expr
    if not value.program.is_load:
        region.edge_of(value)  # both lead to one node
        give(other, saved.reread(value))
    return other


def saves_for(result: Tensor, inputs: dict[int, Sequence[int]], output: bool = True) -> None:
    """Say which of what a recorded op saved PyTorch's op saves for some gradients only, or not.

    Parameters
    ----------
    result : Tensor
        The op's, or one of them.
    inputs : dict
        For the number of a saved tensor those of the inputs whose gradients read it in PyTorch.
    output : bool
        Whether PyTorch saves a result that the op saved.
    """
    value = result._expr
    if not value.program.needs_grad or not value.program.is_load or result._wrapper is not None:
        return
    node = value.leaves[0].node
    if not isinstance(node, OpNode):
        return
    for number, readers in inputs.items():
        entry = node.saved[number]
        if type(entry) is Saved:
            value = entry.tensor
            entry.only = readers, value._on(value._load())
    for entry in node.saved:
        if not output and type(entry) is Saved and entry.output is not None:
            entry.variable = Variable()  # nobody writes that


def save(
    tensors: Sequence[Tensor | None], outputs: dict[int, int] | None = None, seen: bool = True
) -> tuple[Any, ...]:
    """Keep tensors for backward.

    ``outputs`` has the numbers of those that are the node's own, by id; ``seen`` is whether modes
    and hooks are to see them, as of what an op saves.
    """
    saved: list[Any] = list(tensors)
    for i, tensor in enumerate(tensors):
        if tensor is None:
            continue
        if outputs and id(tensor) in outputs:
            saved[i] = save_output(tensor, outputs[id(tensor)])
            continue
        if seen and modes.watchers:
            refuse_inference(tensor)
            if state.hooks:
                saved[i] = pack(tensor, state.hooks[-1])
                continue
        value = tensor._expr
        entry = saved[i] = Saved(value.program, value.shape, tensor, version_of(tensor))
        entry.tensor = tensor
    return tuple(saved)


def watch(result: Tensor, *read: Tensor) -> None:
    """Have a recorded op refuse its gradient once tensors are written whose arrays it holds.

    They are index tensors, read or returned, which are not tensors of ``saved_values``. There are
    none where a list gave the indices, which are freed with the graph all the same.
    """
    program = result._expr.program
    if not program.needs_grad or not program.is_load or result._wrapper is not None:
        return
    node = result._expr.leaves[0].node
    if isinstance(node, OpNode):
        node.also += tuple([saved_of(t._expr) for t in read])
        node.holds_indices = True


def keeps(
    result: Tensor,
    *saved: Tensor,
    output: bool = False,
    title: str | None = None,
    operands: Sequence[Tensor] = (),
) -> Tensor:
    """Have an op refuse its gradient once these tensors are written, as PyTorch's op.

    Parameters
    ----------
    result : Tensor
        Of the op, or of a composition's last op.
    *saved : Tensor
        What PyTorch's op saves, though our formulas read something else.
    output : bool
        Whether the result is among that.
    title, operands
        See `composes`.
    """
    value = result._expr
    if not value.program.needs_grad or result._wrapper is not None or not state.grad:
        return result
    if modes.watchers:
        for tensor in saved:
            refuse_inference(tensor)
        if state.hooks:  # they keep it
            return result
    also: tuple[Any, ...] = tuple(
        [saved_of(t._expr) for t in ((*saved, result) if output else saved)]
    )
    pending = not value.program.is_load
    if pending and not value.program.is_boundary:
        every = [t._expr for t in saved]
        to = [t._expr for t in operands] if operands else ()
        also = (*also, composed(value, every, output, title, to))
        value.also = (*value.also, *also)
        if isinstance(value.node, region.RegionNode):
            value.node.also += also
            if output:
                value.node.result = saved_of(value)
        return result
    cell = value.leaves[-1 if pending else 0]
    node = cell.node if pending or cell.leads else None
    if isinstance(node, (region.RegionNode, OpNode)):
        node.also += also
    return result


def composes(
    result: Tensor,
    *saved: Tensor,
    title: str | None = None,
    operands: Sequence[Tensor] = (),
) -> Tensor:
    """Say that a pending composition is one op in PyTorch, which saves these operands.

    Our formulas read them too: see `keeps` for those that do not.

    Parameters
    ----------
    result : Tensor
    *saved : Tensor
    title : str, optional
        PyTorch's name for the node, which is shown in place of the last op's.
    operands : sequence of Tensor
        Those that a gradient may go to, where they are others than ``saved``.
    """
    value = result._expr
    program = value.program
    if not program.needs_grad or program.is_load or result._wrapper is not None or not state.grad:
        return result
    if not program.is_boundary:
        every = [t._expr for t in saved]
        to = [t._expr for t in operands] if operands else ()
        entry = composed(value, every, False, title, to)
        value.also = (*value.also, entry)
        if value.node is not None:
            value.node.also += (entry,)
    return result


def leads_back(result: Tensor, order: Order) -> Tensor:
    """Declare in which order the gradients of an op's inputs lie in memory.

    Parameters
    ----------
    result : Tensor
        Of the op, recorded or not.
    order : tuple of int, list, function or None
        The dimensions, outermost first, of gradients that have as many, or a function of the
        cotangents that gives them, or a list of them, one for each input; None is the order in
        which the gradient's formula leaves them.
    """
    if order is not None and result._wrapper is None:
        value = result._expr
        program = value.program
        if program.needs_grad and (program.is_load or program.is_boundary):
            node = value.leaves[-1].node
            if isinstance(node, OpNode):
                node.back_order = order
    return result


Ties = tuple[Tie | None, ...] | None
TIED: Ties = (Tie("tied", 0),)


def ties(result: Tensor) -> Tensor:
    """Declare that PyTorch's formula of an op's gradient takes the inputs, though it is linear.

    With `record`, ``ties=TIED``.
    """
    if result._wrapper is None and result._expr.program.is_load:
        node = result._expr.leaves[0].node
        if isinstance(node, OpNode):
            node.ties = TIED
    return result


def repeats(result: Tensor) -> Tensor:
    """Declare that an op goes backward again: what ours saves is a constant that PyTorch's lacks.

    The result is the op's.
    """
    value = result._expr
    if value.program.needs_grad and value.program.is_load and result._wrapper is None:
        node = value.leaves[0].node
        if isinstance(node, OpNode):
            node.stays = True
    return result


def was_replaced(saved: Tensor) -> bool:
    """Whether ``x.data = y`` or a write to ``x.data`` may have given a saved tensor other values
    since: what a node computed of it going forward is then computed again, so that a gradient is
    not of both.
    """
    return saved._storage is not None and saved._storage.uncounted


def keeping(
    *names: str, output: bool = False, apart: bool = False, title: str | None = None
) -> Callable[[F], F]:
    """Declare what PyTorch's op of this name saves beside what ours reads: see `keeps`.

    Parameters
    ----------
    *names : str
        Of the function's parameters that are saved where they are tensors.
    output : bool
        Whether the result, or the first of several, is saved.
    apart : bool
        Whether each is saved for its own gradient only.
    title : str, optional
        PyTorch's name for the node of a composition of these operands.
    """

    def declare(function: F) -> F:
        known = list(inspect.signature(function).parameters)
        places = [(name, known.index(name)) for name in names]

        @functools.wraps(function)
        def kept(*args: Any, **kwargs: Any) -> Any:
            result = function(*args, **kwargs)
            first = result[0] if isinstance(result, tuple) else result
            if not (state.grad and first._expr.program.needs_grad):
                return result
            saved = [
                t
                for name, i in places
                if isinstance(t := args[i] if i < len(args) else kwargs.get(name), Tensor)
                and t._wrapper is None
                and not (apart and not t.requires_grad)
            ]
            keeps(first, *saved, output=output, title=title)
            return result

        return cast(F, kept)

    return declare


def save_output(
    tensor: Tensor, number: int, alone: bool = True, program: Program | None = None
) -> Saved | Packed:
    """Keep an output of the node itself, which must not hold what holds the node.

    Another tensor of its value is kept, apart from the graph. While that is pending the two share
    what will be their memory, so whichever is computed first is not computed again for the other,
    even where the output is gone by then. ``program`` is that of its array without a gradient,
    where somebody kept it.
    """
    if modes.watchers and state.hooks:
        return pack_output(tensor, number, state.hooks[-1])
    variable, version = mark_of(tensor._expr)
    if not alone:
        # Of several outputs one that is gone may have been written: scikit-learn's PCA turns the
        # singular vectors, and needs the values only. Our gradient reads what was there.
        variable = variable_on(Follows(weakref.ref(tensor._memory())))
    if program is not None:
        other = _stored(program, tensor._expr.leaves[0].twin(), tensor._expr.shape)
    else:
        other = tensor._on(building.without_grad(tensor._expr))  # an edge would be a cycle
        program = other._expr.program
        if not program.is_load:
            other._storage = memory = tensor._memory()
            memory.add(other)
    entry = Saved(program, other._expr.shape, variable, version)
    entry.tensor, entry.output = other, number
    return entry


def refuse_inference(tensor: Tensor) -> None:
    """Refuse to save what was made in inference mode."""
    if tensor._expr.program.marks & INFERENCE:
        raise RuntimeError(
            "Inference tensors cannot be saved for backward. Please do not use Tensors created in "
            "inference mode in computation tracked by autograd. To work around this, you can make "
            "a clone to get a normal tensor and use it in autograd, or use `lucid_gpu.no_grad()` "
            "instead of `lucid_gpu.inference_mode()`."
        )


def _unpack(saved: Sequence[Saved | Packed | None], reader: Any) -> tuple[Tensor | None, ...]:
    """Take saved tensors out, checked for writes since."""
    result: list[Tensor | None] = []
    for entry in saved:
        if type(entry) is not Saved:
            result.append(None if entry is None else entry.unpack(reader))  # type: ignore[union-attr]
            continue
        tensor, storage = entry.tensor, entry.variable._storage
        if storage is not None and storage.version != entry.version:
            tensor = _as_it_was(entry, reader)
        if entry.output is not None:
            tensor = tensor._on(tensor._expr)
            if state.grad or state.task is None or not isinstance(reader, OpNode):
                tensor._attach(reader, entry.output)  # else no user asks where it came from
        elif tensor._left is not None:
            tensor = _uncut(tensor, reader)
        result.append(tensor)
    return tuple(result)


unpack = _unpack if core is None else core.unpack


def _uncut(tensor: Tensor, reader: Any) -> Tensor:
    """A saved input with the edge that `detach_` cut: second derivatives go through it."""
    assert tensor._left is not None
    edge = tensor._left[0](), tensor._left[1]
    if edge in reader._edges:
        tensor = tensor._on(tensor._expr)
        tensor._attach(*edge)  # type: ignore[arg-type]
    return tensor


def _as_it_was(entry: Saved, reader: Any) -> Tensor:
    """A saved tensor that was written since, as it was before, for those who may read that."""
    if entry.only is None or any(map(reader.asked, entry.only[0])):
        raise entry.refusal(reader, None if entry.output is None else reader.name())
    value: Tensor = entry.only[1].alias()
    return value


class OpNode(Saver):
    """A recorded op: its gradient function, what it saved, and its attributes."""

    metas: tuple[tuple[Program, Shape], ...] = ()  # of `Like` of the outputs
    reads_cotangent = True
    reads_arrays = True
    takes_none = False  # whether the gradient function takes None for an output without a cotangent
    kept: Any = None  # memory of the op's own
    given: tuple[str, ...] = ()  # attributes that `record` set, which go when what it saved goes
    earlier: Tensor | None = None  # the sum that the first gradient is added to
    back_order: Order = None  # see `leads_back`
    ties: Ties = None  # as of rows
    holds_indices = False  # see `watch`
    stays = False  # see `repeats`

    def __init__(
        self,
        inputs: Sequence[Tensor],
        function: Vjp,
        saved: Sequence[Tensor | None],
    ) -> None:
        edges, needs = [], []
        for t in inputs:
            edges.append(region.edge_of(t._expr))
            needs.append(t._expr.program.needs_grad)
        super().__init__(tuple(edges))
        self.needs_input_grad: tuple[bool, ...] = tuple(needs)
        self.function: Any = function  # None once it is freed
        if saved:
            self.saved = save(saved)

    @property
    def _input_metadata(self) -> Sequence[Any]:
        return tuple([Like(*meta) for meta in self.metas])

    @property
    def saved_values(self) -> tuple[Tensor | None, ...]:
        return unpack(self.saved, self)

    def asked(self, number: int) -> bool:
        """Whether the pass comes to where an input's gradient goes."""
        source, task = self._edges[number][0], state.task
        return source is not None and (task is None or source in task.waiting)

    @property
    def observed(self) -> bool:
        """Whether second derivatives are to pass hooks of the result, if PyTorch's formula reads
        that.
        """
        return state.grad and self._hooks is not None and not open_levels

    def result_of(self, value: Tensor) -> Tensor:
        """A value computed again, as the result of this node."""
        value._attach(self, 0)
        return value

    def vjp(self, cotangents: Sequence[Any]) -> Sequence[Any]:
        if self._released and self.function is None:
            raise RuntimeError(SECOND_TIME)
        for entry in self.also if self.result is None else (*self.also, self.result):
            if entry.written:
                raise entry.refusal(self, None)
        if self._output_count == 1:
            if cotangents[0] is None:
                return (None,) * len(self._edges)
            if self.back_order is None and self.ties is None:
                return self.function(self, cotangents[0])
            return self._finished(self.function(self, cotangents[0]), cotangents)
        if all(c is None for c in cotangents):
            return (None,) * len(self._edges)
        if not self.takes_none:
            pairs = zip(cotangents, self.metas, strict=True)
            cotangents = [_zeros(*meta) if c is None else c for c, meta in pairs]
        return self._finished(self.function(self, *cotangents), cotangents)

    def _finished(self, gradients: Sequence[Any], cotangents: Sequence[Any]) -> Sequence[Any]:
        """Gradients as `back_order` and `ties` declare them."""
        if self.back_order is not None:
            gradients = self._in_order(gradients, cotangents)
        if self.ties is not None and state.grad:
            gradients = [tied(self, g, tie) for g, tie in zip(gradients, self.ties)]
        return gradients

    def _in_order(self, gradients: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
        """Gradients of as many dimensions as `back_order` has, lying so."""
        order, laid = self.back_order, list(gradients)
        if callable(order):
            order = order(*[c for c in cotangents if c is not None])
        orders = order if isinstance(order, list) else [order] * len(laid)
        for i, (gradient, one) in enumerate(zip(laid, orders, strict=True)):
            if gradient is not None and one is not None and gradient.ndim == len(one):
                seen = any(gradient is c for c in cotangents)
                wanted = None if one == tuple(range(len(one))) else one
                laid[i] = lay(gradient.alias() if seen else gradient, wanted)
        return laid

    def read_together(self, cotangent: Tensor, others: Sequence[Tensor]) -> None:
        """Have one kernel compute the cotangents of nodes that will read them one after another."""
        together = (cotangent, *others)
        pending = [t for t in together if not t._expr.program.is_load and t._wrapper is None]
        if len(pending) > 1 and pending[0] is cotangent:
            group = list(cotangent._siblings or ())
            known = [reference() for reference in group]
            group += [weakref.ref(t) for t in pending if not any(t is k for k in known)]
            for tensor in pending:
                tensor._siblings = group

    def gather(self, cotangent: Tensor, others: Sequence[tuple[Node, list[Any]]]) -> None:
        """Note, as ``gathered``, other nodes of the same function and their cotangents."""
        d = cotangent.dtype
        if open_levels or d.compute is not d:
            return  # 16-bit floats are added in float32, where all are added at once
        self.gathered: list[tuple[OpNode, Tensor]] = []
        for other, have in others:
            of_a_kind = isinstance(other, OpNode) and other.function is self.function
            if of_a_kind and have[0].dtype is d:
                self.gathered.append((other, have[0]))  # type: ignore[arg-type]
                have[0] = None

    def add_to(self, earlier: Tensor) -> bool:
        if state.grad or open_levels or not earlier._expr.program.is_load:
            return False  # what is pending fuses with the sum
        self.earlier = earlier
        return True

    def release(self) -> None:
        self._released = True
        # as in PyTorch, what saved nothing goes backward again
        if not self.stays and (self.saved or self.also or self.holds_indices):
            if self.saved:
                self.saved = (None,)
            self.function = None  # which may hold arrays, as what `record` was given may
            own = self.__dict__
            for name in self.given:
                if name in own and name != "gives_new":  # which the pass reads after this
                    del own[name]
            self.also = self.given = ()


def tied(node: Node, gradient: Tensor | None, tie: Tie | None) -> Tensor | None:
    """The gradient of a linear op's input, with the tie to what PyTorch's formula of it takes."""
    if gradient is None or tie is None:
        return gradient
    source, output = (node, 0) if tie.to == OF_RESULT else node._edges[tie.to]
    if source is None:
        return gradient
    zeros = constant(0.0, gradient)
    zeros._attach(source, output)
    return apply(TABLE[tie.row], gradient, zeros)


def _zeros(like: Program, shape: Shape) -> Tensor:
    return _tensor(building.of_constant(0.0, like.dtype, shape, like.device))


_SAVE_OUTPUTS = frozenset(
    [
        *("LogsumexpBackward0", "ProdBackward0", "ProdBackward1", "AmaxBackward0", "AminBackward0"),
        *("MaxBackward1", "MinBackward1", "MedianBackward0", "NanmedianBackward0"),
    ]
)
_classes: dict[str, type[OpNode]] = {}
CHANNELS_LAST = ((0, 2, 3, 1), (0, 2, 3, 4, 1))  # of other orders PyTorch's ops keep none


def _record(
    name: str,
    array: Any,
    inputs: Sequence[Tensor],
    vjp: Vjp,
    saved: Sequence[Tensor | None] = (),
    dtype: dt.dtype | None = None,
    keeps_output: bool = False,
    chosen: bool = False,
    results: tuple[Program, Program] | None = None,
    **attributes: Any,
) -> Any:
    """Wrap what an op computed, and record the op if a gradient may be asked for.

    Parameters
    ----------
    name : str
        Name of the node, such as ``"MmBackward0"``.
    array : array or tuple of arrays
        The output(s), on the inputs' device. A tensor that is still pending and records nothing may
        stand for its array, or a reduction: it goes on fusing with what follows.
    inputs : sequence of Tensor
        What the op is differentiated by.
    vjp : callable
        ``vjp(node, *cotangents)`` gives a tensor or None for each input.
    saved : sequence of Tensor or None
        Come back as ``node.saved_values``.
    keeps_output : bool
        Whether the outputs are saved too, as the last of them.
    chosen : bool
        Whether somebody chose the order in which an array lies that is not row-major, as a view's.
    results : pair of Program, optional
        `loads_of` a single, row-major output, where the op kept them.
    **attributes
        Set on the node.

    Returns
    -------
    Tensor or tuple of Tensor
    """
    if open_levels:
        level = innermost(inputs)
        if level is not None:
            if results is not None:
                attributes["results"] = results
            if chosen:
                attributes["chosen"] = True
            return level.record(name, array, inputs, vjp, saved, dtype, keeps_output, **attributes)
    node = None
    if state.grad:
        for t in inputs:
            if t._expr.program.needs_grad:
                if name not in _classes:
                    _classes[name] = type(name, (OpNode,), {})
                node = _classes[name](inputs, vjp, saved)
                if attributes:
                    node.__dict__.update(attributes)
                    node.given = (*attributes,)
                break
    many, plain = type(array) is tuple, None
    if results is None or modes.watchers:
        first = inputs[0]._expr if inputs else None
        where = None if first is None else first.program.device
        if not many:
            result = _wrap(array, where, dtype, node, 0, first, chosen)
    else:
        plain = results[0]
        result = _wrapped(results[node is not None], array, node, 0, array.shape)
    if not many:
        if node is not None:
            node.metas = ((result._expr.program, result._expr.shape),)
            if name in _SAVE_OUTPUTS and not state.hooks:
                node.result = saved_of(result._expr)
            if keeps_output:
                node.saved += (save_output(result, 0, True, plain),)
        elif state.mode is FORWARD:
            _mark_dependent(inputs, (result,))
        return result
    outputs = tuple([_wrap(a, where, dtype, node, i, first, chosen) for i, a in enumerate(array)])
    if node is not None:
        node._output_count = len(outputs)
        node.metas = tuple([(r._expr.program, r._expr.shape) for r in outputs])
        if keeps_output:
            node.saved += tuple([save_output(r, i, False) for i, r in enumerate(outputs)])
    elif state.mode is FORWARD:
        _mark_dependent(inputs, outputs)
    return outputs


_NO_ARRAYS = (Tensor, np.generic)  # what is pending, and what NumPy gives for 0-d results


def _wrap(
    array: Any,
    where: Any,
    d: dt.dtype | None,
    node: Any,
    output: int,
    first: Expr | None,
    chosen: bool,
) -> Tensor:
    """An output of a node, or of an op that is not recorded.

    One that lies in the order of the ``first`` input, as of a pool over channels_last, keeps it, as
    in PyTorch.
    """
    if type(array) is Pending:
        return of_pending(array, node, output)
    if isinstance(array, _NO_ARRAYS):
        if isinstance(array, Tensor):
            if node is not None and array._expr.program.dtype.category >= 2:
                array._attach(node, output)
            return array
        array = np.asarray(array)
    if d is None:
        d = dt.from_numpy_dtype(array.dtype)
    if d.category < 2:
        node = None
    shape, strided = array.shape, not array.flags.c_contiguous
    marks = building.made_here() if modes.watchers else 0
    if strided and not chosen and first is not None and first.program.laid:
        order = order_of(first)
        chosen = order in CHANNELS_LAST and order == dense_order(shape, array.strides, d.itemsize)
    program = load_program(d, shape, strided, node is not None, where, marks, not chosen)
    return _wrapped(program, array, node, output, shape)


def _load_of(array: Any, d: dt.dtype | None, where: Any, needs: bool) -> Program:
    """Return the program of an array that lies as chosen, recorded if its type can be."""
    d, strided = d or dt.from_numpy_dtype(array.dtype), not array.flags.c_contiguous
    return load_program(d, array.shape, strided, needs and d.category >= 2, where)


record: Callable[..., Any] = _record
if core is not None:
    record = core.record
    core.bind(
        record=_record,
        load=_load_of,
        classes=_classes,
        save_result=_SAVE_OUTPUTS,
        open_levels=open_levels,
        modes=vars(modes),
        watching=watching,
        sequence=sequence,
        saved=Saved,
        recorded=RECORDED,
        off=OFF,
        forward=FORWARD,
        op_node=OpNode,
        unpack=_unpack,
        boundary_of=building.boundary_of,
        boundaries=building.boundaries,
    )


def _mark_dependent(inputs: Sequence[Tensor], results: Sequence[Tensor]) -> None:
    """Inside `Function.forward`: these depend on what requires grad."""
    if all(t._expr.program.independent for t in inputs):
        return
    for result in results:
        if not result._expr.program.is_load:
            result._realize()
        building.mark_dependent(result)


def constant(number: Any, like: Tensor, shape: tuple[int, ...] | None = None) -> Tensor:
    """A tensor of one number, on the device and of the type of another, that takes no memory."""
    value = like._expr
    d, where = value.program.dtype, value.program.device
    return _tensor(building.of_constant(number, d, value.shape if shape is None else shape, where))


def full_tangents(call: Call) -> list[Tensor]:
    """The tangents of all inputs of a call, for rules under `jvp`: zeros where there is none."""
    return [
        constant(0.0, x) if t is None else t
        for t, x in zip(call.tangents, call.inputs, strict=True)
    ]
