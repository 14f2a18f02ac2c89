"""Kernels without a reduction: flat where all operands lie alike, else by tiles or along rows."""

from __future__ import annotations

import math
from collections.abc import Sequence

from lucid_gpu.core.layout import Shape, collapse, row_major
from lucid_gpu.fusion.cuda_index import (
    ACCESS,
    BODY,
    CACHED,
    SHORT,
    STREAMED,
    Indices,
    Moves,
    alignments,
    own_number,
    stored,
    vector_width,
)
from lucid_gpu.fusion.cuda_rows import along_rows, walked
from lucid_gpu.fusion.cuda_source import THREADS, Kernel, Work, c_type, call_element, write
from lucid_gpu.fusion.cuda_tiles import tiled, turned

BLOCKS = 120  # of a grid, for each multiprocessor: whole waves whether it runs 8, 6, 5 or 4 at once


def elementwise(
    work: Work,
    processors: int,
    packed: bool = True,
    long_index: bool | None = None,
    streamed: bool = False,
) -> Kernel:
    """The kernel of a plan without a reduction.

    Parameters
    ----------
    processors : int
        Multiprocessors of the GPU.
    packed : bool
        Move several elements by one access where the layout allows; False where an address is
        not aligned for that.
    long_index : bool, optional
        Use 64-bit indices; by default, where 32 bits do not suffice.
    streamed : bool
        No cache would hold the operands until they are read again.
    """
    moves = STREAMED if streamed else CACHED
    shape, walks = collapse(work.shape, work.walks)
    linear = row_major(shape)
    if all(walk == linear or not any(walk) for walk in walks):
        return _flat(work, shape, walks, processors, packed, long_index, moves)
    across = turned(work, shape, walks)
    if across is not None:
        return tiled(work, shape, walks, *across, long_index)
    types = [d for (d, _), walk in zip(work.loads, walks) if any(walk)]
    types += [d for _, d in work.stores]
    width = vector_width(work, types, shape, walks, len(shape) - 1) if packed else 1
    walk = walked(work, shape, walks, width)
    return along_rows(work, shape, walks, walk, width, moves, processors * BLOCKS, long_index)


def _flat(
    work: Work,
    shape: Shape,
    walks: Sequence[Shape],
    processors: int,
    packed: bool,
    long_index: bool | None,
    moves: Moves,
) -> Kernel:
    """All operands in the order of the result: whole tiles without a bounds test, then the rest."""
    stores = [d for _, d in work.stores]
    once = [not any(walk) for walk in walks] if shape else [True] * len(walks)
    moved = [d.itemsize for (d, _), single in zip(work.loads, once) if not single]
    moved += [d.itemsize for d in stores]
    width = ACCESS // max(moved) if packed else 1
    while width > 4 and width * work.operations > BODY:
        width //= 2
    read = sum(moved[: len(moved) - len(stores)]) or max(moved)
    repeat = max(1, min(8 if width == 1 else 4, moves.in_flight // (read * width)))
    while repeat > 1 and repeat * width * work.operations > BODY:
        repeat //= 2
    total = math.prod(shape)
    tile = THREADS * repeat * width
    index = Indices(total > SHORT if long_index is None else long_index)
    index.size("n", total)
    lines = [
        f"const {c_type(d)} s{i} = *a{i};  // the same for all"
        for i, (d, _) in enumerate(work.loads)
        if once[i]
    ]
    lines += _flat_body(work, once, index.type, width, repeat, moves)
    source = write(
        work,
        f"Contiguous: a thread moves {repeat} x {width} elements of every operand at a time.",
        lines, index.sizes, stores, ["pack.cuh"],
    )  # fmt: skip
    blocks = max(total // tile, -(-(total % tile) // THREADS), 1)  # the rest: one element each
    grid = (min(blocks, processors * BLOCKS), 1)
    flat_walks = [(0,) if single else (1,) for single in once]
    aligned = alignments(work, flat_walks, stores, 0, width)
    return Kernel(work.name, source, grid, (THREADS, 1), tuple(index.sizes), aligned)


def _flat_body(
    work: Work, once: list[bool], kind: str, width: int, repeat: int, moves: Moves
) -> list[str]:
    loads, stores = range(len(work.loads)), range(len(work.stores))
    alone = once[len(loads) :]  # indices of a single element
    step = THREADS * width
    arrays = [i for i in loads if not once[i]]
    packs = [f"lucid_pack<{c_type(work.loads[i][0])}, {width}> p{i}[{repeat}];" for i in arrays]
    loaded = [f"    p{i}[u] = {moves.load}<{width}>(a{i} + first + u * {step});" for i in arrays]
    values = [f"s{i}" if once[i] else f"p{i}[u][k]" for i in loads]
    values += [own_number(kind, "0" if s else f"(first + u * {step}) | k") for s in alone]
    offset = f"first + u * {step}"
    inner = [f"    {line}" for line in stored(work, values, offset, width, moves)]
    loop = ["#pragma unroll", f"for (int u = 0; u < {repeat}; ++u) {{"]
    single = [f"s{i}" if once[i] else f"a{i}[i]" for i in loads]
    single += [own_number(kind, "0" if s else "i") for s in alone]
    return [
        f"const {kind} tiles = n / {step * repeat};",
        f"for ({kind} tile = blockIdx.x; tile < tiles; tile += gridDim.x) {{",
        f"    const {kind} first = tile * {step * repeat} + threadIdx.x * {width};",
        *[f"    {line}" for line in packs],
        *([f"    {line}" for line in [*loop, *loaded, "}"]] if arrays else []),
        *[f"    {line}" for line in [*loop, *inner, "}"]],
        "}",
        "// What is left, one element a thread.",
        f"{kind} i = tiles * {step * repeat} + blockIdx.x * {THREADS} + threadIdx.x;",
        "#pragma unroll 1",
        f"for (; i < n; i += gridDim.x * {THREADS})",
        "    " + call_element(work, single, [f"o{i}[i]" for i in stores]),
    ]
