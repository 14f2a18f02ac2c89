"""Ops while a graph is captured: what they compute beside the recorded calls is recorded with them.

Most ops compute by calls that are recorded one by one. Where one has used an array library by
itself, its results lie in memory that no recorded call has made: then the op as a whole is the
call, and a replay runs its body again, on tensors that stand for its operands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from operator import itemgetter
from threading import get_ident
from typing import Any, NamedTuple

from lucid_gpu.core.node import Node
from lucid_gpu.core.program import SHARED
from lucid_gpu.devices import capturing
from lucid_gpu.devices.copies import duplicate
from lucid_gpu.devices.device_errors import DeviceError
from lucid_gpu.devices.held import is_held
from lucid_gpu.dtypes import bool as bool_type
from lucid_gpu.fusion import realize as realizing
from lucid_gpu.fusion.pending_reductions import flush
from lucid_gpu.fusion.scheduler import waiting
from lucid_gpu.kernels.resampling import Band
from lucid_gpu.ops.record import OpNode, _zeros
from lucid_gpu.tape.door import CAPTURE, Watch
from lucid_gpu.tape.modes import no_grad, state
from lucid_gpu.tensor import Tensor, _tensor, _unmark_shared, from_array, store_written

__all__ = ["Watcher", "watching"]

DEPENDENT = frozenset(  # ops whose results' shapes depend on values
    ["argwhere", "bincount", "masked_select", "nonzero", "unique", "unique_consecutive"]
)
_OWN = ("also", "function", "given", "metas", "needs_input_grad", "saved")  # of `OpNode`
_SETTINGS = (type(None), bool, int, float, complex, str, slice, type, type(...), Band, DeviceError)


def _told(name: str) -> Any:
    """What tells a recorder of its thread by one of its own methods."""

    def tell(self: Watcher, *args: Any) -> None:
        if self._is_here():
            getattr(self.recorder, name)(*args)

    return tell


class Watcher:
    """Tells a recorder what becomes of its thread's values; see `lucid_gpu.tape.watched`.

    Parameters
    ----------
    recorder : Recorder
    """

    def __init__(self, recorder: capturing.Recorder) -> None:
        self.recorder = recorder

    made, twinned, undated, before_write = map(
        _told, ("leaf_made", "note_read", "date", "before_write")
    )

    def _is_here(self) -> bool:
        return self.recorder.thread == get_ident()

    def _records(self) -> bool:
        return not self.recorder.off and self._is_here()

    def read(self, leaf: Any, tensor: Any = None) -> None:
        if self._records():
            if tensor is not None and tensor._expr.program.marks & SHARED:
                _unmark_shared(tensor)  # the capture holds the memory, as a borrower would
            self.recorder.note_read(leaf)

    def settle(self, *values: Any) -> bool:
        """Compute what was pending before a capture began: it is no part of the graph."""
        if not self._records():
            return False
        tensors = [t for t in values if isinstance(t, Tensor) and not t._expr.program.is_load]
        older = [t for t in tensors if not self.recorder.knows(t)]
        if older:
            with self._outside():
                for tensor in older:
                    if tensor._wrapper is None and not tensor._is_sparse:
                        tensor._realize()
        return bool(older)

    def realize(self, values: Sequence[Any]) -> list[Any] | None:
        if not (self._records() and all(self.recorder.older(value) for value in values)):
            return None
        with self._outside():  # it is there before the graph's first call
            return realizing.realize(values)

    def compute(self, plan: Any, run: Any, first: Any, args: Sequence[Any]) -> list[Any]:
        if not self._is_here():
            return list(first(*args))
        return list(self.recorder.compute(plan, run, first, args))

    @contextmanager
    def aside(self) -> Iterator[None]:
        if not self._records():
            yield
            return
        with self._outside():
            yield
            store_written()

    @contextmanager
    def _outside(self) -> Iterator[None]:
        """What comes is no part of a capture, nor is what that has left waiting part of it."""
        written, state.written = state.written, {}
        me = get_ident()
        mine = [r for r in waiting if (p := r()) is not None and p.thread == me]
        for reference in mine:
            waiting.remove(reference)
        try:
            with capturing.outside():
                yield
        finally:
            waiting.extend(mine)
            state.written = written | state.written

    def copying(self, leaf: Any) -> None:
        """Copy now what values from before read: what replays copy is later numbers."""
        if self._is_here() and not self.recorder.outside and leaf not in self.recorder.fresh:
            with self._outside():
                kept = duplicate(leaf.array)
            self.recorder.copied.append((leaf, kept))

    def writing(self, tensor: Tensor) -> None:
        """Give a tensor from before a capture memory of its own, if it has borrowed some.

        Once it has taken another value in the capture, that is the capture's business.
        """
        if not self._records():
            return
        self.settle(tensor)
        recorder, value = self.recorder, tensor._expr
        took = id(tensor) in recorder.taken or recorder.knows(tensor)
        if value.program.is_load and value.leaves[0].borrowed and not took:
            del value  # whose leaf is read no longer
            with capturing.outside():
                tensor._own_memory()

    def taking(self, tensor: Tensor) -> None:
        if self._records() and tensor._wrapper is None:
            self.writing(tensor)
            if tensor._expr.program.is_load:
                self.recorder.before_taking(tensor)

    def moving(self, tensor: Tensor, names: Sequence[str]) -> None:
        if self._is_here():
            self.settle(tensor)
            self.recorder.before_moving(tensor, names)

    def stays(self, leaf: Any) -> bool:
        return self.recorder.stays(leaf) if self._is_here() else is_held(leaf.array)


def watching() -> Watch:
    """What sees each op while a graph is captured."""
    return Watch(CAPTURE, lambda: _see)


def _see(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], go_on: Any) -> Any:
    capture = capturing.recording()
    if capture is None:
        return go_on(*args, **kwargs)
    node = args[0] if args and isinstance(args[0], Node) else None
    name = node.name() if node is not None else op.__name__
    if name in DEPENDENT:
        capture.refuse(f"{name}()", "the shape of its result depends on values")
    if name == "picked" and any(t.dtype is bool_type and t.ndim for t in _tensors(args[2:])):
        capture.refuse("an index that is a mask", "the shape of its result depends on values")
    if name == "picked" and not capture.frames and any(map(capturing.is_array, _parts(args[2]))):
        capture.refuse("an index by NumPy's array", "make it a tensor, lucid_gpu.tensor(array)")
    Watcher(capture).settle(*_tensors((args, kwargs)))
    held = _held(node)
    before = {id(t): (t, t._expr) for t in _tensors((args, kwargs, held))}
    owed = set(capture.owed)
    capture.frames.append(name)
    try:
        result = go_on(*args, **kwargs)
        if name == "empty":  # whatever lies there now
            capturing.constant(result.array)
        foreign = [t for t in _tensors(result) if _is_foreign(capture, t)]
        if any(capturing.waits(leaf) for tensor in foreign for leaf in tensor._expr.leaves):
            flush()  # of what is not recorded: it belongs to the op, which is recorded as a whole
    finally:
        capture.frames.pop()
    if set(capture.owed) - owed:
        capture.settle_writes()
    if foreign:
        call = _Call(name, op, node, held, args, kwargs)
        _record_whole(capture, call, before, result)
    return result


def _parts(index: Any) -> tuple[Any, ...]:
    return index if isinstance(index, tuple) else (index,)


class _Call(NamedTuple):
    """A call of an op: ``held`` is what its node, if it is a gradient's, held before."""

    name: str
    op: Any
    node: Any
    held: dict[str, Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def _record_whole(capture: Any, call: _Call, before: Any, result: Any) -> None:
    """Record a call of an op that went past the recorded calls."""
    why, name = "an operand was made in a way that is not recorded", call.name
    operands: dict[int, _Operand] = {}
    known = _is_plain(capture, (call.args[call.node is not None :], call.kwargs))
    for key, (tensor, value) in before.items() if known else ():
        array = _array_of(tensor, value)
        known = known and capture.whose(array) is not None
        operands[key] = _Operand(array, tensor.dtype, tensor.device)
    if known and call.node is not None:
        known, why = isinstance(call.node, OpNode), "its gradient is computed by itself"
        for key, value in call.held.items():
            if known and not _is_plain(capture, value):
                known, why = False, f"its gradient reads {key}, which is not recorded"
    if not known:
        if not capture.frames:  # else the op that this one is a part of is recorded as a whole
            capture.refuse(name, why)
        return
    if call.node is None:
        body, arguments = call.op.body, (call.args, call.kwargs)
    else:
        body = partial(_vjp, call.node.function, call.node.needs_input_grad)
        first, *others = call.args[1:]  # a gradient function takes them one by one, a pass all
        cotangents = (first, *others) if isinstance(first, Tensor) else first
        zeros = [None if g is not None else meta for g, meta in zip(cotangents, call.node.metas)]
        arguments = (call.held, cotangents, zeros), {}
    distinct: list[_Operand] = []
    build = _builder(_replaced(arguments, operands), distinct)
    capture.off += 1
    try:
        results = [t.array for t in _tensors(result)]
    finally:
        capture.off -= 1
    single = len(results) == 1

    def run() -> Any:
        # Tensors are made anew each time: an op may lay one out anew.
        args, named = build([from_array(*operand) for operand in distinct])
        with no_grad():
            outcome = body(*args, **named)
            if single and isinstance(outcome, Tensor):
                return outcome.array
            arrays = [t.array for t in _tensors(outcome)]
        return arrays[0] if single and len(arrays) == 1 else arrays

    for array in results:
        capture.adopt(array, capturing.MADE)
    call_again = capturing.again(name, run, (), results[0] if single else results)
    capture.steps.append(capturing.Step(name, call_again, results))


class _Operand(NamedTuple):
    """What a tensor is made of in each replay."""

    array: Any
    dtype: Any
    device: Any


def _vjp(function: Any, needs: Any, held: dict[str, Any], cotangents: Any, zeros: Any) -> Any:
    for i, meta in enumerate(zeros):
        if meta is not None:
            cotangents = (*cotangents[:i], _zeros(*meta), *cotangents[i + 1 :])
    return function(_StandIn(held, needs), *cotangents)


class _StandIn:
    """What a gradient function reads of its node."""

    earlier = kept = None

    def __init__(self, held: dict[str, Any], needs: Any) -> None:
        self.__dict__.update(held)
        self.needs_input_grad = needs


def _held(node: Any) -> dict[str, Any]:
    """What the gradient function of a node may read."""
    if not isinstance(node, OpNode) or node._released:
        return {}
    held = {k: v for k, v in node.__dict__.items() if k not in _OWN and not k.startswith("_")}
    for closed in getattr(node.function, "__closure__", None) or ():
        held[f"its variable {len(held)}"] = closed.cell_contents
    if "gathered" in held:
        held["gathered"] = list(held["gathered"])
    held["saved_values"] = tuple(node.saved_values)
    return held


def _is_plain(capture: Any, value: Any, around: tuple[Any, ...] = ()) -> bool:
    """Whether a value is the same in each replay, or lies in memory that replays renew.

    Functions that hold each other are asked once: ``around`` are those that are asked already.
    """
    if isinstance(value, Tensor) or any(value is other for other in around):
        return True
    if capturing.is_array(value):
        return capture.whose(value) is not None
    if isinstance(value, (list, tuple)):
        return all(_is_plain(capture, part, around) for part in value)
    if isinstance(value, dict):
        return all(_is_plain(capture, part, around) for part in value.values())
    around = (*around, value)
    if isinstance(value, OpNode):
        held = {k: v for k, v in _held(value).items() if k != "saved_values"}
        return _is_plain(capture, held, around)
    if callable(value):
        cells = getattr(value, "__closure__", None) or ()
        return all(_is_plain(capture, cell.cell_contents, around) for cell in cells)
    module = type(value).__module__
    return (
        isinstance(value, _SETTINGS)
        or (module.startswith("lucid_gpu") and not hasattr(value, "__dict__"))
        or module in ("lucid_gpu.dtypes", "lucid_gpu.device", "lucid_gpu.core.program")
    )


def _array_of(tensor: Tensor, value: Any) -> Any:
    """The array of the value that an operand had before the op."""
    if not value.program.is_load and tensor._expr.program.is_load:
        cell = tensor._expr.leaves[0]
        known = value.variable is not None and cell.variable is value.variable
        if known and cell.version == value.version:
            return tensor.array
    return _tensor(value).array


def _is_foreign(capture: Any, tensor: Tensor) -> bool:
    if tensor._wrapper is not None or tensor._is_sparse:
        capture.refuse(
            "an op of batches, tangents or sparse tensors", "its values are not recorded"
        )
    if tensor._expr.program.is_load and not capturing.waits(tensor._expr.leaves[0]):
        return capture.whose(tensor.array) is None
    foreign = False
    for leaf in _leaves(tensor._expr):
        array = None if leaf.source is not None else leaf.array
        if capturing.is_array(array):
            capture.note_read(leaf)
            foreign = foreign or capture.whose(array) is None
    return foreign


def _leaves(value: Any) -> Iterator[Any]:
    """The leaves of a value; those of what it reduces where that is computed later."""
    for leaf in value.leaves:
        if capturing.waits(leaf):
            yield from _leaves(leaf.source.value)
        else:
            yield leaf


def _tensors(value: Any) -> Iterator[Tensor]:
    """The tensors among values, in order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _tensors(part)
    elif isinstance(value, dict):
        for part in value.values():
            yield from _tensors(part)


def _replaced(value: Any, operands: dict[int, _Operand]) -> Any:
    """Values with operands in the place of tensors."""
    if isinstance(value, Tensor):
        return operands.get(id(value), value)
    return _mapped(value, lambda part: _replaced(part, operands))


def _builder(value: Any, distinct: list[_Operand]) -> Callable[[list[Tensor]], Any]:
    """What makes a value from tensors that stand for its operands, one for each of ``distinct``."""
    if type(value) is _Operand:
        position = next((i for i, known in enumerate(distinct) if known is value), len(distinct))
        if position == len(distinct):
            distinct.append(value)
        return itemgetter(position)
    if not _has_operand(value):
        return lambda tensors: value
    items = value.items() if isinstance(value, dict) else enumerate(value)
    varying = [(k, _builder(part, distinct)) for k, part in items if _has_operand(part)]
    fixed, kind = value if isinstance(value, dict) else list(value), type(value)

    def build(tensors: list[Tensor]) -> Any:
        parts = fixed.copy()
        for key, part in varying:
            parts[key] = part(tensors)
        if kind is dict or kind is list:
            return parts
        return kind(*parts) if hasattr(kind, "_fields") else kind(parts)

    return build


def _has_operand(value: Any) -> bool:
    if type(value) is _Operand:
        return True
    parts = value.values() if isinstance(value, dict) else value
    return isinstance(value, (dict, list, tuple)) and any(map(_has_operand, parts))


def _mapped(value: Any, function: Callable[[Any], Any]) -> Any:
    """A function of each part of a sequence or a mapping; anything else as it is."""
    if isinstance(value, dict):
        return {key: function(part) for key, part in value.items()}
    if hasattr(value, "_fields"):
        return type(value)(*[function(part) for part in value])
    if isinstance(value, (list, tuple)):
        return type(value)([function(part) for part in value])
    return value
