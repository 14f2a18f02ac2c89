"""Copies on a GPU that bring elements into another order: one generated kernel each."""

from __future__ import annotations

from typing import Any, NamedTuple

from lucid_gpu.core.layout import collapse, lies_in, order_of
from lucid_gpu.core.program import Instruction, derived
from lucid_gpu.device import device
from lucid_gpu.devices import owners
from lucid_gpu.dtypes import complex128, int16, int32, int64, uint8
from lucid_gpu.fusion.cuda_executor import Executable
from lucid_gpu.fusion.plan import Load, Plan, Shape, Store
from lucid_gpu.launch.observers import observed, observers

WORDS = {d.itemsize: d for d in (uint8, int16, int32, int64, complex128)}  # elements are only moved


class _Copy(NamedTuple):
    """How one copy is made, and the bytes it reads, from the first element's address on."""

    run: Executable
    low: int
    high: int


_copies: dict[Any, _Copy | None] = derived("copies")


def copied(out: Any, source: Any) -> bool:
    """Write ``source`` into ``out``, arrays of one shape, by one kernel.

    False, and nothing is written, where CuPy has to: for arrays of two types or devices, with gaps
    in ``out``, that overlap, or that both are row-major.
    """
    owner = owners[type(out)]
    where = owner.device_of(out)
    key = where, out.itemsize, out.shape, out.strides, source.strides
    if key not in _copies:
        _copies[key] = _copy(*key)
    copy = _copies[key]
    if copy is None or out.dtype != source.dtype or owner.device_of(source) is not where:
        return False
    to, first = owner.address(out), owner.address(source)
    if to < first + copy.high and first + copy.low < to + out.nbytes:
        return False
    if observers:
        observed(copy.run.plan, copy.run, [source], [], [out])
    else:
        copy.run([source], [], [out])
    return True


def _copy(where: device, item: int, shape: Shape, lie: Shape, strides: Shape) -> _Copy | None:
    turned = order_of(shape, lie)
    order = turned or tuple(range(len(shape)))
    if 0 in shape or any(step % item for step in strides) or not lies_in(shape, lie, order, item):
        return None
    extents = tuple([shape[i] for i in order])
    extents, (steps,) = collapse(extents, [tuple([strides[i] for i in order])])
    if turned is None and steps in ((), (item,)):
        return None
    d, reach = WORDS[item], [(n - 1) * step for n, step in zip(extents, steps, strict=True)]
    plan = Plan.part(
        where, extents, [Instruction("load", (), d, extents, False, 0)], [Store(0, d, extents)],
        loads=[Load(0, d, extents, steps)],
    )  # fmt: skip
    low, high = sum([min(r, 0) for r in reach]), sum([max(r, 0) for r in reach])
    return _Copy(Executable(plan, shared=True), low, high + item)
