"""Sums over axes, with the elementwise expression that feeds them inside the same kernel.

A block of 256 threads is ``lanes`` by ``slots``: the lanes of a slot walk one output's elements,
then add up what they have in a fixed order. Where the elements of one output are neighbours in
memory (``rows``) the lanes are neighbouring threads, else (columns) the slots are. Where outputs
are few, each is cut into chunks, whose partial sums a second kernel adds. No atomics: the same
input gives the same bits, on every GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from lucid_gpu.dtypes import dtype
from lucid_gpu.fusion.cuda_index import (
    BODY,
    Indices,
    Reads,
    alignments,
    needs_long,
    pack_width,
    repeated,
)
from lucid_gpu.fusion.cuda_source import (
    THREADS,
    Kernel,
    Work,
    c_type,
    call_element,
    result_types,
    write,
)
from lucid_gpu.fusion.layout import Shape, collapse, count
from lucid_gpu.fusion.program import Instruction

UNROLL = 4  # steps whose reads are under way at the same time
STEPS = 8  # a lane takes at least, before a sum is spread over more lanes or chunks
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


def reduction(
    work: Work, packed: bool = True, long_index: bool | None = None, split: bool = True
) -> list[Kernel]:
    """The kernels of a plan with a reduction: one, or two with partial sums between them.

    Parameters
    ----------
    packed, long_index
        As for `lucid_gpu.fusion.cuda_elementwise.elementwise`.
    split : bool
        Allow two kernels.
    """
    space = _Space(work, packed)
    shares = _share(space, split)
    types = [d for _, d in work.stores] if shares.chunks == 1 else result_types(work)
    kernels = [_sum(work, space, shares, types, long_index)]
    if shares.chunks > 1:
        outputs = shares.outputs * (1 if space.rows else space.width)
        kernels += reduction(_finish(work, types, shares.chunks, outputs), packed, split=False)
    return kernels


def partial_sums(work: Work, kernel: Kernel) -> tuple[int, list[dtype]]:
    """How many partial sums a first kernel gives, and their types."""
    outputs = count([n for i, n in enumerate(work.shape) if i not in (work.axes or ())])
    return kernel.grid[1] * outputs, result_types(work)


class _Space:
    """The dimensions kept and those summed over, each collapsed, the innermost of all last."""

    def __init__(self, work: Work, packed: bool) -> None:
        shape, axes = work.shape, work.axes or ()
        kept = [i for i in range(len(shape)) if i not in axes and shape[i] > 1]
        reduced = [i for i in axes if shape[i] > 1]
        inner = _innermost(work, kept, reduced)
        self.rows = inner in reduced or not kept
        if self.rows and reduced:
            reduced = [i for i in reduced if i != inner] + [inner]
        walks = work.walks
        self.kept, kept_walks = _part(shape, kept, walks)
        self.reduced, reduced_walks = _part(shape, reduced, walks)
        groups = [self.kept, self.reduced] if self.rows else [self.reduced, self.kept]
        self.shape = groups[0] + groups[1]
        parts = zip(kept_walks, reduced_walks, strict=True)
        self.walks = [k + r if self.rows else r + k for k, r in parts]
        types = [d for (d, _), walk in zip(work.loads, self.walks) if any(walk)]
        last = len(self.shape) - 1
        self.width = 1
        if packed and types and (reduced if self.rows else kept):
            self.width = pack_width(work, types, self.shape, self.walks, last)


def _part(shape: Shape, dims: list[int], walks: list[Shape]) -> tuple[Shape, tuple[Shape, ...]]:
    return collapse([shape[i] for i in dims], [tuple([w[i] for i in dims]) for w in walks])


def _innermost(work: Work, kept: list[int], reduced: list[int]) -> int:
    """The dimension in which most bytes are neighbours; outputs keep their order."""
    candidates = sorted([*reduced, *kept[-1:]])
    best, most = -1, -1
    for i in candidates:
        score = sum([d.itemsize for d, walk in work.loads if abs(walk[i]) == 1])
        if score >= most:
            best, most = i, score
    return best


def _power_of_two(n: int) -> int:
    return 1 << max(n - 1, 0).bit_length()


def _share(space: _Space, split: bool) -> Shares:
    outputs, length = count(space.kept), count(space.reduced)
    if space.rows:
        length //= space.width
        enough = _power_of_two(length)
        lanes = min(THREADS, max(min(32, enough), _power_of_two(length // STEPS)))
    else:
        outputs //= space.width
        slots = min(32, _power_of_two(outputs))
        lanes = min(THREADS // slots, _power_of_two(length))
    blocks = -(-outputs // (THREADS // lanes))
    chunks = min(BLOCKS // blocks, length // (lanes * STEPS)) if split else 1
    chunk = -(-length // max(chunks, 1))
    return Shares(outputs, length, lanes, max(-(-chunk // lanes) * lanes, 1))


def _finish(work: Work, types: Sequence[dtype], chunks: int, outputs: int) -> Work:
    """Adding partial sums is itself a sum: over the first axis of (chunks, outputs)."""
    shape = (chunks, outputs)
    loads = [Instruction("load", (), d, shape, False, i) for i, d in enumerate(types)]
    walk = (outputs, 1)
    stores = [(i, d) for i, (_, d) in enumerate(work.stores)]
    return Work(
        f"{work.name}_finish", shape, tuple(loads), tuple([(d, walk) for d in types]),
        tuple(stores), (), (), (0,),
    )  # fmt: skip


# --- text ---------------------------------------------------------------------------------------


def _sum(
    work: Work, space: _Space, shares: Shares, stores: Sequence[dtype], long_index: bool | None
) -> Kernel:
    long = needs_long(space.shape, space.walks) if long_index is None else long_index
    index = Indices(long)
    kind = index.type
    for name in ("outputs", "length", "chunk"):
        index.size(name, getattr(shares, name))
    starts, steps, reads = _offsets(work, space, index)
    lane, slot = ("x", "y") if space.rows else ("y", "x")
    types = result_types(work)
    repeat = max(1, min(UNROLL, BODY // (space.width * max(work.operations, 1))))
    first, stride = f"begin + threadIdx.{lane}", f"blockDim.{lane}"
    lines = [
        *reads.once,
        f"const {kind} o = ({kind})blockIdx.x * blockDim.{slot} + threadIdx.{slot};",
        f"const {kind} begin = blockIdx.y * chunk;",
        f"const {kind} end = min(begin + chunk, length);",
        *[f"{c_type(d)} sum{i}[{space.width}] = {{}};" for i, d in enumerate(types)],
        "if (o < outputs) {",
        *[f"    {line}" for line in starts],
        f"    const auto step = [&](const {kind} r) {{",
        *[f"        {line}" for line in [*steps, *reads.lines, *_add(work, reads, space.width)]],
        "    };",
        *[f"    {line}" for line in repeated(kind, "r", "end", stride, repeat, first)],
        "}",
        *_results(work, space, stores, types, kind),
    ]
    comment = (
        f"Sums of {'rows' if space.rows else 'columns'}, {repeat} x {space.width} elements of a"
    )
    comment += " lane under way at a time."
    source = write(work, comment, lines, index.sizes, stores, ["pack.cuh", "index.cuh", "sum.cuh"])
    block = (shares.lanes, shares.slots) if space.rows else (shares.slots, shares.lanes)
    grid = (-(-shares.outputs // shares.slots), shares.chunks)
    walks = [walk or (0,) for walk in space.walks]
    aligned = alignments(work, walks, [], len(space.shape) - 1, space.width)
    aligned += tuple([d.itemsize for d in stores])
    return Kernel(work.name, source, grid, block, tuple(index.sizes), aligned, cooperative=True)


def _add(work: Work, reads: Reads, width: int) -> list[str]:
    """Lines that add a step's elements to the running sums."""
    types, at = result_types(work), "0" if width == 1 else "k"
    values = [f"value{i}" for i in range(len(types))]
    lines = [f"{c_type(d)} {value};" for d, value in zip(types, values)]
    lines.append(call_element(work, reads.values, values))
    lines += [f"sum{i}[{at}] += {value};" for i, value in enumerate(values)]
    if width == 1:
        return lines
    loop = ["#pragma unroll", f"for (int k = 0; k < {width}; ++k) {{"]
    return [*loop, *[f"    {line}" for line in lines], "}"]


def _offsets(work: Work, space: _Space, index: Indices) -> tuple[list[str], list[str], Reads]:
    """Lines that find an output's first element, lines that find a step's, and the reads."""
    inner, width = len(space.shape) - 1, space.width
    n, m = len(space.kept), len(space.reduced)
    cut = (*space.shape[:-1], space.shape[-1] // width) if space.shape else ()
    kept, reduced = range(n), range(n, n + m)
    if not space.rows:
        kept, reduced = range(m, m + n), range(m)
    distinct = [walk for walk in dict.fromkeys(space.walks) if any(walk)]
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
    return starts, steps, Reads(work, space.walks, offsets, inner, width, index.type)


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


def _results(
    work: Work, space: _Space, stores: Sequence[dtype], types: Sequence[dtype], kind: str
) -> list[str]:
    """Lines that add up the lanes and store."""
    place = f"({kind})blockIdx.y * outputs + o"
    if space.rows:
        lines = [
            f"const {c_type(d)} total{i} = lucid_sum_over_x(lucid_sum_of(sum{i}));"
            for i, d in enumerate(types)
        ]
        lines.append("if (threadIdx.x == 0 && o < outputs) {")
        for i, d in enumerate(stores):
            lines.append(f"    o{i}[{place}] = lucid_cast<{c_type(d)}>(total{i});")
        return [*lines, "}"]
    lines = ["#pragma unroll", f"for (int k = 0; k < {space.width}; ++k) {{"]
    for i, d in enumerate(types):
        lines.append(f"    const {c_type(d)} total{i} = lucid_sum_over_y(sum{i}[k]);")
    lines.append("    if (threadIdx.y == 0 && o < outputs) {")
    for i, d in enumerate(stores):
        target = f"o{i}[({place}) * {space.width} + k]"
        lines.append(f"        {target} = lucid_cast<{c_type(d)}>(total{i});")
    return [*lines, "    }", "}"]
