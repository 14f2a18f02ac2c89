"""Pending reductions: computed with others of the same values, and with what consumes them.

A reduction gives a leaf that holds no array yet. Reading the array computes it; an
elementwise expression of the results' shape is computed by the same kernel. Nothing waits long:
before any other kernel runs, all that the thread let wait are computed, and those over the same
axes of equally large values by one kernel, but for those that will read what that kernel stores. So
a reduction keeps what it reads alive no longer than until the next kernel. Another thread, which
may be on another stream of the GPU, leaves them alone.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, Sequence
from itertools import chain
from threading import get_ident
from typing import Any

from lucid_gpu.fusion import realize as realizing
from lucid_gpu.fusion.costs import costs_of
from lucid_gpu.fusion.expression import Cell, Expr, LateCell, made_here
from lucid_gpu.fusion.inside import made_of, remade
from lucid_gpu.fusion.layout import repeated
from lucid_gpu.fusion.plan import Plan, Reduction, Shape, Tail
from lucid_gpu.fusion.program import Program, load_program, when_forgotten
from lucid_gpu.fusion.realize import waiting
from lucid_gpu.fusion.reduction_table import TABLE
from lucid_gpu.fusion.scheduler import (
    MOST_REDUCTIONS,
    fits_a_kernel,
    mark_computed,
    may_wait,
)
from lucid_gpu.tape.modes import state

_lock = threading.RLock()  # held while reductions are computed: nobody sees half of them


class Recipe:
    """How the values of a program are reduced; kept on the program.

    Attributes
    ----------
    row : str
        A row of `reduction_table.TABLE`.
    axes : tuple of int
    shape : tuple of int
        Of the results.
    divisor : number or None
        See `reduction_table.Row.divides`.
    results : tuple of Program
        The load of each result.
    space : tuple
        Reductions of one space can share a kernel.
    plan : Plan or None
        Of the reduction alone, once it was needed.
    """

    __slots__ = ("axes", "divisor", "plan", "results", "row", "shape", "space")

    def __init__(
        self, program: Program, row: str, axes: tuple[int, ...], shape: Shape, divisor: Any
    ) -> None:
        self.row = row
        self.axes = axes
        self.shape = shape
        self.divisor = divisor
        self.results = tuple(
            [
                load_program(d, shape, None, False, program.device, made_here())
                for d in TABLE[row].types(program.dtype)
            ]
        )
        self.space = (program.device, program.shape, axes)
        self.plan: Plan | None = None


def _nobody() -> None:
    """Refer to no tensor."""


class Pending:
    """A reduction that waits.

    Attributes
    ----------
    value : Expr
        What is reduced.
    tensor : weak reference to Tensor
        Who was reduced, if it was a tensor.
    recipe : Recipe
    thread : int
        Who started it.
    cells : list of lists of weak references to Cell
        For each result of the row, the leaves that hold it.
    """

    __slots__ = ("__weakref__", "cells", "recipe", "tensor", "thread", "value")

    def __init__(self, value: Expr, recipe: Recipe, tensor: Any = None) -> None:
        self.tensor: Any = _nobody if tensor is None else weakref.ref(tensor)
        self.value = Expr(value.program, value.leaves, value.made_by)
        self.value.since = value.since
        self.recipe = recipe
        self.thread = get_ident()
        self.cells: list[list[Any]] = [[] for _ in recipe.results]

    def settle(self, arrays: Sequence[Any]) -> None:
        """Give the leaves their arrays, unless another thread did."""
        if state.task is None:
            mark_computed(self.reduced or self.value, itself=True)
        for references, array in zip(self.cells, arrays, strict=True):
            for reference in references:
                cell = reference()
                if cell is not None and cell.source is not None:
                    cell.array, cell.source = array, None

    def reads(self, value: Expr) -> bool:
        """Whether a value is what is reduced, or an operand of that."""
        own = self.value
        if own.program is value.program and own.leaves == value.leaves:
            return True
        return own.made_by is not None and value in own.made_by[1:]

    @property
    def reduced(self) -> Expr | None:
        """The value as its tensor has it, if that lives and has it still."""
        tensor = self.tensor()
        same = tensor is not None and tensor._expr.program is self.value.program
        return tensor._expr if same else None

    def shared(self, value: Expr) -> Expr | None:
        """What is to be stored of a pending value that is made of what this `reads`, or None.

        It is what is reduced, if it lies in there and its tensor lives.
        """
        inside, reduced = made_of(value), self.reduced
        if reduced in inside:
            return reduced
        return value if any(map(self.reads, inside)) else None

    def reread(self, value: Expr, stored: Expr) -> None:
        """Read what was stored in place of a value; the gradient goes back to that, too."""
        again, own, recipe = stored, self.value, self.recipe
        if own.made_by is not None and value in own.made_by[1:]:
            again = remade(own, [stored if e is value else e for e in own.made_by[1:]])
            for cell in self.results():
                if cell.node is not None and cell.leads:
                    for node, _ in cell.node._edges:
                        if node is not None:
                            node._remake(own, again)
        self.value = Expr(again.program, again.leaves, again.made_by)
        rest = recipe.row, recipe.axes, recipe.shape, recipe.divisor
        self.recipe = recipe_of(again.program, *rest)

    def results(self) -> list[Any]:
        """The living leaves that hold a result."""
        return [cell for cells in self.cells for r in cells if (cell := r()) is not None]


class ReducedCell(LateCell):
    """A leaf that holds a result of a pending reduction."""

    def __init__(self, pending: Pending, result: int, node: Any = None, output: int = 0) -> None:
        self.source = pending
        self.result: int = result
        self.node = node
        self.output = output
        pending.cells[result].append(weakref.ref(self))

    def fill(self) -> None:
        """Have the reduction computed, with all others that wait."""
        with _lock:
            pending = self.source
            if pending is not None:
                flush()
                if self.source is not None:  # it was no longer listed
                    _run_alone(pending)

    def _beside(self, node: Any, output: int) -> Cell:
        with _lock:
            if self.source is None:  # another thread was faster
                return Cell(self.array, node, output)
            return ReducedCell(self.source, self.result, node, output)


def leaves_of(
    value: Expr,
    row: str,
    axes: tuple[int, ...],
    shape: Shape,
    divisor: Any = None,
    tensor: Any = None,
) -> list[ReducedCell]:
    """Reduce a value, a tensor's, over some axes: a leaf for each result of the row.

    They are computed when somebody reads them.
    """
    recipe = recipe_of(value.program, row, axes, shape, divisor)
    with _lock:  # others forget the dead meanwhile
        if waiting:
            _bound(value)
        pending = Pending(value, recipe, tensor)
        waiting.append(weakref.ref(pending))
    return [ReducedCell(pending, i) for i in range(len(recipe.results))]


def summed_to(value: Expr, shape: Shape) -> Any:
    """The sum over what broadcasting ``shape`` repeated, as an array: computed without waiting."""
    key = (summed_to, shape)
    plan: Plan | None = value.program.next.get(key)
    if plan is None:
        axes = repeated(value.program.shape, shape)
        recipe = recipe_of(value.program, "sum", axes, shape, None)
        plan = value.program.next[key] = plan_of([Pending(value, recipe)])[0]
    return realizing.execute(plan, value.leaves)[0]


def recipe_of(
    program: Program, row: str, axes: tuple[int, ...], shape: Shape, divisor: Any
) -> Recipe:
    """What `start` has to know of a program, made once."""
    key = (row, axes, shape, divisor, made_here())
    recipe: Recipe | None = program.next.get(key)
    if recipe is None:
        recipe = program.next[key] = Recipe(program, row, axes, shape, divisor)
    return recipe


def _bound(value: Expr) -> None:
    """Compute those that wait, where they may not wait beside one of this value."""
    if len(waiting) >= MOST_REDUCTIONS:
        waiting[:] = [r for r in waiting if r() is not None]
    of_results = False
    for cell in value.leaves:
        if type(cell) is ReducedCell and cell.source is not None:
            of_results = True
    if not may_wait(value, len(waiting), of_results, _reduced()):
        flush()


def _run_alone(pending: Pending) -> None:
    value, recipe = pending.value, pending.recipe
    if recipe.plan is None:
        recipe.plan, _ = plan_of([pending], ())
    pending.settle(realizing.execute(recipe.plan, value.leaves))


def flush() -> None:
    """Compute everything that waits: one kernel for all of a space."""
    with _lock:
        taken = _taken()
        if len(taken) == 1:
            _run_alone(taken[0])
            return
        for group in _groups(taken):
            _run(group, (), True)


def _taken() -> list[Pending]:
    """Those of this thread that wait and that somebody still wants; they wait no longer."""
    mine = _wanted()
    waiting[:] = [r for r in waiting if (p := r()) is not None and p not in mine]
    return mine


def _wanted() -> list[Pending]:
    """Those of this thread that somebody still wants."""
    me = get_ident()
    return [p for r in waiting if (p := r()) is not None and p.thread == me]


def _reduced() -> Iterator[Expr]:
    """What those of this thread reduce; nobody is asked before the first is."""
    for pending in _wanted():
        yield pending.value


def _groups(pending: Sequence[Pending]) -> list[list[Pending]]:
    """Those of one space together, as many as fit a kernel."""
    spaces: dict[Any, list[Pending]] = {}
    for one in pending:
        spaces.setdefault(one.recipe.space, []).append(one)
    return [part for group in spaces.values() for part in _parts(group)]


def _parts(group: list[Pending]) -> list[list[Pending]]:
    """Those that fit a kernel together: of the same arrays, as in a region's gradient, most ops
    are the same.
    """
    parts: list[list[Pending]] = []
    steps = 0
    arrays: set[Cell] = set()
    for pending in group:
        own, length = {*pending.value.leaves}, pending.value.program.length
        if parts and own <= arrays:
            steps = length if length > steps else steps
        elif parts and fits_a_kernel(steps + length, len(own | arrays)):
            steps, arrays = steps + length, own | arrays
        else:
            parts.append([])
            steps, arrays = length, own
        parts[-1].append(pending)
    return parts


def realize_beside(values: Sequence[Expr]) -> list[Any] | None:
    """Compute what waits, and ``values`` in the same kernel where they are made of its results, or
    of what it reduces.

    Returns None where they are neither: then they have a kernel of their own.
    """
    with _lock:
        wanted = _wanted()
        if not wanted:
            waiting[:] = [r for r in waiting if r() is not None]  # other threads'
            return None
        group, made_of_them = _partners(values, wanted)
        if group:
            waiting[:] = [r for r in waiting if r() not in group]
        if waiting:
            flush()
        return _run(group, values, made_of_them) if group else None


def _partners(values: Sequence[Expr], wanted: Sequence[Pending]) -> tuple[list[Pending], bool]:
    """The reductions that share a kernel with values, and whether these are made of them."""
    group = _consumed(values)
    return (group, True) if group else (_fed(values, wanted), False)


def _fed(values: Sequence[Expr], wanted: Sequence[Pending]) -> list[Pending]:
    """Those wanted whose kernel can store these values too: of what they read themselves.

    That saves a pass, where the costs say so.
    """
    program = values[0].program
    if not (wanted and costs_of(program.device).stores_beside_sums):
        return []
    arrays: set[Cell] = set()
    steps = 0
    for v in values:
        arrays.update(v.leaves)
        steps += v.program.length
    for cell in arrays:
        if type(cell) is ReducedCell and cell.source is not None:
            return []
    reductions: list[Pending] = []
    for pending in wanted:
        value, space = pending.value, pending.recipe.space
        if space[:2] != (program.device, program.shape) or arrays.isdisjoint(value.leaves):
            continue
        together = arrays.union(value.leaves)
        steps += value.program.length
        if reductions and space != reductions[0].recipe.space:
            continue
        if not fits_a_kernel(steps, len(together)):
            break
        reductions.append(pending)
        arrays = together
    return reductions


def set_aside(values: Sequence[Expr]) -> list[Pending]:
    """The pending reductions that read these values: they go on with what is stored, see `reread`.

    Until then they wait, unless one kernel does both, as nearly always on a GPU.
    """
    if state.task is not None and values[0].program.device.type != "cpu":
        return []  # nor has the gradient a node
    with _lock:
        wanted = _wanted()
        readers = [p for p in wanted if any(map(p.reads, values))]
        if readers:
            apart = {*readers}.difference(_fed(values, wanted))
            waiting[:] = [r for r in waiting if r() not in apart]
        return readers


def reread(readers: Sequence[Pending], stored: Sequence[tuple[Expr, Expr]]) -> None:
    """Have reductions read what was stored in place of values."""
    with _lock:
        for pending in readers:
            for value, now in stored:
                if pending.reads(value):
                    pending.reread(value, now)
            if any(cell.source is not None for cell in pending.results()):
                waiting.append(weakref.ref(pending))


def would_run(values: Sequence[Expr]) -> tuple[list[tuple[Plan, Any]], tuple[Plan, Any] | None]:
    """What `realize_beside` would run first, and the kernel that ``values`` would be part of."""
    with _lock:
        wanted = _wanted()
        group, made_of_them = _partners(values, wanted) if values else ([], False)
        waits = [p for p in wanted if p not in group]
        others = _groups([p for p in waits if group or not any(map(p.reads, values))])
        own = plan_of(group, values, made_of_them) if group else None
        return [plan_of(g) for g in others], own


def _consumed(values: Sequence[Expr]) -> list[Pending]:
    """The pending reductions that these values can be the tail of."""
    reductions: list[Pending] = []
    for value in values:
        for cell in value.leaves:
            if type(cell) is not ReducedCell or cell.source is None:
                continue
            if cell.source not in reductions:
                reductions.append(cell.source)
    if not reductions:
        return []
    program, first = values[0].program, reductions[0].recipe
    arrays = {cell for value in values for cell in value.leaves}
    steps = sum([v.program.length for v in values])
    if first.space[0] != program.device or any(p.recipe.shape != program.shape for p in reductions):
        return []
    if any(p.recipe.space != first.space for p in reductions):
        return []
    steps += sum([p.value.program.length for p in reductions])
    count = len(arrays) + sum([p.value.program.leaves for p in reductions])
    return reductions if fits_a_kernel(steps, count) else []


_plans: dict[Any, Plan] = {}
when_forgotten.append(_plans.clear)


def _run(group: Sequence[Pending], values: Sequence[Expr], made_of_them: bool) -> list[Any]:
    """One kernel for reductions of one space and for values beside them; gives the values."""
    plan, leaves = plan_of(group, values, made_of_them)
    arrays = realizing.execute(plan, leaves)
    at = first = len(plan.wholes)
    for pending in group:
        count = len(pending.cells)
        pending.settle(arrays[at : at + count])
        at += count
    return arrays[:first] if first else arrays[at:]


def plan_of(
    group: Sequence[Pending], values: Sequence[Expr] = (), made_of_them: bool = True
) -> tuple[Plan, Sequence[Cell]]:
    """The plan of that kernel, and the leaves it reads.

    Parameters
    ----------
    made_of_them : bool
        The values are the tail; else they are of what is reduced, and stored as they are.
    """
    read = [*[p.value for p in group], *values]
    leaves = tuple(dict.fromkeys(chain.from_iterable([value.leaves for value in read])))
    places = dict(zip(leaves, range(len(leaves)))).__getitem__
    parts = [(value.program, tuple(map(places, value.leaves))) for value in read]
    heads, tails = parts[: len(group)], parts[len(group) :]
    results = {}
    if tails and made_of_them:
        for place, cell in enumerate(leaves):
            if type(cell) is ReducedCell and cell.source is not None:
                results[place] = group.index(cell.source), cell.result
    key = (made_of_them, *[p.recipe for p in group], *parts, *results.items())
    plan = _plans.get(key)
    if plan is None:
        plan = _plans[key] = _plan(group, heads, tails, results, made_of_them)
    return plan, leaves


Part = tuple[Program, tuple[int, ...]]


def _plan(
    group: Sequence[Pending],
    heads: Sequence[Part],
    tails: Sequence[Part],
    results: dict[int, tuple[int, int]],
    made_of_them: bool,
) -> Plan:
    recipes = [p.recipe for p in group]
    reduction = Reduction(
        recipes[0].axes, tuple([r.row for r in recipes]), tuple([r.shape for r in recipes])
    )
    tail, wholes = None, [] if made_of_them else tails
    if tails and made_of_them:
        starts = [sum([len(p.cells) for p in group[:i]]) for i in range(len(group))]
        plan = Plan([p for p, _ in tails], [pattern for _, pattern in tails])
        sources = [results.get(load.leaf) for load in plan.loads]
        tail = Tail(plan, tuple([None if s is None else starts[s[0]] + s[1] for s in sources]))
    return Plan(
        [p for p, _ in (*heads, *wholes)], [pattern for _, pattern in (*heads, *wholes)], reduction,
        tail=tail, divisors=[r.divisor for r in recipes], wholes=len(wholes),
    )  # fmt: skip


realizing.askers.append(realize_beside)
