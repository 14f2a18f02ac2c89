"""Trees of tuples, named tuples, lists and dictionaries: taken apart and put together again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

__all__ = ["Structure", "flatten", "leaves_of", "spread", "tree_map", "unflatten"]


class Structure(NamedTuple):
    """What a tree is besides its leaves.

    Attributes
    ----------
    kind : type or None
        Of the container; None for a leaf.
    keys : tuple
        Of a dictionary.
    children : tuple of Structure
    """

    kind: Any
    keys: tuple[Any, ...]
    children: tuple[Structure, ...]

    def __repr__(self) -> str:
        inner = [repr(child) for child in self.children]
        if self.kind is None:
            return "*"
        if issubclass(self.kind, dict):
            pairs = zip(self.keys, inner, strict=True)
            return "{" + ", ".join(f"{key!r}: {child}" for key, child in pairs) + "}"
        if self.kind is list:
            return "[" + ", ".join(inner) + "]"
        return "(" + ", ".join(inner) + ("," if len(inner) == 1 else "") + ")"


LEAF = Structure(None, (), ())


def _children(tree: Any) -> Sequence[Any] | None:
    """The branches of a container; None for a leaf."""
    if isinstance(tree, dict):
        return list(tree.values())
    if type(tree) in (tuple, list) or (isinstance(tree, tuple) and hasattr(tree, "_fields")):
        kept: Sequence[Any] = tree
        return kept
    return None


def flatten(tree: Any) -> tuple[list[Any], Structure]:
    """The leaves in order, and what puts them together again."""
    children = _children(tree)
    if children is None:
        return [tree], LEAF
    leaves: list[Any] = []
    structures = []
    for child in children:
        below, structure = flatten(child)
        leaves += below
        structures.append(structure)
    keys = tuple(tree) if isinstance(tree, dict) else ()
    kind = dict if isinstance(tree, defaultdict) else type(tree)  # whose first argument is another
    return leaves, Structure(kind, keys, tuple(structures))


def unflatten(leaves: Sequence[Any], structure: Structure) -> Any:
    """A tree of this structure."""
    return _build(iter(leaves), structure)


def _build(leaves: Iterator[Any], structure: Structure) -> Any:
    kind = structure.kind
    if kind is None:
        return next(leaves)
    children = [_build(leaves, child) for child in structure.children]
    if issubclass(kind, dict):
        return kind(zip(structure.keys, children, strict=True))
    return kind(*children) if hasattr(kind, "_fields") else kind(children)


def leaves_of(tree: Any) -> list[Any]:
    """The leaves in order."""
    return flatten(tree)[0]


def tree_map(function: Callable[[Any], Any], tree: Any) -> Any:
    """The tree with ``function(leaf)`` in place of each leaf."""
    leaves, structure = flatten(tree)
    return unflatten([function(leaf) for leaf in leaves], structure)


def spread(prefix: Any, structure: Structure) -> list[Any] | None:
    """A value for each leaf of a structure: a leaf of ``prefix`` stands for all leaves below.

    Returns
    -------
    list or None
        None where ``prefix`` does not fit.
    """
    children = _children(prefix)
    if children is None or structure.kind is None:
        return None if children is not None else [prefix] * _count(structure)
    fits = type(prefix) is structure.kind and len(children) == len(structure.children)
    if not fits or (isinstance(prefix, dict) and tuple(prefix) != structure.keys):
        return None
    found: list[Any] = []
    for child, below in zip(children, structure.children, strict=True):
        part = spread(child, below)
        if part is None:
            return None
        found += part
    return found


def _count(structure: Structure) -> int:
    if structure.kind is None:
        return 1
    return sum(_count(child) for child in structure.children)
