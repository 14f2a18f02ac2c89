"""Kernels whose operands do not lie in the result's order: these are turned in shared memory.

A block reads a tile of such an operand along the operand's own innermost dimension, waits, and
computes and writes along the result's: each access of a warp uses all bytes of the sectors it
touches.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from lucid_gpu.core.layout import Shape, row_major
from lucid_gpu.fusion.cuda_index import Indices, alignments, needs_long, own_number
from lucid_gpu.fusion.cuda_source import THREADS, Kernel, Work, c_type, call_element, write

TILE = 4096  # bytes of the widest operand in a tile: runs of 128 bytes of four-byte elements
MOST = 8  # operands that are turned: their tiles fit into the shared memory of any GPU


def turned(work: Work, shape: Shape, walks: Sequence[Shape]) -> tuple[int, list[int]] | None:
    """A dimension and the loads that lie along it, more than along the result's innermost one.

    None where there are none, and where two dimensions do not fill half a tile.
    """
    inner, found = len(shape) - 1, dict[int, list[int]]()
    for i, (_, walk) in enumerate(work.loads):
        walk = walks[i]
        steps = {abs(step): g for g, step in enumerate(walk) if step and shape[g] > 1}
        if walk[inner] and min(steps) < abs(walk[inner]):
            found.setdefault(steps[min(steps)], []).append(i)
    if not found:
        return None
    sizes = [d.itemsize for d, _ in work.loads]
    g = max(found, key=lambda g: sum(sizes[i] for i in found[g]))
    loads = found[g][:MOST]
    pays = 2 * shape[g] * shape[inner] * max(sizes[i] for i in loads) >= TILE
    return (g, loads) if pays else None


def _sides(rows: int, columns: int, itemsize: int) -> tuple[int, int]:
    """Extents of a tile, powers of two; a short dimension leaves more of the tile to the other."""
    size = TILE // itemsize
    down = min(1 << (size.bit_length() - 1) // 2, 1 << (rows - 1).bit_length())
    across = min(size // down, 1 << (columns - 1).bit_length(), THREADS)
    return min(size // across, THREADS), across


def tiled(
    work: Work,
    shape: Shape,
    walks: Sequence[Shape],
    g: int,
    loads: Sequence[int],
    long_index: bool | None,
) -> Kernel:
    """The kernel; a block for each tile of dimension ``g`` and the innermost.

    Parameters
    ----------
    shape, walks
        Collapsed.
    loads : sequence of int
        Those that are turned.
    """
    inner, stores = len(shape) - 1, [d for _, d in work.stores]
    types = [d for d, _ in work.loads]
    down, across = _sides(shape[g], shape[inner], max(types[i].itemsize for i in loads))
    index = Indices(needs_long(shape, walks) if long_index is None else long_index)
    index.size("rows", shape[g])
    index.size("columns", shape[inner])
    kind, sides = index.type, {g: down, inner: across}
    cut = tuple([-(-n // sides.get(k, 1)) for k, n in enumerate(shape)])
    lines, names = index.split("block", ("i", "n", "up"), cut, set(range(inner + 1)))
    at = dict(enumerate(names)) | {g: "y", inner: "x"}
    row = row_major(shape)
    offsets = {
        (w, along): " + ".join(index.offset(f"w{n}", w, at, along, 1)) or "0"
        for n, w in enumerate(dict.fromkeys([*walks, row]))
        for along in (g, inner)
    }

    def each(line: str, fast: str, slow: str, along: int, other: int) -> list[str]:
        """Lines that go over a tile, neighboring threads along one of its dimensions."""
        width, first = sides[along], {g: "top", inner: "left"}
        return [
            "#pragma unroll",
            f"for (int u = 0; u < {down * across // THREADS}; ++u) {{",
            f"    const int fast = threadIdx.x % {width};",
            f"    const int slow = threadIdx.x / {width} + u * {THREADS // width};",
            f"    const {kind} {fast} = {first[along]} + fast, {slow} = {first[other]} + slow;",
            f"    if (y < rows && x < columns) {line}",
            "}",
        ]

    body = [f"const {kind} block = blockIdx.x;", *lines]
    body += [f"const {kind} top = {names[g]} * {down}, left = {names[inner]} * {across};"]
    for i in loads:
        pitch = down + max(1, 4 // types[i].itemsize)  # a word more: no two lanes in one bank
        body.append(f"__shared__ {c_type(types[i])} t{i}[{across}][{pitch}];")
    for i in loads:
        body += each(f"t{i}[slow][fast] = a{i}[{offsets[walks[i], g]}];", "y", "x", g, inner)
    values = [
        f"t{i}[fast][slow]" if i in loads else f"a{i}[{offsets[walks[i], inner]}]"
        for i in range(len(types))
    ]
    values += [own_number(kind, offsets[w, inner]) for w in walks[len(types) :]]
    results = [f"o{i}[{offsets[row, inner]}]" for i in range(len(stores))]
    body += ["__syncthreads();"]
    body += each(call_element(work, values, results), "x", "y", inner, g)
    comment = f"A block turns {down} x {across} elements in shared memory."
    source = write(work, comment, body, index.sizes, stores, ["index.cuh"])
    aligned = alignments(work, walks, stores, inner, 1)
    return Kernel(
        work.name, source, (math.prod(cut), 1), (THREADS, 1), tuple(index.sizes), aligned, True
    )
