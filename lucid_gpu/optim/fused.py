"""One update of many tensors at once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from lucid_gpu.device import device
from lucid_gpu.fusion import Eager, eager, foreach
from lucid_gpu.tensor import Tensor, _tensor

__all__ = ["Rule", "update_in_place"]

Rule = Callable[..., tuple[Tensor, ...]]


def update_in_place(rule: Rule, columns: list[list[Tensor]], settings: dict[str, Any]) -> None:
    """Replace tensors by what a rule makes of them.

    All tensors of the same types on one device are one kernel.

    Parameters
    ----------
    rule : callable
        ``rule(parameter, gradient, *states, **settings)`` returns new values for the parameter and
        the states, written in tensor arithmetic.
    columns : list of list of Tensor
        Parameters, gradients, and a list for each state; all are changed but the gradients.
    settings : dict
        Numbers, the same for all.
    """
    rows: dict[Any, list[tuple[Tensor, ...]]] = {}
    for row in zip(*columns, strict=True):
        kind = (row[0].device, *[t.dtype for t in row])
        rows.setdefault(kind, []).append(row)
    for (where, *types), some in rows.items():
        _update(rule, where, types, some, settings)


def _update(
    rule: Rule,
    where: device,
    types: list[Any],
    rows: list[tuple[Tensor, ...]],
    settings: dict[str, Any],
) -> None:
    stand_ins = foreach.stand_ins(types, where)
    with eager(False) if Eager.on else nullcontext():  # stand-ins have no bytes to compute with
        values = rule(*[_tensor(e) for e in stand_ins], **settings)
        results = [v.to(d)._expr for v, d in zip(values, types[:1] + types[2:], strict=True)]
    gradients = [_row_major(row[1].array) for row in rows]
    written = [
        [_row_major(row[i]._writable(rule.__name__)) for row in rows]
        for i in range(len(types))
        if i != 1
    ]
    order = [stand_ins[0], *stand_ins[2:], stand_ins[1]]
    foreach.run(order, results, [*written, gradients])
    _put_back(rows, written)


def _row_major(array: Any) -> Any:
    return array if array.flags.c_contiguous else array.copy()


def _put_back(rows: list[tuple[Tensor, ...]], written: list[list[Any]]) -> None:
    """Tensors of another layout were updated in a copy."""
    for row, arrays in zip(rows, zip(*written, strict=True), strict=True):
        for tensor, array in zip((row[0], *row[2:]), arrays, strict=True):
            if tensor.array is not array:
                tensor.array[...] = array
