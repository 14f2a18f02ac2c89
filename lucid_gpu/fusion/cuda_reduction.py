"""Reductions over axes, with what feeds them and what is made of their results in the same kernel.

A block of 256 threads is ``lanes`` by ``slots``: the lanes of a slot walk one output's elements,
then add up what they have in a fixed order. Where the elements of one output are neighbors in
memory (``rows``) the lanes are neighboring threads, else (columns) the slots are. Where outputs
are few, each is cut into chunks: every block leaves its states, and the one that ends last adds
them, in the chunks' order. Atomics only count the blocks that have ended: the same input gives the
same bits, on every GPU.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

from lucid_gpu.core.layout import Shape, collapse, row_major
from lucid_gpu.fusion.cuda_index import (
    BODY,
    Indices,
    Reads,
    alignments,
    needs_long,
    own_number,
    repeated,
    vector_width,
)
from lucid_gpu.fusion.cuda_source import (
    THREADS,
    Fold,
    Kernel,
    Work,
    c_type,
    call_element,
    element_function,
    write,
)

UNROLL = 4  # steps whose reads are under way at the same time
STEPS = 8  # a lane takes at least, before a sum is spread over more lanes or chunks
ASKED = 128  # bytes of states that a thread of the last block asks for before it adds them
BLOCKS = 1024  # that keep a large GPU busy; not read from the device: it decides rounding


class Shares(NamedTuple):
    """Who adds what: ``chunk`` of an output's ``length`` steps to each block of ``lanes``."""

    outputs: int
    length: int
    lanes: int
    chunk: int

    @property
    def slots(self) -> int:
        return THREADS // self.lanes

    @property
    def chunks(self) -> int:
        return max(-(-self.length // self.chunk), 1)


def reduction(work: Work, packed: bool = True, long_index: bool | None = None) -> Kernel:
    """The kernel of a plan with a reduction.

    Parameters
    ----------
    packed, long_index
        See `lucid_gpu.fusion.cuda_elementwise.elementwise`.
    """
    assert work.fold is not None
    space = _Space(work, packed)
    return _reduce(work, work.fold, space, _share(space), long_index)


class Geometry(NamedTuple):
    """All that the order depends on in which a reduction adds: works of one geometry agree in bits.

    ``order`` names the dimensions kept and those reduced, the innermost last.
    """

    order: tuple[tuple[int, ...], tuple[int, ...]]
    rows: bool
    width: int
    shares: Shares


def geometry(work: Work, packed: bool) -> Geometry:
    """How a reduction walks; ``packed`` as in `reduction`."""
    space = _Space(work, packed)
    return Geometry(space.order, space.rows, space.width, _share(space))


class _Space:
    """The dimensions kept and those summed over, each collapsed, the innermost of all last."""

    def __init__(self, work: Work, packed: bool) -> None:
        assert work.fold is not None
        shape, axes = work.shape, work.fold.axes
        kept = [i for i in range(len(shape)) if i not in axes and shape[i] > 1]
        reduced = [i for i in axes if shape[i] > 1]
        in_order = any(row.places for row in work.fold.rows)  # a place is a number in that order
        inner = max([*reduced, *kept], default=-1) if in_order else _innermost(work, kept, reduced)
        self.rows = inner in reduced or not kept
        if self.rows and reduced:
            reduced = [i for i in reduced if i != inner] + [inner]
        self.order = (tuple(kept), tuple(reduced))
        stored = work.stores[len(work.fold.rows) :]
        walks = work.walks + [row_major(shape)] * bool(stored)
        self.kept, kept_walks = _part(shape, kept, walks)
        self.reduced, reduced_walks = _part(shape, reduced, walks)
        groups = [self.kept, self.reduced] if self.rows else [self.reduced, self.kept]
        self.shape = groups[0] + groups[1]
        parts = zip(kept_walks, reduced_walks, strict=True)
        self.walks = [k + r if self.rows else r + k for k, r in parts]
        types = [d for (d, _), walk in zip(work.loads, self.walks) if any(walk)]
        types += [d for _, d in stored]
        last = len(self.shape) - 1
        self.width = 1
        if packed and types and (reduced if self.rows else kept):
            width = vector_width(work, types, self.shape, self.walks, last)
            self.width = min(width, work.fold.width)
        self.own = self.walks.pop() if stored else None  # where values lie that are stored whole


def _part(shape: Shape, dims: list[int], walks: list[Shape]) -> tuple[Shape, tuple[Shape, ...]]:
    return collapse([shape[i] for i in dims], [tuple([w[i] for i in dims]) for w in walks])


def _innermost(work: Work, kept: list[int], reduced: list[int]) -> int:
    """The dimension in which most bytes are neighbors; outputs keep their order."""
    candidates = sorted([*reduced, *kept[-1:]])
    best, most = -1, -1
    for i in candidates:
        score = sum([d.itemsize for d, walk in work.loads if abs(walk[i]) == 1])
        if score >= most:
            best, most = i, score
    return best


def _power_of_two(n: int) -> int:
    return 1 << max(n - 1, 0).bit_length()


def _share(space: _Space) -> Shares:
    outputs, length = math.prod(space.kept), math.prod(space.reduced)
    if space.rows:
        length //= space.width
        enough = _power_of_two(length)
        lanes = min(THREADS, max(min(32, enough), _power_of_two(length // STEPS)))
    else:
        outputs //= space.width
        # Blocks of fewer columns are more, and so have fewer chunks for the last of them to add;
        # with a cache line of each row they still read whole ones.
        slots = [min(n, _power_of_two(outputs)) for n in (32, 8 if space.width > 2 else 32)]
        least, most = [THREADS // n for n in slots]
        lanes = min(max(least, min(most, _power_of_two(length // STEPS))), _power_of_two(length))
    blocks = -(-outputs // (THREADS // lanes))
    chunks = min(BLOCKS // blocks, length // (lanes * STEPS))
    chunk = -(-length // max(chunks, 1))
    return Shares(outputs, length, lanes, max(-(-chunk // lanes) * lanes, 1))


# --- text ---------------------------------------------------------------------------------------


INCLUDES = ("pack.cuh", "index.cuh", "fold.cuh")


def _reduce(
    work: Work, fold: Fold, space: _Space, shares: Shares, long_index: bool | None
) -> Kernel:
    """The kernel that takes the values in; it leaves states where there are several chunks."""
    long = needs_long(space.shape, space.walks) or _has_far_tail(fold)
    index = Indices(long if long_index is None else long_index)
    kind = index.type
    for name in ("outputs", "length", "chunk"):
        index.size(name, getattr(shares, name))
    starts, steps, reads, own = _offsets(work, space, index)
    lane, slot = ("x", "y") if space.rows else ("y", "x")
    most = UNROLL if space.own is None else UNROLL // 2  # what is stored needs registers too
    repeat = max(1, min(most, BODY // (space.width * max(work.operations, 1))))
    first, stride = f"begin + threadIdx.{lane}", f"blockDim.{lane}"
    whole = shares.chunks == 1
    end = _End(work, fold, index)
    lines = [
        *reads.once,
        f"const {kind} o = ({kind})blockIdx.x * blockDim.{slot} + threadIdx.{slot};",
        f"const {kind} begin = blockIdx.y * chunk;",
        f"const {kind} end = min(begin + chunk, length);",
        *_fresh_states(work, fold, space.width),
        "if (o < outputs) {",
        *[f"    {line}" for line in starts],
        f"    const auto step = [&](const {kind} r) {{",
        *[
            f"        {line}"
            for line in [*steps, *reads.lines, *_take(work, fold, reads, space, own)]
        ],
        "    };",
        *[f"    {line}" for line in repeated(kind, "r", "end", stride, repeat, first)],
        "}",
        *_fold_lanes(fold, space, kind, end.lines if whole else _partial_stores(fold, space)),
        *([] if whole else _finish(work, fold, space, kind, end)),
    ]
    comment = (
        f"{'Rows' if space.rows else 'Columns'} reduced, {repeat} x {space.width} elements of a"
    )
    comment += " lane under way at a time."
    arrays = [f"const {c_type(d)}* __restrict__ a{i}" for i, (d, _) in enumerate(work.loads)]
    wholes = [d for _, d in work.stores[len(fold.rows) :]]
    arrays += [f"{c_type(d)}* __restrict__ y{i}" for i, d in enumerate(wholes)]
    arrays += end.arrays
    walks = [walk or (0,) for walk in space.walks]
    aligned = alignments(work, walks, [], len(space.shape) - 1, space.width)
    partials: tuple[int, ...] = ()
    if not whole:
        partials = _partial_bytes(work, fold, shares, space)
        arrays += [f"S{i}* part{i}" for i in range(len(fold.rows))] + ["unsigned* arrived"]
    source = write(
        work, comment, lines, index.sizes, [], INCLUDES, arrays,
        [_states(work, fold), element_function(work), *end.functions],
    )  # fmt: skip
    block = (shares.lanes, shares.slots) if space.rows else (shares.slots, shares.lanes)
    grid = (-(-shares.outputs // shares.slots), shares.chunks)
    aligned += tuple([d.itemsize * space.width for d in wholes])
    aligned += end.aligned + (1,) * (len(partials) + (not whole))
    return Kernel(
        work.name, source, grid, block, tuple(index.sizes), aligned, cooperative=True,
        partials=partials,
    )  # fmt: skip


def _has_far_tail(fold: Fold) -> bool:
    """Does the tail read arrays whose elements lie too far apart for 32 bits?"""
    return fold.tail is not None and needs_long(fold.tail.shape, fold.tail.walks)


def _states(work: Work, fold: Fold) -> str:
    """The types of the states."""
    kinds = [c_type(d) for _, d in work.stores]
    return "\n".join(
        [f"using S{i} = {_of(row.state, kinds[i])};" for i, row in enumerate(fold.rows)]
    )


def _of(text: str, kind: str) -> str:
    """A text of the table for values of a type."""
    return re.sub(r"\bT\b", kind, text)


def _fresh_states(work: Work, fold: Fold, width: int) -> list[str]:
    lines = [f"S{i} state{i}[{width}];" for i in range(len(fold.rows))]
    lines += ["#pragma unroll", f"for (int k = 0; k < {width}; ++k) {{"]
    for i, ((_, d), row) in enumerate(zip(work.stores, fold.rows)):
        lines.append(f"    state{i}[k] = S{i}{_of(row.start, c_type(d))};")
    return [*lines, "}"]


def _take(work: Work, fold: Fold, reads: Reads, space: _Space, own: str) -> list[str]:
    """Lines that take a step's elements into the states, and store those kept as they are."""
    width, count = space.width, len(fold.rows)
    at = "0" if width == 1 else "k"
    wholes = [c_type(d) for _, d in work.stores[count:]]
    lines = [f"{c_type(d)} value{i};" for i, (_, d) in enumerate(work.stores[:count])]
    results = [f"value{i}" for i in range(count)]
    results += [f"y{i}[{own}]" if width == 1 else f"q{i}[k]" for i in range(len(wholes))]
    lines.append(call_element(work, reads.values, results))
    position = "r" if width == 1 or not space.rows else f"(long long)r * {width} + k"
    for i, row in enumerate(fold.rows):
        lines.append(f"state{i}[{at}].take(value{i}{f', {position}' if row.places else ''});")
    if width == 1:
        return lines
    return [
        *[f"lucid_pack<{kind}, {width}> q{i};" for i, kind in enumerate(wholes)],
        "#pragma unroll",
        f"for (int k = 0; k < {width}; ++k) {{",
        *[f"    {line}" for line in lines],
        "}",
        *[f"lucid_store<{width}>(y{i} + {own}, q{i});" for i in range(len(wholes))],
    ]


def _fold_lanes(fold: Fold, space: _Space, kind: str, stored: list[str]) -> list[str]:
    """Lines that add up the lanes' states and store what becomes of them."""
    states = range(len(fold.rows))
    if space.rows:
        return [
            *[f"const S{i} all{i} = lucid_fold_over_x(lucid_fold_of(state{i}));" for i in states],
            "if (threadIdx.x == 0 && o < outputs) {",
            f"    const {kind} q = o;",
            *[f"    {line}" for line in stored],
            "}",
        ]
    return [
        "#pragma unroll",
        f"for (int k = 0; k < {space.width}; ++k) {{",
        *[f"    const S{i} all{i} = lucid_fold_over_y(state{i}[k]);" for i in states],
        "    if (threadIdx.y == 0 && o < outputs) {",
        f"        const {kind} q = o * {space.width} + k;",
        *[f"        {line}" for line in stored],
        "    }",
        "}",
    ]


def _partial_stores(fold: Fold, space: _Space) -> list[str]:
    total = "outputs" if space.rows else f"(outputs * {space.width})"
    return [f"part{i}[blockIdx.y * {total} + q] = all{i};" for i in range(len(fold.rows))]


def _finish(work: Work, fold: Fold, space: _Space, kind: str, end: _End) -> list[str]:
    """Lines in which the last block of some outputs adds the states that all of them left."""
    lane, width = ("x", 1) if space.rows else ("y", space.width)
    count = len(fold.rows)
    held = width * sum([row.state_bytes(d) for row, (_, d) in zip(fold.rows, work.stores)])
    repeat = UNROLL if space.rows else max(1, min(2 * UNROLL, ASKED // held))
    walk = f"blockDim.{lane}", repeat, f"threadIdx.{lane}"
    at = "n * outputs + o" if width == 1 else f"(n * outputs + o) * {width} + k"
    return [
        "if (lucid_is_last_block(arrived + blockIdx.x, gridDim.y)) {",
        *[f"    {line}" for line in _fresh_states(work, fold, width)],
        "    if (o < outputs) {",
        f"        const auto step = [&](const {kind} n) {{",
        "            #pragma unroll",
        f"            for (int k = 0; k < {width}; ++k) {{",
        *[f"                state{i}[k] = state{i}[k] + part{i}[{at}];" for i in range(count)],
        "            }",
        "        };",
        *[f"        {line}" for line in repeated(kind, "n", "(int)gridDim.y", *walk)],
        "    }",
        *[f"    {line}" for line in _fold_lanes(fold, space, kind, end.lines)],
        "}",
    ]


def _partial_bytes(work: Work, fold: Fold, shares: Shares, space: _Space) -> tuple[int, ...]:
    number = shares.chunks * shares.outputs * (1 if space.rows else space.width)
    return tuple([number * row.state_bytes(d) for row, (_, d) in zip(fold.rows, work.stores)])


class _End:
    """What is done with the final states ``all0``, ``all1``... of the result numbered ``q``.

    Attributes
    ----------
    functions : list of str
        The device function of the tail.
    arrays : list of str
        Parameters: arrays the tail reads, then the outputs.
    lines : list of str
    aligned : tuple of int
        See `Kernel.aligned`.
    """

    def __init__(self, work: Work, fold: Fold, index: Indices) -> None:
        outputs = [d for _, _, d in fold.results]
        self.lines = [_result_line(work, fold, number) for number in range(len(fold.results))]
        self.lines += [f"o{i}[q] = r{i};" for i in range(len(outputs))]
        self.functions: list[str] = []
        self.arrays: list[str] = []
        self.aligned: tuple[int, ...] = ()
        if fold.tail is not None:
            self._add_tail(fold.tail, fold.sources, len(outputs), index)
            outputs = outputs + [d for _, d in fold.tail.stores]
        self.arrays += [f"{c_type(d)}* __restrict__ o{i}" for i, d in enumerate(outputs)]
        self.aligned += tuple([d.itemsize for d in outputs])

    def _add_tail(
        self, tail: Work, sources: Sequence[int | None], first: int, index: Indices
    ) -> None:
        self.functions.append(element_function(tail, "tail"))
        shape, walks = collapse(tail.shape, tail.walks)
        linear = row_major(shape)
        distinct = [walk for walk in dict.fromkeys(walks) if any(walk) and walk != linear]
        needed = {g for walk in distinct for g, step in enumerate(walk) if step}
        lines, names = index.split("q", ("f", "e", "of"), shape, needed)
        places = {linear: "q"}
        for number, walk in enumerate(distinct):
            terms = index.offset(f"t{number}", walk, dict(enumerate(names)), -1, 1)
            lines.append(f"const {index.type} z{number} = {' + '.join(terms)};")
            places[walk] = f"z{number}"
        values = []
        for i, source in enumerate(sources):
            d = tail.loads[i][0]
            if source is None:
                self.arrays.append(f"const {c_type(d)}* __restrict__ b{i}")
                self.aligned += (d.itemsize,)
                values.append(f"b{i}[{places.get(walks[i], '0') if any(walks[i]) else '0'}]")
            else:
                values.append(f"r{source}")
        for walk in walks[len(sources) :]:
            values.append(own_number(index.type, places[walk] if any(walk) else "0"))
        results = [f"t{first + i}" for i in range(len(tail.stores))]
        lines += [f"{c_type(d)} {r};" for r, (_, d) in zip(results, tail.stores, strict=True)]
        lines.append(call_element(tail, values, results, "tail"))
        lines += [f"o{first + i}[q] = {r};" for i, r in enumerate(results)]
        self.lines += lines


def _result_line(work: Work, fold: Fold, number: int) -> str:
    """A result, as the type it is stored as."""
    value, result, d = fold.results[number]
    text = _of(fold.rows[value].results[result], c_type(work.stores[value][1]))
    text = re.sub(r"\bs\.", f"all{value}.", text)
    text = text.replace("divisor", f"c{fold.divisors[value]}")
    return f"const {c_type(d)} r{number} = lucid_cast<{c_type(d)}>({text});"


def _offsets(work: Work, space: _Space, index: Indices) -> tuple[list[str], list[str], Reads, str]:
    """Lines that find an output's first element, lines that find a step's, the reads, and where
    values stored as they are go.
    """
    inner, width = len(space.shape) - 1, space.width
    n, m = len(space.kept), len(space.reduced)
    cut = (*space.shape[:-1], space.shape[-1] // width) if space.shape else ()
    kept, reduced = range(n), range(n, n + m)
    if not space.rows:
        kept, reduced = range(m, m + n), range(m)
    own = [] if space.own is None else [space.own]
    distinct = [walk for walk in dict.fromkeys([*space.walks, *own]) if any(walk)]
    starts, of_output = _coordinates(index, "o", ("i", "n", "up"), cut, kept, distinct)
    steps, of_step = _coordinates(index, "r", ("k", "m", "on"), cut, reduced, distinct)
    offsets: dict[Shape, str] = {}
    for number, walk in enumerate(distinct):
        fixed = index.offset(f"w{number}", walk, of_output, inner, width)
        terms = index.offset(f"w{number}", walk, of_step, inner, width)
        if fixed:
            starts.append(f"const {index.type} b{number} = {' + '.join(fixed)};")
            terms = [f"b{number}", *terms]
        steps.append(f"const {index.type} j{number} = {' + '.join(terms)};")
        offsets[walk] = f"j{number}"
    reads = Reads(work, space.walks, offsets, inner, width, index.type)
    return starts, steps, reads, offsets.get(own[0], "0") if own else ""


def _coordinates(
    index: Indices,
    name: str,
    prefixes: tuple[str, str, str],
    extents: Shape,
    dims: range,
    walks: Sequence[Shape],
) -> tuple[list[str], dict[int, str]]:
    """Lines that split a linear index over some dimensions, and each one's coordinate."""
    part = slice(dims.start, dims.stop)
    used = {g for walk in walks for g, step in enumerate(walk[part]) if step}
    lines, names = index.split(name, prefixes, extents[part], used)
    return lines, dict(zip(dims, names))
