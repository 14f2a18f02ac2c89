"""Layer normalisation and root mean square normalisation of rows, and their gradients.

``y = (x - mean) rstd w + b``, where mean is 0 for root mean squares. On a GPU one kernel forward;
backward one that makes the gradient of x and gathers those of weight and bias on the way, and a
small one that adds up what the blocks gathered. Sums have a fixed order.

On a CPU rows are taken block by block, and BLAS adds them up several times as fast as
`numpy.add.reduce` does. Calls on float32 are recorded: one on a row costs a few nanoseconds then,
and half a microsecond from Python.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from lucid_gpu.device import device
from lucid_gpu.devices import backend_of_array, loops
from lucid_gpu.devices.blas import UNSHARED
from lucid_gpu.devices.blocks import each, each_of_rows
from lucid_gpu.devices.pool import pool
from lucid_gpu.devices.recording import Recording
from lucid_gpu.devices.scratch import memory_of_thread
from lucid_gpu.dtypes import bfloat16, float16, float32, float64, from_numpy_dtype
from lucid_gpu.kernels.rows import (
    ACCESS,
    WARP,
    Group,
    address,
    counted,
    grouped,
    held,
    power_of_two,
    width_of,
)
from lucid_gpu.launch import Kernel, runs_cuda_c
from lucid_gpu.launch.function import device_of
from lucid_gpu.launch.launchers import launcher_of

__all__ = ["Statistics", "Wanted", "adds_earlier", "gradients", "normalised"]

_FILE = "layer_norm.cu"
_GIVEN = "const T* x, const T* weight, const T* bias, T* y, R* means, R* rstds, "
_STATISTICS = "const R* means, const R* rstds, "
_PARTS = "R* weight_parts, R* bias_parts, long long rows, int columns"
_HELD = "T, R, W, LANES, ITEMS, RMS"
KEPT = 8  # elements of a row whose sums a thread keeps; twice as many in long rows
SUMMERS = 512  # threads of a block that keeps sums, at most
CHUNKS = 64  # of the rows, where columns are summed apart

# On a CPU:
LONG = 2048  # columns from which rounding counts: `numpy.add.reduce` adds in pairs
FEWEST = 1 << 13  # elements
WIDEST = 2048  # columns; where rows are longer rounding counts
ROWS = 16  # computed together
CHUNK = 256 * 1024  # elements that a thread takes in turn: with fewer two cost more than they gain

held_kernel = grouped(
    _FILE, "layer_norm_held", _GIVEN + "long long rows, int columns, R eps", _HELD, 1024
)
walked_kernel = Kernel(
    _FILE, "layer_norm_walked", _GIVEN + "int columns, R eps", "T, R, W, RMS", 512
)
backward_held_kernel = grouped(
    _FILE,
    "layer_norm_backward_held",
    "const T* x, const T* g, const T* weight, " + _STATISTICS + "T* dx, " + _PARTS,
    _HELD,
    SUMMERS,
)
backward_walked_kernel = Kernel(
    _FILE,
    "layer_norm_backward_walked",
    "const T* x, const T* g, const T* weight, " + _STATISTICS + "T* dx, int columns",
    "T, R, W, RMS",
    512,
)
column_parts_kernel = Kernel(
    _FILE,
    "layer_norm_column_parts",
    "const T* x, const T* g, " + _STATISTICS + _PARTS,
    "T, R, RMS",
    256,
)
parts_kernel = Kernel(
    _FILE,
    "layer_norm_parts",
    "const R* weight_parts, const R* bias_parts, T* dweight, T* dbias, int parts, int columns",
    "T, R",
    512,
)


class Statistics(NamedTuple):
    """Of each row, shape (rows, 1), float32 at least; ``mean`` is None for root mean squares."""

    mean: Any
    rstd: Any


class Wanted(NamedTuple):
    """Which gradients are asked for."""

    x: bool
    weight: bool
    bias: bool


def normalised(x: Any, weight: Any, bias: Any, eps: float, rms: bool) -> tuple[Any, Statistics]:
    """Rows, shape (rows, columns), normalised; weight and bias may be None."""
    run = by_cuda_c if runs_cuda_c(device_of(x)) else on_host
    return run(x, weight, bias, eps, rms)


def adds_earlier(where: device) -> bool:
    """Whether `gradients` can add a gradient of the rows to an earlier one."""
    return not runs_cuda_c(where)


def gradients(
    x: Any, g: Any, weight: Any, known: Statistics, wanted: Wanted, earlier: Any = None
) -> tuple[Any, Any, Any]:
    """The gradients of rows, weight and bias, those that are wanted.

    ``earlier`` is what a gradient of the rows is added to, where `adds_earlier` holds.
    """
    if not runs_cuda_c(device_of(x)):
        return gradients_on_host(x, g, weight, known, wanted, earlier)
    assert earlier is None
    return gradients_by_cuda_c(x, g, weight, known, wanted)


# --- CUDA C ---------------------------------------------------------------------------------------


def by_cuda_c(x: Any, weight: Any, bias: Any, eps: float, rms: bool) -> tuple[Any, Statistics]:
    """As `normalised`, by CUDA C."""
    backend = backend_of_array(x)
    assert backend is not None
    rows, columns = x.shape[0], counted(x.shape[1])
    d = from_numpy_dtype(x.dtype)
    x, weight, bias = _contiguous(backend.xp, x, weight, bias)
    where = device_of(x)
    y = backend.empty(x.shape, d, where)
    rstd = backend.empty((rows, 1), d.compute, where)
    mean = None if rms else backend.empty((rows, 1), d.compute, where)
    arrays = x, weight, bias, y, mean, rstd
    kinds: dict[str, Any] = {"T": d, "R": d.compute, "RMS": rms}
    places = [address(a) for a in arrays[:4] if a is not None]
    group = held(columns, width_of(columns, places, d.itemsize), d.itemsize)
    if not y.size:
        return y, Statistics(mean, rstd)
    if group is None:
        width = _width_alike(d.itemsize, x, y)
        walked_kernel(rows, (*arrays, columns, eps), **kinds, W=width)
    else:
        given = (*arrays, rows, columns, eps)
        kinds.update(W=group.width, LANES=group.lanes, ITEMS=group.items)
        launch = held_kernel.of(group.lanes)
        launch(group.blocks(rows), given, threads=group.threads, **kinds)
    return y, Statistics(mean, rstd)


def gradients_by_cuda_c(
    x: Any, g: Any, weight: Any, known: Statistics, wanted: Wanted
) -> tuple[Any, Any, Any]:
    """As `gradients`, by CUDA C."""
    backend = backend_of_array(x)
    assert backend is not None
    rows, columns = x.shape
    d, xp = from_numpy_dtype(x.dtype), backend.xp
    x, g, weight = _contiguous(xp, x, g, weight)
    where = device_of(x)
    dx = backend.empty(x.shape, d, where) if wanted.x else None
    if not x.size:
        zeros = [xp.zeros(columns, x.dtype) if w else None for w in wanted[1:]]
        return dx, zeros[0], zeros[1]
    kinds: dict[str, Any] = {"T": d, "R": d.compute}
    group = _columns_kept(columns, [x, g, weight, dx], d.itemsize)
    if group is None:
        count = min(rows, CHUNKS)
    else:
        blocks = _busy(x, group, rows)
        count = blocks * (group.threads // group.lanes if group.lanes else 1)
    parts = [
        backend.empty((count, columns), d.compute, where) if wish else None for wish in wanted[1:]
    ]
    rms = known.mean is None
    if group is not None:
        given = (x, g, weight, *known, dx, *parts, rows, columns)
        more = {"W": group.width, "LANES": group.lanes, "ITEMS": group.items}
        launch = backward_held_kernel.of(group.lanes)
        launch(blocks, given, threads=group.threads, **kinds, **more, RMS=rms)
    else:
        _long_gradients((x, g, weight), known, dx, parts, kinds)
    sums = [backend.empty((columns,), d, where) if wish else None for wish in wanted[1:]]
    if any(wanted[1:]):
        threads = WARP * min(power_of_two(-(-count // 4)), 16)
        summed = (*parts, *sums, count, columns)
        parts_kernel(-(-columns // WARP), summed, threads=threads, **kinds)
    return dx, sums[0], sums[1]


def _long_gradients(
    arrays: tuple[Any, Any, Any], known: Statistics, dx: Any, parts: list[Any], kinds: Any
) -> None:
    """Of rows too long for registers: one kernel for the rows, one for the columns."""
    x, g, weight = arrays
    (rows, columns), rms = x.shape, known.mean is None
    if dx is not None:
        width = _width_alike(x.itemsize, x, g, dx)
        given = (x, g, weight, *known, dx, columns)
        backward_walked_kernel(rows, given, **kinds, W=width, RMS=rms)
    if any(part is not None for part in parts):
        grid = -(-columns // 256), min(rows, CHUNKS)
        column_parts_kernel(grid, (x, g, *known, *parts, rows, columns), **kinds, RMS=rms)


def _contiguous(xp: Any, *arrays: Any) -> list[Any]:
    return [a if a is None else xp.ascontiguousarray(a) for a in arrays]


def _width_alike(itemsize: int, *arrays: Any) -> int:
    """The widest access, where all arrays lie alike towards it."""
    alike = len({address(a) % ACCESS for a in arrays}) == 1
    return ACCESS // itemsize if alike else 1


def _columns_kept(columns: int, arrays: list[Any], itemsize: int) -> Group | None:
    """Threads that keep sums of their columns from row to row; a whole warp at least."""
    width = width_of(columns, [address(a) for a in arrays if a is not None], itemsize)
    packs = -(-columns // width)
    few = KEPT // 2 if itemsize == 8 else KEPT
    items = max(few // width, 1)
    if packs <= WARP * items:
        return Group(width, WARP, power_of_two(-(-packs // WARP)), 128)
    for held_items in (items, max(2 * few // width, 1)):
        threads = max(power_of_two(-(-packs // held_items)), 2 * WARP)
        if threads <= SUMMERS:
            return Group(width, 0, held_items, threads)
    return None


def _busy(array: Any, group: Group, rows: int) -> int:
    """Blocks enough for every multiprocessor, and no more than there are rows for."""
    processors = launcher_of(device_of(array)).processors
    return min(group.blocks(rows), processors * max(1024 // group.threads, 1))


# --- NumPy: block by block, sums as products with ones --------------------------------------------


def on_host(x: Any, weight: Any, bias: Any, eps: float, rms: bool) -> tuple[Any, Statistics]:
    """Rows, shape (rows, columns), normalised; weight and bias may be None."""
    if _can_record(x, *[a for a in (weight, bias) if a is not None]):
        return _recorded(x, weight, bias, eps, rms)
    d = from_numpy_dtype(x.dtype).compute
    rows, columns = x.shape
    y = pool.empty(x.shape, x.dtype)
    mean = None if rms else np.empty((rows, 1), d.numpy)
    rstd = np.empty((rows, 1), d.numpy)
    weight, bias = _as_type(d.numpy, weight, bias)
    share = _share(columns, d.numpy)

    def work(block: slice) -> None:
        n = y[block]
        if y.dtype != d.numpy:
            (n,) = memory_of_thread.views([d], n.shape)
        if mean is None:
            n[...] = x[block]
        else:
            wide = x[block].astype(d.numpy, copy=False)
            if columns > LONG:
                np.add.reduce(wide, 1, out=mean[block], keepdims=True)
                mean[block] /= columns
            else:
                np.matmul(wide, share, mean[block, 0])
            np.subtract(wide, mean[block], n)
        scale = rstd[block]
        _row_dots(n, n, scale[:, 0])
        scale /= columns
        scale += eps
        np.sqrt(scale, scale)
        np.divide(1, scale, scale)
        n *= scale
        if weight is not None:
            n *= weight
        if bias is not None:
            n += bias
        if y.dtype != d.numpy:
            y[block] = n

    each_of_rows(rows, columns, work)
    return y, Statistics(mean, rstd)


def gradients_on_host(
    x: Any, g: Any, weight: Any, known: Statistics, wanted: Wanted, earlier: Any = None
) -> tuple[Any, Any, Any]:
    """The gradients of rows, weight and bias, those that are wanted.

    ``earlier`` is what a gradient of the rows is added to.
    """
    if _can_record(x, g, *[a for a in (weight, *known, earlier) if a is not None]):
        return _recorded_gradients(x, g, weight, known, wanted, earlier)
    mean, rstd = known
    d = from_numpy_dtype(rstd.dtype)
    rows, columns = x.shape
    dx = pool.empty(x.shape, x.dtype) if wanted.x else None
    (weight,) = _as_type(d.numpy, weight)
    share = _share(columns, d.numpy)

    def work(block: slice) -> tuple[Any, Any]:
        centred, h = memory_of_thread.views([d, d], (block.stop - block.start, columns))
        wide, scale = g[block].astype(d.numpy, copy=False), rstd[block]
        if mean is None:
            centred[...] = x[block]
        else:
            np.subtract(x[block], mean[block], centred)
        dbias = np.matmul(np.ones(len(wide), d.numpy), wide) if wanted.bias else None
        dweight = None
        if wanted.weight:
            dweight = np.matmul(scale[:, 0], np.multiply(wide, centred, h))
        if dx is not None:
            if weight is not None:
                wide = np.multiply(wide, weight, h)
            along = _row_dots(wide, centred, np.empty(len(wide), d.numpy))[:, None]
            along *= scale
            along *= scale
            along /= columns
            centred *= along
            if mean is not None:
                centred += _row_dots(wide, share, np.empty(len(wide), d.numpy))[:, None]
            np.subtract(wide, centred, centred)
            np.multiply(centred, scale, dx[block], casting="unsafe")
            if earlier is not None:
                np.add(earlier[block], dx[block], dx[block])
        return dweight, dbias

    sums = zip(*each_of_rows(rows, columns, work)) if rows else iter([(), ()])
    dweight, dbias = [
        _added(parts, columns, d.numpy).astype(x.dtype, copy=False) if wish else None
        for parts, wish in zip(sums, wanted[1:])
    ]
    return dx, dweight, dbias


def _added(parts: Sequence[Any], columns: int, kind: Any) -> Any:
    """What the blocks found, in their order."""
    return parts[0] if len(parts) == 1 else np.asarray(sum(parts, np.zeros(columns, kind)))


def _row_dots(a: Any, b: Any, out: Any) -> Any:
    """The product of each row of ``a`` with that of ``b``, which may be one for all; shape (rows,).

    Parts of long rows are added in float64: one sum after another loses digits.
    """
    columns = a.shape[1]
    if columns <= LONG:
        return np.vecdot(a, b, out=out)
    parts = [np.vecdot(a[:, i : i + LONG], b[..., i : i + LONG]) for i in range(0, columns, LONG)]
    out[...] = np.sum(parts, 0, np.float64)
    return out


@functools.lru_cache(maxsize=16)
def _share(columns: int, kind: Any) -> Any:
    return np.full(columns, 1 / columns, kind)


def _as_type(kind: Any, *arrays: Any) -> list[Any]:
    return [None if a is None else a.astype(kind, copy=False) for a in arrays]


# --- NumPy, recorded: some rows of float32 at a time, which stay in the L1 cache ------------------


def _can_record(*arrays: Any) -> bool:
    """Whether rows, shape (rows, columns), are of the kind computed here."""
    x = arrays[0]
    return (
        x.size >= FEWEST
        and x.shape[1] <= WIDEST
        and all(a.dtype == np.float32 and a.flags.c_contiguous for a in arrays)
    )


def _recorded(x: Any, weight: Any, bias: Any, eps: float, rms: bool) -> tuple[Any, Statistics]:
    """As `on_host`."""
    rows = len(x)
    y = pool.empty(x.shape, x.dtype)
    mean, rstd = (np.empty((rows, 1), np.float32) for _ in range(2))
    given = weight is not None, bias is not None

    def record(count: int) -> Recording:
        return _recording(count, x.shape[1], eps, rms, given)

    _run_over_rows(record, x.shape, [x, y, mean, rstd], [weight, bias], 0)
    return y, Statistics(None if rms else mean, rstd)


def _recorded_gradients(
    x: Any, g: Any, weight: Any, known: Statistics, wanted: Wanted, earlier: Any = None
) -> tuple[Any, Any, Any]:
    """As `gradients_on_host`."""
    rms = known.mean is None
    dx = pool.empty(x.shape, x.dtype) if wanted.x else x
    mean = known.rstd if rms else known.mean
    given = weight is not None, earlier is not None

    def record(count: int) -> Recording:
        return _recording_of_gradients(count, x.shape[1], rms, given, wanted)

    rowwise = [x, g, dx, mean, known.rstd, x if earlier is None else earlier]
    sums = _run_over_rows(record, x.shape, rowwise, [weight], 2)
    found = sums[0] if len(sums) == 1 else [sum(p[1:], p[0]) for p in zip(*sums)]
    dweight, dbias = (one if wish else None for one, wish in zip(found, wanted[1:]))
    return dx if wanted.x else None, dweight, dbias


def _run_over_rows(
    record: Callable[[int], Recording],
    shape: tuple[int, int],
    rowwise: list[Any],
    along: list[Any],
    sums: int,
) -> list[list[Any]]:
    """Run a record over all rows; chunk by chunk what it added up, in so many vectors.

    ``along`` are vectors of a row's length, spread over the rows computed together.
    """
    rows, columns = shape
    chunk = max(CHUNK // columns // ROWS, 1) * ROWS
    spread = [None if a is None else _spread(a) for a in along]
    fixed = [0 if a is None else loops.address(a) for a in spread]
    places = [(loops.address(a), a.strides[0]) for a in rowwise]

    def work(first: int) -> list[Any]:
        added = [np.zeros(columns, np.float32) for _ in range(sums)]
        count = min(chunk, rows - first)
        whole = count // ROWS * ROWS
        for start, many, repeats in ((0, ROWS, whole // ROWS), (whole, count - whole, 1)):
            if many and repeats:
                at = [place + (first + start) * step for place, step in places]
                record(many).run([*at, *fixed, *[loops.address(a) for a in added]], repeats)
        return added

    if chunk >= rows and ROWS * columns <= UNSHARED:
        return [work(0)]  # BLAS gives no part of so little to another thread
    return each(range(0, rows, chunk), work)


def _spread(vector: Any) -> Any:
    """Of the rows that are computed together the same for each."""
    result = np.empty((ROWS, len(vector)), np.float32)
    result[:] = vector
    return result


def _operands(calls: Recording, rows: int, columns: int, widths: str) -> list[Any]:
    """Operands: ``w`` a whole row each, ``1`` one number a row, ``=`` the same for all rows."""
    shapes = {"w": (columns, columns), "1": (1, 1), "=": (columns, 0), "+": (columns, 0)}
    made = []
    for kind in widths:
        width, move = shapes[kind]
        shape = (1 if kind == "+" else rows, width)
        made.append(calls.operand(shape, (4 * width, 4), 4 * move * rows))
    return made


@functools.lru_cache(maxsize=64)
def _recording(
    rows: int, columns: int, eps: float, rms: bool, given: tuple[bool, bool]
) -> Recording:
    calls = Recording()
    x, y, mean, rstd, weight, bias = _operands(calls, rows, columns, "ww11==")
    squares = calls.scratch(rows, columns)
    share = calls.constant(np.full((columns, 1), 1 / columns))
    centred = x
    if not rms:
        centred = y
        calls.matmul(x, share, mean)
        calls.rows(np.subtract, x, mean, centred)
    calls(np.multiply, centred, centred, squares)
    calls.matmul(squares, share, rstd)
    calls(np.add, rstd, calls.constant(eps), rstd)
    calls(np.sqrt, rstd, rstd)
    calls(np.divide, calls.constant(1), rstd, rstd)
    calls.rows(np.multiply, centred, rstd, y)
    if given[0]:
        calls(np.multiply, y, weight, y)
    if given[1]:
        calls(np.add, y, bias, y)
    return calls


@functools.lru_cache(maxsize=64)
def _recording_of_gradients(
    rows: int, columns: int, rms: bool, given: tuple[bool, bool], wanted: Wanted
) -> Recording:
    calls = Recording()
    operands = _operands(calls, rows, columns, "www11w=++")
    x, g, dx, mean, rstd, earlier, weight, dweight, dbias = operands
    centred, h, t = (calls.scratch(rows, columns) for _ in range(3))
    along, middle = calls.scratch(rows, 1), calls.scratch(rows, 1)
    part = calls.scratch(1, columns)
    share = calls.constant(np.full((columns, 1), 1 / columns))
    if rms:
        centred = x
    else:
        calls.rows(np.subtract, x, mean, centred)
    if wanted.bias:
        calls.matmul(calls.constant(np.ones((1, rows))), g, part)
        calls(np.add, dbias, part, dbias)
    if wanted.weight:
        calls(np.multiply, g, centred, t)
        calls.matmul(rstd.T, t, part)
        calls(np.add, dweight, part, dweight)
    if wanted.x:
        if given[0]:
            calls(np.multiply, g, weight, h)
        else:
            h = g
        calls(np.multiply, h, centred, t)
        calls.matmul(t, share, along)
        calls(np.multiply, along, rstd, along)
        calls(np.multiply, along, rstd, along)
        calls.rows(np.multiply, centred, along, t)
        if not rms:
            calls.matmul(h, share, middle)
            calls.rows(np.add, t, middle, t)
        calls(np.subtract, h, t, t)
        calls.rows(np.multiply, t, rstd, t if given[1] else dx)
        if given[1]:
            calls(np.add, earlier, t, dx)
    return calls


# --- what programs launch -------------------------------------------------------------------------


def _instances() -> list[tuple[Kernel, dict[str, Any]]]:
    found: list[tuple[Kernel, dict[str, Any]]] = []
    for d, rms, lengths in (
        (float32, False, (64, 768, 1024, 4096, 8192)),
        (float32, True, (4096,)),
        (bfloat16, True, (1024, 8192)),
        (bfloat16, False, (768,)),
        (float16, False, (4096,)),
        (float64, False, (100,)),
    ):
        kinds: dict[str, Any] = {"T": d, "R": d.compute, "RMS": rms}
        full = ACCESS // d.itemsize
        for columns in lengths:
            for kernel, group in (
                (held_kernel, held(columns, full, d.itemsize)),
                (backward_held_kernel, _columns_kept(columns, [], d.itemsize)),
            ):
                if group is not None:
                    width, lanes, items, _ = group
                    given = {**kinds, "W": width, "LANES": lanes, "ITEMS": items}
                    found.append((kernel.of(lanes), given))
        found += [(k, {**kinds, "W": full}) for k in (walked_kernel, backward_walked_kernel)]
        found.append((column_parts_kernel, kinds))
        if not rms:
            found.append((parts_kernel, {"T": d, "R": d.compute}))
    return found


INSTANCES = _instances()
