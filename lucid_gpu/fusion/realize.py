"""From pending expressions to arrays: find the plan, run it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from operator import attrgetter
from threading import get_ident
from typing import Any

from lucid_gpu.devices import backend, capturing
from lucid_gpu.devices.copies import as_laid, laid_out
from lucid_gpu.fusion.expression import Cell, Expr
from lucid_gpu.fusion.plan import Plan
from lucid_gpu.fusion.program import when_forgotten
from lucid_gpu.fusion.scheduler import waiting
from lucid_gpu.launch import runs_cuda_c
from lucid_gpu.launch.observers import debug, observed, observers
from lucid_gpu.tape.levels import ENDED
from lucid_gpu.tape.modes import state

_plans: dict[Any, Plan] = {}
when_forgotten.append(_plans.clear)
misdeclared = 0  # arrays that did not lie as their leaf's program said, so far
# Asked first, while reductions wait, for values that it computes in a kernel with them.
askers: list[Callable[[Sequence[Expr]], list[Any] | None]] = []


def realize(values: Sequence[Expr]) -> list[Any]:
    """Compute expressions of one shape and device in one kernel.

    Returns
    -------
    list of arrays
    """
    if capturing.recorder is not None:
        recorder = capturing.recording()
        if recorder is not None and all(recorder.older(value) for value in values):
            with outside(recorder):  # it is there before the graph's first call
                return realize(values)
    if waiting:
        for ask in askers:
            results = ask(values)
            if results is not None:
                return results
    plan, leaves = plan_for(values)
    return execute(plan, leaves)


@contextmanager
def outside(recorder: capturing.Recorder) -> Iterator[None]:
    """What comes is no part of a capture, nor is what the capture has left waiting part of it."""
    written, state.written = state.written, {}
    me = get_ident()
    mine = [reference for reference in waiting if (p := reference()) is not None and p.thread == me]
    for reference in mine:
        waiting.remove(reference)
    recorder.pause()
    try:
        yield
    finally:
        recorder.go_on()
        waiting.extend(mine)
        state.written = written | state.written


_STRIDES = attrgetter("strides")
_ARRAY = attrgetter("array")


def execute(plan: Plan, leaves: Sequence[Cell]) -> list[Any]:
    """Run a plan on the arrays of its leaves."""
    run = plan.executable
    if run is None:
        run = plan.executable = executor(plan)
    if capturing.recorder is not None:
        recorder = capturing.recording()
        if recorder is not None:
            for leaf in plan.read:
                recorder.note_read(leaves[leaf])
    arrays = [*map(_ARRAY, map(leaves.__getitem__, plan.read))]
    scalars = [*map(_ARRAY, map(leaves.__getitem__, plan.numbers))] if plan.numbers else []
    if [*map(_STRIDES, arrays)] != plan.layouts:
        arrays = _as_declared(plan, arrays)
    recorder = None if capturing.recorder is None else capturing.capturing()
    if recorder is not None:
        call = recorder.call if plan.device.type == "cpu" else recorder.call_on_gpu
        return list(call(plan.name, _Observed(plan, run), (arrays, scalars)))
    results: list[Any] = observed(plan, run, arrays, scalars) if observers else run(arrays, scalars)
    if debug:
        print(describe(plan))
    return results


class _Observed:
    """An executable that a graph holds: observers see it run while it is recorded."""

    def __init__(self, plan: Plan, run: Any) -> None:
        self.plan, self.run = plan, run

    def __call__(self, arrays: Sequence[Any], scalars: Sequence[Any]) -> list[Any]:
        if observers:
            return list(observed(self.plan, self.run, arrays, scalars))
        return list(self.run(arrays, scalars))

    @property
    def bound(self) -> Any:
        """What the executor makes for a graph, if it has a way to run into the same results."""
        return getattr(self.run, "bound", None)


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
        program = values[0].program
        plan = program.plan
        if plan is None:
            plan = program.plan = Plan((program,), (None,))
        return plan, values[0].leaves
    positions: dict[Cell, int] = {}
    key: list[Any] = []
    patterns: list[Any] = []
    leaves = None
    for value in values:
        if value.leaves is not leaves:  # gradients of one region read the same
            leaves = value.leaves
            pattern = tuple([positions.setdefault(cell, len(positions)) for cell in leaves])
        patterns.append(pattern)
        key += (value.program, pattern)
    known = tuple(key)
    plan = _plans.get(known)
    if plan is None:
        plan = _plans[known] = Plan([v.program for v in values], patterns)
    return plan, tuple(positions)


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
