"""Putting wrappers on tensors and taking them off; see `lucid_gpu.tape.levels`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lucid_gpu.core.program import WRAPPED, marked
from lucid_gpu.core.value import Expr, give
from lucid_gpu.fusion.region import region_node
from lucid_gpu.tape.levels import Level, Wrapper
from lucid_gpu.tensor import Tensor, _tensor


def flagged(expr: Expr) -> Expr:
    """The same value, barred from the straight path."""
    program = expr.program
    if program.needs_grad and not (program.is_load or program.is_boundary):
        region_node(expr)  # one node for both expressions
    return _like(expr, program.marks | WRAPPED)


def unflagged(expr: Expr) -> Expr:
    """The same value as an ordinary one."""
    return _like(expr, expr.program.marks & ~WRAPPED)


def _like(expr: Expr, marks: int) -> Expr:
    other = Expr(marked(expr.program, marks), expr.leaves, expr.made_by, expr.shape)
    other.node = expr.node
    if expr.variable is not None:
        other.variable, other.version = expr.variable, expr.version
    return other


def wrap(tensor: Tensor, wrapper: Wrapper) -> Tensor:
    """Put a wrapper on a tensor, in place, over those it has."""
    if tensor._wrapper is None:
        if not tensor._expr.program.leaves:  # constants are folded; this one is none any more
            tensor._realize()
        give(tensor, flagged(tensor._expr))
    wrapper.below = tensor._wrapper
    tensor._wrapper = wrapper
    wrapper.level.members[id(tensor)] = tensor
    return tensor


def unwrapped(tensor: Tensor) -> Tensor:
    """The same value and memory, in another tensor without the topmost wrapper."""
    below = tensor._wrapper.below
    storage = tensor._memory()
    other = _tensor(tensor._expr if below is not None else unflagged(tensor._expr))
    other._storage = storage
    other._base = tensor if tensor._base is None else tensor._base
    other._steps, other._creation = tensor._steps, tensor._creation
    if below is not None:
        other._wrapper = below
    while below is not None:
        below.level.members[id(other)] = other
        below = below.below
    return other


def take_off(tensor: Tensor, level: Level) -> Wrapper | None:
    """Take a level's wrapper off a tensor, in place."""
    above, wrapper = None, tensor._wrapper
    while wrapper is not None and wrapper.level is not level:
        above, wrapper = wrapper, wrapper.below
    if wrapper is None:
        return None
    if above is not None:
        above.below = wrapper.below
    elif wrapper.below is not None:
        tensor._wrapper = wrapper.below
    else:
        del tensor._wrapper
        give(tensor, unflagged(tensor._expr))
    level.members.pop(id(tensor), None)
    return wrapper


def wrapper_at(value: Any, level: Level) -> Any:
    """What a level knows of a value; None if nothing."""
    wrapper = value._wrapper if isinstance(value, Tensor) else None
    while wrapper is not None and wrapper.level is not level:
        wrapper = wrapper.below
    return wrapper


def without(value: Any, level: Level) -> Any:
    """A value as the levels below see it."""
    if isinstance(value, Tensor) and value._wrapper is not None and value._wrapper.level is level:
        return unwrapped(value)
    return value


@contextmanager
def bared(tensor: Tensor, level: Level) -> Iterator[Wrapper | None]:
    """A tensor without a level's wrapper for a while: what is done to it then is done below."""
    wrapper = take_off(tensor, level)
    try:
        yield wrapper
    finally:
        if wrapper is not None:
            wrap(tensor, wrapper)


def cut(tensor: Tensor) -> Tensor:
    """The tensor apart from the graph, with everything that levels know of it."""
    if tensor._wrapper is None:
        return tensor.detach()
    detached: Tensor = tensor._wrapper.level.over(tensor, cut)
    return detached
