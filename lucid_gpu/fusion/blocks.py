"""How the NumPy executor cuts an iteration space: fewer dimensions, then blocks."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from lucid_gpu.core.layout import walk_of
from lucid_gpu.devices.caches import caches
from lucid_gpu.fusion.plan import Shape

# Of the widest value of a plan that adds up, alone and with several threads. Where blocks end
# decides in which order they add, so these are the same on every machine.
SUM_BYTES, SHARED_SUM_BYTES = 128 * 1024, 512 * 1024
SINGLE = 64 * 1024  # elements up to which a plan runs in one call on the calling thread


def block_bytes(alone: bool) -> int:
    """Bytes of the widest value of a block without sums, whose scratch stays in the L2 cache.

    With several threads it takes more of that: the GIL then changes hands less often.
    """
    return caches().second // (16 if alone else 4)


class Layout(NamedTuple):
    """The collapsed iteration space.

    ``groups`` are ranges of the plan's dimensions that became one; ``slices`` gives each block's
    slices; ``shapes`` each block's shape.
    """

    groups: tuple[tuple[int, int], ...]
    shape: Shape
    slices: list[tuple[slice, ...]]
    shapes: list[Shape]


@functools.lru_cache(maxsize=1 << 12)
def padded(shape: Shape, rank: int) -> Shape:
    """The shape with leading ones up to a rank."""
    return (1,) * (rank - len(shape)) + shape


def collapse(shape: Shape, operands: Sequence[tuple[Shape, Any]]) -> tuple[tuple[int, int], ...]:
    """Join neighboring dimensions that every operand walks as one.

    Parameters
    ----------
    operands : sequence of (shape, strides)
        Shapes padded to the rank of ``shape``; strides None for row-major.
    """
    walks = [walk_of(shape, own, strides) for own, strides in operands]
    groups: list[tuple[int, int]] = []
    last = -1  # the dimension before this one that is longer than 1
    for k, extent in enumerate(shape):
        joined = extent == 1 or last < 0 or all(w[last] == w[k] * extent for w in walks)
        if groups and joined:
            groups[-1] = (groups[-1][0], k + 1)
        else:
            groups.append((k, k + 1))
        if extent != 1:
            last = k
    return tuple(groups)


def layout_of(shape: Shape, operands: Sequence[tuple[Shape, Any]], block: int) -> Layout:
    """Collapse, then cut into blocks of about ``block`` elements along the leading dimensions."""
    groups = collapse(shape, operands)
    small = tuple([math.prod(shape[a:b]) for a, b in groups]) or (1,)
    k = 0
    while k < len(small) - 1 and math.prod(small[k + 1 :]) > block:
        k += 1
    step = max(1, block // max(math.prod(small[k + 1 :]), 1))
    index: list[tuple[slice, ...]] = []
    shapes: list[Shape] = []
    for outer in itertools.product(*[range(n) for n in small[:k]]):
        for low in range(0, small[k], step):
            high = min(low + step, small[k])
            lead = [slice(i, i + 1) for i in outer]
            index.append((*lead, slice(low, high), *[slice(None)] * (len(small) - k - 1)))
            shapes.append((1,) * k + (high - low, *small[k + 1 :]))
    return Layout(groups, small, index, shapes)
