"""`replace_pattern`: another graph in place of each part of a graph that looks like a pattern."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from lucid_gpu.fx._symbolic_trace import symbolic_trace
from lucid_gpu.fx.graph import Graph, attribute_at
from lucid_gpu.fx.graph_module import GraphModule
from lucid_gpu.fx.node import Node
from lucid_gpu.nn import Module
from lucid_gpu.tensor import Tensor

__all__ = [
    "Match",
    "ReplacedPatterns",
    "replace_pattern",
    "replace_pattern_with_filters",
]


class Match(NamedTuple):
    """A part of a graph that was replaced.

    Attributes
    ----------
    anchor : Node
        The last node.
    nodes_map : dict
        From the pattern's nodes to the graph's.
    """

    anchor: Node
    nodes_map: dict[Node, Node]


@dataclass
class ReplacedPatterns:
    """A part of a graph that was replaced, and the nodes that were added."""

    anchor: Node
    nodes_map: dict[Node, Node]
    replacements: list[Node]


@dataclass
class InternalMatch:
    """What filters are asked about."""

    anchors: list[Node]
    nodes_map: dict[Node, Node]
    placeholder_nodes: list[Node]
    returning_nodes: list[Node]


Filter = Callable[[InternalMatch, Graph, Graph], bool]


class _Matcher:
    """Finds a pattern in graphs: its placeholders are any nodes; its results may be used on."""

    def __init__(self, pattern: Graph, root: Module | None, found_in: Module) -> None:
        self.pattern, self.root, self.found_in = pattern, root, found_in
        self.parameters = [n for n in pattern.nodes if n.op == "placeholder"]
        self.returns = pattern.output_node().all_input_nodes
        self.anchors = [n for n in self.returns if not set(n.users) - {pattern.output_node()}]
        if not self.anchors:
            self.anchors = self.returns[:1]

    def same_step(self, p: Node, n: Node) -> bool:
        """Whether two nodes do the same to their arguments."""
        if p.op == "placeholder":
            return True
        if p.op != n.op:
            return False
        if p.op != "get_attr":
            return bool(p.target == n.target)
        ours, theirs = attribute_at(self.root, p.target), attribute_at(self.found_in, n.target)
        if isinstance(ours, Tensor) or isinstance(theirs, Tensor):
            return isinstance(ours, Tensor) and isinstance(theirs, Tensor)
        return type(ours) is type(theirs)

    def same_argument(self, p: Any, n: Any, known: dict[Node, Node]) -> bool:
        if isinstance(p, Node) and isinstance(n, Node):
            return self.same_node(p, n, known)
        if isinstance(p, Node) or isinstance(n, Node):
            return False
        if isinstance(p, (list, tuple)) and isinstance(n, (list, tuple)):
            pairs = zip(p, n, strict=False)
            return len(p) == len(n) and all(self.same_argument(a, b, known) for a, b in pairs)
        if isinstance(p, slice) and isinstance(n, slice):
            ours, theirs = [(s.start, s.stop, s.step) for s in (p, n)]
            return self.same_argument(ours, theirs, known)
        return type(p) is type(n) and bool(p == n)

    def same_node(self, p: Node, n: Node, known: dict[Node, Node]) -> bool:
        """Whether all that leads to two nodes is the same; notes the pairs in ``known``."""
        if p in known:
            return known[p] is n
        if p.op != "placeholder" and any(
            n is k and q.op != "placeholder" for q, k in known.items()
        ):
            return False
        if not self.same_step(p, n):
            return False
        known[p] = n
        if p.op == "placeholder":
            return True
        same = p.kwargs.keys() == n.kwargs.keys() and self.same_argument(p.args, n.args, known)
        same = same and all(self.same_argument(v, n.kwargs[k], known) for k, v in p.kwargs.items())
        if not same:
            del known[p]
        return same

    def closed(self, known: dict[Node, Node]) -> bool:
        """Whether what is inside of a match is used only inside."""
        inside = {n for p, n in known.items() if p.op not in ("placeholder", "get_attr")}
        return all(
            set(n.users) <= inside
            for p, n in known.items()
            if p not in self.returns and p.op not in ("placeholder", "get_attr")
        )

    def matches(self, graph: Graph) -> Iterator[InternalMatch]:
        """The matches that share no node but those the pattern takes and reads."""
        taken: set[Node] = set()
        candidates = [[n for n in graph.nodes if self.same_step(a, n)] for a in self.anchors]
        for ends in itertools.product(*candidates):
            known: dict[Node, Node] = {}
            pairs = zip(self.anchors, ends, strict=True)
            if not all(self.same_node(a, n, known) for a, n in pairs) or not self.closed(known):
                continue
            inside = {n for p, n in known.items() if p.op not in ("placeholder", "get_attr")}
            if inside & taken or any(r not in known for r in self.returns):
                continue
            taken |= inside
            yield InternalMatch(
                list(ends),
                known,
                [known[p] for p in self.parameters if p in known],
                [known[r] for r in self.returns],
            )


def _graph_of(function: Any) -> tuple[Graph, Module | None]:
    if isinstance(function, GraphModule):
        return function.graph, function
    if isinstance(function, Graph):
        return function, function.owning_module
    traced = symbolic_trace(function)
    return traced.graph, traced


def replace_pattern(gm: GraphModule, pattern: Any, replacement: Any) -> list[Match]:
    """Replace all parts of a module's graph that do what ``pattern`` does.

    Parameters
    ----------
    gm : GraphModule
        Is changed, and recompiled.
    pattern, replacement : callable, Module or GraphModule
        Of the same arguments; both are traced.

    Returns
    -------
    list of Match
    """
    return [Match(m.anchor, m.nodes_map) for m in _replace(gm, pattern, replacement, ())]


def replace_pattern_with_filters(
    gm: GraphModule,
    pattern: Any,
    replacement: Any = None,
    match_filters: list[Filter] | None = None,
    ignore_literals: bool = False,
    replacement_callback: Callable[..., Graph] | None = None,
) -> list[ReplacedPatterns]:
    """Replace the parts that do what ``pattern`` does and that all filters agree to.

    Parameters
    ----------
    match_filters : list of callable, optional
        Each is called with the match, the module's graph and the pattern's.
    ignore_literals : bool
        Only False: constants must be the same.
    replacement_callback : callable, optional
        Gives the replacement for a match, in place of ``replacement``.
    """
    if ignore_literals:
        raise NotImplementedError(
            "replace_pattern_with_filters(ignore_literals=True): constants are compared here; "
            "write a pattern for each constant, or change nodes in a loop over graph.nodes"
        )
    return _replace(gm, pattern, replacement, tuple(match_filters or ()), replacement_callback)


def _replace(
    gm: GraphModule,
    pattern: Any,
    replacement: Any,
    filters: tuple[Filter, ...],
    callback: Callable[..., Graph] | None = None,
) -> list[ReplacedPatterns]:
    pattern_graph, pattern_root = _graph_of(pattern)
    new_root: Module | None = None
    new_graph: Graph | None = None
    if callback is None:
        new_graph, new_root = _graph_of(replacement)
    matches = [
        m
        for m in _Matcher(pattern_graph, pattern_root, gm).matches(gm.graph)
        if all(f(m, gm.graph, pattern_graph) for f in filters)
    ]
    done = []
    changed: dict[Node, Node] = {}  # what stands for a node that was replaced
    for match in matches:
        graph = new_graph
        if callback is not None:
            graph = callback(match, gm.graph, pattern_graph)
        assert graph is not None
        done.append(_replace_one(gm.graph, match, pattern_graph, graph, changed))
    gm.recompile()
    if isinstance(new_root, Module):
        _take_attributes(gm, new_root)
    return done


def _replace_one(
    graph: Graph, match: InternalMatch, pattern: Graph, new: Graph, changed: dict[Node, Node]
) -> ReplacedPatterns:
    parameters = [n for n in new.nodes if n.op == "placeholder"]
    given = [changed.get(n, n) for n in match.placeholder_nodes]
    if len(parameters) != len(given):
        raise AssertionError(
            f"the replacement takes {len(parameters)} arguments, and the pattern {len(given)}"
        )
    copies = dict(zip(parameters, given, strict=True))
    users = [u for n in match.returning_nodes for u in n.users]
    with graph.inserting_before(min(users) if users else match.anchors[0]):
        result = graph.graph_copy(new, copies)
    results = [result] if isinstance(result, Node) else list(result or ())
    if len(results) != len(match.returning_nodes):
        raise AssertionError(
            f"the replacement returns {len(results)} values, and the pattern "
            f"{len(match.returning_nodes)}"
        )
    for old, node in zip(match.returning_nodes, results, strict=True):
        old.replace_all_uses_with(node)
        changed[old] = node
    for p in reversed(pattern.nodes):
        node = match.nodes_map.get(p)
        if node is not None and p.op != "placeholder" and not (node.users or node._erased):
            graph.erase_node(node)
    added = [n for p, n in copies.items() if p.op != "placeholder"]
    return ReplacedPatterns(match.anchors[0], match.nodes_map, added)


def _take_attributes(gm: GraphModule, replacement: Module) -> None:
    """Give a module what the nodes of its graph read from a replacement."""
    gm.delete_all_unused_submodules()
    if isinstance(replacement, GraphModule):
        replacement.graph.lint()
    for node in gm.graph.nodes:
        if node.op not in ("call_module", "get_attr"):
            continue
        own, theirs = attribute_at(gm, node.target), attribute_at(replacement, node.target)
        if own is not None:
            continue
        if theirs is None:
            raise RuntimeError(
                f'Attempted to create a "{node.op}" node during subgraph rewriting with target '
                f"{node.target}, but the referenced attribute does not exist in the replacement "
                "GraphModule"
            )
        copied = copy.deepcopy(theirs)
        if isinstance(copied, Module):
            gm.add_submodule(node.target, copied)
        else:
            path, _, last = node.target.rpartition(".")
            setattr(gm.get_submodule(path), last, copied)
    gm.graph.lint()
