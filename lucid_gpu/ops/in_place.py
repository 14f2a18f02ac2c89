"""In-place writes: a tensor alone on its memory takes a new value, shared memory is written.

Readers of the old value, pending or saved for backward, keep it.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Sequence
from itertools import repeat
from operator import attrgetter
from types import SimpleNamespace
from typing import Any

from lucid_gpu import dtypes as dt
from lucid_gpu.core import saved
from lucid_gpu.core.layout import may_overlap
from lucid_gpu.core.node import Node
from lucid_gpu.core.owner import SameMemory, Storage
from lucid_gpu.core.program import (
    FORBIDDEN,
    INFERENCE,
    SHARED,
    WRAPPED,
    WRITTEN,
    Program,
    load_program,
    marked,
)
from lucid_gpu.core.saved import counted, ended, note_written, taken
from lucid_gpu.core.value import Cell, Expr, Like, Unread, give, order_of
from lucid_gpu.device import CPU
from lucid_gpu.devices import held
from lucid_gpu.devices.copies import duplicate, write
from lucid_gpu.fusion import building, region, scheduler
from lucid_gpu.fusion.saving import saves_result
from lucid_gpu.ops import mirrors
from lucid_gpu.ops.registry import attach
from lucid_gpu.ops.user_warnings import warn_user
from lucid_gpu.tape import watched
from lucid_gpu.tape.levels import innermost, open_levels
from lucid_gpu.tape.modes import FORWARD, is_inference_mode_enabled, state
from lucid_gpu.tape.native import core
from lucid_gpu.tape.overrides import fields
from lucid_gpu.tensor import (
    Tensor,
    _laid_out,
    _tensor,
    _unmark_shared,
    becomes_pending,
    store_written,
)

LEAF_IN_PLACE = "a leaf Variable that requires grad is being used in an in-place operation."
OVERLAP = (
    "unsupported operation: more than one element of the written-to tensor refers to a single "
    "memory location. Please clone() the tensor before performing the operation."
)
UNNOTICED = ""  # the name of a write that leaves what was saved valid: readers keep the old value
_IN_PART = (  # the rest is kept
    *("fill_diagonal_", "index_fill_", "index_put_", "masked_fill_", "threshold_", "tril_"),
    "triu_",
)
_MAY_OVERLAP = ("fill_", *_IN_PART)  # PyTorch takes tensors in which several elements are one


def _marked_as(new: Expr, old: Program) -> Expr:
    """A value with the mark of inference mode that the tensor has which takes it."""
    if not (new.program.marks ^ old.marks) & INFERENCE:
        return new
    turned = marked(new.program, new.program.marks ^ INFERENCE)
    return Expr(turned, new.leaves, new.made_by, new.shape)


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
    if old.marks & INFERENCE:
        refuse_inference()
    if state.grad:
        refuse_recorded(self, value._expr.program.needs_grad, name)
    if watched.by is not None:
        watched.by.taking(self)
        expr, old = self._expr, self._expr.program
    value = _fitted(value, expr, name)
    storage = self._storage
    if storage is None:
        storage = self._storage = Storage(self, ())
        counted(expr, storage)
    elif storage.mirror is not None:
        _write_to_mirror(self, value, storage, name)
        return self
    new, recorded = value._expr, state.grad and (value._expr.program.needs_grad or old.needs_grad)
    stays = old.is_load and bool(watched.by or held.by) and _stays(expr.leaves[0])
    if old.is_load and old.strided and not old.free and order_of(expr) is None:
        stays = True  # what lies with gaps goes on lying so
    shared = stays or storage.is_lent() or not _is_alone(self, storage)
    if shared:
        if storage.read_only:
            refuse_read_only(self, name)
        if name not in _MAY_OVERLAP:
            refuse_overlap(self.array, name)
    if shared and not recorded:
        source = value.array
        del expr, new, value  # whose leaves are read no longer
        put(_writable(self, name), source, name)
        return self
    if old.is_load and (new is expr or not recorded):
        new = _reading_afresh(new, expr.leaves[0])
    elif new is expr:  # `x.copy_(x)`: what was saved before is stale, not what comes
        new = saved.reread(expr)
    new = _marked_as(new, old)
    if old.dtype.compute is not old.dtype and not new.program.is_load:
        new.program = marked(new.program, new.program.marks | WRITTEN)
    if shared:
        self._write_with_history(_tensor(new), name)
        return self
    if (new.program.laid or old.laid) and order_of(new) != order_of(expr):
        # what is written stays in the order in which it lies
        order = order_of(expr) or tuple(range(len(expr.shape)))
        new = _marked_as(_laid_out(_tensor(new), order)._expr, old)
    holder: Any = expr.leaves[0] if old.is_load else expr
    variable = holder.variable
    if variable is None or variable._storage is not storage:
        variable = counted(expr, storage)
    values = variable.values
    if not old.is_load:
        variable = saved.variable_on(storage)
    elif values is not None:
        variable = ended(expr, storage)
    if len(storage.cells) > 1 and type(storage) is Storage:
        storage.cells = []  # the tensor leaves their arrays
    if not name:
        _unnoticed(expr, storage)
        variable = saved.variable_on(storage)
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
    give(self, new)
    if new.program.is_load:
        storage.add_cell(new.leaves[0])
    else:
        becomes_pending(self)
        program = new.program
        if (new.leaves or len(program.instructions) > 2) and not program.barred:
            scheduler.note_write(self, name)  # a number grows too, if it is counted up
    if edge is not None and old.marks & FORBIDDEN:
        self._forbid(expr.leaves[0])
    elif edge is not None:
        self._attach(*edge)
        if not new.program.is_load:
            scheduler.mark_written(self._expr)
    if before is not None:
        move_retained(self, *before)
    if not old.is_load:
        if expr.node is not None and expr.node.result is not None:
            note_written(expr.node)
        del expr, edge, holder
        for reference in values or ():
            if (one := reference()) is not None:  # an op may have saved it
                note_written(one)
    return self


def _write_to_mirror(target: Tensor, value: Tensor, storage: Storage, name: str) -> None:
    """Write memory through a tensor that shows it conjugated or negated."""
    if storage.read_only:
        refuse_read_only(target, name)
    if state.grad and (value.requires_grad or target.requires_grad):
        target._write_with_history(value, name)
    else:
        mirrors.write(target, value, storage, name)


def _before_write(tensor: Tensor, name: str, *beside: Any) -> Tensor:
    """The operand of the in-place op ``name``: saved-tensor hooks that keep it must not see the
    write.

    ``beside`` are the op's other arguments.
    """
    if state.written and scheduler.full(tensor, name):
        store_written()
    if not state.grad or tensor._is_sparse or not _may_be_recorded(tensor, *beside):
        return tensor
    return alias_to_write(tensor, name)


before_write: Callable[..., Tensor] = _before_write if core is None else core.before_write


def _may_be_recorded(*operands: Any) -> bool:
    """Whether an op on these may be recorded."""
    for operand in operands:
        if isinstance(operand, Tensor):
            program = operand._expr.program
            if program.needs_grad or program.marks & WRAPPED:
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
        give(other, view._without_hooks(other._expr))
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
        give(other, saved.reread(value))
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
    if self._expr.program.marks & INFERENCE:
        refuse_inference()
    if state.grad:
        refuse_recorded(self, False, "set_")
    underivable = state.grad and (self.requires_grad or source.requires_grad)
    storage = self._memory()
    ended(self._expr, storage)
    storage.count("set_")
    before = self._expr.program
    self.data = source
    give(self, _marked_as(self._expr, before))
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
            f"{what} {name} changes a leaf of shape {list(target._expr.shape)}; do it under "
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


def _fitted(value: Tensor, before: Expr, name: str) -> Tensor:
    """The value in the type of the tensor it goes to."""
    program, old, shape = value._expr.program, before.program, value._expr.shape
    if shape != before.shape:
        raise RuntimeError(
            f"output with shape {list(before.shape)} doesn't match the broadcast shape "
            f"{list(shape)} in {name}"
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
    if state.mode is FORWARD:  # inside a Function's forward, which may mark the view dirty
        return False
    held, tensor._base = weakref.ref(base), None
    del base, other
    if held() is not None:
        tensor._base = held()
        return False
    tensor._steps = ()
    return True


def move_retained(tensor: Tensor, node: Node | None, output: int) -> None:
    """`retain_grad` observes the value a tensor has now, not the one it had; there is no node once
    `detach_` has cut it off.
    """
    hooks = None if node is None else node._hooks
    keep = None if hooks is None else hooks.retain.pop(output, None)
    if node is None or keep is None:
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
    if expr.program.marks & INFERENCE:
        refuse_inference()
    if watched.by is not None:
        del expr
        watched.by.writing(self)
        expr = self._expr
    if not expr.program.is_load or expr.leaves[0].borrowed:
        self._own_memory()
    del expr  # whose leaf is read no longer
    storage = self._storage or self._memory()
    memory = storage.memory if type(storage) is SameMemory else storage
    if memory.read_only:
        refuse_read_only(self, name)
    if name and name not in _MAY_OVERLAP:
        refuse_overlap(self._expr.leaves[0].array, name)
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
        if name and state.mode is not FORWARD:
            self._refuse_views(storage)
        if retaining:
            move_all_retained(retaining)
    if program.marks & SHARED:
        _unmark_shared(self)
    if watched.by is not None:
        watched.by.before_write(array, name, self)
    return array


def writable(tensors: Sequence[Tensor], name: str) -> list[Any]:
    """The buffers of tensors, for the caller to write at once; those that nobody else reads or
    shares, as nearly all that optimizers write, are not asked more.
    """
    if watched.by is not None:
        return [_writable(t, name) for t in tensors]
    (unread,) = _UNREAD
    for tensor, counts in zip(tensors, _counts(tensors), strict=True):
        value, storage = tensor._expr, tensor._storage
        program, leaves = value.program, value.leaves
        leaf = leaves[0] if leaves else _NOWHERE
        memory = storage.memory if type(storage) is SameMemory else storage
        own = program.is_load and not program.marks
        own = own and not (program.strided and refers_to_itself(leaf.array))
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
                counts == unread
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


_nobody: Any = weakref.ref(Cell(None))  # which is not there any more


_VALUE, _LEAVES = map(attrgetter, ("_expr", "leaves"))


def _counts(tensors: Sequence[Tensor]) -> list[tuple[int, int, int]]:
    """How often values, leaves and first leaf of tensors are referred to, those lists included."""
    count, values = sys.getrefcount, [*map(_VALUE, tensors)]
    leaves = [*map(_LEAVES, values)]
    first = [*map(next, map(iter, leaves), repeat(_NOWHERE))]
    return [*zip(map(count, values), map(count, leaves), map(count, first))]


def _stays(leaf: Cell) -> bool:
    """Whether a tensor that takes another value is to write its memory: others look there."""
    return held.is_held(leaf.array) if watched.by is None else watched.by.stays(leaf)


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
    copy_for_readers(cells)
    return retaining


def copy_for_readers(cells: Sequence[weakref.ref[Cell]]) -> None:
    """Give leaves, which somebody holds, copies of the array that is about to be written."""
    copies: dict[int, Any] = {}
    for leaf in {id(leaf): leaf for r in cells if (leaf := r()) is not None}.values():
        array = leaf.array
        if watched.by is not None:
            watched.by.copying(leaf)
        if id(array) not in copies:
            copies[id(array)] = array, duplicate(array)
        leaf.array, leaf.home = copies[id(array)][1], None
        if watched.by is not None:
            watched.by.made(leaf)


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
    value, storage = tensor._expr, tensor._storage or tensor._memory()
    variable = ended(value, storage)
    if not value.program.is_load:
        give(tensor, saved.reread(value))
        taken(tensor._expr, variable, storage.version)
    elif not tensor._is_sparse:
        leaf = value.leaves[0].again()
        leaf.variable = variable
        version = storage.version - (storage is written)
        give(tensor, Unread(tensor, value, leaf, version))


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
        self.like = Like(old.program, old.shape)

    def vjp(self, cotangents: Sequence[Any]) -> Sequence[Any]:
        old = self.like
        return (_tensor(building.of_constant(0.0, old.dtype, old.shape, old.device)),)


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
    return Expr(new.program, leaves, new.made_by, new.shape)


def _alone(tensor: Tensor, storage: Storage) -> bool:
    """Whether a realized tensor is all there is on its memory, as parameters are at each step."""
    tensors, cells = storage.tensors, storage.cells
    if len(cells) > 1:
        cells[:] = [r for r in cells if r() is not None]
    if len(cells) != 1 or len(tensors) != 1 or tensors[0]() is not tensor:
        return False
    return cells[0]() is tensor._expr.leaves[0] and _counts([tensor]) == _UNREAD


_lonely = _tensor(Expr(load_program(dt.float32, (), False, False, CPU), (Cell(None),), None, ()))
_UNREAD = _counts([_lonely])
del _lonely
attach(Tensor, _is_read, _set_to, _write, _writable, _protect_readers)
if core is not None:
    core.bind(write=_write)
    attach(Tensor, _write=core.as_method(core.write))
