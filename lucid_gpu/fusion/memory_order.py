"""Plans whose arrays lie in memory in another order than their dimensions: run in that order.

What convolutions give on a CPU has the batch innermost. An elementwise plan over such arrays walks
its dimensions as they lie, so that its loops are long and flat, and so do its results: no layer
transposes what the next one would transpose back.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

from lucid_gpu.core.program import axes_of
from lucid_gpu.devices.copies import inverse
from lucid_gpu.fusion import cuda_executor
from lucid_gpu.fusion.blocked import Executable
from lucid_gpu.fusion.blocks import padded
from lucid_gpu.fusion.plan import Load, Plan, Reduction, Shape, row_major_strides

Order = tuple[int, ...]


def executable(plan: Plan) -> Executable:
    """A plan ready to run on NumPy arrays, in the order in which its results are to lie."""
    order = None if plan.over or plan.indices else _order_of_run(plan)
    return Executable(plan) if order is None else Ordered(plan, order)


def _order_of_run(plan: Plan) -> Order | None:
    """As operands lie where that is not for good, else as the result is to lie."""
    if any(type(load.free) is tuple for load in plan.loads):
        return common_order(plan, True)
    return plan.order or common_order(plan)


def common_order(plan: Plan, counted: bool = False) -> Order | None:
    """The order of the dimensions, widest stride first, in which most whole operands lie.

    None where that is row-major, and where two of them disagree. Orders that somebody chose do not
    count unless ``counted``, or before a reduction: the result's order follows from them
    (`Plan.order`).
    """
    whole = [load for load in plan.loads if load.shape == plan.shape]
    counted = counted or plan.reduction is not None
    orders = [order_of(load) if counted or load.free else None for load in whole]
    turned = {order for order in orders if order is not None}
    if len(turned) != 1 or 2 * orders.count(None) > len(whole):
        return None
    return turned.pop()


def order_of(load: Load) -> Order | None:
    """How the dimensions of an array lie in memory; None for row-major, and where they overlap."""
    if load.strides is None:
        return None
    shape, strides = load.shape, load.strides
    order = sorted(range(len(shape)), key=lambda i: (-strides[i], i))
    inner = 1  # bytes that the dimensions inside this one span
    for i in reversed(order):
        if shape[i] != 1:
            if strides[i] < inner:
                return None
            inner = strides[i] * shape[i]
    long = [i for i in order if shape[i] != 1]
    return None if long == sorted(long) else tuple(order)


class Ordered(Executable):
    """A plan run over its dimensions in another order; what it stores lies in memory like this.

    Results of reductions are row-major.
    """

    cold = -1  # it is never one call of C

    def __init__(self, plan: Plan, order: Order) -> None:
        self.plan = plan
        self.order = order
        self.back = inverse(order)
        self.inner = Executable(_turned(plan, order))

    @property
    def source(self) -> str:
        return self.inner.source

    def bound(
        self, arrays: Sequence[Any], scalars: Sequence[Any], results: list[Any]
    ) -> Callable[[], Any] | None:
        if self.plan.tail is not None or self.plan.reduction is not None:
            return None
        into = [a.transpose(self.order) for a in results]
        return self.inner.bound(_arrays(arrays, self.order), scalars, into)

    def _run(self, arrays: Sequence[Any], scalars: Sequence[Any]) -> list[Any]:
        turned = _arrays(arrays, self.order)
        results = [a.transpose(self.back) for a in self.inner._run(turned, scalars)]
        if self.plan.reduction is None:
            return results
        pairs = zip(results, self.plan.stores, strict=True)
        return [a.reshape(-1).reshape(s.shape) for a, s in pairs]  # with the strides of rows


class OrderedOnGPU:
    """An elementwise plan run as CUDA C over its dimensions in another order."""

    def __init__(self, plan: Plan, order: Order) -> None:
        self.order = order
        self.back = inverse(order)
        self.inner = cuda_executor.Executable(_turned(plan, order))

    @property
    def source(self) -> str:
        return self.inner.source

    def __call__(self, arrays: Sequence[Any], scalars: Sequence[Any]) -> list[Any]:
        results = self.inner(_arrays(arrays, self.order), scalars)
        return [a.transpose(self.back) for a in results]


def _arrays(arrays: Sequence[Any], order: Order) -> list[Any]:
    """Arrays with their dimensions in another order."""
    return [a.reshape(padded(a.shape, len(order))).transpose(order) for a in arrays]


def _turned(plan: Plan, order: Order) -> Plan:
    """The plan with its dimensions in another order, without what is made of its results."""

    def turn(values: Sequence[Any]) -> tuple[Any, ...]:
        return tuple([values[i] for i in order])

    def resized(shape: Shape) -> Shape:
        return turn(padded(shape, len(order)))

    def reloaded(load: Load) -> Load:
        steps = load.layout
        lost = len(order) - len(load.shape)
        shape, strides = resized(load.shape), turn((0,) * lost + tuple(steps))
        flat = row_major_strides(shape, load.dtype.itemsize)
        same = all(n == 1 or a == b for n, a, b in zip(shape, strides, flat, strict=True))
        return load._replace(shape=shape, strides=None if same else strides)

    result = copy.copy(plan)
    result.shape, result.tail, result.executable = resized(plan.shape), None, None
    shapes = [axes_of(resized(i.shape), result.shape) for i in plan.instructions]
    known = tuple([i._replace(shape=own) for i, own in zip(plan.body.instructions, shapes)])
    result.body = plan.body._replace(instructions=known)
    vars(result).pop("instructions", None)
    result.loads = tuple([reloaded(load) for load in plan.loads])
    if plan.reduction is None:
        result.stores = tuple([s._replace(shape=result.shape) for s in plan.stores])
    else:
        axes = tuple(sorted(order.index(axis) for axis in plan.reduction.axes))
        kept = tuple([1 if i in axes else n for i, n in enumerate(result.shape)])
        result.reduction = Reduction(axes, plan.reduction.rows, (kept,) * len(plan.reduction.rows))
        result.stores = tuple([s._replace(shape=kept) for s in plan.stores])
    result.turned = order, tuple([load.strides is None for load in result.loads])
    return result
