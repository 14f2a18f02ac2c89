"""How operands walk an iteration space: strides, and fewer dimensions."""

from __future__ import annotations

import functools
from collections.abc import Sequence

Shape = tuple[int, ...]


def repeated(shape: Shape, target: Shape) -> tuple[int, ...]:
    """The dimensions of a shape along which broadcasting ``target`` to it repeats."""
    extra = len(shape) - len(target)
    return tuple(
        [i for i, n in enumerate(shape) if i < extra or (target[i - extra] == 1 and n != 1)]
    )


def sums_to(shape: Shape, target: Shape) -> bool:
    """Whether sums of a shape have another one: that broadcasts to it."""
    pairs = zip(shape[::-1], target[::-1], strict=False)
    return len(shape) >= len(target) and all(n in (1, m) for m, n in pairs)


def row_major(shape: Shape) -> Shape:
    """The strides, in elements, of a row-major array."""
    strides: list[int] = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


@functools.lru_cache(1 << 12)
def dense_order(shape: Shape, strides: Shape, item: int) -> Shape | None:
    """The dimensions of a dense array, outermost first; None for row-major, and with gaps.

    Parameters
    ----------
    item : int
        The stride of neighbors: 1 where strides count elements.
    """
    order = sorted(range(len(shape)), key=lambda i: (-strides[i], i))
    return order_of(shape, strides) if lies_in(shape, strides, order, item) else None


@functools.lru_cache(1 << 12)
def order_of(shape: Shape, strides: Shape) -> Shape | None:
    """The dimensions from the widest stride to the narrowest; None for row-major."""
    order = sorted(range(len(shape)), key=lambda i: (-strides[i], i))
    long = [i for i in order if shape[i] != 1]
    return None if long == sorted(long) or 0 in shape else tuple(order)


def lies_in(shape: Shape, strides: Shape, order: Sequence[int], item: int = 1) -> bool:
    """Whether an array is dense with its dimensions in this order; see `dense_order`."""
    step = item
    for i in reversed(order):
        if shape[i] != 1:
            if strides[i] != step:
                return False
            step *= shape[i]
    return True


def may_overlap(shape: Sequence[int], strides: Sequence[int], width: int = 1) -> bool:
    """Whether elements may share a place in memory: some step is within the narrower dimensions.

    ``width`` is that of an element in the unit of the strides; none of these is negative.
    """
    reach = width - 1
    for step, n in sorted(zip(strides, shape, strict=True)):
        if n > 1 and step <= reach:
            return 0 not in shape
        reach += step * (n - 1)
    return False


def in_order(shape: Shape, order: Sequence[int]) -> Shape:
    """The strides, in elements, of a dense array whose dimensions lie in this order."""
    strides, step = [0] * len(shape), 1
    for i in reversed(order):
        strides[i] = step
        step *= shape[i]
    return tuple(strides)


_CHANNELS_LAST = (0, 2, 3, 1)


def result_strides(shape: Shape, operands: Sequence[tuple[Shape, Shape]]) -> Shape:
    """How an elementwise result lies in memory, in elements: dense, in its operands' order.

    The rules are those of PyTorch's TensorIterator, so that strides are the same, also where the
    operands disagree.

    Parameters
    ----------
    operands : sequence of (shape, strides)
        Strides in elements.
    """
    rank = len(shape)
    if rank < 2 or 0 in shape:
        return row_major(shape)
    if all(own == shape for own, _ in operands):
        if all(lies_in(shape, strides, range(rank)) for _, strides in operands):
            return row_major(shape)
        if rank == 4 and all(lies_in(shape, strides, _CHANNELS_LAST) for _, strides in operands):
            return in_order(shape, _CHANNELS_LAST)
        first = operands[0][1]
        order = sorted(range(rank), key=lambda i: (-first[i], i))
        if all(strides == first for _, strides in operands) and lies_in(shape, first, order):
            return first
    walks = [walk_of(shape, own, strides) for own, strides in operands]
    inner = list(range(rank))[::-1]  # from the innermost to the outermost
    for i in range(1, rank):
        at = i
        for before in range(i - 1, -1, -1):
            moves = _comes_after(shape, walks, inner[before], inner[at])
            if moves is None:
                continue
            if not moves:
                break
            inner[before], inner[at] = inner[at], inner[before]
            at = before
    return in_order(shape, inner[::-1])


def _comes_after(shape: Shape, walks: Sequence[Shape], a: int, b: int) -> bool | None:
    """Whether dimension ``a`` belongs outside of ``b``; None where no operand tells."""
    for walk in walks:
        if walk[a] and walk[b]:
            if walk[a] != walk[b]:
                return walk[a] > walk[b]
            if shape[a] > shape[b]:
                return True
    return None


def walk_of(shape: Shape, own: Shape, strides: Shape | None) -> Shape:
    """An operand's strides over the space ``shape``: 0 where it broadcasts.

    Parameters
    ----------
    own : tuple of int
        The operand's shape, aligned with the last dimensions of ``shape``.
    strides : tuple of int or None
        In elements; None for row-major.
    """
    steps = row_major(own) if strides is None else strides
    missing = (0,) * (len(shape) - len(own))
    return missing + tuple([0 if n == 1 else step for n, step in zip(own, steps, strict=True)])


def step_of(shape: Sequence[int], walk: Sequence[int]) -> int | None:
    """The step between elements of dimensions that are walked as one; None where they are not."""
    steps = [(n, step) for n, step in zip(shape, walk, strict=True) if n != 1]
    for (_, before), (extent, step) in zip(steps, steps[1:], strict=False):
        if before != step * extent:
            return None
    return steps[-1][1] if steps else 0


def strides_of_view(
    shape: Shape, strides: Shape, wanted: Sequence[int], item: int
) -> list[int] | None:
    """How an array's elements lie seen in another shape; None where they would have to move.

    Parameters
    ----------
    item : int
        The stride of neighbors: 1 where strides count elements.
    """
    if 0 in shape:
        return None
    rows: list[tuple[int, int]] = []  # extents and strides of dimensions that lie like one
    for n, step in zip(shape, strides, strict=True):
        if rows and rows[-1][1] == n * step and n > 1:
            rows[-1] = rows[-1][0] * n, step
        elif n > 1:
            rows.append((n, step))
    found: list[int] = []
    left, step = 1, item
    for n in reversed(wanted):
        if n > 1 and left == 1:
            left, step = rows.pop()
        if left % n:
            return None
        found.append(step)
        left, step = left // n, step * n
    return found[::-1]


def collapse(shape: Sequence[int], walks: Sequence[Shape]) -> tuple[Shape, tuple[Shape, ...]]:
    """Join neighboring dimensions that every operand walks as one; drop those of extent 1.

    Returns
    -------
    shape, walks
        Of the same elements in the same order.
    """
    extents: list[int] = []
    steps: list[list[int]] = []  # of all operands, one list a dimension
    for k, extent in enumerate(shape):
        here = [walk[k] for walk in walks]
        if extent == 1:
            continue
        if steps and all(before == step * extent for before, step in zip(steps[-1], here)):
            extents[-1] *= extent
            steps[-1] = here
        else:
            extents.append(extent)
            steps.append(here)
    return tuple(extents), tuple([tuple([s[i] for s in steps]) for i in range(len(walks))])


def reach(shape: Shape, walk: Shape) -> int:
    """The largest distance, in elements, of a walk from its first element."""
    return sum([(n - 1) * abs(step) for n, step in zip(shape, walk, strict=True)])
