"""Custom functions on duals: forward runs on the values, then `jvp` on the tangents."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

from lucid_gpu.autograd.function import FunctionCtx
from lucid_gpu.autograd.outputs import finish
from lucid_gpu.core.node import Node
from lucid_gpu.ops.record import constant, save
from lucid_gpu.ops.shape import replay
from lucid_gpu.ops.wrapping import bared, wrapper_at
from lucid_gpu.tape.levels import innermost
from lucid_gpu.tape.modes import FORWARD, OFF, set_mode, state
from lucid_gpu.tensor import Tensor


class Called(NamedTuple):
    """A call of a Function.

    Attributes
    ----------
    result : Tensor or tuple
        What `Function.apply` returns.
    outputs : tuple
        What forward returned.
    constant : tuple of Tensor
        Those marked non-differentiable.
    dirty : tuple of Tensor
        Those marked dirty.
    """

    ctx: FunctionCtx
    result: Any
    outputs: tuple[Any, ...]
    constant: tuple[Tensor, ...]
    dirty: tuple[Tensor, ...]

    @property
    def results(self) -> tuple[Any, ...]:
        return self.result if isinstance(self.result, tuple) else (self.result,)


def call(cls: Any, args: Sequence[Any]) -> Called:
    """Run a Function's forward and record it, whatever levels its arguments know of."""
    level = innermost(args)
    if level is not None:
        below: Called = level.function(cls, args)
        return below
    ctx = cls._node()
    ctx._surroundings = state.surroundings
    before = state.mode
    ctx.needs_input_grad = tuple([isinstance(a, Tensor) and a.requires_grad for a in args])
    recording = state.grad and True in ctx.needs_input_grad
    set_mode(FORWARD if recording else OFF)
    try:
        if cls._methods_of().separate:
            output = cls.forward(*args)
            cls.setup_context(ctx, tuple(args), output)
        else:
            output = cls.forward(ctx, *args)
    finally:
        set_mode(before)
    outputs = output if isinstance(output, tuple) else (output,)
    constant, dirty = ctx._constant, ctx._dirty
    result = finish(ctx, tuple(args), output, None if before is FORWARD else recording)
    return Called(ctx, result, outputs, constant, dirty)


def call_on_duals(level: Any, cls: Any, args: Sequence[Any]) -> Called:
    """`call` where the innermost level is one of forward-mode AD."""
    tangents = [level.tangent(a) for a in args]
    with ExitStack() as stack:
        for tensor in {id(a): a for a in args if wrapper_at(a, level) is not None}.values():
            stack.enter_context(bared(tensor, level))
        called = call(cls, args)
        versions = [None if t is None else t._version for t in tangents]
        moved = tangents_of(called, cls, args, tangents)
    _check_dirty(called, cls, args, tangents, versions)
    if len(moved) != len(called.results):
        raise RuntimeError(
            f"Function's jvp returned an invalid number of forward gradients (expected "
            f"{len(called.results)} but got {len(moved)}): {cls.__name__}.jvp must return one "
            "tangent for each output of forward, None for those without."
        )
    for index, tangent in enumerate(moved):
        if tangent is not None:
            _check(called, index, tangent)
            _give(level, cls, called, index, tangent, args, tangents)
    return called


def tangents_of(
    called: Called, cls: Any, args: Sequence[Any], tangents: Sequence[Tensor | None]
) -> Sequence[Any]:
    """What a Function's jvp gives for tangents of its arguments."""
    ctx = called.ctx
    saved = [_differentiable(called, args, t) for t in ctx._for_forward]
    filled = [_materialized(a, t, ctx) for a, t in zip(args, tangents, strict=True)]
    before, ctx._saved = ctx._saved, save(saved, seen=False)
    try:
        moved = cls.jvp(ctx, *filled)
    finally:
        ctx._saved = before
    return moved if isinstance(moved, tuple) else (moved,)


def _differentiable(called: Called, args: Sequence[Any], saved: Tensor | None) -> Tensor | None:
    """A tensor saved for jvp, such that the tangent can be differentiated or refuses to be.

    What forward computed on its way was not recorded, and has no tangent further out.
    """
    if saved is None or any(saved is known for known in (*args, *called.outputs)):
        return saved
    base = saved._base
    if base is not None and any(base is a for a in args):
        return replay(base, saved._steps)
    outer = innermost(args)
    if outer is not None and not outer.batches:
        raise RuntimeError(_intermediate(called.ctx, saved))
    if not state.grad or saved._expr.program.independent:
        return saved
    marked = saved.alias()
    marked._attach(Refusal(_intermediate(called.ctx, saved)))
    return marked


def _intermediate(ctx: FunctionCtx, saved: Tensor) -> str:
    return (
        f"{ctx.name()} saved an intermediate for jvp, of shape {list(saved.shape)}: it is neither "
        "an input nor an output of forward. Differentiating the tangent would silently leave out "
        "its derivative. Return it from forward as one more output, or compute it in jvp from "
        "saved inputs."
    )


class Refusal(Node):
    """Raises when a gradient arrives."""

    def __init__(self, message: str) -> None:
        super().__init__(())
        self.message = message

    def vjp(self, cotangents: Sequence[Any]) -> Sequence[Any]:
        raise RuntimeError(self.message)


def _materialized(argument: Any, tangent: Tensor | None, ctx: FunctionCtx) -> Tensor | None:
    """None for anything but a tensor; zeros where a tensor has no tangent."""
    if tangent is not None or not isinstance(argument, Tensor) or not ctx._materialize:
        return tangent
    return constant(0.0, argument) if argument.dtype.category >= 2 else None


def _check(called: Called, index: int, tangent: Any) -> None:
    """Refuse a tangent that does not fit its output."""
    if not isinstance(tangent, Tensor):
        raise RuntimeError(
            f"expected Variable or None (got {type(tangent).__name__}) for grad output {index}."
        )
    result = called.results[index]
    constant_output = any(called.outputs[index] is c for c in called.constant)
    if not isinstance(result, Tensor) or result.dtype.category < 2 or constant_output:
        raise RuntimeError(
            f"Function's jvp returned a gradient at position {index}, but the corresponding "
            "forward output is not a differentiable Tensor. You should return None at that "
            "position instead."
        )
    if tangent.shape != result.shape:
        raise RuntimeError(
            "Trying to set a forward gradient that has a different size than that of the original "
            f"Tensor, this is not supported. Tensor is of size {list(result.shape)} while the "
            f"given forward gradient is of size {list(tangent.shape)}."
        )


def _give(
    level: Any,
    cls: Any,
    called: Called,
    index: int,
    tangent: Tensor,
    args: Sequence[Any],
    tangents: Sequence[Tensor | None],
) -> None:
    """Set an output's tangent, which must mirror a view or an in-place write of forward."""
    result, output = called.results[index], called.outputs[index]
    passed_through = any(tangent is t for t in tangents)
    if any(output is d for d in called.dirty):
        own = next((t for a, t in zip(args, tangents, strict=True) if a is output), None)
        if own is None:
            level.make(result, tangent.alias())
        elif tangent is not own:
            raise RuntimeError(not_in_place(cls))
    elif _is_view_of(output, args):
        if tangent._base is None:
            raise RuntimeError(
                "A custom Function's forward is returning a view (or an input as-is) but the jvp "
                f"is not returning a view: {cls.__name__}.jvp has to return the same view of the "
                "tangent (t.view_as(t))."
            )
        inputs = [t for t in tangents if t is not None]
        if not any(_same_memory(tangent, t) for t in inputs):
            base = "same base as the " if any(t._base is not None for t in inputs) else ""
            raise RuntimeError(
                "A custom Function is returning a view but the jvp is not returning a view of the "
                f"{base}given grad input: {cls.__name__}.jvp has to return a view of the tangent "
                "it was given."
            )
        level.make(result, tangent)
    else:
        level.make(result, tangent.alias() if passed_through else tangent)


def _check_dirty(
    called: Called,
    cls: Any,
    args: Sequence[Any],
    tangents: Sequence[Tensor | None],
    versions: Sequence[int | None],
) -> None:
    """Refuse a jvp that left the tangent of an input as it was, which forward has written."""
    for argument, tangent, version in zip(args, tangents, versions, strict=True):
        written = tangent is not None and any(argument is d for d in called.dirty)
        if written and tangent is not None and tangent._version == version:
            raise RuntimeError(not_in_place(cls))


def not_in_place(cls: Any) -> str:
    """PyTorch's sentence for a jvp that does not write what forward wrote."""
    return (
        "An inplace custom Function is not modifying the forward mode gradients inplace. "
        "If the forward is modifying an input inplace, then the jvp function must modify "
        f"the corresponding gradient inplace: {cls.__name__}.jvp has to write the tangent "
        "it was given (t.mul_(2)) and return it."
    )


def _same_memory(view: Tensor, tensor: Tensor) -> bool:
    """Whether a view is one of a tensor, or of what that is a view of."""
    return view._base is (tensor if tensor._base is None else tensor._base)


def _is_view_of(output: Any, args: Sequence[Any]) -> bool:
    if not isinstance(output, Tensor):
        return False
    if any(output is a for a in args):
        return True
    storage = output._storage
    shared = [a for a in args if isinstance(a, Tensor) and a._storage is storage]
    return output._base is not None and storage is not None and bool(shared)
