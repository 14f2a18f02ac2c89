"""Trees of tuples, named tuples, lists, dictionaries and registered types, apart and together."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

__all__ = ["REGISTERED", "Structure", "flatten", "leaves_of", "spread", "tree_map", "unflatten"]

# Of a type of container, a function to children and context, and one back from those.
REGISTERED: dict[type, tuple[Callable[..., Any], Callable[..., Any]]] = {
    defaultdict: (
        lambda d: (list(d.values()), [d.default_factory, list(d)]),
        lambda values, context: defaultdict(context[0], zip(context[1], values, strict=True)),
    )
}


class Structure(NamedTuple):
    """What a tree is besides its leaves.

    Attributes
    ----------
    kind : type or None
        Of the container; None for a leaf.
    keys : tuple
        Of a dictionary; of a registered type, its context alone.
    children : tuple of Structure
    """

    kind: Any
    keys: tuple[Any, ...]
    children: tuple[Structure, ...]

    def __repr__(self) -> str:
        inner = [repr(child) for child in self.children]
        if self.kind is None:
            return "*"
        if issubclass(self.kind, dict) and self.kind not in REGISTERED:
            pairs = zip(self.keys, inner, strict=True)
            return "{" + ", ".join(f"{key!r}: {child}" for key, child in pairs) + "}"
        if self.kind in REGISTERED:
            return f"{self.kind.__name__}({', '.join(inner)})"
        if self.kind is list:
            return "[" + ", ".join(inner) + "]"
        return "(" + ", ".join(inner) + ("," if len(inner) == 1 else "") + ")"


LEAF = Structure(None, (), ())


def _opened(tree: Any) -> tuple[Sequence[Any], tuple[Any, ...]] | None:
    """The branches of a container, and its keys or context; None for a leaf."""
    if type(tree) in (dict, OrderedDict):
        return list(tree.values()), tuple(tree)
    if type(tree) in (tuple, list) or (isinstance(tree, tuple) and hasattr(tree, "_fields")):
        return tree, ()
    if type(tree) in REGISTERED:
        children, context = REGISTERED[type(tree)][0](tree)
        return list(children), (context,)
    return None


def flatten(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list[Any], Structure]:
    """The leaves in order, and what puts them together again.

    Parameters
    ----------
    is_leaf : callable, optional
        Whether a container is a leaf all the same.
    """
    opened = None if is_leaf is not None and is_leaf(tree) else _opened(tree)
    if opened is None:
        return [tree], LEAF
    leaves: list[Any] = []
    structures = []
    children, keys = opened
    for child in children:
        below, structure = flatten(child, is_leaf)
        leaves += below
        structures.append(structure)
    return leaves, Structure(type(tree), keys, tuple(structures))


def unflatten(leaves: Sequence[Any], structure: Structure) -> Any:
    """A tree of this structure."""
    return _build(iter(leaves), structure)


def _build(leaves: Iterator[Any], structure: Structure) -> Any:
    kind = structure.kind
    if kind is None:
        return next(leaves)
    children = [_build(leaves, child) for child in structure.children]
    if kind in REGISTERED:
        return REGISTERED[kind][1](children, structure.keys[0])
    if issubclass(kind, dict):
        return kind(zip(structure.keys, children, strict=True))
    return kind(*children) if hasattr(kind, "_fields") else kind(children)


def leaves_of(tree: Any) -> list[Any]:
    """The leaves in order."""
    return flatten(tree)[0]


def tree_map(
    function: Callable[[Any], Any], tree: Any, is_leaf: Callable[[Any], bool] | None = None
) -> Any:
    """The tree with ``function(leaf)`` in place of each leaf."""
    leaves, structure = flatten(tree, is_leaf)
    return unflatten([function(leaf) for leaf in leaves], structure)


def spread(prefix: Any, structure: Structure) -> list[Any] | None:
    """A value for each leaf of a structure: a leaf of ``prefix`` stands for all leaves below.

    Returns
    -------
    list or None
        None where ``prefix`` does not fit.
    """
    opened = _opened(prefix)
    if opened is None or structure.kind is None:
        return None if opened is not None else [prefix] * _count(structure)
    children, keys = opened
    fits = type(prefix) is structure.kind and len(children) == len(structure.children)
    if not fits or keys != structure.keys:
        return None
    values: list[Any] = []
    for child, below in zip(children, structure.children, strict=True):
        part = spread(child, below)
        if part is None:
            return None
        values += part
    return values


def _count(structure: Structure) -> int:
    if structure.kind is None:
        return 1
    return sum(_count(child) for child in structure.children)
