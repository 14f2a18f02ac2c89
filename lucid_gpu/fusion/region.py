"""The autograd node of a fused region: everything elementwise between two realized values."""

from __future__ import annotations

import contextlib
import weakref
from collections import deque
from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from lucid_gpu.core.engine import counting, gathering, is_counted, observing
from lucid_gpu.core.hooks import RemovableHandle
from lucid_gpu.core.layout import dense_order
from lucid_gpu.core.node import Edge, Node, watching
from lucid_gpu.core.program import WRAPPED, Program, Shape, extents_at, leaf_of, load_program
from lucid_gpu.core.saved import Saved, Saver, saved, written_values
from lucid_gpu.core.value import Cell, Expr, Like, merge, order_of
from lucid_gpu.devices.copies import row_major
from lucid_gpu.fusion import Eager, scheduler
from lucid_gpu.fusion.building import build, of_constant
from lucid_gpu.fusion.gradient import Gradient, Part, gradient_leaves, gradient_of
from lucid_gpu.fusion.inside import observed_within, replay, saved_inside
from lucid_gpu.fusion.optable import TABLE
from lucid_gpu.fusion.pending_reductions import ReducedCell, recipe_of, start, summed_to
from lucid_gpu.fusion.saving import (
    FROM_OPERANDS,
    Composed,
    converted,
    converts,
    refusal,
    replacements,
    saved_leaves,
    takes_none,
)
from lucid_gpu.tape.door import interpreters
from lucid_gpu.tape.levels import open_levels
from lucid_gpu.tape.modes import RECORDED, WATCHED, state
from lucid_gpu.tape.native import core

Wrap = Callable[[Expr], Any]  # makes a tensor
_COMMUTES = ("add", "mul")
_COUNTS_NUMBERS = (*_COMMUTES, "sub", "div")  # PyTorch makes a tensor of a number there
_NAMES = {
    "capped": "Hardtanh",
    "cast": "ToCopy",
    "entr": "SpecialEntr",
    "erfcx": "SpecialErfcx",
    "gelu_tanh": "Gelu",
    "i0e": "SpecialI0E",
    "i1": "SpecialI1",
    "i1e": "SpecialI1E",
    "log1p": "Log1P",
    "ndtri": "SpecialNdtri",
    "square": "Pow",
    "trigamma": "Polygamma",
    "zeta": "SpecialZeta",
}


class Facts:
    """What all regions of a program have in common, each found when it is first asked for."""

    def __init__(self, program: Program) -> None:
        self.program = program

    @cached_property
    def kind(self) -> type[RegionNode]:
        """The class of the nodes, named after the last op."""
        return _class_of(title_of(self.program))

    @cached_property
    def gradient_leaves(self) -> list[int]:
        """The leaves a gradient goes to."""
        return gradient_leaves(self.program)

    @cached_property
    def summed(self) -> list[int]:
        """Which of the gradients are summed over what broadcasting repeated."""
        shapes = {leaf_of(i): i.shape for i in self.program.instructions}
        whole = self.program.axes
        return [i for i, leaf in enumerate(self.gradient_leaves) if shapes[leaf] != whole]

    @cached_property
    def reads(self) -> frozenset[int]:
        """Leaves whose values the gradient reads where it has the output, the last of them."""
        program, n = self.program, self.program.leaves
        # such as a kernel gives it, so that a pass back finds the gradient made
        cotangent = load_program(program.dtype, program.axes, False, False, program.device)
        return gradient_of(program, cotangent, n + 1, n + 2, False, (n, False, False)).reads

    @cached_property
    def saves(self) -> bool:
        """Whether a value is among them: numbers stay with a node that is released."""
        numbers = [leaf_of(i) for i in self.program.instructions if i.op == "scalar"]
        return not self.reads.issubset(numbers)

    @cached_property
    def reads_output(self) -> bool:
        """Whether the value itself is among them."""
        return self.program.leaves in self.reads

    @cached_property
    def unread(self) -> tuple[int, ...]:
        """The other leaves."""
        return tuple([i for i in range(self.program.leaves) if i not in self.reads])

    @cached_property
    def saved(self) -> tuple[int, ...]:
        """The leaves that PyTorch's ops save."""
        return saved_leaves(self.program)

    @cached_property
    def saves_result(self) -> bool:
        """Whether PyTorch's last op saves its result."""
        return self.program.leaves in self.saved

    @cached_property
    def converts(self) -> bool:
        """Whether an op converts a leaf."""
        return converts(self.program)


def facts_of(program: Program) -> Facts:
    """What all regions of a program have in common."""
    facts: Facts | None = program.region
    if facts is None:
        facts = program.region = Facts(program)
    return facts


class RegionNode(Saver):
    """Goes backward through a whole program at once.

    Attributes
    ----------
    program, leaves, shape
        The region; leaves whose values the gradient does not need hold no array.
    made_by
        See `Expr`: None once nobody can observe a tensor inside the region any more.
    output : Cell or None
        The region's realized value, when its gradient formula reads it.
    output_free : bool or tuple of int
        `Program.free` of the load of that.
    root : weak reference or None
        The tensor `backward` was called on, if it is still pending: its value and the gradients
        of leaves are then computed by one kernel.
    """

    output: Any = None
    output_free: bool | tuple[int, ...] = False
    root: Any = None
    observers: _Observers | None = None
    result: Saved | None = None  # of its value, where PyTorch's last op saves that
    family: Any = None  # what the regions that one kernel computed have in common
    joint: Expr | None = None  # this region and others, each times its cotangent: see `gather`
    alone: Any = None  # its last op, once hooks may hold what that `saved`: `ops.saved_values`
    composed = False  # is it named after a composition that is one op in PyTorch
    shown: tuple[Edge, ...] = ()  # what hooks of a composition were told of its edges

    def __init__(self, expr: Expr) -> None:
        self.facts = facts = expr.program.region or facts_of(expr.program)
        super().__init__(_edges(expr.leaves, facts.gradient_leaves))
        if watching.by is not None and expr.since < watching.since:
            self.metadata.clear()  # its op was called before anybody watched
        self.made_by = expr.made_by
        self.program: Program = expr.program
        self.leaves: tuple[Cell, ...] = expr.leaves
        self.shape: Shape = expr.shape
        self.also = expr.also
        for entry in expr.also:
            if type(entry) is Saved and entry.variable is expr.variable:
                self.result = entry
        if facts.saves_result:
            self.result = saved(expr)

    def name(self) -> str:
        return title_of(self.program)

    @property
    def _input_metadata(self) -> Sequence[Any]:
        return (Like(self.program, self.shape),)

    @property
    def next_functions(self) -> tuple[Edge, ...]:
        """Where the last op's operands come from; the leaves, once nobody can see inside."""
        if self.composed:
            return self._edges_of_composition()
        operands = self._stored_operands()
        if self.made_by is not None:
            operands = [edge_of(o) if isinstance(o, Expr) else None for o in self.made_by[1:]]
        if operands is None:
            return self._edges
        name = self.program.root.op
        if name == "where":
            del operands[0]
        edges = [edge for edge in operands if edge is not None]
        if len(edges) < len(operands) and (name in _COMMUTES or operands[0] is not None):
            edges += [(None, 0)] * (name in _COUNTS_NUMBERS)
        return tuple(edges)

    @property
    def composition(self) -> Composed | None:
        """The composition that this node is named after, while its operands can be told."""
        for entry in self.also:
            if type(entry) is Composed and entry.title and entry.program is self.program:
                return entry
        return None

    def operand_of(self, operand: tuple[Program, tuple[int, ...]]) -> Expr | None:
        """An operand of the composition as the value that it was, None once nobody can reach it."""
        program, places = operand
        if any(i < 0 for i in places):  # the result does not read it
            return None
        cells = tuple([self.leaves[i] for i in places])
        if program.is_load:
            return Expr(program, cells, None, self._extents(program))
        stack, seen = [self.made_by], set()
        while stack:
            for e in stack.pop() or ():
                if not isinstance(e, Expr) or e in seen:
                    continue
                if e.program is program and e.leaves == cells:
                    return e
                seen.add(e)
                stack.append(e.made_by)
        return None

    def _edges_of_composition(self) -> tuple[Edge, ...]:
        if self.shown:
            return self.shown
        entry = self.composition
        if entry is None:
            return self._edges
        operands = [self.operand_of(operand) for operand in entry.operands]
        if any(o is None for o in operands):
            return self._edges
        return tuple([edge_of(o) for o in operands if o is not None])

    def _stored_operands(self) -> list[Edge | None] | None:
        """The edges of an op whose operands are all leaves or, with None, numbers."""
        program = self.program
        edges = dict(zip(gradient_leaves(program), self._edges))
        operands: list[Edge | None] = []
        for number in program.root.args:
            instruction = program.instructions[number]
            if instruction.op in ("constant", "scalar"):
                operands.append(None)
            elif instruction.op == "load":
                operands.append(edges.get(instruction.value[0], (None, 0)))
            elif instruction.op == "boundary":
                operands.append(edges.get(instruction.value, (None, 0)))
            else:
                return None
        return operands

    def register_prehook(self, hook: Callable[[Any], Any]) -> RemovableHandle:
        observe(self)
        return super().register_prehook(hook)

    def register_hook(self, hook: Callable[[Any, Any], Any]) -> RemovableHandle:
        """Call ``hook(grad_inputs, grad_outputs)`` after this node ran.

        It sees one gradient for each different operand that wants one; of a composition, which is
        one op in PyTorch, one for each edge, the sum at the first of those that are equal.
        """
        observe(self)
        edges = self.next_functions
        for node, _ in edges:
            if node is not None:
                observe(node)
        if self.composed:
            self.shown = edges
        return super().register_hook(hook)

    def run_after(self, results: Sequence[Any], cotangents: Sequence[Any]) -> Sequence[Any]:
        """Hooks of a composition know the gradients in the order of its edges."""
        shown, edges = self.shown, self._edges
        if len(results) != len(edges) or any(edge not in shown for edge in edges):
            return super().run_after(results, cotangents)
        places = [shown.index(edge) for edge in edges]
        gradients: list[Any] = [None] * len(shown)
        for place, result in zip(places, results, strict=True):
            gradients[place] = result
        answer = super().run_after(gradients, cotangents)
        return [answer[place] for place in places]

    # --- saving -------------------------------------------------------------------------------

    def keep_output(self, expr: Expr, cell: Cell) -> None:
        """The value is realized: keep only the arrays that the gradient reads, perhaps this one."""
        if self._released or self.alone is not None:
            return
        facts = self.facts
        if facts.reads_output:
            self._read_output(cell.twin(), order_of(expr) if self.program.laid else None)
        if _held:
            _let_go()
        for i in facts.unread:
            if self.leaves[i].filled:
                break
        else:
            return
        beside = saved_inside(self)
        if beside is None:
            _held.append([weakref.ref(self), 1, 1])
        else:
            self.keep_read(beside)

    def keep_read(self, beside: Sequence[Any]) -> None:
        """Nobody is left inside: the gradient's formula is all that reads the leaves."""
        facts = self.facts
        if written_values or facts.converts:
            if refusal(self.made_by, self.program) is not None:
                return  # going backward will say so
            changed = replacements(self.made_by, self.leaves, ())
            if changed is not None and changed.values:
                return
            beside = [*beside, *converted(self.made_by, self.program)]
        self.made_by = None
        self.also = (*self.also, *beside)
        leaves = list(self.leaves)
        for i in facts.unread:
            before = leaves[i]
            leaves[i] = Cell(None, before.node, before.output)
            if i in facts.saved:
                leaves[i].of(before)
        self.leaves = tuple(leaves)

    def _read_output(self, cell: Cell, order: tuple[int, ...] | None) -> None:
        array, self.output, self.output_free = cell.array, cell, order or False
        if not array.flags.c_contiguous:
            size = self.program.dtype.itemsize
            lies = order is None or order == dense_order(self.shape, array.strides, size)
            self.output_free = order is None if lies else order  # type: ignore[assignment]

    def _extents(self, part: Program) -> Shape:
        """Return the shape of what a part of the region, or of its gradient, computes."""
        return self.shape if part.axes == self.program.axes else extents_at(part.axes, self.shape)

    def value(self) -> Expr:
        """Return the region's value as a pending one."""
        return Expr(self.program, self.leaves, self.made_by, self.shape)

    def release(self) -> None:
        if not (self.alone or state.task.everywhere or self._used_up()):
            self.root = None
            return  # as in PyTorch, it stays for another pass, which may ask for other inputs
        if self.facts.saves:
            self.leaves = ()
        self._released = True
        self.output = None
        self.made_by = None
        self.root = None
        self.also = self.saved = ()

    def _used_up(self) -> bool:
        """Whether a pass for some inputs read what the region saved."""
        if not self.facts.saves:
            return False
        reads = self.asked_for()[1].reads
        return any(i.op == "load" and i.value[0] in reads for i in self.program.instructions)

    # --- going backward -------------------------------------------------------------------------
    # This file knows no Tensor class: what tensors do is asked of the cotangent.

    def prepare(self) -> None:
        """Let gradients be seen at the tensors inside the region that somebody observes."""
        if self.made_by is None or self._released:
            return
        operands = self.made_by[1:]
        if any(isinstance(e, Expr) and observed_within(e) for e in operands):
            again = replay(self.value(), {}, top=True)
            self._go_through(again)

    def _remake(self, value: Expr, again: Expr) -> None:
        """Where this value is the region's, go back through what it is made of now."""
        same = self.program is value.program and self.leaves == value.leaves
        with counting:  # a pass that runs has the edges counted
            if same and not self.also and not is_counted(self):
                self.made_by = again.made_by
                self._go_through(again)

    def _go_through(self, expr: Expr) -> None:
        self.program, self.leaves, self.facts = expr.program, expr.leaves, facts_of(expr.program)
        self._edges = _edges(expr.leaves, self.facts.gradient_leaves)

    def vjp(self, cotangents: Sequence[Any]) -> Sequence[Any]:
        cotangent, self.gives_new = cotangents[0], False
        if cotangent is None:
            return (None,) * len(self._edges)
        if self.alone is not None:
            return cotangent._back_alone(self)
        if self._released and self.facts.saves:
            return cotangent._back_when_freed(self)
        if self._check_versions():
            return cotangent._back_by_ops(self)
        if self.joint is not None:
            return self._vjp_joint(cotangent)
        recorded = state.grad
        if recorded:
            if state.mode is WATCHED:
                return cotangent._back_by_ops(self)
            if self.observed and self.output is None:
                self._save_output(cotangent._of)
        leaves = self.leaves
        g: Expr = cotangent._expr
        if g.program.marks:
            if g.program.marks & WRAPPED:
                return cotangent._back_by_ops(self)
            cotangent = cotangent.alias()
            g = cotangent._expr
        wrap: Wrap = cotangent._of
        if scheduler.cotangent_first(g.program, self):
            cotangent._realize()
            g = cotangent._expr
        output = None
        if self.output is not None:
            output = len(leaves), not self.output.array.flags.c_contiguous, self.output_free
            leaves = (*leaves, self.output.twin(self._of_output() if recorded else None))
        merged, pattern = merge(leaves, g.leaves)
        gradient = gradient_of(
            self.program, g.program, pattern, len(merged), recorded, output, space=self.shape
        )
        early: dict[Any, Any] = {}
        sums: dict[int, Cell] = {}  # leaves in new memory that no result has yet
        beside = () if g.program.is_load else gradient.beside
        for parts, readers in gradient.shared:
            shared = parts - early.keys()
            early |= self._stored_anyway(wrap, gradient, merged, shared, readers, beside)
        if gradient.steps:
            seen = recorded is not False or open_levels or interpreters or Eager.on
            for part, summed, dims, stores in gradient.steps:
                if stores:
                    merged = (*merged, self._stored(wrap, part, merged))
                    continue
                known = early.get(part) if early else None
                value = self._on(part, merged) if known is None else known._expr
                full, shape = value.shape, extents_at(summed, self.shape)
                if gradient.at_once and value.program.is_load and 0 not in full:
                    leaf = sums[len(merged)] = Cell(summed_to(value, shape))
                elif seen or value.program.barred or 0 in full:
                    leaf = wrap(value)._sum_to_shape(shape)._load().leaves[0]
                else:
                    recipe = recipe_of(value, "sum", dims, shape, None)
                    leaf = sums[len(merged)] = ReducedCell(start(value, recipe, None), 0)
                merged = (*merged, leaf)
        results, count, axes = [], len(merged), self.program.axes
        for _, part in gradient.results:
            if early and part in early:
                results.append(early[part])
                continue
            own_leaves = merged
            if len(part.leaves) != count:
                own_leaves = tuple([merged[i] for i in part.leaves])
            if part.program.is_load:
                if part.leaves[0] in sums:
                    del sums[part.leaves[0]]
                else:  # the cotangent itself, say: its memory is somebody's
                    leaf = own_leaves[0].twin(own_leaves[0].node, own_leaves[0].output)
                    leaf.borrowed = True
                    own_leaves = (leaf,)
            own = part.program.axes
            shape = self.shape if own == axes else extents_at(own, self.shape)
            results.append(wrap(Expr(part.program, own_leaves, None, shape)))
        self._group(g.program, results)
        self.gives_new = not early  # one of those may go to several places
        return results

    def gather(self, cotangent: Any, others: Sequence[tuple[Node, list[Any]]]) -> None:
        """Go backward together with regions that came out of this one's kernel.

        The gradients of one function by several inputs have nearly all of their ops in common, and
        so have their own gradients. What is differentiated is the sum of all, each times its
        cotangent, with one for its cotangent.
        """
        self.joint = None
        if state.grad or not self._joins(cotangent):
            return
        total = self._weighed(cotangent)
        for other, have in others:
            of_family = isinstance(other, RegionNode) and other.family is self.family
            if not of_family or not other._joins(have[0]):  # type: ignore[attr-defined]
                continue
            joint = build(TABLE["add"], [total, other._weighed(have[0])], RECORDED, scheduled=False)  # type: ignore[attr-defined]
            if not scheduler.fits_a_kernel(len(joint.program.instructions), len(joint.leaves)):
                break
            total, have[0], self.joint = joint, None, joint

    def _joins(self, cotangent: Any) -> bool:
        """Whether the gradient is linear in a stored cotangent and reads leaves alone."""
        program = self.program
        if self._released or program.dtype.category != 2:
            return False
        incoming = cotangent._expr.program
        same = (
            incoming.is_load
            and incoming.dtype is program.dtype
            and cotangent._expr.shape == self.shape
        )
        plain = not (incoming.marks or incoming.needs_grad or program.marks or self.observed)
        plain = plain and replacements(self.made_by, self.leaves, ()) is None
        return same and plain and not self.facts.reads_output

    def _weighed(self, cotangent: Any) -> Expr:
        self._check_versions()
        own = Expr(self.program, self.leaves, None, self.shape)
        return build(TABLE["mul"], [own, cotangent._expr], RECORDED, scheduled=False)

    def _vjp_joint(self, cotangent: Any) -> Sequence[Any]:
        joint, self.joint = self.joint, None
        assert joint is not None
        program = joint.program
        node = RegionNode(joint)
        one = of_constant(1.0, program.dtype, joint.shape, program.device)
        gradients: dict[Edge, Any] = {}
        for edge, result in zip(node._edges, node.vjp((cotangent._of(one),)), strict=True):
            gradients[edge] = gradients[edge] + result if edge in gradients else result
        # A sum goes to an edge once, though several leaves lead to it.
        return [gradients.pop(edge, None) for edge in self._edges]

    def _stored_anyway(
        self,
        wrap: Wrap,
        gradient: Gradient,
        leaves: tuple[Cell, ...],
        parts: Collection[Any],
        readers: int,
        beside: Collection[int] = (),
    ) -> dict[Any, Any]:
        """Those parts that so many ops will read as their cotangents: computed first, once.

        The results numbered ``beside``, which are computed from a pending cotangent as well, come
        out of the same kernel.
        """
        stored: dict[Any, Any] = {}
        left = dict.fromkeys(parts, readers)
        for (_, part), (node, _) in zip(gradient.results, self._edges, strict=True):
            if part not in left or node is None or not node.reads_cotangent:
                continue
            left[part] -= 1
            if left[part] == 0:
                stored[part] = wrap(self._on(part, leaves))
        if stored and beside:
            for number in beside:
                if self._edges[number][0] in state.task.waiting:
                    part = gradient.results[number][1]
                    stored[part] = wrap(self._on(part, leaves))
        if len(stored) > 1:
            together = [weakref.ref(tensor) for tensor in stored.values()]
            for tensor in stored.values():
                tensor._siblings = together
        for tensor in stored.values():
            tensor._realize()
        return stored

    def _stored(self, wrap: Wrap, part: Any, leaves: tuple[Cell, ...]) -> Cell:
        """A step's value as a leaf; the programs that read it were derived for a row-major one."""
        tensor = wrap(self._on(part, leaves))
        tensor._realize()
        cell: Cell = tensor._expr.leaves[0]
        if cell.array.flags.c_contiguous:
            return cell
        return Cell(row_major(cell.array))

    def _on(self, part: Any, leaves: tuple[Cell, ...]) -> Expr:
        """Return a part of the gradient as an expression of the leaves that it reads."""
        own = leaves  # a part has its leaves in order
        if len(part.leaves) != len(leaves):
            own = tuple([leaves[i] for i in part.leaves])
        return Expr(part.program, own, None, extents_at(part.program.axes, self.shape))

    def asked_for(self) -> tuple[list[int], Gradient]:
        """The leaves a gradient goes to, and the gradient of those that the pass asks for."""
        program, wanted = self.program, self._wanted()
        leaves = self.facts.gradient_leaves
        n = program.leaves
        load = load_program(program.dtype, program.axes, False, False, program.device)
        return leaves, gradient_of(program, load, n, n + 1, state.grad, None, wanted)

    def _wanted(self) -> frozenset[int]:
        """The leaves that the pass comes to."""
        reached = state.task.waiting
        pairs = zip(self.facts.gradient_leaves, self._edges, strict=True)
        return frozenset([leaf for leaf, (node, _) in pairs if node in reached])

    def _save_output(self, wrap: Wrap) -> None:
        """Second derivatives go through this value's own node, so that its hooks are asked."""
        if self.facts.reads_output:
            value = wrap(Expr(self.program, self.leaves, None, self.shape))
            order = order_of(value._expr)
            self._read_output(Cell(value.array), order)

    def _of_output(self) -> RegionNode:
        """The node by which second derivatives go that read this value.

        Where PyTorch's op saves operands instead, they do not come by this node, nor by its hooks.
        """
        if not self.observed or self.program.root.op not in FROM_OPERANDS:
            return self
        node = RegionNode(self.value())
        node.output, node.output_free, node.also = self.output, self.output_free, self.also
        return node

    @property
    def observed(self) -> int:
        """How many want to see the gradient of this region's value."""
        return 0 if self.observers is None else self.observers.count

    def _check_versions(self) -> bool:
        """Refuse to go backward where what PyTorch's ops would have saved was written.

        Whether something of that was replaced by ``x.data = y``.
        """
        leaves, program, task = self.leaves, self.program, state.task
        everywhere = task is None or task.everywhere  # None: somebody calls the node
        for i in self.facts.saved:
            if i == len(leaves):
                result = self.result
                if result is None or result.variable._storage is None:
                    continue
                if result.written and self._saves_output():
                    raise result.refusal(self, self.name())
                continue
            leaf = leaves[i]
            variable = leaf.variable
            if variable is None or variable._storage is None:
                continue
            if variable._storage.version == leaf.version:
                continue
            ends = frozenset([number for number, cell in enumerate(leaves) if takes_none(cell)])
            if i not in saved_leaves(program, None if everywhere else self._wanted(), ends):
                continue
            node = leaf.node
            name = None if node is None or not node._edges else node.name()
            known = program.instructions
            like = next(n for n in known if n.op == "load" and n.value[0] == i)
            loads = load_program(like.dtype, like.shape, False, False, program.device)
            entry = Saved(loads, self._extents(loads), variable, leaf.version)
            raise entry.refusal(self, name)
        for entry in self.also:
            if entry.written:
                raise entry.refusal(self, self.name() if entry.program is program else None)
        if not (written_values or self.facts.converts):
            return False
        refused = refusal(self.made_by, program, None if everywhere else task.waiting)
        if refused is not None:
            made = refused.program.needs_grad
            raise refused.refusal(self, title_of(refused.program) if made else None)
        return replacements(self.made_by, leaves, self.also) is not None

    def _saves_output(self) -> bool:
        """``y * 1`` saves nothing, whatever made y."""
        return self.made_by is None or self.made_by[0].name == self.program.root.op

    def _group(self, cotangent: Program, results: list[Any]) -> None:
        """Have one kernel compute what is to be computed together, and the pending root itself."""
        members, at_once = scheduler.computed_together(cotangent, results, self._edges)
        if len(members) + (self.root is not None) > 1:
            group = [weakref.ref(member) for member in members]
            if self.root is not None:
                group.append(self.root)
            for member in group:
                tensor = member()
                if tensor is not None:
                    tensor._siblings = group
            if at_once:
                members[0]._realize()


class WayBack(NamedTuple):
    """A region's gradient for cotangents of one program, as C goes it: see `RegionNode.vjp`.

    A part is a program, the leaves that it reads or None for all, its axes or None for the
    region's, and its number among those that are stored first, or -1.

    Attributes
    ----------
    results : tuple of parts
        One for each edge.
    steps : tuple of parts
        What is summed, each with the axes of the sum and the dimensions that go.
    shared : tuple of (tuple of int, int)
        Numbers of parts that are stored first, where so many nodes read them.
    at_once : bool
        See `lucid_gpu.fusion.gradient.Gradient`.
    """

    results: tuple[Any, ...]
    steps: tuple[Any, ...]
    shared: tuple[tuple[tuple[int, ...], int], ...]
    at_once: bool


def way_back(node: RegionNode, cotangent: Expr) -> WayBack | None:
    """Return the way back through a small region for `cotangent`, where all is as it is mostly.

    Returns None where a step stores something, or where it depends on more than the programs.
    """
    program, leaves = node.program, node.leaves
    if scheduler.cotangent_first(cotangent.program, node):
        return None
    if len(cotangent.program.instructions) > scheduler.SUMMED_STEPS:
        return None  # its way depends on where the gradients go
    output = None
    if node.output is not None:
        output, leaves = (len(leaves), False, False), (*leaves, node.output)
    merged, pattern = merge(leaves, cotangent.leaves)
    gradient = gradient_of(program, cotangent.program, pattern, len(merged), False, output)
    beside = gradient.shared and gradient.beside and not cotangent.program.is_load
    if beside or any(step.stores for step in gradient.steps):
        return None
    numbers: dict[Part, int] = {}
    shared = tuple(
        [
            (tuple([numbers.setdefault(part, len(numbers)) for part in parts]), readers)
            for parts, readers in gradient.shared
        ]
    )

    def part(one: Part, count: int) -> tuple[Any, ...]:
        own, read = one.program, one.leaves
        axes = None if own.axes == program.axes else own.axes
        return own, None if len(read) == count else read, axes, numbers.get(one, -1)

    steps = []
    for count, step in enumerate(gradient.steps, len(merged)):
        steps.append((*part(step.part, count), step.axes, step.dims))
    count = len(merged) + len(steps)
    results = tuple([part(one, count) for _, one in gradient.results])
    return WayBack(results, tuple(steps), shared, gradient.at_once)


def note_family(values: Sequence[Expr]) -> None:
    """One kernel computed these; where each is a region, they may go backward together."""
    nodes = [value.node for value in values if value.node is not None]
    if len(nodes) > 1:
        family = object()
        for node in nodes:
            node.family, node.look_around = family, gathering


# Regions that keep all their arrays because somebody was inside when they were realized: in a loop
# a name of the last turn. Whether he has left is asked when the next region is realized, then two,
# four, eight, sixteen later: [node, realizations to wait, the wait].
_held: deque[list[Any]] = deque(maxlen=16)
_LAST_WAIT = 16


_types: dict[str, type[RegionNode]] = {}
_composed_types: dict[str, type[RegionNode]] = {}


def title_of(program: Program) -> str:
    """PyTorch's name for the node of a program's last op."""
    root = program.root
    op, operands = root.op, [program.instructions[a] for a in root.args]
    sources = [program.instructions[o.args[0]] if o.op == "cast" else o for o in operands]
    numbers = [o.op in ("constant", "scalar") for o in sources]  # some are cast to 16 bits
    if op == "identity":
        return "CloneBackward0" if operands[0].shape == root.shape else "ExpandBackward0"
    if op == "pow":
        return "PowBackward0" if numbers[1] else "PowBackward2" if numbers[0] else "PowBackward1"
    if op == "sub" and numbers[0]:
        return "RsubBackward1"
    if op in ("fmod", "remainder") and not numbers[1]:
        return f"{op.capitalize()}Backward1"
    if op in ("clamp_min", "clamp_max"):
        return "ClampBackward1" if numbers[1] else "ClampBackward0"
    return (_NAMES.get(op) or "".join(word.capitalize() for word in op.split("_"))) + "Backward0"


def _region_node(expr: Expr) -> RegionNode:
    """The node of a pending expression that needs grad; its class is named after the last op."""
    node: RegionNode | None = expr.node
    if node is None:
        kind = facts_of(expr.program).kind
        for entry in expr.also:
            if type(entry) is Composed and entry.title is not None:
                kind = _class_of(entry.title, True)
        node = expr.node = kind(expr)
    return node


def _edge_of(expr: Expr) -> Edge:
    """Where the gradient of a value goes."""
    program = expr.program
    if not program.needs_grad:
        return (None, 0)
    if program.is_load or program.is_boundary:
        cell = expr.leaves[-1]
        return (cell.node, cell.output)
    return (region_node(expr), 0)


region_node: Callable[[Expr], RegionNode] = _region_node
edge_of: Callable[[Expr], Edge] = _edge_of
if core is not None:
    region_node, edge_of = core.region_node, core.edge_of
    core.bind(
        region_node=_region_node,
        edge_of=_edge_of,
        way_back=way_back,
        summed_to=summed_to,
        recipe_of=recipe_of,
        written=written_values,
        regions_held=_held,
        saved_inside=saved_inside,
        region=RegionNode,
    )


def _class_of(title: str, composed: bool = False) -> type[RegionNode]:
    types = _composed_types if composed else _types
    kind = types.get(title)
    if kind is None:
        kind = types[title] = type(title, (RegionNode,), {"name": Node.name, "composed": composed})
    return kind


def _edges(leaves: tuple[Cell, ...], numbers: Sequence[int]) -> tuple[Edge, ...]:
    """Where the gradients of a region go, which are those of the leaves with these numbers."""
    return tuple([(leaves[i].node, leaves[i].output) for i in numbers])


def _let_go() -> None:
    """Let realized regions that nobody looks into any more keep only what they must."""
    for entry in list(_held):
        entry[1] -= 1
        if entry[1]:
            continue
        node = entry[0]()
        waiting = node is not None and node.made_by is not None and not node._released
        beside = None
        if waiting:
            beside = saved_inside(node)
        if beside is not None:
            node.keep_read(beside)
        elif waiting and entry[2] < _LAST_WAIT:
            entry[1] = entry[2] = 2 * entry[2]
            continue
        with contextlib.suppress(ValueError):  # another thread was faster
            _held.remove(entry)


class _Observers:
    """A node's share of the engine's count of observers; it is taken back when the node dies."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def add(self, change: int) -> None:
        self.count += change
        observing.add(change)

    def __del__(self) -> None:
        observing.add(-self.count)


def observe(node: Node, change: int = 1) -> None:
    """Somebody wants to see gradients at this node; regions that contain it will be opened."""
    if isinstance(node, RegionNode):
        if node.observers is None:
            node.observers = _Observers()
        node.observers.add(change)


def unobserve(node: Node) -> None:
    """Take back one `observe`."""
    observe(node, -1)
