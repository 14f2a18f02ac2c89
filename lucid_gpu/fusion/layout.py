"""How operands walk an iteration space: strides, and fewer dimensions."""

from __future__ import annotations

from collections.abc import Sequence

Shape = tuple[int, ...]


def count(shape: Sequence[int]) -> int:
    """The number of elements of a shape."""
    n = 1
    for extent in shape:
        n *= extent
    return n


def row_major(shape: Shape) -> Shape:
    """The strides, in elements, of a row-major array."""
    strides: list[int] = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


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


def collapse(shape: Sequence[int], walks: Sequence[Shape]) -> tuple[Shape, tuple[Shape, ...]]:
    """Join neighbouring dimensions that every operand walks as one; drop those of extent 1.

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
