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
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from threading import get_ident
from typing import Any

from lucid_gpu.core.layout import repeated
from lucid_gpu.core.program import Program, derived, load_program, spend
from lucid_gpu.core.value import ALWAYS, Cell, Expr, LateCell, order_among, strides_read
from lucid_gpu.fusion import realize as realizing
from lucid_gpu.fusion.building import made_here
from lucid_gpu.fusion.costs import costs_of
from lucid_gpu.fusion.inside import made_of, remade
from lucid_gpu.fusion.plan import Plan, Reduction, Shape, Tail
from lucid_gpu.fusion.realize import waiting
from lucid_gpu.fusion.reduction_table import TABLE
from lucid_gpu.fusion.scheduler import MOST_REDUCTIONS, fits_a_kernel, mark_computed, may_wait
from lucid_gpu.tape import modes
from lucid_gpu.tape.modes import state
from lucid_gpu.tape.native import core

OF_RECIPE = 400  # bytes, about
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
    results, recorded : tuples of Program
        The load of each result, not recorded and recorded.
    space : tuple
        Reductions of one space can share a kernel.
    plans : dict
        Of the reduction alone, by the strides of the leaves that are strided.
    tails : dict
        Of it with one value that goes on with it and runs in C, by `_remember_tail`.
    """

    __slots__ = (
        *("axes", "divisor", "plans", "recorded", "results", "row", "shape", "space", "tails"),
    )

    def __init__(
        self, value: Expr, row: str, axes: tuple[int, ...], shape: Shape, divisor: Any
    ) -> None:
        program = value.program
        self.row = row
        self.axes = axes
        self.shape = shape
        self.divisor = divisor
        types, where = TABLE[row].types(program.dtype), program.device
        self.results, self.recorded = [
            tuple([load_program(d, shape, False, needs, where, made_here()) for d in types])
            for needs in (False, types[0].category >= 2)
        ]
        self.space = (program.device, value.shape, axes)
        self.plans: dict[Any, Plan] = {}
        self.tails: dict[Any, Plan] = {}

    def on(self, value: Expr) -> Recipe:
        """The same of another value."""
        return recipe_of(value, self.row, self.axes, self.shape, self.divisor)


def nobody() -> None:
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
    cells : list of weak references to ReducedCell
        The leaves that hold its results.
    """

    __slots__ = ("__weakref__", "cells", "recipe", "tensor", "thread", "value")

    def __init__(self, value: Expr, recipe: Recipe, tensor: Any = None) -> None:
        self.tensor: Any = nobody if tensor is None else weakref.ref(tensor)
        stored = type(value) is Expr and value.program.is_load
        self.value = value if stored else _without_node(value)
        self.recipe = recipe
        self.thread = get_ident()
        self.cells: list[Any] = []

    def result(self, node: Any = None, output: int = 0, number: int = 0) -> Expr:
        """A result as a value, an output of a node or None."""
        recipe = self.recipe
        load = recipe.results[number]
        if load.dtype.category < 2:
            node = None
        if node is not None:
            load = recipe.recorded[number]
        return Expr(load, (ReducedCell(self, number, node, output),), None, recipe.shape)

    def settle(self, arrays: Sequence[Any]) -> None:
        """Give the leaves their arrays, unless another thread did."""
        if self.value.since != ALWAYS:
            mark_computed(self.reduced or self.value, itself=True)
        for reference in self.cells:
            cell = reference()
            if cell is not None and cell.source is not None:
                cell.array, cell.source = arrays[cell.result], None

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
        self.value = _without_node(again)
        self.recipe = recipe.on(again)

    def results(self) -> list[Any]:
        """The living leaves that hold a result."""
        return [cell for r in self.cells if (cell := r()) is not None]


def _without_node(value: Expr) -> Expr:
    """A value without its node."""
    other = Expr(value.program, value.leaves, value.made_by, value.shape)
    other.since = value.since
    return other


class ReducedCell(LateCell):
    """A leaf that holds a result of a pending reduction."""

    __slots__ = ("result", "source")

    def __init__(self, pending: Pending, result: int, node: Any = None, output: int = 0) -> None:
        self.source = pending
        self.result: int = result
        self.node = node
        self.output = output
        self.variable, self.version = None, 0
        pending.cells.append(weakref.ref(self))

    def fill(self) -> None:
        """Have the reduction computed, with all others that wait."""
        if core is not None and core.fill(self):
            return
        with _lock:
            pending = self.source
            if pending is not None:
                flush()
                if self.source is not None:  # it was no longer listed
                    _compute([pending])

    def _beside(self, node: Any, output: int) -> Cell:
        with _lock:
            source = self.source
            if source is None:  # another thread was faster
                return Cell(self.array, node, output)
            return ReducedCell(source, self.result, node, output)


def started(value: Expr, recipe: Recipe, tensor: Any) -> Pending:
    """Reduce a value, that of a tensor or None: it is computed when somebody reads a result."""
    with _lock:  # others forget the dead meanwhile
        if waiting:
            make_room(value)
        pending = Pending(value, recipe, tensor)
        waiting.append(weakref.ref(pending))
    return pending


start: Callable[[Expr, Recipe, Any], Pending] = started if core is None else core.start


def summed_to(value: Expr, shape: Shape) -> Any:
    """The sum over what broadcasting ``shape`` repeated, as an array: computed without waiting."""
    program = value.program
    key = (program, shape, value.shape, program.strided and strides_read(value))
    plan = _plans_of_sums.get(key)
    if plan is None:
        recipe = recipe_of(value, "sum", repeated(value.shape, shape), shape, None)
        plan = _plans_of_sums[key] = plan_of([Pending(value, recipe)])[0]
    return realizing.execute(plan, value.leaves)[0]


def recipe_of(value: Expr, row: str, axes: tuple[int, ...], shape: Shape, divisor: Any) -> Recipe:
    """What `start` has to know of a value, made once."""
    key = (value.program, row, axes, shape, divisor, value.shape, modes.watchers and made_here())
    recipe = _recipes.get(key)
    if recipe is None:
        recipe = _recipes[key] = Recipe(value, row, axes, shape, divisor)
        spend(OF_RECIPE)
    return recipe


def make_room(value: Expr) -> None:
    """Compute those that wait, where they may not wait beside one of this value."""
    with _lock:
        if len(waiting) >= MOST_REDUCTIONS:
            waiting[:] = [r for r in waiting if r() is not None]
        of_results = False
        for cell in value.leaves:
            if cell.result is not None and cell.source is not None:
                of_results = True
        if not may_wait(value, len(waiting), of_results, _reduced()):
            flush()


def flush() -> None:
    """Compute everything that waits: one kernel for all of a space."""
    with _lock:
        _compute(_wanted(True))


def _compute(reductions: Sequence[Pending]) -> None:
    if len(reductions) != 1:
        for group in _groups(reductions):
            _run(group, (), True)
        return
    (pending,) = reductions
    value, recipe = pending.value, pending.recipe
    lies = value.program.strided and strides_read(value)
    plan = recipe.plans.get(lies)
    if plan is None:
        plan = recipe.plans[lies] = plan_of(reductions)[0]
    pending.settle(realizing.execute(plan, value.leaves))


def _wanted(taken: bool = False) -> list[Pending]:
    """Return those of this thread that somebody still wants; what nobody wants waits no longer.

    Nor do they where they are ``taken``.
    """
    me, mine, wait = get_ident(), [], []
    for reference in waiting:
        pending = reference()
        if pending is not None:
            own = pending.thread == me
            if own:
                mine.append(pending)
            if not (own and taken):
                wait.append(reference)
    waiting[:] = wait
    return mine


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
        own, length = {*pending.value.leaves}, len(pending.value.program.instructions)
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
    where, shape = values[0].program.device, values[0].shape
    if not (wanted and costs_of(where).stores_beside_sums):
        return []
    arrays: set[Cell] = set()
    steps = 0
    for v in values:
        arrays.update(v.leaves)
        steps += len(v.program.instructions)
    for cell in arrays:
        if type(cell) is ReducedCell and cell.source is not None:
            return []
    reductions: list[Pending] = []
    for pending in wanted:
        value, space = pending.value, pending.recipe.space
        if space[:2] != (where, shape) or arrays.isdisjoint(value.leaves):
            continue
        together = arrays.union(value.leaves)
        steps += len(value.program.instructions)
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
    where, shape = values[0].program.device, values[0].shape
    reductions: list[Pending] = []
    leaves: set[Cell] = set()
    steps = count = 0
    for value in values:
        steps += len(value.program.instructions)
        leaves.update(value.leaves)
        for cell in value.leaves:
            pending = None if cell.result is None else cell.source
            if pending is None or pending in reductions:
                continue
            space = (reductions or [pending])[0].recipe.space
            if space[0] != where or pending.recipe.shape != shape or pending.recipe.space != space:
                return []
            steps += len(pending.value.program.instructions)
            count += pending.value.program.leaves
            reductions.append(pending)
    return reductions if fits_a_kernel(steps, len(leaves) + count) else []


_plans: dict[Any, Plan] = derived("plans of several reductions")
_plans_of_sums: dict[tuple[Program, Shape, Shape, tuple[Shape, ...]], Plan] = derived(
    "plans of sums over what was repeated"
)
_recipes: dict[tuple[Program, str, Shape, Shape, Any, Shape, int], Recipe] = derived("reductions")


def _run(group: Sequence[Pending], values: Sequence[Expr], made_of_them: bool) -> list[Any]:
    """One kernel for reductions of one space and for values beside them; gives the values."""
    plan, leaves = plan_of(group, values, made_of_them)
    if plan.ready is not None and made_of_them and len(group) == len(values) == 1:
        _remember_tail(group[0], values[0], plan, leaves)
    arrays = realizing.execute(plan, leaves)
    at = first = len(plan.wholes)
    for pending in group:
        pending.settle(arrays[at:] if at else arrays)
        at += len(pending.recipe.results)
    return arrays[:first] if first else arrays[at:]


def _remember_tail(pending: Pending, value: Expr, plan: Plan, leaves: Sequence[Cell]) -> None:
    """Keep a plan for C, by the value's program and where its leaves are among all.

    Those that hold a result are told by negative places.
    """
    places = [*map(leaves.index, value.leaves)]
    for i, cell in enumerate(value.leaves):
        if cell.source is pending:
            places[i] = -1 - places[i]
    if leaves[: len(pending.value.leaves)] == pending.value.leaves:
        key = (value.program, *places)
        pending.recipe.tails[key] = plan


def plan_of(
    group: Sequence[Pending], values: Sequence[Expr] = (), made_of_them: bool = True
) -> tuple[Plan, Sequence[Cell]]:
    """The plan of that kernel, and the leaves it reads.

    Parameters
    ----------
    made_of_them : bool
        The values are the tail; else they are of what is reduced, and stored as they are.
    """
    read = [*map(_VALUE, group), *values]
    leaves = tuple(dict.fromkeys(chain.from_iterable(map(_LEAVES, read))))
    place_of = dict(zip(leaves, range(len(leaves)))).__getitem__
    parts, results = [], {}
    for value in read:
        parts.append((value.program, tuple(map(place_of, value.leaves))))
    if values and made_of_them:
        for place, cell in enumerate(leaves):
            source = None if cell.result is None else cell.source  # C computes it without the lock
            if source is not None:
                results[place] = group.index(source), cell.result
    lie = realizing.strides_at(parts, leaves) if any(map(_STRIDED, read)) else {}
    key = (made_of_them, *map(_RECIPE, group), *parts, *results.items(), *lie.items())
    plan = _plans.get(key)
    if plan is None:
        heads, tails = parts[: len(group)], parts[len(group) :]
        plan = _plans[key] = _plan(group, heads, tails, results, made_of_them, lie, values)
    return plan, leaves


_VALUE, _LEAVES, _RECIPE = attrgetter("value"), attrgetter("leaves"), attrgetter("recipe")
_STRIDED = attrgetter("program.strided")
Part = tuple[Program, tuple[int, ...]]


def _plan(
    group: Sequence[Pending],
    heads: Sequence[Part],
    tails: Sequence[Part],
    results: dict[int, tuple[int, int]],
    made_of_them: bool,
    lie: Mapping[int, tuple[int, ...]],
    values: Sequence[Expr],
) -> Plan:
    recipes = [p.recipe for p in group]
    reduction = Reduction(
        recipes[0].axes, tuple([r.row for r in recipes]), tuple([r.shape for r in recipes])
    )
    tail, wholes = None, [] if made_of_them else tails
    if tails and made_of_them:
        starts = [sum([len(r.results) for r in recipes[:i]]) for i in range(len(group))]
        programs, patterns = [p for p, _ in tails], [pattern for _, pattern in tails]
        plan = Plan(programs, patterns, recipes[0].shape, lie, order_among(values))
        sources = [results.get(load.leaf) for load in plan.loads]
        tail = Tail(plan, tuple([None if s is None else starts[s[0]] + s[1] for s in sources]))
    return Plan(
        [p for p, _ in (*heads, *wholes)], [pattern for _, pattern in (*heads, *wholes)],
        recipes[0].space[1], lie, reduction=reduction, tail=tail,
        divisors=[r.divisor for r in recipes], wholes=len(wholes),
    )  # fmt: skip


realizing.askers.append(realize_beside)
