"""Kernels that walk along one dimension, holding in registers what does not change along it.

A thread has one place in the other dimensions, found once, and steps from row to row of the walked
one: a bias that all rows share is read once a thread, no step divides, and none has a bounds test
but the loop's own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

from lucid_gpu.core.layout import Shape, row_major
from lucid_gpu.fusion.cuda_index import (
    BODY,
    Indices,
    Moves,
    alignments,
    needs_long,
    own_number,
    stored,
)
from lucid_gpu.fusion.cuda_source import THREADS, Kernel, Work, c_type, write

FEW = 16  # rows below which a thread may ask for one at a time only


class Walk(NamedTuple):
    """Which dimension is walked, and the threads of a block: over places, over rows."""

    dimension: int
    across: int
    down: int


def walked(work: Work, shape: Shape, walks: Sequence[Shape], width: int) -> Walk:
    """The dimension to walk along: where what stays the same saves most reads."""

    def saved(g: int) -> tuple[float, int]:
        held = sum([d.itemsize for (d, _), w in zip(work.loads, walks) if any(w) and not w[g]])
        return held * (1 - 1 / shape[g]), shape[g]

    g = max(range(max(len(shape) - 1, 1)), key=saved)
    across = _across(math.prod(shape) // shape[g] // (width if len(shape) > 1 else 1))
    return Walk(g, across, THREADS // across)


def _across(places: int) -> int:
    """Threads of a block along places: all of a short row, or whole warps that leave few idle."""
    if places <= THREADS:
        return places
    blocks = -(-places // THREADS)
    return -(-places // (blocks * 32)) * 32


def along_rows(
    work: Work,
    shape: Shape,
    walks: Sequence[Shape],
    walk: Walk,
    width: int,
    moves: Moves,
    most: int,
    long_index: bool | None,
) -> Kernel:
    """The kernel; a thread for every place, and for every few rows.

    Parameters
    ----------
    shape, walks
        Collapsed; what is the same everywhere walks by zeros.
    walk : Walk
        As `walked` says it.
    width : int
        Elements of a pack.
    most : int
        Blocks of a grid; beyond it threads take more rows.
    """
    g, inner = walk.dimension, len(shape) - 1
    stores = [d for _, d in work.stores]
    cut = [n // width if k == inner else n for k, n in enumerate(shape) if k != g]
    index = Indices(needs_long(shape, walks) if long_index is None else long_index)
    index.size("rows", shape[g])
    index.size("places", math.prod(cut))
    lines, offsets, steps = _offsets(index, shape, walks, g, cut, width)
    reads = _Reads(work, walks, offsets, g, width, moves)
    types = [d for (d, _), w in zip(work.loads, walks) if w[g]] or stores
    repeat = max(1, min(4, moves.in_flight // (sum([d.itemsize for d in types]) * width)))
    while repeat > 1 and repeat * width * work.operations > BODY:
        repeat //= 2
    if shape[g] < min(repeat * walk.down, FEW):
        repeat = 1
    kind, offset = index.type, offsets[row_major(shape)]

    def rows(many: int) -> list[str]:
        """Lines that take ``many`` rows: all are asked for before the first is computed."""
        row = "(r + u * stride)" if many > 1 else "r"
        after = stored(work, reads.values(many, kind), offset, width if width > 1 else 0, moves)
        if many == 1:
            return _located(steps, row, [*reads.moved(1), *after])
        ahead = _each(many, _located(steps, row, reads.moved(many))) if reads.fresh else []
        return [*reads.declared(many), *ahead, *_each(many, _located(steps, row, after))]

    body = [
        f"const {kind} p = ({kind})blockIdx.x * blockDim.x + threadIdx.x;",
        "if (p >= places) return;",
        *lines,
        *reads.held,
        f"const {kind} stride = gridDim.y * blockDim.y;",
        f"{kind} r = blockIdx.y * blockDim.y + threadIdx.y;",
    ]
    if repeat > 1:
        head = f"for (; r + {repeat - 1} * stride < rows; r += {repeat} * stride) {{"
        body += [head, *[f"    {line}" for line in rows(repeat)], "}", "#pragma unroll 1"]
    body += [
        "for (; r < rows; r += stride) {",
        *[f"    {line}" for line in rows(1)],
        "}",
    ]
    amount = "one element" if width == 1 else f"{width} neighbors"
    comment = f"A thread walks from row to row with {amount}, {repeat} rows under way at a time."
    source = write(work, comment, body, index.sizes, stores, ["pack.cuh", "index.cuh"])
    across = -(-math.prod(cut) // walk.across)
    down = min(-(-shape[g] // (walk.down * repeat)), max(most // across, 1), 65535)
    aligned = alignments(work, walks, stores, inner, width)
    block = walk.across, walk.down
    return Kernel(work.name, source, (across, down), block, tuple(index.sizes), aligned)


def _located(steps: dict[str, str], row: str, lines: list[str]) -> list[str]:
    """Lines, after those that find the offsets they use."""
    text = "\n".join(lines)
    used = [name for name in steps if re.search(rf"\b{name}\b", text)]
    return [*[steps[name].format(row) for name in used], *lines]


def _each(many: int, lines: list[str]) -> list[str]:
    """Lines for each of the rows under way."""
    return [
        "#pragma unroll",
        f"for (int u = 0; u < {many}; ++u) {{",
        *[f"    {line}" for line in lines],
        "}",
    ]


def _offsets(
    index: Indices, shape: Shape, walks: Sequence[Shape], g: int, cut: Sequence[int], width: int
) -> tuple[list[str], dict[Shape, str], dict[str, str]]:
    """Lines that find a thread's place, each walk's offset by name, and a row's lines."""
    inner = len(shape) - 1
    rest = [k for k in range(len(shape)) if k != g]
    distinct = [w for w in dict.fromkeys([*walks, row_major(shape)]) if any(w)]
    needed = {n for n, k in enumerate(rest) if any(w[k] for w in distinct)}
    lines, names = index.split("p", ("i", "n", "up"), tuple(cut), needed)
    coordinates = dict(zip(rest, names, strict=True))
    offsets: dict[Shape, str] = {}
    steps: dict[str, str] = {}
    for number, w in enumerate(distinct):
        terms = index.offset(f"w{number}", w, coordinates, inner, width) or ["0"]
        lines.append(f"const {index.type} b{number} = {' + '.join(terms)};")
        offsets[w] = f"b{number}"
        for step in index.offset(f"w{number}", w, {g: "{}"}, inner, width):
            steps[f"j{number}"] = f"const {index.type} j{number} = b{number} + {step};"
            offsets[w] = f"j{number}"
    return lines, offsets, steps


class _Reads:
    """How a thread reads the loads.

    Attributes
    ----------
    held : list of str
        Lines of what is read once a thread.
    fresh : dict
        The C type and the place of what is read in every row, by load.
    """

    def __init__(
        self,
        work: Work,
        walks: Sequence[Shape],
        offsets: dict[Shape, str],
        g: int,
        width: int,
        moves: Moves,
    ) -> None:
        self.held: list[str] = []
        self.fresh: dict[int, tuple[str, str]] = {}
        self.packs: set[int] = set()
        self.own = [(offsets.get(w, "0"), bool(w[-1])) for w in walks[len(work.loads) :]]
        self.count, self.width = len(work.loads), width
        for i, ((d, _), w) in enumerate(zip(work.loads, walks)):
            kind, source = c_type(d), f"a{i}[{offsets.get(w, '0')}]"
            if width > 1 and w[-1]:
                self.packs.add(i)
                kind = f"lucid_pack<{kind}, {width}>"
                source = f"{moves.load if w[g] else 'lucid_load'}<{width}>(a{i} + {offsets[w]})"
            if w[g]:
                self.fresh[i] = kind, source
            else:
                self.held.append(f"const {kind} p{i} = {source};")

    def declared(self, many: int) -> list[str]:
        """Room for what ``many`` rows read."""
        return [f"{kind} p{i}[{many}];" for i, (kind, _) in self.fresh.items()]

    def moved(self, many: int) -> list[str]:
        """Lines that read a row."""
        if many > 1:
            return [f"p{i}[u] = {source};" for i, (_, source) in self.fresh.items()]
        return [f"const {kind} p{i} = {source};" for i, (kind, source) in self.fresh.items()]

    def values(self, many: int, kind: str) -> list[str]:
        """Each load's, then each index's, value in C; of a pack, its element ``k``."""
        values = []
        for i in range(self.count):
            row = "[u]" if many > 1 and i in self.fresh else ""
            values.append(f"p{i}{row}{'[k]' if i in self.packs else ''}")
        for offset, moves in self.own:
            values.append(
                own_number(kind, f"({offset}) | k" if self.width > 1 and moves else offset)
            )
        return values
