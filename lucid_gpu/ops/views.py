"""Views: which base they are of, how they were made from it, and what a recorded write means.

As in PyTorch, a write through a view gives the base a new history, `CopySlices`: the gradient of
what was written goes to the written value, the rest to what the base was before. The other views of
the base find their own history anew from the base's when somebody asks for it.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

from lucid_gpu import dtypes as dt
from lucid_gpu.core.owner import Storage
from lucid_gpu.core.program import FORBIDDEN, changed_load
from lucid_gpu.core.saved import counted, variable_on
from lucid_gpu.core.value import Cell, Expr, give, load_as, mark_of, requires_grad
from lucid_gpu.devices import xp_of
from lucid_gpu.fusion.building import without_grad
from lucid_gpu.ops import mirrors
from lucid_gpu.ops.elementwise import where
from lucid_gpu.ops.in_place import (
    LEAF_IN_PLACE,
    OVERLAP,
    Overwritten,
    _protect_readers,
    lies_in,
    move_all_retained,
    move_retained,
    put,
    refers_to_itself,
)
from lucid_gpu.ops.record import record
from lucid_gpu.ops.registry import attach
from lucid_gpu.ops.shape import replay
from lucid_gpu.tape import watched
from lucid_gpu.tape.modes import RECORDED, no_grad, set_mode, state
from lucid_gpu.tape.overrides import fields
from lucid_gpu.tensor import Tensor, _tensor, from_array

_INDIRECTLY = "its base or another view of its base has been"
_WHY = {
    "no_grad": "Given that this use case is ambiguous and error-prone, it is forbidden. You "
    "can clarify your code by moving both the view and the inplace either both inside the no_grad "
    "block (if you don't want the inplace to be tracked) or both outside (if you want the inplace "
    "to be tracked).",
    "inference": "Given that this use case is ambiguous and error-prone, it is forbidden. "
    "You can clarify your code by moving both the view and the inplace either both inside the "
    "inference_mode block (if you don't want the inplace to be tracked) or both outside (if you "
    "want the inplace to be tracked).",
    "multiple": "This view is the output of a function that returns multiple views. "
    "Such functions do not allow the output views to be modified inplace. You should replace the "
    "inplace operation by an out-of-place one.",
    "function": "This view was created inside a custom Function (or because an input was "
    "returned as-is) and the autograd logic to handle view+inplace would override the custom "
    "backward associated with the custom Function, leading to incorrect gradients. This behavior "
    "is forbidden. You can fix this by cloning the output of the custom Function.",
}


# --- what must not be written --------------------------------------------------------------------


def refuse_written_view(target: Tensor, value_needs_grad: bool, name: str) -> None:
    """Refuse a recorded write to a view that does not allow it, or to a view of a leaf."""
    base = target._base
    assert base is not None
    history = value_needs_grad or target._expr.program.needs_grad
    if not (history or requires_grad(base._expr)):
        return
    if target._creation is not None:
        raise RuntimeError(_forbidden(target, "is being"))
    if base.is_leaf and (target.requires_grad or base.requires_grad):
        raise RuntimeError(
            f"a view of {LEAF_IN_PLACE} {name} writes a view of a leaf of shape "
            f"{list(base.shape)}; do it under lucid_gpu.no_grad()."
        )


def _forbidden(view: Tensor, modified: str) -> str:
    """PyTorch's sentence for a view that is, or whose base has been, modified in place."""
    creation = view._creation
    assert creation is not None
    cell = view._expr.leaves[-1]
    if isinstance(cell, ViewCell) and cell.refusal is not None:
        return cell.refusal.replace(_INDIRECTLY, modified)
    node = None if isinstance(cell, ViewCell) else cell.node
    made = ""
    if node is not None:
        name = node.name().removesuffix("0").removesuffix("Backward")
        made = f"Output {cell.output} of {name} is"
    which = f"{made} a view of a view which" if node is not None and node._edges else "A view"
    if creation in ("multiple", "function") and made:
        head = f"{made} a view and {modified} modified inplace."
    elif creation == "inference":
        head = (
            f"{which} was created in inference mode and {modified} modified inplace in normal mode."
        )
    else:
        head = (
            f"{which} was created in no_grad mode and {modified} modified inplace with grad mode "
            "enabled."
        )
    return f"{head} {_WHY[creation]}"


# --- recorded writes -----------------------------------------------------------------------------


def write_with_history(target: Tensor, value: Tensor, name: str) -> None:
    """Write ``value`` into ``target``'s memory and record it for every view of its base."""
    raw = mirrors.in_memory(target)
    array = raw._cell().array
    storage = raw._memory()
    bits = mirrors.bits_of(target)
    source = (mirrors.turned(value.detach(), bits) if bits else value).array
    base = _root(target)
    if state.transforms and not base.requires_grad:
        state.took_history.append(weakref.ref(base))
    before = _past(base)
    replaced = target._expr
    if target is not base and replaced.program.is_load:
        replaced = without_hooks(target, replaced)
    history = value if value.requires_grad else Overwritten(replaced)
    del replaced  # whose leaf is read no longer
    storage.count(name)
    retaining = _protect_readers(target, storage)
    if watched.by is not None:
        watched.by.before_write(array, name, target)
    changed = put(array, source, name)
    refuse_views(target, storage)
    lasting = None if changed is None else _lasting(target, array, changed)
    _give_history(target, base, before, history, lasting)
    move_all_retained(retaining)


def _lasting(target: Tensor, array: Any, changed: Any) -> Tensor:
    """Of elements that are one in memory: which one's value is there after a write of some."""
    xp, item = xp_of(target), array.itemsize
    number = xp.arange(array.size).reshape(array.shape)
    steps = [abs(s) // item * number.itemsize for s in array.strides]
    span = sum((n - 1) * s for n, s in zip(array.shape, steps, strict=True)) // number.itemsize
    memory = xp.zeros(span + 1, number.dtype)
    last = xp.lib.stride_tricks.as_strided(memory, array.shape, steps)
    for written in (number >= 0, changed):
        last[written] = number[written]
    return from_array(last == number, dt.bool, target.device)


def rebase(written: Tensor, node: Any, output: int) -> None:
    """Give a tensor that was written already, its base and their views a node's history."""
    _point(written, node, output)
    if written._storage is None:
        return
    base = _root(written)
    if base is written:
        _renew_views(base)
    else:
        _give_history(written, base, _past(base), written)


def _give_history(
    target: Tensor, base: Tensor, before: Tensor, value: Any, lasting: Tensor | None = None
) -> None:
    """Rebase a base, and so its views, onto a write to ``target``, a view of it or the base.

    ``lasting`` is which of several written elements that are one is the one left.
    """
    if base is not target:
        constant = isinstance(value, Overwritten)
        written = target.detach() if constant else value
        joined = record(
            "CopySlices", base.array, (before, written), _copy_slices_vjp, dtype=base.dtype,
            steps=target._steps, strides=base.array.strides,
            overlaps=refers_to_itself(target.array), lasting=lasting,
        )  # fmt: skip
        edge = joined._edge()
    elif isinstance(value, Overwritten):
        edge = value, 0
    else:
        edge = value._edge()
    if not isinstance(value, Overwritten):
        node, _ = value._edge()
        node.lies_in(mark_of(value._expr)[0], variable_on(target._memory()))
    _point(base, *edge)
    _renew_views(base)


def _root(tensor: Tensor) -> Tensor:
    """The tensor a write is recorded on: the base, if it is on this memory still (`x.data = y`)."""
    base, storage = tensor._base, mirrors.in_memory(tensor)._storage
    return tensor if base is None or storage is None or not lies_in(base, storage) else base


def _past(tensor: Tensor) -> Tensor:
    """A tensor for what this one's gradient went to until now; its value is not to be read."""
    expr = tensor._load()
    return _tensor(Expr(expr.program, (expr.leaves[0].again(),), None, expr.shape))


def _point(tensor: Tensor, node: Any, output: int) -> None:
    """Give a realized tensor a new history, its memory staying where it is."""
    before = tensor._edge() if "_retains_grad" in fields(tensor) else None
    tensor._cut()
    tensor._attach(node, output)
    if before is not None:
        move_retained(tensor, *before)


def _renew_views(base: Tensor) -> None:
    """Views of a base with a new history take theirs from it: unread ones when they are read."""
    storage = base._storage
    if storage is None:
        return
    base._recorded = storage.version
    for reference in tuple(storage.read):
        view = reference()
        if view is not None and view._base is base and lies_in(view, storage):
            _renew(view, _past(base), storage)
    for view in mirrors.showing(storage):
        if view._base is base:
            _renew_mirror(view, _past(base))


def catch_up(view: Tensor, version: int) -> None:
    """Give a view the history that it has from its base after the writes since a ``version``."""
    storage, base = view._memory(), view._base
    if base is not None and lies_in(base, storage):
        if base._recorded > version and base.requires_grad:
            _renew(view, _past(base), storage)
        else:
            _refuse_view(view, base, storage)


def _read_by(tensor: Tensor, cell: ViewCell, storage: Any) -> None:
    """Have a realized tensor read its array by a leaf that knows its history."""
    program = tensor._expr.program
    marks = program.marks if cell.refusal is None else program.marks | FORBIDDEN
    cell.variable = tensor._expr.leaves[0].variable
    storage.add_cell(cell)
    load_as(tensor, changed_load(program, needs_grad=True, marks=marks), cell)
    counted(tensor._expr, tensor._memory())


def forbid(tensor: Tensor, past: ViewCell) -> None:
    """Have a tensor that got other memory refuse its history, as the leaf does that it had."""
    cell = past.again()
    cell.array = tensor.array
    _read_by(tensor, cell, tensor._memory())


def _renew(view: Tensor, base: Tensor, storage: Any) -> None:
    cell = ViewCell(view._expr.leaves[0].array, base, view._steps)
    if view._creation is not None:
        cell.refusal = _forbidden(view, _INDIRECTLY)
    keeps = cell.refusal is None and "_retains_grad" in fields(view)
    before = view._edge() if keeps else None
    _read_by(view, cell, storage)
    if before is not None:
        move_retained(view, *before)


def refuse_views(written: Tensor, storage: Storage, turned: bool = False) -> None:
    """Views that were made where nothing is recorded, or several at once, lose their history with a
    write that is not recorded: whoever asks for it is told. A view that only follows its base in
    requiring grad has its history from then on.

    Parameters
    ----------
    turned : bool
        Whether a tensor has other dimensions now, and was not written: then other views are what
        lies at their place.
    """
    storage.unrecorded = storage.version
    for reference in tuple(storage.tensors if turned else storage.read):
        view = reference()
        if view is None or view._storage is not storage or view._base is None:
            continue
        if turned and view._creation is None and view.requires_grad and view._base.requires_grad:
            view._steps = _steps_by_place(view, view._base)
            _renew(view, _past(view._base), storage)
        else:
            _refuse_view(view, view._base, storage)


def _refuse_view(view: Tensor, base: Tensor, storage: Storage) -> None:
    if view.requires_grad and (view._creation or view._follows()) and base.requires_grad:
        _renew(view, _past(base), storage)


def _steps_by_place(view: Tensor, base: Tensor) -> Any:
    """How a view is made of what lies at its place in the memory of its base."""
    from lucid_gpu.ops.complex_views import laid_as_complex, view_as_real
    from lucid_gpu.ops.strides import restrided, storage_offset, stride

    size, steps, offset = tuple(view.shape), stride(view), storage_offset(view)
    own, first = stride(base), storage_offset(base)
    if base.is_complex() and not view.is_complex():
        own = (*[2 * s for s in own], 1)
        return (((), (view_as_real, ())), (restrided, (size, steps, offset - 2 * first, own)))
    if view.is_complex() and not base.is_complex():
        lies = ((*size, 2), (*[2 * s for s in steps], 1), 2 * offset - first, own)
        return (((), (restrided, lies)), (laid_as_complex, ()))
    return ((), (restrided, (size, steps, offset - first, own)))


def _renew_view(view: Tensor) -> None:
    """Give a view of a base that requires grad by now the history that it has from it."""
    base = view._base
    assert base is not None
    _renew(view, _past(base), view._memory())


def _renew_mirror(view: Tensor, base: Tensor) -> None:
    """The same for a view that shows its memory conjugated or negated, and reads it anew."""
    cell = ViewCell(None, base, view._steps)
    if view._creation is not None:
        cell.refusal = _forbidden(view, _INDIRECTLY)
    keeps = cell.refusal is None and "_retains_grad" in fields(view)
    before = view._edge() if keeps else None
    give(view, mirrors.with_history(without_grad(view._expr), cell))
    counted(view._expr, view._memory())
    if before is not None:
        move_retained(view, *before)


class ViewCell(Cell):
    """The leaf of a view whose base was written: its node is found when somebody asks for it.

    Attributes
    ----------
    base : Tensor
        Stands for the base right after the write; its value is not to be read.
    steps : (steps, step)
        How the view is made from its base; a step is a function and its arguments.
    refusal : str or None
        Why there is no history, for views that allow no write to their base.
    """

    refusal: str | None = None
    leads = False

    def __init__(self, array: Any, base: Tensor, steps: Any) -> None:
        self._known: Any = None
        self.base = base
        self.steps = steps
        super().__init__(array)

    @property
    def node(self) -> Any:
        if self.refusal is not None:
            if state.grad:
                raise RuntimeError(self.refusal)
            return None
        if self._known is None:
            self._known = _replayed(self.base, self.steps)._edge()[0]
        return self._known

    @node.setter
    def node(self, value: Any) -> None:
        pass  # it follows from the base

    def again(self) -> ViewCell:
        other = ViewCell(self.array, self.base, self.steps)
        other._known, other.refusal = self._known, self.refusal
        other.variable = self.variable
        return other


def without_hooks(view: Tensor, value: Expr) -> Expr:
    """The value of a view that is about to be written: its hooks do not see that gradient."""
    (cell,) = value.leaves
    if not value.program.needs_grad or view._creation is not None or _root(view) is view:
        return value
    base: Any = view._base
    node, end = cell.node, base._edge()[0]
    while node is not end and node._edges and not node._hooks:
        ((node, _),) = node._edges
    if node is end or not node._edges:  # or it begins at a view that was marked itself
        return value
    past = ViewCell(cell.array, _past(base), view._steps)
    return Expr(value.program, (past,), None, value.shape)


def _replayed(base: Tensor, steps: Any) -> Tensor:
    mode = set_mode(RECORDED)
    try:
        return replay(base, steps)
    finally:
        set_mode(mode)


def _copy_slices_vjp(node: Any, g: Tensor) -> Any:
    rest, written = node.needs_input_grad
    if rest and node.overlaps:
        raise RuntimeError(f"{OVERLAP} (the gradient of a write to an expanded tensor)")
    g_rest = None
    if rest and g.is_complex():  # a view of real and imaginary parts may have been written
        from lucid_gpu.ops.complex_views import view_as_complex, view_as_real

        g_rest = view_as_complex(where(_written_parts(node, g), 0, view_as_real(g)))
    elif rest:
        changes_type = any(
            function.__name__ == "laid_as_complex" for function in _makers(node.steps)
        )
        elements = _written_numbers(node, g) if changes_type else _written_elements(node, g)
        g_rest = where(elements, 0, g)
    if not written:
        return g_rest, None
    g_written = replay(g, node.steps)
    if node.lasting is not None:
        g_written = where(node.lasting, g_written, 0)
    return g_rest, g_written


def _written_elements(node: Any, g: Tensor) -> Tensor:
    """Which elements of a base its view covers."""
    base = _zeros_laid_as_base(node, g, dt.bool)
    with no_grad():
        mirrors.in_memory(replay(base, node.steps)).array[...] = True
    return base


def _zeros_laid_as_base(node: Any, g: Tensor, d: dt.dtype) -> Tensor:
    """Zeros that lie in memory as a base does, gaps too: `as_strided` finds its elements there."""
    shape, item = tuple(g.shape), g.dtype.itemsize
    steps = [s // item * d.itemsize for s in node.strides]
    ends = [(n - 1) * s for n, s in zip(shape, steps, strict=True)]
    first = -sum([e for e in ends if e < 0])
    count = 0 if 0 in shape else (first + sum([e for e in ends if e > 0])) // d.itemsize + 1
    xp = xp_of(g)
    memory = xp.zeros(count, d.numpy)[first // d.itemsize :]
    array = xp.lib.stride_tricks.as_strided(memory, shape, steps)
    return from_array(array, d, g.device)._keep_order()


def _makers(steps: Any) -> Iterator[Any]:
    """The functions that make a view, the last one first."""
    while steps:
        steps, (function, _) = steps
        yield function


def _written_numbers(node: Any, g: Tensor) -> Tensor:
    """Which elements of a base its view covers, where that is of another type."""
    with no_grad():
        base = _zeros_laid_as_base(node, g, g.dtype)
        _fill_view(base, node.steps)
        return base != 0


def _written_parts(node: Any, g: Tensor) -> Tensor:
    """Which real and imaginary parts of a complex base its view covers."""
    from lucid_gpu.ops.complex_views import view_as_real

    with no_grad():
        base = _zeros_laid_as_base(node, g, g.dtype)
        _fill_view(base, node.steps)
        return view_as_real(base) != 0


def _fill_view(base: Tensor, steps: Any) -> None:
    """Write ones into the view of a tensor that these steps make."""
    view = replay(base, steps)
    view.fill_(1 + 1j if view.is_complex() else 1)


attach(
    Tensor, _catch_up=catch_up, _forbid=forbid, _refuse_views=refuse_views,
    _refuse_written_view=refuse_written_view, _renew_view=_renew_view,
    _without_hooks=without_hooks, _write_with_history=write_with_history,
)  # fmt: skip
