"""In-place writes: a tensor alone on its memory takes a new value, shared memory is written.

Readers of the old value, pending or saved for backward, keep it.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from lucid_gpu import dtypes as dt
from lucid_gpu.device import CPU
from lucid_gpu.devices import capturing
from lucid_gpu.devices.copies import duplicate, write
from lucid_gpu.fusion import expression, region, scheduler
from lucid_gpu.fusion.expression import (
    Cell,
    Expr,
    Unread,
    counted,
    ended,
    taken,
    written_values,
)
from lucid_gpu.fusion.layout import may_overlap
from lucid_gpu.fusion.program import INFERENCE, WRITTEN, Program, load_program, marked
from lucid_gpu.fusion.saving import saves_result
from lucid_gpu.ops import mirrors
from lucid_gpu.ops.registry import attach
from lucid_gpu.ops.user_warnings import warn_user
from lucid_gpu.storage import SameMemory, Storage
from lucid_gpu.tape.levels import innermost, open_levels
from lucid_gpu.tape.modes import is_inference_mode_enabled, state
from lucid_gpu.tape.node import Node
from lucid_gpu.tape.overrides import fields
from lucid_gpu.tensor import (
    Tensor,
    _laid_out,
    _tensor,
    _unmark_shared,
    becomes_pending,
    keep_outside,
    store_written,
)

LEAF_IN_PLACE = "a leaf Variable that requires grad is being used in an in-place operation."
OVERLAP = (
    "unsupported operation: more than one element of the written-to tensor refers to a single "
    "memory location. Please clone() the tensor before performing the operation."
)
UNNOTICED = ""  # the name of a write that leaves what was saved valid: readers keep the old value
_MAY_OVERLAP = ("fill_",)  # it writes one number
_IN_PART = (  # the rest is kept
    *("fill_diagonal_", "index_fill_", "index_put_", "masked_fill_", "threshold_", "tril_"),
    "triu_",
)


def _marked_as(new: Expr, old: Program) -> Expr:
    """A value with the mark of inference mode that the tensor has which takes it."""
    if new.program.inference is old.inference:
        return new
    return Expr(marked(new.program, new.program.marks ^ INFERENCE), new.leaves, new.made_by)


def _write(self: Tensor, value: Tensor, name: str) -> Tensor:
    """Become ``value``, as an in-place op does.

    A tensor alone on its memory simply takes the new value, and readers of the old one keep
    it. Memory that is shared is written, after its readers were given a copy.

    Raises
    ------
    RuntimeError
        For leaves that require grad and views of them, views that must not be written, results
        that do not fit in shape or type.
    """
    if open_levels:
        level = innermost((self, value))
        if level is not None:
            written: Tensor = level.write(self, value, name)
            return written
    old = self._expr.program
    expr = self._expr
    if old.inference:
        refuse_inference()
    if state.grad:
        refuse_recorded(self, value._expr.program.needs_grad, name)
    if capturing.recorder is not None:
        expr, old = _noted(self)
    value = _fitted(value, old, name)
    storage = self._storage
    if storage is None:
        storage = self._storage = Storage(self, ())
        counted(expr, storage)
    elif storage.mirror is not None:
        _write_to_mirror(self, value, storage, name)
        return self
    new, recorded = value._expr, state.grad and (value._expr.program.needs_grad or old.needs_grad)
    stays = old.is_load and capturing.stays(expr.leaves[0])
    if old.is_load and old.root.value[1] and not old.free and old.order is None:
        stays = True  # what lies with gaps goes on lying so
    shared = stays or storage.is_lent() or not _is_alone(self, storage)
    if shared:
        if storage.read_only:
            refuse_read_only(self, name)
        if name not in _IN_PART and name not in _MAY_OVERLAP:
            refuse_overlap(self.array, name)
    if shared and not recorded:
        source = value.array
        del expr, new, value  # whose leaves are read no longer
        put(_writable(self, name), source, name)
        return self
    if old.is_load and (new is expr or not recorded):
        new = _reading_afresh(new, expr.leaves[0])
    elif new is expr:  # `x.copy_(x)`: what was saved before is stale, not what comes
        new = expression.reread(expr)
    new = _marked_as(new, old)
    if old.dtype.compute is not old.dtype and not new.program.is_load:
        new.program = marked(new.program, new.program.marks | WRITTEN)
    if shared:
        self._write_with_history(_tensor(new), name)
        return self
    if new.program.order != old.order:  # what is written stays in the order in which it lies
        order = old.order or tuple(range(len(old.shape)))
        new = _marked_as(_laid_out(_tensor(new), order)._expr, old)
    holder: Any = expr.leaves[0] if old.is_load else expr
    variable = holder.variable
    if variable is None or variable._storage is not storage:
        variable = counted(expr, storage)
    values = variable.values
    if not old.is_load:
        variable = expression.variable_on(storage)
    elif values is not None:
        variable = ended(expr, storage)
    if len(storage.cells) > 1 and type(storage) is Storage:
        storage.cells = []  # the tensor leaves their arrays
    if not name:
        _unnoticed(expr, storage)
        variable = expression.variable_on(storage)
    storage.version += 1
    storage.writer = name
    taken(new, variable, storage.version)
    edge = None
    if old.needs_grad and not state.grad:  # the history stays what it was
        edge = self._edge()
    elif old.needs_grad and not new.program.needs_grad:
        edge = Overwritten(expr), 0
    if state.transforms and new.program.needs_grad and not old.needs_grad:
        state.took_history.append(weakref.ref(self))
    before = self._edge() if "_retains_grad" in fields(self) else None
    self._expr = new
    if new.program.is_load:
        storage.add_cell(new.leaves[0])
    else:
        becomes_pending(self)
        if new.leaves and not new.program.barred:
            scheduler.note_write(self, name)
    if edge is not None:
        self._attach(*edge)
        if not new.program.is_load:
            scheduler.mark_written(self._expr)
    if before is not None:
        move_retained(self, *before)
    if not old.is_load:
        if expr.node is not None and expr.node.result is not None:
            written_values.add(expr.node)
        del expr, edge, holder
        for reference in values or ():
            if reference() is not None:  # an op may have saved it
                written_values.add(reference())
    return self


def _write_to_mirror(target: Tensor, value: Tensor, storage: Storage, name: str) -> None:
    """Write memory through a tensor that shows it conjugated or negated."""
    if storage.read_only:
        refuse_read_only(target, name)
    if state.grad and (value.requires_grad or target.requires_grad):
        target._write_with_history(value, name)
    else:
        mirrors.write(target, value, storage, name)


def before_write(tensor: Tensor, name: str, *beside: Any) -> Tensor:
    """The operand of the in-place op ``name``: saved-tensor hooks that keep it must not see the
    write.

    ``beside`` are the op's other arguments.
    """
    if state.written and scheduler.full(tensor, name):
        store_written()
    if not state.grad or tensor._is_sparse:
        return tensor
    if not tensor._expr.program.is_load or _may_be_recorded(tensor, *beside):
        return alias_to_write(tensor, name)
    return tensor


def _may_be_recorded(*operands: Any) -> bool:
    """Whether an op on these may be recorded."""
    for operand in operands:
        if isinstance(operand, Tensor):
            program = operand._expr.program
            if program.needs_grad or program.wrapped:
                return True
        elif isinstance(operand, (tuple, list)):
            return True
    return False


def alias_to_write(tensor: Tensor, name: str) -> Tensor:
    """`alias_of`, of what the op ``name`` is about to write: a view's hooks do not see that."""
    if tensor._base is not None and tensor._creation is not None:
        tensor._refuse_written_view(False, name)  # before reading it is refused
    return _alias_without_hooks(tensor)


def _alias_without_hooks(view: Tensor) -> Tensor:
    wrapper = view._wrapper
    if wrapper is not None and wrapper.level.batches:
        batched: Tensor = wrapper.level.over(view, _alias_without_hooks)
        return batched
    other = alias_of(view)
    if view._base is not None and other._expr.program.is_load:
        other._expr = view._without_hooks(other._expr)
    return other


def alias_of(tensor: Tensor) -> Tensor:
    """An alias that stays good when the tensor is written."""
    wrapper = tensor._wrapper
    if wrapper is not None and wrapper.level.batches:
        batched: Tensor = wrapper.level.over(tensor, alias_of)
        return batched
    other = tensor.alias()
    value = other._expr
    if not value.program.is_load:
        if value.program.needs_grad and value.node is None and saves_result(value):
            region.region_node(value)  # both know when it is written
        other._expr = expression.reread(value)
    return other


def alias_before(tensor: Tensor, name: str, *beside: Any) -> Tensor:
    """The operand of an in-place op whose backward reads what was there before."""
    before = before_write(tensor, name, *beside)
    return alias_of(tensor) if before is tensor else before


def written(
    function: Callable[..., Tensor], before: Callable[..., Tensor] = before_write
) -> Callable[..., Tensor]:
    """The in-place form of an op, as a method.

    Where backward reads what was there before, ``before`` is `alias_before`.
    """

    def method(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        value = function(before(self, name, *args, *kwargs.values()), *args, **kwargs)
        return self._write(value, name)

    name = f"{function.__name__}_"
    method.__name__ = name
    method.__doc__ = f"`{function.__name__}`, in place."
    method.__dict__["__wrapped__"] = function
    return method


def _set_to(self: Tensor, source: Tensor) -> Tensor:
    """Take another tensor's memory, shape and strides: what `set_` does."""
    if source.dtype is not self.dtype:
        raise RuntimeError(
            f"Could not set tensor of type {source.dtype.name} to a tensor of type "
            f"{self.dtype.name}; convert it with source.to(x.dtype)."
        )
    if self._expr.program.inference:
        refuse_inference()
    if state.grad:
        refuse_recorded(self, False, "set_")
    underivable = state.grad and (self.requires_grad or source.requires_grad)
    storage = self._memory()
    ended(self._expr, storage)
    storage.count("set_")
    before = self._expr.program
    self.data = source
    self._expr = _marked_as(self._expr, before)
    if underivable:
        self._attach(NotDerivable("set_"))
    return self


def refuse_recorded(target: Tensor, value_needs_grad: bool, name: str, part: bool = False) -> None:
    """Refuse what must not be written, wholly or in part, while gradients are recorded."""
    program = target._expr.program
    if target._base is not None:
        target._refuse_written_view(value_needs_grad, name)
    begins = program.needs_grad and (program.is_load or program.is_boundary)
    if begins and (target.is_leaf or target._edge()[0].stands_for_leaf):
        what = f"a view of {LEAF_IN_PLACE}" if part else LEAF_IN_PLACE
        raise RuntimeError(
            f"{what} {name} changes a leaf of shape {list(program.shape)}; do it under "
            "lucid_gpu.no_grad(), or out of place."
        )


def refuse_inference() -> None:
    """Refuse to write what was made in inference mode, outside of it."""
    if not is_inference_mode_enabled():
        raise RuntimeError(
            "Inplace update to inference tensor outside InferenceMode is not allowed. You can make "
            "a clone to get a normal tensor before doing inplace update. See "
            "https://github.com/pytorch/rfcs/pull/17 for more details."
        )


def _fitted(value: Tensor, old: Any, name: str) -> Tensor:
    """The value in the type of the tensor it goes to."""
    program = value._expr.program
    if program.shape != old.shape:
        raise RuntimeError(
            f"output with shape {list(old.shape)} doesn't match the broadcast shape "
            f"{list(program.shape)} in {name}"
        )
    if program.dtype is old.dtype:
        return value
    if program.dtype.category > old.dtype.category:
        raise RuntimeError(
            f"result type {program.dtype.type_name} can't be cast to the desired output type "
            f"{old.dtype.type_name} in {name}"
        )
    return value.to(old.dtype)


def _is_alone(tensor: Tensor, storage: Storage) -> bool:
    """Whether no other tensor lies on the memory of one, but a base that nobody else holds: the
    tensor lets go of that.
    """
    base, beside_base = tensor._base, False
    for reference in storage.tensors:
        other = reference()
        if other is None or other is tensor:
            continue
        if other is not base:
            return False
        beside_base = True
    if not beside_base:
        return True
    if refers_to_itself(tensor._expr.leaves[0].array):
        return False
    if state.grad is None:  # inside a Function's forward, which may mark the view dirty
        return False
    held, tensor._base = weakref.ref(base), None
    del base, other
    if held() is not None:
        tensor._base = held()
        return False
    tensor._steps = ()
    return True


def move_retained(tensor: Tensor, node: Node, output: int) -> None:
    """`retain_grad` observes the value a tensor has now, not the one it had."""
    hooks = node._hooks
    keep = None if hooks is None else hooks.retain.pop(output, None)
    if keep is None:
        return
    region.unobserve(node)
    now, index = tensor._edge()
    region.observe(now)
    now.all_hooks().retain[index] = keep


def _unnoticed(value: Expr, storage: Storage) -> None:
    """Let the present value of a tensor stay good for those who saved it, whatever is written."""
    counted(value, storage)._storage = SimpleNamespace(version=storage.version, writer="")


def _writable(self: Tensor, name: str) -> Any:
    """The buffer, for the caller to write at once; readers of the old contents keep them."""
    expr = self._expr
    if expr.program.inference:
        refuse_inference()
    capture = None if capturing.recorder is None else capturing.recording()
    if capture is not None:
        del expr
        keep_outside(self)
        if self._expr.program.is_load:
            _own_outside(capture, self)
        expr = self._expr
    if not expr.program.is_load or expr.leaves[0].borrowed:
        self._own_memory()
    del expr  # whose leaf is read no longer
    storage = self._storage or self._memory()
    memory = storage.memory if type(storage) is SameMemory else storage
    if memory.read_only:
        refuse_read_only(self, name)
    if memory.mirror is not None:
        mirrors.refuse_bits(
            self, f"{name}: {{}} are not written element by element; write x.resolve_conj() or "
            "x.resolve_neg(), and x.copy_ of that."
        )  # fmt: skip
    if not name:
        for tensor in storage.others(None):
            _unnoticed(tensor._expr, storage)
    storage.count(name)
    program, array = self._expr.program, self._expr.leaves[0].array
    if _alone(self, memory):
        _goes_on(self)
    else:
        retaining = _protect_readers(self, storage)
        if name and state.grad is not None:
            self._refuse_views(storage)
        if retaining:
            move_all_retained(retaining)
    if program.shared:
        _unmark_shared(self)
    capture = None if capturing.recorder is None else capturing.capturing()
    if capture is not None:
        capture.before_write(array, name, self)
    return array


def writable(tensors: Sequence[Tensor], name: str) -> list[Any]:
    """The buffers of tensors, for the caller to write at once; those that nobody else reads or
    shares, as nearly all that optimizers write, are not asked more.
    """
    if capturing.recorder is not None:
        return [_writable(t, name) for t in tensors]
    count = sys.getrefcount
    of_value, of_leaves, of_leaf = _UNREAD
    for tensor in tensors:
        value, storage = tensor._expr, tensor._storage
        program, leaves = value.program, value.leaves
        leaf = leaves[0] if leaves else _NOWHERE
        memory = storage.memory if type(storage) is SameMemory else storage
        own = program.is_load and not program.marks
        if own and storage is not None and type(memory) is Storage:
            try:
                (sharing,), (reading,) = memory.tensors, memory.cells
            except ValueError:  # there are others, or were
                memory.tidy()
                try:
                    (sharing,), (reading,) = memory.tensors, memory.cells
                except ValueError:
                    sharing = reading = _nobody
            if (  # as in `_alone`
                count(value) == of_value
                and count(leaves) == of_leaves
                and count(leaf) == of_leaf
                and sharing() is tensor
                and reading() is leaf
                and not (leaf.borrowed or memory.read_only)
                and leaf.variable is not None
                and leaf.variable.values is None
            ):
                storage.version += 1
                storage.writer, leaf.version = name, storage.version
                continue
        del value, leaves, leaf  # `_alone` counts references
        _writable(tensor, name)
    return [tensor._expr.leaves[0].array for tensor in tensors]


_NOWHERE = Cell(None)


def _nobody() -> None:
    """A weak reference to what is not there."""


def _counts(tensor: Tensor) -> tuple[int, int, int]:
    """How often value, leaves and leaf of a realized tensor are referred to, as `writable` asks."""
    value, count = tensor._expr, sys.getrefcount
    leaves = value.leaves
    leaf = leaves[0]
    return count(value), count(leaves), count(leaf)


def _own_outside(capture: Any, tensor: Tensor) -> None:
    """Give a tensor from before a capture memory of its own, if it has borrowed some.

    Once it has taken another value in the capture, that is the capture's business.
    """
    took = id(tensor) in capture.taken
    if tensor._expr.leaves[0].borrowed and not took and not capture.knows(tensor):
        capture.pause()
        try:
            tensor._own_memory()
        finally:
            capture.go_on()


def _noted(tensor: Tensor) -> tuple[Expr, Any]:
    """A tensor's value, which a capture is to put back, before the tensor takes another one."""
    capture = capturing.capturing()
    if capture is not None:
        keep_outside(tensor)
        if tensor._expr.program.is_load and tensor._wrapper is None and not capture.off:
            _own_outside(capture, tensor)
            capture.before_taking(tensor)
    return tensor._expr, tensor._expr.program


def put(array: Any, source: Any, name: str) -> Any:
    """Write elements; where several are one, those alone that the op ``name`` changes.

    Returns
    -------
    array of bool or None
        Where several are one, which were written.
    """
    in_part = name in _IN_PART and refers_to_itself(array)
    if not in_part and not overlaps(array):
        write(array, source)
        return None
    if in_part or refers_to_itself(array):
        warn_expanded(name)
    changed = (source != array) & ((source == source) | (array == array))
    array[changed] = source[changed]
    return changed


def warn_expanded(name: str) -> None:
    """Warn of a write to some of the elements of a tensor in which several are one."""
    where = {"index_put_": "indices] = tensor"}.get(name, "mask] = scalar")
    if name in ("index_put_", "masked_fill_", "index_fill_"):
        warn_user(
            f"Use of {name} on expanded tensors is deprecated. Please clone() the tensor before "
            f"performing this operation. This also applies to advanced indexing e.g. tensor[{where}"
        )


def refuse_overlap(array: Any, name: str) -> None:
    """Refuse to write an array where several elements are one."""
    if refers_to_itself(array):
        raise RuntimeError(f"{OVERLAP} ({name} on a tensor of shape {list(array.shape)})")


def refuse_read_only(target: Tensor, name: str) -> None:
    """Refuse to write memory that was lent for reading."""
    why = target._memory().read_only
    if isinstance(why, str):
        raise RuntimeError(f"{name}: {why}")
    raise RuntimeError(
        f"{name}: this tensor of shape {list(target.shape)} shares memory that is read-only, as "
        "that of a NumPy array whose flags.writeable is False. Write x = x.clone() before it, or "
        "make it of a copy: lucid_gpu.tensor(array)."
    )


def refers_to_itself(array: Any) -> bool:
    """Whether several elements are one: `expand` makes such."""
    if 0 not in array.strides or not array.size:
        return False
    return any(s == 0 and n > 1 for n, s in zip(array.shape, array.strides, strict=True))


def overlaps(array: Any) -> bool:
    """Whether elements are one that `expand` did not repeat, as of overlapping windows."""
    if array.flags.c_contiguous:
        return False
    walked = [(n, abs(s)) for n, s in zip(array.shape, array.strides, strict=True) if s]
    return may_overlap([n for n, _ in walked], [s for _, s in walked], array.itemsize)


def _protect_readers(self: Tensor, storage: Storage, written: bool = True) -> list[Tensor]:
    """Have who has read a memory keep what is there: it is about to be written.

    Tensors on it get another leaf when they are next read (`Unread`); what of their leaves is left
    then is somebody's, and gets a copy.

    Parameters
    ----------
    written : bool
        Whether the write was counted.

    Returns
    -------
    list of Tensor
        Those to be read after the write, whose gradients are retained.
    """
    if storage.mirrors is not None:
        with mirrors.renewed(storage):
            return _protect_readers(self, storage, written)
    if not written and _alone(self, storage):
        return []
    retaining = []
    memory = storage.memory if type(storage) is SameMemory else storage
    for tensor in _read_since(memory):
        if not tensor._expr.program.is_load:
            tensor._realize()
        read_anew(tensor, storage if written else None)
        if "_retains_grad" in fields(tensor):
            retaining.append(tensor)
    cells, memory.cells = memory.cells, []
    copies: dict[int, Any] = {}
    capture = capturing.capturing() if cells else None
    for leaf in {id(leaf): leaf for r in cells if (leaf := r()) is not None}.values():
        array = leaf.array
        if id(array) not in copies:
            copies[id(array)] = array, duplicate(array)
        leaf.array, leaf.home = copies[id(array)][1], None
        if capture is not None:
            capture.leaf_made(leaf)
    return retaining


def _read_since(storage: Storage) -> list[Tensor]:
    """Take the tensors off a storage's list of those that were read since the last write."""
    references, storage.read = storage.read, []
    found = {}
    for reference in references:
        tensor = reference()
        if tensor is None or not lies_in(tensor, storage):
            continue
        if type(tensor._expr) is not Unread or tensor._expr.found is not None:
            found[id(tensor)] = tensor  # it may be listed twice
    return [*found.values()]


def move_all_retained(tensors: Sequence[Tensor]) -> None:
    """Let tensors that retain their gradients have the history that a write gave them."""
    for tensor in tensors:
        assert tensor._expr.program  # reading it is what does so


def lies_in(tensor: Tensor, storage: Storage) -> bool:
    """Whether a tensor is on the memory of a record: ``x.data = y`` gives it another."""
    own: Any = tensor._storage
    return getattr(own, "memory", own) is getattr(storage, "memory", storage)


def read_anew(tensor: Tensor, written: Storage | None) -> None:
    """Have what reads a tensor from now on read what it has then, which nobody has saved.

    ``written`` is the record that has just counted a write.
    """
    value, storage = tensor._expr, tensor._memory()
    variable = ended(value, storage)
    if not value.program.is_load:
        tensor._expr = expression.reread(value)
        taken(tensor._expr, variable, storage.version)
    elif not tensor._is_sparse:
        leaf = value.leaves[0].again()
        leaf.variable = variable
        version = storage.version - (storage is written)
        tensor._expr = Unread(tensor, value.program, leaf, version)


def _is_read(self: Tensor, version: int) -> None:
    """Note that a tensor's value is asked for, the first time since its memory was written.

    ``version`` counts the writes until its history was last looked at.
    """
    storage, value, base = self._memory(), self._expr, self._base
    storage.read.append(weakref.ref(self))
    storage.add_cell(value.leaves[0])
    counted(value, storage)
    if base is None:
        return
    lost = value.program.needs_grad and storage.unrecorded > version
    if lost or base._recorded > version:
        self._catch_up(version)


def _goes_on(tensor: Tensor) -> None:
    """Have the leaf of a tensor that nobody else reads stand for what is written now."""
    leaf, storage = tensor._expr.leaves[0], tensor._memory()
    counted(tensor._expr, storage)
    leaf.variable = ended(tensor._expr, storage)


def count_write(tensor: Tensor, name: str) -> None:
    """Count a write to a tensor's memory, which nobody need be protected from."""
    storage = tensor._memory()
    if storage.mirrors is not None:
        with mirrors.renewed(storage):
            count_write(tensor, name)
        return
    storage.count(name)
    if type(storage) is SameMemory:  # it counts its own writes only
        read_anew(tensor, storage)
        return
    for other in _read_since(storage):
        read_anew(other, storage)
        if type(other._expr) is not Unread:
            storage.read.append(weakref.ref(other))


class Overwritten(Node):
    """A value that requires grad and was replaced by a constant: its gradient is zero."""

    def __init__(self, old: Expr) -> None:
        super().__init__((region.edge_of(old),))
        self.program = old.program

    def vjp(self, cotangents: Sequence[Any]) -> Sequence[Any]:
        old = self.program
        return (_tensor(expression.of_constant(0.0, old.dtype, old.shape, old.device)),)


class NotDerivable(Node):
    """The result of an op in place that has no derivative: backward says so."""

    def __init__(self, op: str) -> None:
        super().__init__()
        self.op = op

    def name(self) -> str:
        return "NotImplemented"

    def vjp(self, cotangents: Sequence[Any]) -> Sequence[Any]:
        raise RuntimeError(f"derivative for {self.op} is not implemented; use no_grad()")


def _reading_afresh(new: Expr, cell: Cell) -> Expr:
    """A value made from the array it replaces reads that by right: through a leaf of its own."""
    node = new.leaves[0].node if new.program.is_load else None
    reader = node if isinstance(node, region.RegionNode) else new
    if cell not in reader.leaves:
        return new
    fresh = cell.twin(cell.node, cell.output)
    leaves = tuple([fresh if c is cell else c for c in reader.leaves])
    if reader is node:
        node.leaves = leaves
        return new
    return Expr(new.program, leaves, new.made_by)


def _alone(tensor: Tensor, storage: Storage) -> bool:
    """Whether a realized tensor is all there is on its memory, as parameters are at each step."""
    tensors, cells = storage.tensors, storage.cells
    if len(cells) > 1:
        cells[:] = [r for r in cells if r() is not None]
    if len(cells) != 1 or len(tensors) != 1 or tensors[0]() is not tensor:
        return False
    value, count = tensor._expr, sys.getrefcount
    leaves = value.leaves
    leaf = leaves[0]
    return cells[0]() is leaf and (count(value), count(leaves), count(leaf)) == _UNREAD


_lonely = _tensor(Expr(load_program(dt.float32, (), None, False, CPU), (Cell(None),), None))
_UNREAD = _counts(_lonely)
del _lonely
attach(Tensor, _is_read, _set_to, _write, _writable, _protect_readers)
