"""Nested arguments of traced functions: what generated code takes apart and puts together."""

from __future__ import annotations

from typing import Any

from lucid_gpu.func import trees

__all__ = ["tree_flatten_spec", "tree_unflatten"]


def tree_flatten_spec(pytree: Any, spec: trees.Structure) -> list[Any]:
    """The leaves of a tree, as far down as a structure goes.

    Raises
    ------
    RuntimeError
        For a tree of another structure.
    """
    if spec.kind is None:
        return [pytree]
    flat, structure = trees.flatten(pytree, lambda part: part is not pytree)
    alike = structure.kind is spec.kind or {structure.kind, spec.kind} <= {tuple, list}
    if not alike or len(flat) != len(spec.children):
        raise RuntimeError(
            f"the traced function takes {spec} here, and was called with {type(pytree).__name__} "
            f"of {len(flat)}: trace it again with such arguments in concrete_args"
        )
    if isinstance(pytree, dict):
        flat = [pytree[key] for key in spec.keys]
    return [
        leaf
        for part, below in zip(flat, spec.children, strict=True)
        for leaf in tree_flatten_spec(part, below)
    ]


def tree_unflatten(leaves: Any, treespec: trees.Structure) -> Any:
    """The tree of these leaves."""
    return trees.unflatten(leaves, treespec)
