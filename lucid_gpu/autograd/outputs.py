"""What forward returned, tied to the node of the call; and what it saved for backward."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from lucid_gpu.core.node import AccumulateGrad, Edge
from lucid_gpu.core.program import Program, Shape
from lucid_gpu.core.saved import Saved
from lucid_gpu.fusion.region import edge_of
from lucid_gpu.ops.in_place import count_write
from lucid_gpu.ops.record import save
from lucid_gpu.ops.shape import view_of_all
from lucid_gpu.ops.views import rebase, refuse_written_view
from lucid_gpu.tape.native import core
from lucid_gpu.tensor import Tensor

if TYPE_CHECKING:
    from lucid_gpu.autograd.function import FunctionCtx

NOT_RETURNED = (
    "Some elements marked as dirty during the forward method were not returned as output. The "
    "inputs that are modified inplace must all be outputs of the Function."
)
NOT_AN_INPUT = (
    "ctx.mark_dirty() received a tensor that was not an input. Only input Tensors that have been "
    "mutated should be passed to ctx.mark_dirty()."
)
VIEW_AND_MORE = (
    "If your Function modifies inplace an input that is a view of another Tensor, your Function "
    "cannot return more than one Tensor. This is not supported by the current autograd engine. You "
    "should either make sure the input is not a view (using .clone() for example) or make your "
    "Function only return one Tensor (potentially splitting it into two Functions: one doing the "
    "inplace that returns a single Tensor and a second one that does the other operations)."
)
RETURNED_AND_SAVED = (
    "An input that has been returned as-is as output is being saved for backward. This is not "
    "supported if you override setup_context. You should return and save a view of the input "
    "instead, e.g. with x.view_as(x) or setup ctx inside the forward function itself."
)


def _finish_one(ctx: FunctionCtx, args: tuple[Any, ...], output: Tensor) -> Tensor:
    """`finish` for what nearly every Function returns: one tensor with a gradient."""
    for a in args:
        if output is a:
            output = _alias_of_input(ctx, a)
    connect(ctx, args)
    ctx._outputs = ((output._expr.program, output._expr.shape),)
    if output._expr.program.needs_grad:
        output._cut()
    output._attach(ctx)
    if output._base is not None:
        output._creation = "function"
    to_save = ctx._to_save
    if to_save:
        ctx._to_save = None
        ctx._saved = save(to_save, {id(output): 0})
        _store_together(ctx._saved, args, (output,))
    return output


def connect(ctx: FunctionCtx, args: tuple[Any, ...]) -> None:
    """Note where each argument's gradient goes, and what it must look like."""
    edges: list[Edge] = []
    inputs: list[tuple[Program, Shape] | None] = []
    for a in args:
        if isinstance(a, Tensor):
            expr = a._expr
            edges.append(edge_of(expr))
            inputs.append((expr.program, expr.shape))
        else:
            inputs.append(None)
    ctx._edges = tuple(edges)
    ctx._inputs = tuple(inputs)


def finish(ctx: FunctionCtx, args: tuple[Any, ...], output: Any, recording: Any) -> Any:
    """Check what forward returned and tie it to the node.

    Parameters
    ----------
    recording : bool or None
        False where nothing is recorded, None inside another Function's forward.
    """
    single = not isinstance(output, tuple)
    outputs: list[Any] = [output] if single else list(output)
    dirty, constant = ctx._dirty, {id(t) for t in ctx._constant}
    ctx._dirty = ctx._constant = ()  # they may be outputs, which hold the node
    _check_dirty(dirty, args, outputs)
    if recording:
        connect(ctx, args)
        ctx._output_count = len(outputs)
        unwanted = () if ctx._materialize_non_diff_grads else constant
        ctx._outputs = tuple(
            [
                (o._expr.program, o._expr.shape)
                if isinstance(o, Tensor) and id(o) not in unwanted
                else None
                for o in outputs
            ]
        )
    inputs = {id(a) for a in args if isinstance(a, Tensor)}
    written = {id(t) for t in dirty}
    last = {id(o): i for i, o in enumerate(outputs)}
    differentiable = 0
    # those first that were changed, so that views of them are of what they have become
    for i, o in sorted(enumerate(outputs), key=lambda one: id(one[1]) not in written):
        if not isinstance(o, Tensor) or (last[id(o)] != i and id(o) not in inputs - written):
            continue  # returned again: one object, and its gradient is that of the last
        returned = id(o) in inputs
        marked = not recording and recording is not None and o._expr.program.needs_grad
        if marked and o._base is not None and not returned and id(o) not in constant:
            o._creation = "no_grad"  # a leaf that wants what its base wants: see `note_creation`
            continue
        if not recording or id(o) in constant or o.dtype.category < 2:
            outputs[i] = _without_gradient(ctx, o, returned, id(o) in written, recording)
        elif id(o) in written:
            _rebase(ctx, o, i)
            differentiable += 1
            continue
        else:
            outputs[i] = _with_gradient(ctx, _alias_of_input(ctx, o) if returned else o, i)
            differentiable += 1
        if outputs[i]._base is not None:
            outputs[i]._creation = "function"
    if differentiable > 1:
        _refuse_writes(outputs)
    to_save, ctx._to_save = ctx._to_save, None
    if to_save and recording:
        own = {id(t) for t in to_save if id(t) in last and t._edge()[0] is ctx}
        ctx._saved = save(to_save, {key: last[key] for key in own})
        _store_together(ctx._saved, args, outputs)
    return outputs[0] if single else tuple(outputs)


def _alias_of_input(ctx: FunctionCtx, tensor: Tensor) -> Tensor:
    """What stands for an input that forward returned as it is."""
    saved = ctx._to_save or ()
    if any(tensor is t for t in saved) and ctx._function._methods.separate:
        raise RuntimeError(RETURNED_AND_SAVED)
    return view_of_all(tensor)


def _with_gradient(ctx: FunctionCtx, output: Tensor, number: int) -> Tensor:
    if output._expr.program.needs_grad:
        output._cut()
    output._attach(ctx, number)
    return output


def _without_gradient(
    ctx: FunctionCtx, output: Tensor, returned: bool, written: bool, recording: Any
) -> Tensor:
    if returned and output.requires_grad:
        return output.detach()
    if returned and not written:
        return _alias_of_input(ctx, output)
    if output.requires_grad or (recording and not output._expr.program.independent):
        output._cut()
    return output


# --- inputs changed in place ----------------------------------------------------------------------


def _check_dirty(dirty: Sequence[Tensor], args: tuple[Any, ...], outputs: Sequence[Any]) -> None:
    for tensor in dirty:
        count_write(tensor, "mark_dirty")
        if not any(tensor is o for o in outputs):
            raise RuntimeError(NOT_RETURNED)
        if not any(tensor is a for a in args):
            warnings.warn(NOT_AN_INPUT, stacklevel=4)


def _refuse_writes(outputs: Sequence[Any]) -> None:
    """Views that come out together must not be written."""
    for output in outputs:
        if isinstance(output, Tensor) and output._base is not None:
            output._creation = "multiple"


def _rebase(ctx: FunctionCtx, tensor: Tensor, number: int) -> None:
    """The history of a changed input leads to this node from now on."""
    if tensor.requires_grad and isinstance(tensor._edge()[0], AccumulateGrad):
        raise RuntimeError(
            "a leaf Variable that requires grad has been used in an in-place operation: "
            f"{ctx.name()} marked it dirty. Pass x.clone(), or call apply under no_grad()."
        )
    if tensor._base is not None:
        if ctx._output_count > 1:
            raise RuntimeError(VIEW_AND_MORE)
        refuse_written_view(tensor, True, ctx.name())
    rebase(tensor, ctx, number)


# --- saving ---------------------------------------------------------------------------------------


def _store_together(saved: Sequence[Any], args: Sequence[Any], results: Sequence[Any]) -> None:
    """A chain of functions long enough to be cut into kernels stores what it saved on the way.

    Otherwise backward would compute the chain again from its start for each function in it.
    """
    group: list[Any] | None = None
    for a in args:
        if isinstance(a, Tensor) and a._siblings and not a._expr.program.is_load:
            group = a._siblings
    for entry in saved:
        if type(entry) is not Saved:
            continue
        tensor = entry.tensor
        if tensor._expr.program.is_load:
            continue
        if tensor._siblings is None:
            tensor._siblings = [] if group is None else group
        group = tensor._siblings
        group.append(weakref.ref(tensor))
    if group is not None:
        for result in results:
            if isinstance(result, Tensor):
                result._siblings = group


finish_one: Callable[..., Tensor] = _finish_one
if core is not None:
    finish_one = core.finish_one
    core.bind(finish_one=_finish_one, store_together=_store_together)
