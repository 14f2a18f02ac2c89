"""One rule over many tensors, in place: optimizers' updates, gradients clipped by value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from itertools import chain
from operator import attrgetter, itemgetter
from typing import Any, TypeVar

from lucid_gpu.device import device
from lucid_gpu.devices import on_gpu_of
from lucid_gpu.devices.copies import row_major, write
from lucid_gpu.dtypes import dtype, when_default_changes
from lucid_gpu.fusion import Eager, eager, foreach
from lucid_gpu.fusion.costs import costs_of
from lucid_gpu.ops.in_place import writable
from lucid_gpu.tape.overrides import handling
from lucid_gpu.tensor import Tensor, _tensor, arrays_of

__all__ = ["Rule", "grouped", "held_here", "update_in_place"]

Rule = Callable[..., tuple[Tensor, ...]]
K = TypeVar("K")
V = TypeVar("V")

MAX_RULES = 1000
_DTYPE, _DEVICE = map(attrgetter, ("_expr.program.dtype", "_expr.program.device"))
_traced: dict[Any, foreach.Update] = {}
when_default_changes.append(_traced.clear)


def update_in_place(
    rule: Rule,
    rows: Sequence[tuple[Tensor, ...]],
    written: int,
    numbers: Mapping[str, float] | None = None,
    **settings: Any,
) -> None:
    """Replace tensors by what a rule makes of them.

    All rows of the same types on one device are one kernel.

    Parameters
    ----------
    rule : callable
        ``rule(*row, **numbers, **settings)`` returns new values for the first ``written`` tensors
        of a row, in tensor arithmetic. It is called once for each combination of types and
        settings.
    rows : sequence of tuples of tensors
        Those of a row have one shape.
    written : int
    numbers : mapping, optional
        Numbers that change from call to call, the same for all rows. The rule gets them as tensors
        without dimensions.
    **settings
        Numbers and switches that the rule may decide by.
    """
    numbers = numbers or {}
    if handling:
        rows = held_here(rows)
    types = [map(_DTYPE, column) for column in zip(*rows, strict=True)]
    devices = map(_DEVICE, map(itemgetter(0), rows))
    groups = grouped([*zip(devices, *types, strict=True)], rows)
    values = [*map(float, numbers.values())]
    for (where, *kinds), some in groups.items():
        update = _update_of(rule, where, kinds, written, tuple(numbers), settings)
        _run(rule.__name__, update, some, written, values)


def held_here(rows: Sequence[tuple[Any, ...]]) -> Sequence[tuple[Any, ...]]:
    """Rows of tensors for a rule; of those of which each rank has a part, this rank's.

    Asked where ``handling`` says that there may be such (`distributed.tensor`). NotImplementedError
    for such ones beside others.
    """
    local = []
    for row in rows:
        shared = [hasattr(t, "to_local") for t in row]
        if any(shared) and not all(shared):
            shapes = [list(t.shape) for t in row]
            raise NotImplementedError(
                f"a rule over tensors of shapes {shapes}, of some of which each rank has a part: "
                "distribute_tensor(x, p.device_mesh, p.placements) makes x another"
            )
        local.append(tuple([t.to_local() for t in row]) if all(shared) else row)
    return local


def grouped(keys: Sequence[K], members: Sequence[V]) -> dict[K, list[V]]:
    """Members by their keys; nearly always there is one key."""
    if len(set(keys)) == 1:
        return {keys[0]: list(members)}
    groups: dict[K, list[V]] = {}
    for key, member in zip(keys, members, strict=True):
        groups.setdefault(key, []).append(member)
    return groups


def _update_of(
    rule: Rule,
    where: device,
    types: list[dtype],
    written: int,
    names: tuple[str, ...],
    settings: dict[str, Any],
) -> foreach.Update:
    """The traced rule, remembered."""
    key = (rule, where, *types, costs_of(where), names, *settings.items())
    update = _traced.get(key)
    if update is None:
        if len(_traced) >= MAX_RULES:
            _traced.clear()
        inputs = foreach.stand_ins(types, where)
        numbers = foreach.number_stand_ins(len(names), types[0], where)
        scalars = {name: _tensor(e) for name, e in zip(names, numbers, strict=True)}
        with eager(False) if Eager.on else nullcontext():  # stand-ins have no bytes to compute with
            made = rule(*[_tensor(e) for e in inputs], **scalars, **settings)
            results = [v.to(d)._expr for v, d in zip(made, types[:written], strict=True)]
        update = _traced[key] = foreach.traced(inputs, results, numbers)
    return update


def _run(
    name: str,
    update: foreach.Update,
    rows: list[tuple[Tensor, ...]],
    written: int,
    numbers: list[float],
) -> None:
    columns = [*zip(*rows, strict=True)]
    where, count = update.plan.device, len(rows)
    read = [_in_rows(column, arrays_of(column)) for column in columns[written:]]

    def change(arrays: list[Any]) -> None:
        changed = [arrays[i : i + count] for i in range(0, len(arrays), count)]
        foreach.run(update, [*changed, *read], numbers)

    write_together([*chain(*columns[:written])], name, where, change)


def write_together(
    tensors: Sequence[Tensor], name: str, where: device, change: Callable[[list[Any]], None]
) -> None:
    """Have a kernel change row-major arrays in place: of tensors of one device, for an op ``name``.

    Those of another layout are changed in a copy.
    """
    if handling:
        tensors = [t for (t,) in held_here([(t,) for t in tensors])]
    targets = writable(tensors, name)
    arrays = _in_rows(tensors, targets)
    change(arrays)
    if arrays is not targets:
        with on_gpu_of(where):
            for target, array in zip(targets, arrays, strict=True):
                if target is not array:
                    write(target, array)


def _in_rows(tensors: Sequence[Tensor], arrays: list[Any]) -> list[Any]:
    """The arrays of realized tensors, copied where they are not row-major."""
    return [*map(row_major, arrays)] if any(map(_STRIDED, tensors)) else arrays


_STRIDED = attrgetter("_expr.program.strided")
