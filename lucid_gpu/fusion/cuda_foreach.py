"""One expression over many tensors, in place, by one kernel: the CUDA C of optimizers' updates.

The tensors are an argument of the kernel (`launch/rows.py`); as many as it holds share a launch.
"""

from __future__ import annotations

from collections.abc import Sequence

from lucid_gpu.dtypes import dtype
from lucid_gpu.fusion.cuda_index import ACCESS, BODY
from lucid_gpu.fusion.cuda_source import THREADS, Kernel, Work, c_type, call_element, write
from lucid_gpu.launch.rows import Table, table_of

REPEAT = 2  # packs of every operand under way in a thread


def tile_of(work: Work, types: Sequence[dtype], packed: bool) -> tuple[int, int]:
    """How many elements a pack and a block have."""
    width = ACCESS // max([d.itemsize for d in types]) if packed else 1
    while width > 1 and REPEAT * width * work.operations > BODY:
        width //= 2
    return width, THREADS * REPEAT * width


def rows_of(work: Work, types: Sequence[dtype]) -> Table:
    """The argument that lists tensors, for columns of some types."""
    bytes_of = [d.itemsize for d in (*work.scalars, *work.constants)]
    return table_of(len(types), len(bytes_of), max(8, *bytes_of, 0))


def foreach_kernel(
    work: Work, types: Sequence[dtype], read: Sequence[int], packed: bool
) -> tuple[Kernel, int]:
    """The kernel, and how many elements one of its blocks takes.

    Parameters
    ----------
    work : Work
        Its stores go to the first columns.
    types : sequence of dtype
        Of the columns of tensors.
    read : sequence of int
        The column each load reads.
    packed : bool
        Are all tensors aligned for packs?
    """
    width, tile = tile_of(work, types, packed)
    table = rows_of(work, types)
    named = work._replace(name=f"{work.name.removesuffix('_kernel')}_foreach")
    source = write(
        named,
        f"In place over many tensors: a block takes {tile} elements of one of them.",
        _body(named, types, read, width, tile),
        [],
        [],
        ["pack.cuh", "rows.cuh"],
        [f"const {table.type} rows"],
    )
    aligned = tuple([d.itemsize * width for d in types])
    return Kernel(named.name, source, (1, 1), (THREADS, 1), (), aligned), tile


def _body(
    work: Work, types: Sequence[dtype], read: Sequence[int], width: int, tile: int
) -> list[str]:
    stores = range(len(work.stores))
    packs = [f"lucid_pack<{c_type(d)}, {width}>" for d in types]
    offset = f"(u * {THREADS} + threadIdx.x) * {width}"
    loads = [
        f"    p{c}[u] = lucid_load_written<{width}>(a{c} + {offset});" for c in sorted(set(read))
    ]
    unrolled = ["#pragma unroll", f"for (int u = 0; u < {REPEAT}; ++u) {{"]
    whole = [
        *[f"{packs[c]} p{c}[{REPEAT}];" for c in sorted(set(read))],
        *unrolled,
        *loads,
        "}",
        *unrolled,
        *[f"    {packs[c]} q{c};" for c in stores],
        "    #pragma unroll",
        f"    for (int k = 0; k < {width}; ++k)",
        "        "
        + call_element(work, [f"p{c}[u][k]" for c in read], [f"q{c}[k]" for c in stores]),
        *[f"    lucid_store<{width}>(a{c} + {offset}, q{c});" for c in stores],
        "}",
        "return;",
    ]
    single = call_element(work, [f"a{c}[i]" for c in read], [f"a{c}[i]" for c in stores])
    return [
        "const int row = rows.row_of(blockIdx.x);",
        f"const long long start = (long long)(blockIdx.x - rows.first[row]) * {tile};",
        "const long long left = rows.size[row] - start;",
        *[
            f"{c_type(d)}* const a{c} = ({c_type(d)}*)rows.at[{c}][row] + start;"
            for c, d in enumerate(types)
        ],
        f"if (left >= {tile}) {{",
        *[f"    {line}" for line in whole],
        "}",
        f"for (int i = threadIdx.x; i < left; i += {THREADS})",
        f"    {single}",
    ]
