"""The backward pass: every node once, after all that feeds it, without recursion."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from heapq import heappop, heappush, heappushpop
from typing import TYPE_CHECKING, Any, Protocol

from lucid_gpu.core import node as nodes_of
from lucid_gpu.core.hooks import Gradient, run_before, show_to_tensors
from lucid_gpu.core.node import AccumulateGrad, Edge, Node, run_node, watching
from lucid_gpu.tape.door import interpreters
from lucid_gpu.tape.modes import OFF, set_mode, state, watch
from lucid_gpu.tape.native import core
from lucid_gpu.tape.overrides import handling, without_handlers

if TYPE_CHECKING:
    from lucid_gpu.tensor import Tensor

Key = tuple[Node, int]

MANY = 4  # gradients still to come with which a sum is stored: see `Tensor.plus`
PASSES_PER_THREAD = 20  # inside each other; deeper ones get a thread, and so a stack, of their own


class observing:
    """Counts who may want to see gradients inside fused regions (hooks, non-leaf inputs).

    While nobody does, regions go backward as a whole.
    """

    count = 0
    _lock = threading.RLock()

    @classmethod
    def add(cls, change: int) -> None:
        with cls._lock:
            cls.count += change


counting = threading.RLock()  # held while a pass counts edges, and where a node gets others
_running: dict[Pass, None] = {}  # on all threads
_around: Callable[[], AbstractContextManager[None]] | None = None


def run_inside(context: Callable[[], AbstractContextManager[None]] | None) -> None:
    """Run every pass inside of a ``with context()``: a program with streams orders them there."""
    global _around
    _around = context


class Work(Protocol):
    """What another thread computes for a pass."""

    def end(self) -> None:
        """Wait for it."""


class Pass:
    """One call of `backward`.

    Attributes
    ----------
    depth : int
        How many other passes it runs inside.
    everywhere : bool
        Whether it accumulates into every leaf it can reach.
    retain_graph, create_graph : bool
        See `backward`.
    watcher : Watcher or None
        Runs the nodes, if not None: see `lucid_gpu.core.node.watching`.
    background : list of Work
        What other threads still compute for it.
    waiting : dict
        Every node it comes to, and how many gradients each waits for.
    buffers : dict
        The gradients that came to a node which waits for more: one for each output, or None.
    ready : list
        A heap of nodes that wait for their turn, the latest first, as (-sequence, order, node,
        cotangents); ``order`` is that in which nodes became ready.
    ends : _Ends or None
        Where a pass for certain inputs ends.
    node : Node or None
        The last whose turn it was.
    callbacks : list of callable
        What runs at its end: see `queue_callback`.
    number : int
        Of all passes, from 0 on.
    """

    __slots__ = (
        *("__weakref__", "background", "buffers", "callbacks", "create_graph", "depth", "ends"),
        *("everywhere", "number"),
        *("node", "ready", "retain_graph", "waiting", "watcher"),
    )
    begun = 0  # so many
    number: int

    def __init__(
        self, outer: Pass | None, everywhere: bool, retain_graph: bool, create_graph: bool
    ) -> None:
        self.depth: int = 0 if outer is None else outer.depth + 1
        self.everywhere = everywhere
        self.retain_graph, self.create_graph = retain_graph, create_graph
        self.watcher = watching.by
        self.background: list[Work] = []
        self.callbacks: list[Callable[[], object]] = []
        self.waiting: dict[Node, int] = {}
        self.buffers: dict[Node, list[Gradient]] = {}
        self.ready: list[tuple[int, int, Node, list[Gradient]]] = []
        self.ends: _Ends | None = None
        self.node: Node | None = None

    def settle(self) -> None:
        """Wait for the background, before a user's code runs that may write what it reads."""
        while self.background:
            self.background.pop().end()


def is_counted(node: Node) -> bool:
    """Whether a pass runs, on any thread, that has come to a node's edges."""
    return any(node in this.waiting for this in tuple(_running))


def queue_callback(callback: Callable[[], object]) -> None:
    """Call ``callback()`` at the end of the pass that runs on this thread.

    RuntimeError if none runs.
    """
    if state.task is None:
        raise RuntimeError("Final callbacks can only be installed during backward pass.")
    state.task.callbacks.append(callback)


def current_number() -> int:
    """The number of the pass that runs on this thread, -1 where none does."""
    return -1 if state.task is None else int(state.task.number)


def keeps_graph() -> bool:
    """Whether a pass runs on this thread that keeps what nodes saved."""
    return state.task is not None and bool(state.task.retain_graph)


def will_run(node: Node) -> bool:
    """Whether the pass that runs on this thread comes to a node, or has come to it.

    Raises
    ------
    RuntimeError
        Where no pass runs, for what is no node, and for a leaf's where `autograd.grad` runs, which
        ends before it.
    """
    this = state.task
    if not isinstance(node, Node):
        raise RuntimeError(
            f"_will_engine_execute_node expects an grad_fn, but got {type(node).__name__}"
        )
    if this is None:
        raise RuntimeError(
            "_will_engine_execute_node should only be called during the backward pass"
        )
    ends = this.ends
    if ends is None:
        return node in this.waiting
    if not ends.accumulate and type(node) is AccumulateGrad and node in ends.outputs:
        raise RuntimeError(
            "_will_engine_execute_node may not be called on a leaf's grad_fn when you are "
            "currently running autograd.grad(): take an intermediate tensor's, or backward()"
        )
    return node in ends.leading or (node in ends.outputs and node in this.waiting)


def backward(
    roots: Sequence[Key],
    cotangents: Sequence[Gradient],
    retain_graph: bool,
    create_graph: bool,
    inputs: Sequence[Key] | None = None,
    accumulate: bool = True,
) -> dict[Key, Tensor]:
    """Run the graph backward from ``roots``.

    Parameters
    ----------
    roots : sequence of (node, output)
    cotangents : sequence
        One for each of them.
    retain_graph : bool
        Keep what nodes saved, for another pass.
    create_graph : bool
        Record the pass itself.
    inputs : sequence of (node, output), optional
        Run only what leads to these.
    accumulate : bool
        Whether gradients end in the ``.grad`` of leaves; if not, those of ``inputs`` are returned.

    Returns
    -------
    dict
        Gradients of ``inputs`` that the pass reached, where they were not accumulated.
    """
    this = Pass(state.task, inputs is None, retain_graph, create_graph)
    run = _run if this.depth == 0 or this.depth % PASSES_PER_THREAD else _run_on_another_thread
    if _around is None:
        return run(this, roots, cotangents, inputs, accumulate)
    with _around():
        return run(this, roots, cotangents, inputs, accumulate)


def _run(
    this: Pass,
    roots: Sequence[Key],
    cotangents: Sequence[Gradient],
    inputs: Sequence[Key] | None,
    accumulate: bool,
) -> dict[Key, Tensor]:
    """Run a pass on this thread, in the modes of a pass."""
    with counting:
        if inputs is None:
            this.waiting = _count_uses(roots)
        else:
            this.ends = _Ends(roots, inputs, accumulate)
            this.waiting = this.ends.waiting
        _running[this] = None
        this.number, Pass.begun = Pass.begun, Pass.begun + 1
    outer, state.task = state.task, this
    hooks = state.hooks
    mode = set_mode(state.recording if this.create_graph else OFF)
    try:
        _go(this, roots, cotangents)
        for callback in this.callbacks:  # which may queue others
            this.settle()
            callback()
    except Exception:
        if this.watcher is not None:
            this.watcher.explain(this.node)
        raise
    finally:
        if state.hooks is not hooks:  # set by a hook that did not take them off
            watch(hooks)
        set_mode(mode)
        state.task = outer
        del _running[this]
        if this.background:
            this.settle()
    return {} if this.ends is None else this.ends.gradients


def _run_nodes(this: Pass, edges: Sequence[tuple[Any, int]], results: Sequence[Gradient]) -> None:
    """Send gradients along edges and run the nodes they come to, each once it has all its own."""
    waiting, buffers, ready, ends = this.waiting, this.buffers, this.ready, this.ends
    # their turn comes before all others'
    leaves: list[tuple[AccumulateGrad, list[Gradient], bool]] = []
    order, turn, new = 0, 0, False
    cotangents: list[Gradient] = []
    while True:
        node: Any = None  # which comes next, unless another that is ready was made later
        for (target, output), result in zip(edges, results):
            left = waiting.get(target)
            if left is None:  # nothing there wants a gradient
                continue
            have, alone = buffers.pop(target, None) if buffers else None, False
            if have is None and target._output_count == 1:
                have, alone = [result], new
            else:
                have = _added(have, target, output, result, left)
            if left > 1:
                waiting[target], buffers[target] = left - 1, have
                continue
            if type(target) is AccumulateGrad:
                leaves.append((target, have, alone))
                continue
            order += 1
            if node is None:
                node, cotangents, turn = target, have, order
            else:
                heappush(ready, (-target._sequence, order, target, have))
        if leaves:
            for leaf, have, alone in leaves:
                this.node = leaf
                if ends is None or leaf not in ends.outputs or not ends.reached(leaf, have):
                    leaf.take(have, this, alone)
            leaves = []
        if node is None:
            if not ready:
                return
            _, _, node, cotangents = heappop(ready)
        elif ready:
            first = (-node._sequence, turn, node, cotangents)
            _, _, node, cotangents = heappushpop(ready, first)
        this.node = node
        if ends is not None and node in ends.outputs and ends.reached(node, cotangents):
            edges = ()
        else:
            edges, results = node._edges, _turn(node, cotangents, this)
            new = node.gives_new and node._hooks is None and not interpreters


def _turn(node: Node, cotangents: list[Gradient], this: Pass) -> Sequence[Gradient]:
    """What a pass does with a node that is no leaf's: its hooks, its vjp, its hooks.

    Parameters
    ----------
    cotangents : list
        One for each output, or None.

    Returns
    -------
    sequence
        One gradient an edge, or None.
    """
    hooks, watcher = node._hooks, this.watcher
    if hooks is not None:
        this.settle()
        cotangents = run_before(hooks, cotangents)
    if node.look_around is not None and cotangents[0] is not None:
        node.look_around(node, cotangents, this)
    if watcher is not None:
        results = watcher.run(node, cotangents)
    elif handling and not node.runs_user_code:
        results = without_handlers(run_node, node, cotangents)
    elif interpreters:
        results = run_node(node, cotangents)
    else:
        results = node.vjp(cotangents)
    if hooks is not None and hooks.post:
        results = node.run_after(results, cotangents)
    if not this.retain_graph:
        node.release()
    if watcher is not None:
        watcher.check(node, results)
    return results


def _added(
    have: list[Gradient] | None, target: Node, output: int, result: Gradient, left: int
) -> list[Gradient]:
    """The gradients of a node's outputs with one more; ``left`` are still to come, with it."""
    if have is None:
        have = [None] * target._output_count
    earlier = have[output]
    if earlier is None:
        have[output] = result
    elif result is not None:
        have[output] = earlier + result if left < MANY else earlier.plus(result)
    return have


_go = _run_nodes
if core is not None:
    _go = core.run_nodes
    core.bind(
        run_nodes=_run_nodes,
        turn=_turn,
        added=_added,
        leaf=AccumulateGrad,
        nodes=vars(nodes_of),
        handling=handling,
        interpreters=interpreters,
        push=heappush,
        pop=heappop,
        push_pop=heappushpop,
    )


# --- what a node does with what waits beside it: values of `Node.look_around` --------------------


def gathering(node: Node, cotangents: list[Gradient], this: Pass) -> None:
    """It may run in the place of others with the same edges that gather too; those with
    `reads_alone` have their cotangents computed by one kernel.
    """
    if not this.ready:
        return
    cotangent: Any = cotangents[0]  # which there is: see `_turn`
    others: list[tuple[Node, list[Any]]] = [
        (other, have)
        for _, _, other, have in this.ready
        if other.look_around is gathering and have[0] is not None
    ]
    if node.reads_alone:
        node.read_together(cotangent, [have[0] for other, have in others if other.reads_alone])
    if node._hooks is None and this.watcher is None:
        edges = set(node._edges)
        wanted = () if this.ends is None else this.ends.outputs
        free = [
            (other, have)  # nobody else asks for these cotangents
            for other, have in others
            if other._hooks is None and other not in wanted and edges == set(other._edges)
        ]
        node.gather(cotangent, free)


def adding(node: Node, cotangents: list[Gradient], this: Pass) -> None:
    """Its first gradient may be the sum of itself and of what has come to the same place."""
    target, output = node._edges[0]
    if target is None or node._hooks is not None or this.watcher is not None:
        return
    have = this.buffers.get(target)
    if have is not None and (earlier := have[output]) is not None and node.add_to(earlier):
        have[output] = None


class _Ends:
    """Where a pass for certain inputs ends, and the gradients it found there.

    As in PyTorch, the gradient of an input that lies on the way to another one is what its hooks
    have not seen yet.
    """

    def __init__(self, roots: Sequence[Key], inputs: Sequence[Key], accumulate: bool) -> None:
        self.outputs: dict[Node, list[int]] = {}
        self.gradients: dict[Key, Tensor] = {}
        self.accumulate = accumulate
        for node, output in inputs:
            self.outputs.setdefault(node, []).append(output)
        self.leading, self.waiting = _leading_to(roots, self.outputs)

    def reached(self, node: Node, cotangents: list[Gradient]) -> bool:
        """Note the gradients wanted of one of ``outputs``; whether the pass ends there."""
        goes_on = node in self.leading
        if self.accumulate:
            hooks = node._hooks
            its_own = hooks is not None and (hooks.pre or hooks.post)  # only a node that runs asks
            called = its_own or node.runs_user_code  # as in PyTorch, though nobody asks for more
            goes_on = goes_on or bool(called) or type(node) is AccumulateGrad
        if not goes_on and node._hooks is not None:
            show_to_tensors(node._hooks, cotangents)
        if not self.accumulate:
            for output in self.outputs[node]:
                if (gradient := cotangents[output]) is not None:
                    self.gradients[node, output] = gradient
        return not goes_on


def _count_uses(roots: Sequence[Key]) -> dict[Node, int]:
    """How many edges lead into each node that a pass comes to."""
    uses: dict[Node, int] = {}
    open_regions = observing.count
    waiting: list[Sequence[Edge]] = [roots]
    for edges in waiting:  # which grows meanwhile
        for target, _ in edges:
            if target in uses:
                uses[target] += 1
            elif target is not None:
                uses[target] = 1
                if open_regions:
                    target.prepare()
                if target._edges:
                    waiting.append(target._edges)
    return uses


def _leading_to(roots: Sequence[Key], ends: Iterable[Node]) -> tuple[set[Node], dict[Node, int]]:
    """Nodes that must run for the gradients of ``ends`` to be known, and how many edges lead from
    them into each other and into those.
    """
    users: dict[Node, list[Node]] = {node: [] for node, _ in roots}
    pending = list(users)
    open_regions = observing.count
    while pending:
        node = pending.pop()
        if open_regions:
            node.prepare()
        for target, _ in node._edges:
            known = users.get(target)  # type: ignore[arg-type]
            if known is not None:
                known.append(node)
            elif target is not None:
                users[target] = [node]
                pending.append(target)
    leading: set[Node] = set()
    pending = [node for node in ends if node in users]
    uses = {node: len(users[node]) for node in pending}
    while pending:
        for user in users[pending.pop()]:
            if user not in leading:
                leading.add(user)
                uses[user] = len(users[user])
                pending.append(user)
    for node, _ in roots:
        if node in uses:
            uses[node] += 1
    return leading, uses


def _run_on_another_thread(this: Pass, *arguments: Any) -> dict[Key, Tensor]:
    """Run a pass with this thread's modes while this thread waits."""
    modes = dict(state.__dict__)
    context = contextvars.copy_context()
    outcome: list[Any] = []

    def work() -> None:
        state.__dict__.update(modes)
        try:
            outcome.append(context.run(_run, this, *arguments))
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=work, name="backward inside backward", daemon=True)
    thread.start()
    thread.join()
    result = outcome.pop()
    if not isinstance(result, BaseException):
        return result
    try:
        raise result
    finally:
        del result  # its traceback holds this frame
