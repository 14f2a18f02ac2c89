"""When pending values are computed, and which are stored: every rule, a function each.

Nothing here computes. The files that do ask here, and each function says who they are; where a test
is repeated on a fast path, that line names the rule. Outside of these rules a value is computed
when somebody reads it (`Tensor.array`), or before its GPU goes on with another stream
(`lucid_gpu.cuda.pending`); at once where `at_once` says so; and before it becomes a leaf of the
graph, `leaf_first`. `docs/fusion.md` ("What a loop leaves unread") has the same numbers for the
first five.

1. What an op in place wrote is stored with the thread's next kernel: `note_write`, `take_written`,
   `kernels_of`; before the write where too much waits: `full`.
2. What was pending when a step ended is stored when something is built on it: `begin_step`,
   `begin_pass`, `end_pass`, `old`.
3. So is what a kernel has computed on its way to another value, or will have when the result of a
   reduction is there that is an operand, too: `mark_computed`, `met`.
4. A program that grows is cut: where a turn of a loop begins, or where a kernel is full: `cut`,
   `stored_first`, `fits_a_kernel`.
5. A number that is another one in a later step, or shape, is an argument: `stays`,
   `changes_with_shape`.
6. A reduction waits for the thread's next kernel: `may_wait`.
7. A pass back stores what several nodes will read: `cotangent_first`, `shared_parts`,
   `worth_storing`, and sums of many gradients: `sum_first`; what it need not compute at once it
   computes together: `sums_at_once`, `computed_together`.
"""

from __future__ import annotations

import functools
import math
import weakref
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Any

from lucid_gpu.core.node import AccumulateGrad, Edge
from lucid_gpu.core.planning import steps
from lucid_gpu.core.program import Instruction, Program
from lucid_gpu.core.value import ALWAYS, COMPUTED, LEAF_WRITTEN
from lucid_gpu.device import device
from lucid_gpu.devices.cuda_memory import addressed
from lucid_gpu.fusion import Eager
from lucid_gpu.fusion.costs import costs_of
from lucid_gpu.fusion.repetition import turns_behind
from lucid_gpu.tape import watched
from lucid_gpu.tape.modes import state

LIMIT = 96  # instructions of a kernel
MAX_LEAVES = 24  # arrays it may read


def at_once(shared: bool) -> bool:
    """Whether an op's result is computed on its own line: asked by `lucid_gpu.tensor.apply`.

    ``shared`` is whether an operand's memory can be written by others: nobody would see them do it.
    """
    return shared or (Eager.on and not state.composing)


def leaf_first(value: Any) -> bool:
    """Whether a value is computed before it is marked as a leaf of the graph.

    Every gradient would compute it again; what takes no kernel may stay as it is.
    """
    return bool(value.since < ALWAYS)


# --- 1: writes in place ---------------------------------------------------------------------------

MOST_WRITTEN = 512  # tensors that wait
WRITES_OF_A_NAME = 2  # that a value holds


def note_write(tensor: Any, name: str) -> None:
    """A tensor's value is now pending, written by the op of this name.

    What is written in place is meant to live on: a momentum, a moving average. Were it left
    pending, its program would grow from step to step, and no step would run what another one ran.
    So it waits for the thread's next kernel, and no longer. Told by `lucid_gpu.ops.in_place`.
    """
    entries = state.written
    entry = entries.get(id(tensor))
    if entry is None or entry[0]() is not tensor:
        names: list[str] = []
        entry = entries[id(tensor)] = (weakref.ref(tensor), names)
    entry[1].append(name)


def full(tensor: Any, name: str) -> bool:
    """Whether what is written has to be stored before the op of this name writes the tensor.

    Where no kernel runs, a value holds each write at most twice. Asked by `lucid_gpu.ops.in_place`.
    """
    entries = state.written
    entry = entries.get(id(tensor))
    if entry is None or entry[0]() is not tensor:
        return len(entries) >= MOST_WRITTEN
    return bool(entry[1].count(name) >= WRITES_OF_A_NAME)


def take_written() -> list[Any]:
    """The written tensors that live and are pending still; they wait no longer."""
    entries, state.written = state.written, {}
    return [
        tensor
        for reference, _ in entries.values()
        if (tensor := reference()) is not None and not tensor._expr.program.is_load
    ]


def kernels_of(tensors: Sequence[Any]) -> list[list[Any]]:
    """Tensors of one shape that read the same arrays, as many as fit one kernel, together.

    Asked by `lucid_gpu.tensor.store_written`.
    """
    if len(tensors) == 1:
        return [[*tensors]]
    groups: list[_Group] = []
    spaces: dict[Any, dict[Any, _Group]] = {}  # by shape and device; the groups by leaf
    for tensor in tensors:
        program, leaves = tensor._expr.program, tensor._expr.leaves
        reading = spaces.setdefault((tensor._expr.shape, program.device), {})
        group = None
        for leaf in leaves:
            group = reading.get(leaf)
            if group is not None:
                break
        if group is None or not group.takes(tensor, program, leaves):
            group = _Group(tensor, program, leaves)
            groups.append(group)
        for leaf in leaves:
            reading[leaf] = group
    return [group.tensors for group in groups]


class _Group:
    """What one kernel stores."""

    def __init__(self, tensor: Any, program: Program, leaves: Sequence[Any]) -> None:
        self.tensors = [tensor]
        self.leaves = {*leaves}
        self.steps = len(program.instructions)

    def takes(self, tensor: Any, program: Program, leaves: Sequence[Any]) -> bool:
        """Take a tensor, if the kernel has room for it."""
        steps, all_leaves = self.steps + len(program.instructions), self.leaves.union(leaves)
        # Values beside each other have ops in common: twice as many of them make a kernel.
        if steps > 2 * LIMIT or len(all_leaves) > MAX_LEAVES:
            return False
        self.tensors.append(tensor)
        self.leaves, self.steps = all_leaves, steps
        return True


# --- 2 and 3: what is old -------------------------------------------------------------------------


def begin_step() -> None:
    """Work begins anew: a value read, data brought in.

    What has been pending since before is stored when something new is built on it.
    """
    steps.count += 1
    state.step = steps.refresh()


def begin_pass() -> None:
    """A pass back begins: what is pending may be part of what it computes."""
    steps.count += 1


def end_pass() -> None:
    """What was pending before the pass is old now, but not its results."""
    state.step = steps.refresh()
    if addressed:
        addressed.clear()


def old(values: Sequence[Any], recorded: Any) -> list[Any]:
    """Those values that are stored before an op is applied to them.

    They have been pending since before the step, or were computed meanwhile. None in a pass back,
    which computes again what it wants. Asked by `lucid_gpu.fusion.building.build`; the ops'
    methods in `lucid_gpu.tensor` ask where a value was made before `steps.fresh`.

    Parameters
    ----------
    values : sequence of Expr
    recorded : bool or None
        Whether the op is recorded.
    """
    if state.task is not None:
        return []
    found = met(values) if len(values) > 1 and waiting else []
    return found + [
        value
        for value in values
        if value.since < state.step and value.leaves and (recorded or value.since != LEAF_WRITTEN)
    ]


def mark_computed(value: Any, itself: bool = False) -> None:
    """A kernel has computed what lies inside of this: building on that again stores it.

    And ``itself``, where the kernel did not store it. What is older than the step is stored anyway,
    as after a pass back all is that was before its end; nothing inside a value is younger than it.
    Told by who ran the kernel: `lucid_gpu.tensor`, `lucid_gpu.fusion.pending_reductions`.
    """
    step = state.step
    if state.task is not None or (value.since < step and value.since != LEAF_WRITTEN):
        return
    by = watched.by
    if itself and 0 <= value.since < ALWAYS:
        if by is not None:
            by.undated(value)
        value.since = COMPUTED
    if value.made_by is None:
        return
    kind = type(value)  # the others are the op, and numbers
    sources = [value.made_by]
    for made_by in sources:  # which grows
        for inner in made_by:
            if type(inner) is kind and step <= inner.since < ALWAYS:
                if by is not None:
                    by.undated(inner)
                inner.since = COMPUTED
                if inner.made_by is not None:
                    sources.append(inner.made_by)


def met(values: Sequence[Any]) -> list[Any]:
    """Return those operands that a waiting reduction shares ops with, where another reads its
    result: a second kernel is to compute them, which stores them.

    The reduction then reads what was stored.
    """
    found: list[Any] = []
    for other in values:
        for leaf in other.leaves:
            source = None if leaf.result is None else leaf.source  # others compute it meanwhile
            if source is None:
                continue
            for value in values:
                if value is other or value.since == ALWAYS:
                    continue
                if not set(value.leaves).isdisjoint(source.value.leaves):
                    shared = source.shared(value)
                    found += [] if shared is None else [shared]
    return found


def mark_written(value: Any) -> None:
    """A leaf of the graph was written in place and has this value now."""
    if watched.by is not None:
        watched.by.undated(value)
    value.since = LEAF_WRITTEN


# --- 4: where a program is cut --------------------------------------------------------------------

TURNS = 2  # of a loop outside of `backward` that bring in arrays and are one kernel
SUMMED = 4  # ... of a single op: a sum of losses


class Cut(Enum):
    """Why a program is cut."""

    FULL = "it has too many ops, or reads too many arrays"
    REPEATS = "a turn of a loop is complete"


def fits_a_kernel(instructions: int, leaves: int = 0) -> bool:
    """Whether one kernel has the registers for so much."""
    return instructions <= LIMIT and leaves <= MAX_LEAVES


def cut(instructions: Sequence[Instruction], leaves: int, most_turns: int) -> Cut | None:
    """Say why operands are stored before the last of these instructions, None where they are not.

    ``most_turns`` is how many turns of a loop that each bring in an array make one kernel: `TURNS`,
    or in a pass back what the costs say.

    A loop whose values nobody reads between its turns builds one program over many turns. It is cut
    by what repeats, and not where the limit happens to fall, so that every cut comes at the same
    place of a turn and the loop runs the same kernels again and again: turns that each bring in an
    array of their own after ``most_turns``, those that go on computing on the same arrays when the
    next whole one would not fit. Asked by `lucid_gpu.fusion.building.build`.
    """
    if not fits_a_kernel(len(instructions), leaves):
        return Cut.FULL
    turns = turns_behind(instructions)
    if turns is None:
        return None
    if turns.bring_arrays:
        most = most_turns if turns.ops > 1 else max(most_turns, SUMMED)
        return Cut.REPEATS if turns.behind >= most else None
    reads = sum([ins.op in ("load", "scalar") for ins in instructions])
    next_one = len(instructions) + turns.length, reads + turns.numbers
    return None if fits_a_kernel(*next_one) else Cut.REPEATS


def stored_first(why: Cut, pending: Sequence[Any]) -> Sequence[Any]:
    """Which of an op's pending operands are stored before it, where its program is cut."""
    if why is Cut.REPEATS:
        begin_step()
        return pending
    return [max(pending, key=lambda value: len(value.program.instructions))]


# --- 5: numbers -----------------------------------------------------------------------------------

MOST_NUMBERS = 4  # different ones at one place before they become an argument


def stays(number: Any, first: int, known: set[Any], exponent: bool = False) -> bool:
    """Whether a number is part of the program, and not an argument of the kernel.

    It is where it was met in the first step that had a number there. One that is new in a later
    step changes from step to step, as a learning rate does: it is an argument, and so are numbers
    after the first few. Exponents that are known make products, in whatever step they come.

    Parameters
    ----------
    number : hashable
    first : int
        The step in which there first was a number at this place.
    known : set
        Those that stayed; one more is added.
    """
    if number in known:
        return True
    if len(known) < MOST_NUMBERS and (first == state.step or exponent):
        known.add(number)
        return True
    return False


FIRST_NUMBERS = 2  # of different shapes, before those of others become arguments


def changes_with_shape(number: Any, firsts: set[Any]) -> bool:
    """Whether a number that is the first in its shape changes with that, as the count of a mean
    does.

    ``firsts`` are those of other shapes; one more is added.
    """
    if number in firsts:
        return False
    if len(firsts) >= FIRST_NUMBERS:
        return True
    firsts.add(number)
    return False


# --- 6: reductions --------------------------------------------------------------------------------

waiting: list[Any] = []  # weak references to them: `lucid_gpu.fusion.pending_reductions`
MOST_REDUCTIONS = 8  # that wait at the same time
LARGE = 1 << 22  # elements of a value that waits only beside reductions of the same arrays


def may_wait(value: Any, waiting: int, of_results: bool, beside: Iterable[Any]) -> bool:
    """Whether those that wait go on waiting when another reduction is started.

    Before any other kernel all of them run. No reduction waits for another, and only a few wait at
    all. Asked by `lucid_gpu.fusion.pending_reductions`.

    Parameters
    ----------
    value : Expr
        What the new one reduces.
    waiting : int
        How many wait.
    of_results : bool
        Whether it reads the result of one that waits.
    beside : iterable of Expr
        What those that wait reduce.
    """
    if waiting >= MOST_REDUCTIONS or of_results:
        return False
    if math.prod(value.shape) < LARGE:
        return True
    leaves = set(value.leaves)  # else no array is read twice, and those that wait hold much memory
    return any(not leaves.isdisjoint(other.leaves) for other in beside)


# --- 7: passes back; asked by `lucid_gpu.fusion.region` and `lucid_gpu.fusion.gradient` -----------

STORED_FROM = 1 << 15  # elements of a cotangent that is stored for several kernels
STORED_STEPS = 4  # ... and instructions that each of them would compute again
SUMMED_STEPS = 16  # instructions of a cotangent that a region's sums and its other results compute


def cotangent_first(cotangent: Program, through: Any) -> bool:
    """Return whether a pending cotangent is stored before a `RegionNode` goes backward with it.

    It is where both would be too much for a kernel, where its own gradient will be asked for, and
    where it is long and ``through`` sums it for nodes that go on: the kernel of the sum computes
    it, and what goes on would again. A sum for a leaf of the graph (a bias) ends there.
    """
    if cotangent.is_load:
        return False
    steps = len(cotangent.instructions)
    if not fits_a_kernel(steps + len(through.program.instructions)):
        return True
    if steps > SUMMED_STEPS:
        summed_to = [through._edges[i][0] for i in through.facts.summed]
        if any(type(node) is not AccumulateGrad for node in summed_to):
            return True
    return bool(state.grad and cotangent.needs_grad)


ADDED_AT_ONCE = 8  # small gradients that one kernel adds up on the CPU
SMALL_SUM = 1 << 14  # elements


def sum_first(value: Any) -> bool:
    """Whether a sum of gradients that come for one node is stored before another is added to it.

    A sum of two arrays is. So it takes the same kernel however many there are, as for the weights
    of a recurrence over sequences of any length. On the CPU, where a new length may be planned
    anew, small ones wait for more. Asked by `Tensor.plus`.
    """
    total, arrays = value.program, len(value.leaves)
    if total.is_load or total.root.op != "add" or len(total.instructions) != 2 * arrays - 1:
        return False
    few = costs_of(total.device).fuses_small or math.prod(value.shape) > SMALL_SUM
    return arrays >= (2 if few else ADDED_AT_ONCE)


def shared_parts(
    repeated: frozenset[Any], summed: frozenset[Any], where: device
) -> list[tuple[frozenset[Any], int]]:
    """Parts of a region's gradient to be stored before the others, once so many nodes read them,
    where nothing is recorded.

    What two ops would each have computed from the pending cotangent, both read: what a loop carries
    along would otherwise be computed again from every cotangent on its way. And where that is
    cheaper, a part that is summed and read by one op: ``relu(x @ w + b)`` masks its cotangent once,
    and b's gradient sums what x's stored. In CUDA C one kernel does both.

    Parameters
    ----------
    repeated, summed : frozenset of Part
        What goes to several leaves; what a step sums and is itself a result too.
    """
    shared: list[tuple[frozenset[Any], int]] = []
    if repeated:
        shared.append((repeated, 2))
    if summed and costs_of(where).stores_shared:
        shared.append((summed, 1))
    return shared


@functools.lru_cache(1 << 12)
def is_large(shape: tuple[int, ...]) -> bool:
    """Whether a cotangent of this shape may be `worth_storing`."""
    return math.prod(shape) >= STORED_FROM


def worth_storing(where: device, instructions: int) -> bool:
    """Whether a large cotangent inside a region that is summed and goes on is stored for both.

    Kernels would compute it again, by so many instructions, at more cost than reading it.
    """
    return instructions >= STORED_STEPS and costs_of(where).stores_shared


def sums_at_once(sums: int, where: device) -> bool:
    """Whether the sums of a region's gradient do not wait where nothing is recorded: there is no
    other to share a kernel.
    """
    return sums == 1 and costs_of(where).calls_for_a_sum


def computed_together(
    cotangent: Program, results: Sequence[Any], edges: Sequence[Edge]
) -> tuple[list[Any], bool]:
    """Those gradients of a region that one kernel computes, and whether it does so at once.

    They are those of leaves, and of nodes that only read them (slices); where several of these are
    long, at once: sums with others would soon be too long for one program, and be computed one by
    one. And where a pending cotangent is read by one branch, what then still waits for a gradient
    of the other is stored beside: a residual's sum would otherwise be computed again in every
    block.
    """
    members, long = [], 0
    beside = len(results) > 1 and not (state.grad or cotangent.is_load)
    if beside:
        beside = any(
            node is not None and node.reads_cotangent and not result._expr.program.is_load
            for result, (node, _) in zip(results, edges)
        )
    for result, (node, _) in zip(results, edges):
        program = result._expr.program
        if node is None or program.is_load:
            continue
        length = len(program.instructions)
        if node.reads_alone:
            long += length > LIMIT // 2
        elif type(node) is not AccumulateGrad and not beside and fits_a_kernel(length):
            continue
        members.append(result)
    return members, long > 1
