"""One expression over many tensors, in place, by one kernel: the optimizers' update on a GPU.

The tensors are an argument of the kernel (`launch/rows.py`); as many as it holds share a launch.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from lucid_gpu.dtypes import dtype
from lucid_gpu.fusion import foreach
from lucid_gpu.fusion.cuda_index import ACCESS, BODY
from lucid_gpu.fusion.cuda_source import THREADS, Kernel, Work, c_type, call_element, write
from lucid_gpu.fusion.launching import CudaExecutable, Launch
from lucid_gpu.launch.observers import observed, observers
from lucid_gpu.launch.rows import Table, filled, table_of

REPEAT = 2  # packs of every operand under way in a thread


def tile_of(work: Work, types: Sequence[dtype], packed: bool) -> tuple[int, int]:
    """How many elements a pack and a block have."""
    width = ACCESS // max([d.itemsize for d in types]) if packed else 1
    while width > 1 and REPEAT * width * work.operations > BODY:
        width //= 2
    return width, THREADS * REPEAT * width


def _table_of(work: Work, types: Sequence[dtype]) -> Table:
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
    table = _table_of(work, types)
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
    place = f"(u * {THREADS} + threadIdx.x) * {width}"
    loads = [
        f"    p{c}[u] = lucid_load_written<{width}>(a{c} + {place});" for c in sorted(set(read))
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
        *[f"    lucid_store<{width}>(a{c} + {place}, q{c});" for c in stores],
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


# --- running ------------------------------------------------------------------------------------


class _Form(NamedTuple):
    """A compiled kernel for some types of tensors."""

    launch: Launch
    table: Table
    tile: int
    itemsizes: tuple[int, ...]


def run(
    executable: CudaExecutable,
    columns: Sequence[Sequence[Any]],
    read: Sequence[int],
    scalars: Sequence[Any],
) -> None:
    """Overwrite the first columns of arrays by a plan's values.

    Parameters
    ----------
    executable : CudaExecutable
        Of a plan made of one-dimensional stand-ins.
    columns : sequence of sequences of arrays
        Row-major arrays, those written first.
    read : sequence of int
        The column of each of the plan's loads.
    scalars : sequence of numbers
        As for the executable.
    """
    used = sorted({*range(len(executable.plan.stores)), *read})
    renamed = [used.index(c) for c in read]
    addresses = [[executable.launcher.address(array) for array in columns[c]] for c in used]
    rows = [
        (array.size, *places)
        for array, *places in zip(columns[0], *addresses, strict=True)
        if array.size
    ]
    fields = executable.fields_of(scalars)
    with executable.launcher.at_home():
        aligned = _form(executable, renamed, True).launch.kernel.aligned
        for packed in (True, False):
            some = [r for r in rows if packed != any(a % m for a, m in zip(r[1:], aligned))]
            if some:
                _launch(executable, _form(executable, renamed, packed), some, fields)


def _form(executable: CudaExecutable, read: Sequence[int], packed: bool) -> _Form:
    known = executable.foreach_forms
    found: _Form | None = known.get(packed)
    if found is None:
        work = executable.work
        types = [d for _, d in work.stores]
        by_column = dict(zip(read, [d for d, _ in work.loads]))
        types += [by_column[c] for c in range(len(types), max(by_column, default=-1) + 1)]
        kernel, tile = foreach_kernel(work, types, read, packed)
        table = _table_of(work, types)
        function = executable.compile(kernel)
        launch = Launch(kernel, work, executable.numbers, function, [table.form])
        found = known[packed] = _Form(launch, table, tile, tuple([d.itemsize for d in types]))
    return found


def _launch(
    executable: CudaExecutable, form: _Form, rows: Sequence[tuple[int, ...]], fields: list[Any]
) -> None:
    """Launch as often as the table has to be filled."""
    start = partial(_start, executable, form, fields)
    for table, blocks, count in filled(form.table, rows, form.tile, form.itemsizes):
        if observers:
            observed(foreach.launched(executable.plan, count), start, table, blocks)
        else:
            start(table, blocks)


def _start(
    executable: CudaExecutable, form: _Form, fields: list[Any], table: list[int], blocks: int
) -> None:
    launch, grid = form.launch, (blocks, 1, 1)
    executable.launcher.launch(launch.function, launch.packing, table + fields, grid, launch.block)
