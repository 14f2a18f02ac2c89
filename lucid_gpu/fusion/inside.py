"""Tensors inside a region: who observes them, who may still reach them, what their ops saved.

What is asked of `Expr.made_by`, which says how a pending value was made.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from lucid_gpu.core.value import ALWAYS, Expr
from lucid_gpu.fusion.building import boundary, build
from lucid_gpu.fusion.optable import Op
from lucid_gpu.fusion.saving import RESULT_POSITION, Composed, Saved, saved, saves_of
from lucid_gpu.tape.modes import MADE_IN

__all__ = ["OF_A_NAME", "made_of", "observed_within", "remade", "replay", "saved_inside"]


def _inner(expr: Expr) -> list[Expr]:
    """Operands that are themselves pending ops recorded for grad."""
    if expr.made_by is None:
        return []
    return [
        e
        for e in expr.made_by[1:]
        if isinstance(e, Expr) and e.program.needs_grad and not e.program.is_load
    ]


def observed_within(expr: Expr) -> bool:
    """Whether somebody wants to see the gradient of a value or of what lies inside of it."""
    seen: set[int] = set()
    stack = [expr]
    while stack:
        e = stack.pop()
        if id(e) in seen or not e.program.needs_grad or e.program.is_load:
            continue
        seen.add(id(e))
        if e.node is not None and e.node.observed:
            return True
        stack.extend(_inner(e))
    return False


def replay(expr: Expr, done: dict[int, Expr], top: bool = False) -> Expr:
    """The same value with a boundary at every observed tensor inside.

    ``done`` holds what was replayed, by the id of its value; ``top`` is whether this is the whole.
    """
    replayed = done.get(id(expr))
    if replayed is not None:
        return replayed
    made_by = expr.made_by
    if not top and expr.node is not None and expr.node.observed:
        result = boundary(expr, expr.node)
    elif made_by is None or not expr.program.needs_grad or expr.program.is_load:
        result = expr
    else:
        operands = [replay(e, done) if isinstance(e, Expr) else e for e in made_by[1:]]
        result = remade(expr, operands)
    done[id(expr)] = result
    return result


def remade(value: Expr, operands: Sequence[Any]) -> Expr:
    """The result of the op that made a value, of operands equal to its own."""
    assert value.made_by is not None
    op: Op = value.made_by[0]
    to = value.program.dtype if op.rule == "cast" else None
    shape = value.shape if op.rule == "identity" else None
    mode = MADE_IN[value.program.needs_grad]
    return build(op, operands, mode, to, shape, scheduled=False)


def made_of(value: Expr) -> list[Expr]:
    """A value and all those inside of it that a kernel has to compute."""
    found, seen = [value], {value}
    for outer in found:  # which grows
        for inner in outer.made_by or ():
            if isinstance(inner, Expr) and inner.since != ALWAYS and inner not in seen:
                seen.add(inner)
                found.append(inner)
    return found


def _references_of_a_name() -> int:
    probe = object()
    return sys.getrefcount(probe)


# What a local name and the call of getrefcount themselves count: 2, from Python 3.14 on 1.
OF_A_NAME = _references_of_a_name()


def saved_inside(region: Any) -> list[Any] | None:
    """What ops inside a region saved beside; None where somebody can reach a tensor in there.

    (By reference counts.)
    """
    beside: list[Any] = []
    held = 0  # references to what lies inside, but for those from inside
    seen: set[Expr] = set()
    stack = [region]
    e: Any
    while stack:
        made = stack.pop()
        for e in made.made_by or ():  # as `_inner` has them
            if not isinstance(e, Expr) or e.program.is_load:
                continue
            if not e.program.needs_grad:
                if e.variable is not None or sys.getrefcount(e) > OF_A_NAME + 1:
                    beside += _kept(made, e)
            else:
                held -= 1
                if e in seen:
                    continue
                held += sys.getrefcount(e) - OF_A_NAME
                if e.node is not None and (e.node.observed or sys.getrefcount(e.node) > 2):
                    return None  # somebody looks, or may: a realized tensor leads to the node
                if e.also:
                    beside += [
                        entry.within(e.leaves, region.leaves) if type(entry) is Composed else entry
                        for entry in e.also
                    ]
                seen.add(e)
                stack.append(e)
    return None if held > 0 else beside


def _kept(made: Expr, operand: Expr) -> list[Saved]:
    """A pending constant that somebody holds, and may write, where an op saves it."""
    assert made.made_by is not None
    op, *operands = made.made_by
    places = saves_of(op, operands, made.program)
    kept = any(p != RESULT_POSITION and operands[p] is operand for p in places)
    return [saved(operand)] if kept else []
