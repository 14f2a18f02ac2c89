"""Optimizers' rules applied to the rows that a sparse gradient lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lucid_gpu.ops.foreach import Rule
from lucid_gpu.tensor import Tensor

__all__ = ["update_listed"]

Row = tuple[Tensor, ...]  # a parameter, its states, its gradient


def update_listed(
    rule: Rule, rows: Sequence[Row], numbers: dict[str, Any] | None, settings: dict[str, Any]
) -> list[Row]:
    """Apply a rule where gradients are sparse; the members that have dense ones are returned.

    Gradients that list more than rows are made dense.
    """
    dense: list[Row] = []
    for *tensors, g in rows:
        if not g.is_sparse or g.sparse_dim() != 1:
            dense.append((*tensors, g.to_dense() if g.is_sparse else g))
            continue
        g = g.coalesce()
        index = g.indices()[0]
        taken = [t.index_select(0, index) for t in tensors]
        for t, new in zip(tensors, rule(*taken, g.values(), **(numbers or {}), **settings)):
            t.index_copy_(0, index, new)
    return dense
