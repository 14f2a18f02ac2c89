"""From pending expressions to arrays: find the plan, run it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

from lucid_gpu.core.program import Program, derived
from lucid_gpu.core.value import Cell, Expr, order_among, order_of
from lucid_gpu.devices import backend
from lucid_gpu.devices.copies import as_laid, laid_out
from lucid_gpu.devices.reordering import reorder_by
from lucid_gpu.fusion.plan import Plan
from lucid_gpu.fusion.scheduler import waiting
from lucid_gpu.launch import runs_cuda_c
from lucid_gpu.launch.observers import debug, observed, observers
from lucid_gpu.tape import watched
from lucid_gpu.tape.levels import ENDED
from lucid_gpu.tape.native import core

_plans: dict[Any, Plan] = derived("plans of several values")
misdeclared = 0  # arrays that did not lie as their leaf's program said, so far
# Asked first, while reductions wait, for values that it computes in a kernel with them.
askers: list[Callable[[Sequence[Expr]], list[Any] | None]] = []


def realize(values: Sequence[Expr]) -> list[Any]:
    """Compute expressions of one shape and device in one kernel.

    Returns
    -------
    list of arrays
    """
    if watched.by is not None and (older := watched.by.realize(values)) is not None:
        return older
    if waiting:
        for ask in askers:
            results = ask(values)
            if results is not None:
                return results
    plan, leaves = plan_for(values)
    return execute(plan, leaves)


_STRIDES = attrgetter("strides")
_ARRAY = attrgetter("array")
_LIES = attrgetter("array.strides")


def execute(plan: Plan, leaves: Sequence[Cell]) -> list[Any]:
    """Run a plan on the arrays of its leaves."""
    by = watched.by
    if plan.ready is not None and by is None and not observers:
        stored: list[Any] | None = core.run(plan.ready, tuple(leaves))
        if stored is not None:
            return stored
    run = plan.executable
    if run is None:
        run = plan.executable = executor(plan)
    if by is not None:
        for leaf in plan.read:
            by.read(leaves[leaf])
    arrays = [*map(_ARRAY, map(leaves.__getitem__, plan.read))]
    scalars = [*map(_ARRAY, map(leaves.__getitem__, plan.numbers))] if plan.numbers else []
    if [*map(_STRIDES, arrays)] != plan.layouts:
        arrays = _as_declared(plan, arrays)
    if by is not None:
        first = partial(observed, plan, run) if observers else run
        return by.compute(plan, run, first, (arrays, scalars))
    results: list[Any] = observed(plan, run, arrays, scalars) if observers else run(arrays, scalars)
    if debug:
        print(describe(plan))
    return results


def _as_declared(plan: Plan, arrays: Sequence[Any]) -> list[Any]:
    """The arrays, copied where they do not lie as the plan's loads declare.

    Kernels compute addresses from the declared strides. Here is the one place where a declaration
    meets the array, so no kernel can read memory as something that it is not. A copy is right, but
    slow, and what declared the leaf is at fault: it is counted, and the tests want none.
    """
    global misdeclared
    result = []
    for load, array in zip(plan.all_loads, arrays, strict=True):
        if not _lies_as(array, load.layout):
            misdeclared += 1
            array = laid_out(array, load.layout)
        result.append(array)
    return result


def _lies_as(array: Any, strides: tuple[int, ...]) -> bool:
    """Whether each element is where these strides say; dimensions of one element have no say."""
    extents = zip(array.shape, array.strides, strides, strict=True)
    return array.size == 0 or all(n == 1 or a == b for n, a, b in extents)


def plan_for(values: Sequence[Expr]) -> tuple[Plan, Any]:
    """The plan of some expressions, and the leaves it reads."""
    if len(values) == 1:
        value = values[0]
        program, own = value.program, value.shape
        lies: Any = own
        if program.strided:
            lies = (own, *map(_LIES, map(value.leaves.__getitem__, program.strided)))
        plan = program.plans.get(lies)
        if plan is None:
            lie = dict(zip(program.strided, lies[1:])) if program.strided else {}
            plan = Plan((program,), (None,), own, lie, order_of(value))
            program.plans[lies] = plan
        return plan, value.leaves
    positions: dict[Cell, int] = {}
    key: list[Any] = [values[0].shape]
    patterns: list[Any] = []
    leaves, strided = None, False
    for value in values:
        strided = strided or bool(value.program.strided)
        if value.leaves is not leaves:  # gradients of one region read the same
            leaves = value.leaves
            pattern = tuple([positions.setdefault(cell, len(positions)) for cell in leaves])
        patterns.append(pattern)
        key += (value.program, pattern)
    found = tuple(positions)
    lie = strides_at(zip([v.program for v in values], patterns), found) if strided else {}
    known = (*key, *lie.values())
    plan = _plans.get(known)
    if plan is None:
        programs, shape = [v.program for v in values], values[0].shape
        plan = _plans[known] = Plan(programs, patterns, shape, lie, order_among(values))
    return plan, found


def strides_at(
    parts: Iterable[tuple[Program, Sequence[int]]], leaves: Sequence[Cell]
) -> dict[int, tuple[int, ...]]:
    """Return the strides of the leaves that are not row-major to programs which read them."""
    found: dict[int, tuple[int, ...]] = {}
    for program, pattern in parts:
        for leaf in program.strided:
            place = pattern[leaf]
            found[place] = leaves[place].array.strides
    return found


def executor(plan: Plan) -> Callable[..., Any]:
    """Make a plan runnable on its device."""
    for ins in plan.body.instructions:
        if ins.op == "wrapped":
            raise RuntimeError(ENDED)
    if plan.device.type == "meta":
        return _Shapes(plan)
    if runs_cuda_c(plan.device):
        from lucid_gpu.fusion import cuda_executor

        if plan.order is None or plan.over or plan.indices:
            return cuda_executor.Executable(plan)
        from lucid_gpu.fusion import memory_order

        return memory_order.OrderedOnGPU(plan, plan.order)
    from lucid_gpu.fusion import memory_order

    return memory_order.executable(plan)


class _Shapes:
    """A plan on the device meta: it gives arrays of the right shape and type."""

    source = "nothing is computed on the device meta"

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        order = None if plan.over or plan.indices else plan.order
        self.order = order if plan.reduction is None else None

    def __call__(self, arrays: Sequence[Any], scalars: Sequence[Any]) -> list[Any]:
        new = backend(self.plan.device).new
        return [
            as_laid(new((math.prod(s.shape),), s.dtype.numpy), s.shape, self.order)
            for s in self.plan.all_stores
        ]

    def over_rows(self, columns: Any, read: Any, scalars: Any) -> None:
        """Nothing is written."""


def _reordered(out: Any, source: Any) -> bool:
    from lucid_gpu.fusion.cuda_copies import copied

    return copied(out, source)


reorder_by(_reordered)


def source_of(plan: Plan) -> str:
    """The source of a plan's kernel."""
    if plan.executable is None:
        plan.executable = executor(plan)
    text: str = plan.executable.source
    return text


def describe(plan: Plan) -> str:
    """One kernel for a person to read: name, bytes, source."""
    return (
        f"kernel {plan.name} on {plan.device}: shape {list(plan.shape)}, "
        f"reads {plan.bytes_read} bytes, writes {plan.bytes_written} bytes\n{source_of(plan)}"
    )
