"""Small plans that reduce, as one call of C.

The values are computed by NumPy's loops, and so are their sums: a ufunc's ``reduce`` is calls of
its loop in an order that follows from extents alone, and the same calls give the same bits.
"""

from __future__ import annotations

from itertools import groupby
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from lucid_gpu.devices.loops import available, loop_of
from lucid_gpu.fusion.plan import Plan, Shape, Tail
from lucid_gpu.tape.native import core

if TYPE_CHECKING:
    from lucid_gpu.fusion.blocked import Executable

MOST = 1 << 14  # elements: for more, the interpreter's time does not tell


def reduced(run: Executable) -> Any:
    """A plan that reduces row-major values, and its tail, as `core.Reduced`; None if it cannot be.

    It has run some times before, and so has the tail.
    """
    plan = run.plan
    if core is None or not available() or not 0 < run.total <= MOST:
        return None
    if plan.wholes or plan.indices:
        return None
    names = run.code.block.values
    tail = None if plan.tail is None else _ready_tail(plan.tail, type(run))
    if names is None or not row_by_row(plan) or (plan.tail is not None and tail is None):
        return None
    if len(names) + (0 if plan.tail is None else len(plan.tail.plan.stores)) > core.MOST_STORES:
        return None
    places = {f"a{i}": i for i, load in enumerate(plan.loads) if load.shape == plan.shape}
    first = len(plan.loads) + len(plan.scalars)
    made = [*dict.fromkeys([name for name in names if name[0] == "s"])]
    places.update({name: first + i for i, name in enumerate(made)})
    folds: list[Any] = [_fold(run, number) for number in range(len(names))]
    if None in folds or not places.keys() >= {*names}:
        return None
    values = _values(run, {name: names.index(name) for name in made})
    if values is None:
        return None
    placed = zip(names, folds, strict=True)
    return core.Reduced(values, tuple([(places[name], *fold) for name, fold in placed]), tail)


def row_by_row(plan: Plan) -> bool:
    """Whether all arrays that are read are row-major."""
    return all(load.strides is None for load in plan.loads)


def _values(run: Executable, made: dict[str, int]) -> Any:
    """What computes the values that are ``made``, by the numbers of their stores, in C."""
    plan = run.plan
    if made:
        outs = {name: (run.value_type(number), plan.shape) for name, number in made.items()}
        kernel = run.build(outs)
        walk = None if kernel is None else kernel.walk
    else:  # arrays are reduced as they are
        items = [load.dtype.numpy for load in plan.loads]
        walk = core.Walk(tuple([(d.char, 0, d.itemsize) for d in items]), (), (), (), run.total)
    if walk is None:
        return None
    types = tuple([run.value_type(number).numpy for number in made.values()])
    read, numbers = [load.leaf for load in plan.loads], [leaf for leaf, _ in plan.scalars]
    layouts = (None,) * len(read)
    return core.Ready(walk, tuple(read), tuple(numbers), plan.shape, types, layouts)


def _ready_tail(tail: Tail, kind: type[Executable]) -> Any:
    """The tail in C, which reads results by negative numbers; None where it cannot be."""
    after = tail.plan.executable
    if type(after) is not kind or tail.plan.order is not None:
        return None
    if after.cold > 0 or after.form.cold > 0:
        return None
    loads = zip(tail.plan.loads, tail.sources, strict=True)
    read = [load.leaf if source is None else -1 - source for load, source in loads]
    kernel = after.native if row_by_row(tail.plan) else None
    return None if kernel is None else after.ready(kernel, read)


def _fold(run: Executable, number: int) -> tuple[Any, ...] | None:
    """How a value is reduced, as `core.Reduced` takes it after the value's place."""
    plan, ufunc = run.plan, run.ufuncs[number]
    store, kind = plan.stores[number], run.value_type(number)
    char = kind.numpy.char
    axes = plan.reduction.axes  # type: ignore[union-attr]
    extents = _extents(plan.shape, axes)
    by_blas = ufunc is np.add and run.total > 4096 and len(plan.shape) > 1
    loop = None if by_blas else loop_of(ufunc, f"{char}{char}->{char}")
    if extents is None or loop is None or store.dtype is not kind or char not in "fdlihbB?":
        return None
    start = None
    if ufunc.identity is not None:
        start = np.array(ufunc.identity, kind.numpy)
        if ufunc is np.add:  # minus zero, or plus zero
            start = np.array(ufunc.reduce(np.array([-0.0]).astype(kind.numpy), dtype=kind.numpy))
    return (*loop, *extents, start, plan.divisors[number], store.shape, kind.numpy)


def _extents(shape: Shape, axes: tuple[int, ...]) -> tuple[int, int, int] | None:
    """How many rows there are, how many values become one, how many neighbors are kept.

    None where it is not these three.
    """
    longer = [(n, i in axes) for i, n in enumerate(shape) if n > 1]
    groups = [(gone, prod([n for n, _ in some])) for gone, some in groupby(longer, lambda e: e[1])]
    if [gone for gone, _ in groups].count(True) > 1:
        return None
    if not any(gone for gone, _ in groups):
        return 1, 1, prod(shape)
    before, after = 1, 1
    for gone, count in groups:
        if gone:
            before, length, after = after, count, 1
        else:
            after = count
    return before, length, after
