"""Nodes of the backward graph. Values are opaque here: what has ``+`` and ``plus`` will do."""

from __future__ import annotations

import itertools
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from lucid_gpu.core.hooks import (
    Gradient,
    Hook,
    Hooks,
    RemovableHandle,
    add_hook,
    run_after,
    run_before,
)
from lucid_gpu.core.layout import sums_to
from lucid_gpu.tape.door import op

if TYPE_CHECKING:
    from lucid_gpu.core.engine import Pass
    from lucid_gpu.core.program import Shape
    from lucid_gpu.core.value import Variable
    from lucid_gpu.tensor import Tensor

sequence = itertools.count()  # of nodes, as they are made


_before_gradient: Callable[[AccumulateGrad | Tensor], None] | None = None


def watch_gradients(before: Callable[[AccumulateGrad | Tensor], None] | None) -> None:
    """Call ``before`` as `new_grad` is called; None ends that. One watches at a time."""
    global _before_gradient
    _before_gradient = before


def new_grad(of: AccumulateGrad | Tensor) -> None:
    """Say that a leaf's gradient, or one that a tensor keeps, is read, written or replaced."""
    if _before_gradient is not None:
        _before_gradient(of)


_accumulating = threading.RLock()  # several threads may go backward to one leaf

Edge = tuple["Node | None", int]

# Why a leaf takes no gradient: it was detached, or requires_grad_(False) called, after its use; or
# it is a view that requires grad only because its base does.
UNMARKED = "unmarked"
FOLLOWS = "follows"

SECOND_TIME = (
    "Trying to backward through the graph a second time (or directly access saved tensors after "
    "they have already been freed). Saved intermediate values of the graph are freed when you call "
    ".backward() or autograd.grad(). Specify retain_graph=True if you need to backward through the "
    "graph a second time or if you need to access saved tensors after calling backward."
)


class Watcher(Protocol):
    """Told of every node that is made, and runs it."""

    def note(self, node: Node) -> None: ...
    def run(self, node: Node, cotangents: list[Gradient]) -> Sequence[Gradient]: ...
    def check(self, node: Node, results: Sequence[Gradient]) -> None: ...
    def explain(self, node: Node | None) -> None: ...


class watching:
    """Who is told of every node that is made, and runs it: anomaly mode, or nobody.

    Attributes
    ----------
    since : int
        The step, as `lucid_gpu.core.planning` counts them, from which on nodes are told of.
    """

    by: Watcher | None = None
    since = 0

    @classmethod
    def tell(cls, by: Watcher | None, since: int = 0) -> None:
        """Tell ``by`` of nodes from now on; None tells nobody."""
        cls.by, cls.since = by, since


class Node:
    """A recorded function: where its gradient comes from is the engine's affair, where it goes is
    ``_edges``.

    A subclass defines `vjp`, which takes one cotangent an output (None where undefined) and returns
    one an edge.
    """

    # What most nodes never change stays on the class: making a node is part of every op.
    _hooks: Hooks | None = None
    _output_count = 1
    _released = False
    reads_cotangent = False  # will its vjp ask for the bytes of the cotangent
    reads_alone = False  # ... and do no arithmetic: cotangents of such nodes share a kernel
    runs_user_code = False  # does its vjp call what a user wrote
    reads_arrays = False  # does its vjp read the memory of what it saved, as it was saved
    # Are its gradients held by nobody else, and in memory of their own unless their leaf says that
    # it is borrowed; asked after its vjp.
    gives_new = False
    # Called before its vjp as ``look_around(node, cotangents, this)``: what it does with what waits
    # beside it, `lucid_gpu.core.engine.gathering` or `adding`.
    look_around: Callable[[Node, list[Gradient], Pass], None] | None = None
    stands_for_leaf = False  # do inputs of a transformation begin here: no recorded write to them
    result: Any = None  # what it saved of its own value, if PyTorch's op saves that
    aside: str | None = None  # why it takes no gradient: see `AccumulateGrad`
    # The tensors whose `grad_fn` somebody asked for, weakly, by output.
    results: dict[int, weakref.ref[Tensor]] | None = None

    def __init__(self, edges: tuple[Edge, ...] = ()) -> None:
        self._edges = edges
        self._sequence = next(sequence)
        if watching.by is not None:
            watching.by.note(self)

    def name(self) -> str:
        """What `grad_fn` shows it as."""
        return type(self).__name__

    def __call__(self, *gradients: Gradient) -> Gradient | tuple[Gradient, ...]:
        """The gradients of its operands, given those of its outputs.

        TypeError for another number of them, and for anything but a tensor.
        """
        if len(gradients) != self._output_count:
            raise TypeError(
                f"expected {self._output_count} arguments, got {len(gradients)} instead"
            )
        for index, gradient in enumerate(gradients):
            if gradient is not None and not hasattr(gradient, "_expr"):
                raise TypeError(f"argument {index} is not a Variable")
        input_gradients = tuple(self.vjp_alone(gradients))
        return input_gradients[0] if len(input_gradients) == 1 else input_gradients

    def shown_of(self, output: int, tensor: Tensor) -> None:
        """Note that this is the `grad_fn` of `tensor`, of any shape; it may be shown as saved."""
        if self.results is None:
            self.results = {}
        self.results[output] = weakref.ref(tensor)

    def result_shown(self, output: int) -> Tensor | None:
        """Return the tensor, of the shape of `output`, of which this is the `grad_fn`, or None."""
        reference = None if self.results is None else self.results.get(output)
        tensor = None if reference is None else reference()
        return tensor if tensor is not None and tensor._edge() == (self, output) else None

    def vjp_alone(self, cotangents: Sequence[Gradient]) -> Sequence[Gradient]:
        """The vjp of the op that the node is named after."""
        return self.vjp(cotangents)

    def _remake(self, value: Any, again: Any) -> None:
        """Told that an equal value takes a value's place, which reads what was stored meanwhile."""

    def lies_in(self, before: Variable, variable: Variable) -> None:
        """Told that its value, whose variable was ``before``, is that of another variable now."""

    @property
    def next_functions(self) -> tuple[Edge, ...]:
        """The nodes its gradients go to, each with the number of the output it was."""
        return self._edges

    @property
    def metadata(self) -> dict[str, Any]:
        """A dictionary for the user's own notes on this node."""
        notes: dict[str, Any] = self.__dict__.setdefault("_metadata", {})
        return notes

    @property
    def _input_metadata(self) -> Sequence[Any]:
        """What has the shape, dtype and device of the gradients that arrive, for each output."""
        return ()

    def _sequence_nr(self) -> int:
        return self._sequence

    def _set_sequence_nr(self, sequence_nr: int) -> None:
        """Set when its turn is among the nodes that are ready: the highest number goes first."""
        self._sequence = sequence_nr

    def vjp(self, cotangents: Sequence[Gradient]) -> Sequence[Gradient]:
        """The inputs' gradients from those of the outputs; NotImplementedError in this base."""
        raise NotImplementedError

    def read_together(self, cotangent: Tensor, others: Sequence[Tensor]) -> None:
        """Have `cotangent` computed with `others` that wait for their turn, each of its own shape.

        Called on a node with `reads_alone`.
        """

    def add_to(self, earlier: Tensor) -> bool:
        """Note `earlier`, the sum so far that its first gradient, of this shape, goes to.

        Called before its `vjp` on a node that looks around by `adding`. Where it says True, that
        gradient is to be the new sum.
        """
        return False

    def gather(self, cotangent: Tensor, others: Sequence[tuple[Node, list[Gradient]]]) -> None:
        """Note `others` with the same edges, and their cotangents, each of its own shape.

        Called before its `vjp` on a node that looks around by `gathering`, of others that do. It
        may put None in the place of cotangents whose gradients it adds to its own.
        """

    def prepare(self) -> None:
        """Called before a pass in which somebody observes gradients inside fused regions."""

    def release(self) -> None:
        """Let go of what was saved; a later `vjp` raises."""
        self._released = True

    def all_hooks(self) -> Hooks:
        """The hooks of this node, made when first asked for."""
        if self._hooks is None:
            self._hooks = Hooks()
        return self._hooks

    def register_hook(self, hook: Hook) -> RemovableHandle:
        """Call ``hook(grad_inputs, grad_outputs)`` after this node ran."""
        return add_hook(self.all_hooks().post, hook)

    def run_after(
        self, results: Sequence[Gradient], cotangents: Sequence[Gradient]
    ) -> Sequence[Gradient]:
        """Show the gradients, in the order of `next_functions`, to the hooks that want them."""
        return run_after(self.all_hooks(), results, cotangents)

    def register_prehook(self, hook: Hook) -> RemovableHandle:
        """Call ``hook(grad_outputs)`` before this node runs."""
        return add_hook(self.all_hooks().pre, hook)

    def __repr__(self) -> str:
        return f"<{self.name()} object at {id(self):#x}>"


@op
def _run_node(node: Node, cotangents: list[Gradient]) -> Sequence[Gradient]:
    """The gradients of a node's inputs; no user's function."""
    return node.vjp(cotangents)


run_node = _run_node


class Refitted(Node):
    """Between a node and a result of it that ``x.data = y`` gave another shape or type.

    Tensors that had the result before have edges to the node itself. A gradient is summed and cast
    to what the node gave.
    """

    def __init__(self, edge: Edge, shape: Shape, dtype: Any) -> None:
        super().__init__((edge,))
        self.shape, self.dtype = shape, dtype

    def vjp(self, cotangents: Sequence[Gradient]) -> Sequence[Gradient]:
        gradient: Any = cotangents[0]
        if gradient is None:
            return (None,)
        have, shape = tuple(gradient.shape), self.shape
        if have != shape:
            if not sums_to(have, shape):
                node: Any = self._edges[0][0]
                raise RuntimeError(
                    f"{node.name()} got an invalid gradient - got {list(have)} but expected shape "
                    f"compatible with {list(shape)}: `x.data = y` gave its result x another shape"
                )
            gradient = gradient._sum_to_shape(shape)
        return (gradient.to(self.dtype),)


class AccumulateGrad(Node):
    """The end of the graph: adds a gradient to a leaf's ``.grad``.

    It does not hold the leaf, which holds it.

    Attributes
    ----------
    aside : str or None
        Why it takes no gradient: `UNMARKED` or `FOLLOWS`.
    """

    def __init__(self) -> None:
        super().__init__()
        self._sequence = 1 << 62  # ahead of everything else that is ready
        self.grad: Gradient = None
        self.post_accumulate: OrderedDict[int, Hook] | None = None
        self.variable_reference: weakref.ref[Tensor] | None = None
        self.held: Tensor | None = None  # the leaf, once its hooks must be shown it
        # of the leaf's dimensions in memory, if not row-major
        self.order: tuple[int, ...] | None = None
        self.shape: tuple[int, ...] | None = None  # of the leaf, once it has taken another

    def refer_to(self, leaf: Tensor) -> None:
        """Set the leaf; once it is gone, nobody can ask for its gradient, which may read it."""
        own = weakref.ref(self)

        def forget(_: weakref.ref[Tensor]) -> None:
            node = own()
            if node is not None:
                node.grad = None

        self.variable_reference = weakref.ref(leaf, forget)

    @property
    def variable(self) -> Tensor | None:
        """The leaf tensor, or None once it is gone."""
        return None if self.variable_reference is None else self.variable_reference()

    @property
    def _input_metadata(self) -> Sequence[Any]:
        return (self.variable,)

    def take(self, cotangents: list[Gradient], this: Pass, new: bool = False) -> None:
        """Add the gradient that a pass found, with all hooks around it.

        ``new`` says that nobody else holds it, nor its memory.
        """
        hooks = self._hooks
        if self.aside is not None:
            if self.aside == UNMARKED:
                self._pass_by(cotangents, hooks)
            return
        watched = hooks is not None or bool(self.post_accumulate)
        if watched:
            this.settle()
            new = False
            if hooks is not None:
                cotangents = run_before(hooks, cotangents)
        first, cotangent = self.grad is None, cotangents[0]
        if cotangent is not None:
            with _accumulating:  # in place, unless the addition is itself recorded
                if self.grad is None:
                    gradient = cotangent.as_gradient(self.order, self.shape, new)
                    if _before_gradient is None:
                        self.grad = gradient
                    else:
                        self.replace_gradient(gradient)
                elif this.create_graph or (self.grad._is_sparse and not cotangent._is_sparse):
                    self.replace_gradient(self.grad + cotangent)
                else:
                    if _before_gradient is not None:
                        _before_gradient(self)
                    self.grad.add_(cotangent)
        if not watched:
            return
        if first and hooks is not None and hooks.post:
            cotangents = [self.grad]  # which may be written: it is the gradient
        if self.post_accumulate:
            self._run_post_accumulate()
        if hooks is not None and hooks.post:
            run_after(hooks, (), cotangents)

    def _pass_by(self, cotangents: list[Gradient], hooks: Hooks | None) -> None:
        """Show hooks the gradient of a leaf that does not want it any more."""
        leaf = self.variable
        if leaf is not None and leaf.grad_fn is not None:
            raise RuntimeError(
                "leaf variable has been moved into the graph interior: a tensor of shape "
                f"{list(leaf.shape)} was a leaf when it was used, was detached, and was then "
                "written by a recorded op; write it before, or write a clone."
            )
        if hooks is not None:
            run_after(hooks, (), run_before(hooks, cotangents))

    def replace_gradient(self, gradient: Gradient) -> None:
        """Give the leaf another gradient, or with None take it away."""
        if _before_gradient is not None:
            _before_gradient(self)
        self.grad = gradient

    def _run_post_accumulate(self) -> None:
        assert self.post_accumulate is not None
        variable = self.variable
        for hook in tuple(self.post_accumulate.values()):
            if hook(variable) is not None:
                raise RuntimeError("Tensor post accumulate grad hooks should return None.")
