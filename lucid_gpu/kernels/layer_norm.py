"""Layer normalization and root mean square normalization of rows, and their gradients.

``y = (x - mean) rstd w + b``, where mean is 0 for root mean squares. On a GPU one kernel forward;
backward one that makes the gradient of x and gathers those of weight and bias on the way, and a
small one that adds up what the blocks gathered. Sums have a fixed order.

On a CPU rows are taken chunk by chunk, and BLAS adds them up several times as fast as
`numpy.add.reduce` does. There is one text of calls; it is recorded, since one on a row costs a few
nanoseconds then, and half a microsecond from Python. Of long rows parts are added in float64, for
which there are no calls to record: theirs are made at once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from lucid_gpu.device import device
from lucid_gpu.devices import loops, owners
from lucid_gpu.devices.blas import UNSHARED
from lucid_gpu.devices.blocks import each, slices
from lucid_gpu.devices.copies import row_major
from lucid_gpu.devices.pool import pool
from lucid_gpu.devices.recording import Immediate, Recording
from lucid_gpu.devices.threads import quietly
from lucid_gpu.dtypes import bfloat16, float16, float32, float64, from_numpy_dtype
from lucid_gpu.kernels.dispatch import by_device
from lucid_gpu.kernels.rows import (
    ACCESS,
    LONGEST,
    WARP,
    Group,
    address,
    counted,
    grouped,
    held,
    power_of_two,
    width_of,
)
from lucid_gpu.kernels.windows import empty
from lucid_gpu.launch import Kernel, runs_cuda_c
from lucid_gpu.launch.kernel import Launch
from lucid_gpu.launch.launchers import launcher_of

__all__ = ["Wanted", "adds_earlier", "gradients", "normalized"]

_FILE = "layer_norm.cu"
_GIVEN = "const T* x, const T* weight, const T* bias, T* y, R* statistics, "
_PARTS = "R* parts, bool of_weights, bool of_biases, long long rows, int columns"
_HELD = "T, R, W, LANES, ITEMS, RMS"
KEPT = 8  # elements of a row whose sums a thread keeps; twice as many in long rows
SUMMERS = 512  # threads of a block that keeps sums, at most
CHUNKS = 64  # of the rows, where columns are summed apart

# On a CPU:
LONG = 2048  # columns from which rounding counts
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
    "const T* x, const T* g, const T* weight, const R* statistics, T* dx, " + _PARTS,
    _HELD,
    SUMMERS,
)
backward_walked_kernel = Kernel(
    _FILE,
    "layer_norm_backward_walked",
    "const T* x, const T* g, const T* weight, const R* statistics, T* dx, int columns",
    "T, R, W, RMS",
    512,
)
column_parts_kernel = Kernel(
    _FILE,
    "layer_norm_column_parts",
    "const T* x, const T* g, const R* statistics, " + _PARTS,
    "T, R, RMS",
    256,
)
parts_kernel = Kernel(
    _FILE,
    "layer_norm_parts",
    "const R* parts, T* dweight, T* dbias, int count, int columns",
    "T, R",
    512,
)


class Wanted(NamedTuple):
    """Which gradients are asked for."""

    x: bool
    weight: bool
    bias: bool


def adds_earlier(where: device) -> bool:
    """Whether `gradients` can add a gradient of the rows to an earlier one."""
    return not runs_cuda_c(where)


# --- CUDA C ---------------------------------------------------------------------------------------


@by_device
def normalized(
    x: Any, weight: Any, bias: Any, eps: float, rms: bool, columns: int | None = None
) -> tuple[Any, Any]:
    """Rows normalized, and their statistics; weight and bias may be None.

    Rows are ``columns`` elements that follow each other; by default those of the last dimension.
    The statistics, float32 at least, are the mean of each row and 1 over its deviation, in this
    order and of shape (2, rows, 1); of root mean squares only the second, of shape (1, rows, 1).
    """
    backend, full = owners[type(x)], x.shape
    if columns is None:
        columns = full[-1]
    if columns > LONGEST:  # before there is memory for it
        counted(columns)
    rows = x.size // columns
    x, weight, bias = _contiguous(x, weight, bias)
    new, address, kind = backend.new, backend.address, x.dtype
    y = new(full, kind)
    of_x, of_y = address(x), address(y)
    of_weight = 0 if weight is None else address(weight)
    of_bias = 0 if bias is None else address(bias)
    places = (of_x | of_weight | of_bias | of_y) % ACCESS
    launch, shape, wide = _forward(backend.device_of(x), rows, columns, places, kind, rms)
    statistics = new(shape, wide)
    arrays = (x, weight, bias, y, statistics)
    if launch is not None:
        addresses = (of_x, of_weight, of_bias, of_y, address(statistics))
        launch(arrays, addresses, rows, columns, eps)
    elif rows:
        d = from_numpy_dtype(kind)
        width = _width_alike(d.itemsize, x, y)
        walked_kernel(rows, (*arrays, columns, eps), T=d, R=d.compute, RMS=rms, W=width)
    return y, statistics


@functools.lru_cache(maxsize=1024)
def _forward(
    where: device, rows: int, columns: int, places: int, kind: Any, rms: bool
) -> tuple[Launch | None, tuple[int, int, int], Any]:
    """The launch for rows that are held in registers; the statistics' shape and type.

    There is none where rows are too long for registers, and where there are no elements. ``places``
    are the bits that are set in any of the arrays' addresses.
    """
    d, wide = from_numpy_dtype(kind), from_numpy_dtype(kind).compute
    shape = (2 - rms, rows, 1)
    group = held(columns, width_of(columns, (places,), d.itemsize), d.itemsize)
    if group is None or not rows * columns:
        return None, shape, wide.numpy
    kernel = held_kernel.instance(group, T=d, R=wide, RMS=rms)
    return Launch(kernel, where, group.grid(rows), (group.threads, 1, 1)), shape, wide.numpy


@by_device
def gradients(
    x: Any,
    g: Any,
    weight: Any,
    statistics: Any,
    wanted: Wanted,
    earlier: Any = None,
    columns: int | None = None,
) -> tuple[Any, Any, Any]:
    """The gradients of rows, weight and bias, those that are wanted; the last two are vectors.

    ``statistics`` are those of `normalized`. ``earlier`` is what a gradient of the rows is added
    to, where `adds_earlier` holds.
    """
    assert earlier is None
    backend = owners[type(x)]
    shape, kind, new, address = x.shape, x.dtype, backend.new, backend.address
    if columns is None:
        columns = shape[-1]
    rows = x.size // columns
    x, g, weight = _contiguous(x, g, weight)
    wants_x, wants_weight, wants_bias = wanted
    dx = new(shape, kind) if wants_x else None
    if not rows * columns:
        zeros = [backend.xp.zeros(columns, kind) if w else None for w in wanted[1:]]
        return dx, zeros[0], zeros[1]
    of_x, of_g = address(x), address(g)
    of_weight = 0 if weight is None else address(weight)
    of_dx = 0 if dx is None else address(dx)
    where, places = backend.device_of(x), (of_x | of_g | of_weight | of_dx) % ACCESS
    held, added, count = _kept(where, rows, columns, places, kind, len(statistics) == 1)
    parts, of_parts = None, 0
    if wants_weight or wants_bias:
        parts = new((wants_weight + wants_bias, count, columns), statistics.dtype)
        of_parts = address(parts)
    if held is not None:
        arrays = (x, g, weight, statistics, dx, parts)
        addresses = (of_x, of_g, of_weight, address(statistics), of_dx, of_parts)
        held(arrays, addresses, wants_weight, wants_bias, rows, columns)
    else:
        _long_gradients((rows, columns), x, g, weight, statistics, dx, parts, wanted)
    if parts is None:
        return dx, None, None
    dweight, of_dweight, dbias, of_dbias = None, 0, None, 0
    if wants_weight:
        dweight = new((columns,), kind)
        of_dweight = address(dweight)
    if wants_bias:
        dbias = new((columns,), kind)
        of_dbias = address(dbias)
    added((parts, dweight, dbias), (of_parts, of_dweight, of_dbias), count, columns)
    return dx, dweight, dbias


@functools.lru_cache(maxsize=1024)
def _kept(
    where: device, rows: int, columns: int, places: int, kind: Any, rms: bool
) -> tuple[Launch | None, Launch, int]:
    """What computes rows that registers hold, None where they are longer; what adds up sums of
    columns, and how many of them.
    """
    d = from_numpy_dtype(kind)
    group = _columns_kept(columns, width_of(columns, (places,), d.itemsize), d.itemsize)
    first, parts = None, min(rows, CHUNKS)
    if group is not None:
        blocks = _busy(where, group, rows)
        parts = blocks * (group.threads // group.lanes if group.lanes else 1)
        kernel = backward_held_kernel.instance(group, T=d, R=d.compute, RMS=rms)
        first = Launch(kernel, where, (blocks, 1, 1), (group.threads, 1, 1))
    add = parts_kernel.instance(T=d, R=d.compute)
    threads = WARP * min(power_of_two(-(-parts // 4)), 16)
    return first, Launch(add, where, (-(-columns // WARP), 1, 1), (threads, 1, 1)), parts


def _long_gradients(
    shape: tuple[int, int],
    x: Any,
    g: Any,
    weight: Any,
    statistics: Any,
    dx: Any,
    parts: Any,
    wanted: Wanted,
) -> None:
    """Of rows too long for registers: one kernel for the rows, one for the columns."""
    (rows, columns), d = shape, from_numpy_dtype(x.dtype)
    template: dict[str, Any] = {"T": d, "R": d.compute, "RMS": len(statistics) == 1}
    if dx is not None:
        width = _width_alike(x.itemsize, x, g, dx)
        arguments = (x, g, weight, statistics, dx, columns)
        backward_walked_kernel(rows, arguments, **template, W=width)
    if parts is not None:
        grid = -(-columns // 256), min(rows, CHUNKS)
        of = (wanted.weight, wanted.bias, rows, columns)
        column_parts_kernel(grid, (x, g, statistics, parts, *of), **template)


def _contiguous(first: Any, second: Any, third: Any) -> tuple[Any, Any, Any]:
    """Arrays, or None, with copies of those that are not row-major."""
    if not (first is None or first.flags.c_contiguous):
        first = row_major(first)
    if not (second is None or second.flags.c_contiguous):
        second = row_major(second)
    if not (third is None or third.flags.c_contiguous):
        third = row_major(third)
    return first, second, third


def _width_alike(itemsize: int, *arrays: Any) -> int:
    """The widest access, where all arrays lie alike toward it."""
    alike = len({address(a) % ACCESS for a in arrays}) == 1
    return ACCESS // itemsize if alike else 1


@functools.lru_cache(maxsize=1024)
def _columns_kept(columns: int, width: int, itemsize: int) -> Group | None:
    """Threads that keep sums of their columns from row to row; a whole warp at least."""
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


def _busy(where: device, group: Group, rows: int) -> int:
    """Blocks enough for every multiprocessor, and no more than there are rows for."""
    processors = launcher_of(where).processors
    return min(group.blocks(rows), processors * max(1024 // group.threads, 1))


# --- NumPy: chunks of rows, and how the calls on them are made ------------------------------------


@normalized.on_meta
def _normalized_shape(
    x: Any, weight: Any, bias: Any, eps: float, rms: bool, columns: int | None = None
) -> tuple[Any, Any]:
    kind = from_numpy_dtype(x.dtype).compute.numpy
    rows = prod(x.shape) // (columns or x.shape[-1])
    return empty(x, x.shape), empty(x, (2 - rms, rows, 1), kind)


@gradients.on_meta
def _gradients_shape(
    x: Any,
    g: Any,
    weight: Any,
    statistics: Any,
    wanted: Wanted,
    earlier: Any = None,
    columns: int | None = None,
) -> tuple[Any, Any, Any]:
    row = (columns or x.shape[-1],)
    dx, dweight, dbias = (
        empty(x, shape) if wish else None
        for wish, shape in zip(wanted, (x.shape, row, row), strict=True)
    )
    return dx, dweight, dbias


@normalized.on_host
@quietly
def on_host(
    x: Any, weight: Any, bias: Any, eps: float, rms: bool, columns: int | None = None
) -> tuple[Any, Any]:
    kind = from_numpy_dtype(x.dtype).compute.numpy
    y = pool.empty(x.shape, x.dtype)
    x, weight, bias = _rows(x, columns), _flat(weight), _flat(bias)
    statistics = np.empty((2 - rms, len(x), 1), kind)
    how = _Forward(eps, rms, weight is not None, bias is not None)
    made = [_rows(y, columns), None if rms else statistics[0], statistics[-1]]
    _over_rows(_normalize, how, kind, [x], made, [weight, bias], 0)
    return y, statistics


@gradients.on_host
@quietly
def gradients_on_host(
    x: Any,
    g: Any,
    weight: Any,
    statistics: Any,
    wanted: Wanted,
    earlier: Any = None,
    columns: int | None = None,
) -> tuple[Any, Any, Any]:
    rms, kind = len(statistics) == 1, statistics.dtype
    dx = pool.empty(x.shape, x.dtype) if wanted.x else None
    x, g, earlier, to = [_rows(a, columns) for a in (x, g, earlier, dx)]
    weight = _flat(weight)
    how = _Backward(rms, weight is not None, earlier is not None, wanted)
    read = [x, g, None if rms else statistics[0], statistics[-1], earlier]
    sums = _over_rows(_differentiate, how, kind, read, [to], [weight], 2)
    totals = [
        sum([s[0] for s in parts[1:]], parts[0][0]) if parts else np.zeros(x.shape[1], kind)
        for parts in (list(zip(*sums)) or [(), ()])
    ]
    dweight, dbias = (
        one.astype(x.dtype, copy=False) if wish else None for one, wish in zip(totals, wanted[1:])
    )
    return dx, dweight, dbias


def _rows(array: Any, columns: int | None) -> Any:
    """An array, or None, in two dimensions."""
    if array is None or (array.ndim == 2 and columns in (None, array.shape[1])):
        return array
    return array.reshape(-1, columns or array.shape[-1])


def _flat(array: Any) -> Any:
    return array if array is None or array.ndim == 1 else array.reshape(-1)


class _Forward(NamedTuple):
    """What the calls of `_normalize` depend on, beside the length of rows."""

    eps: float
    rms: bool
    weight: bool
    bias: bool


class _Backward(NamedTuple):
    """What the calls of `_differentiate` depend on, beside the length of rows."""

    rms: bool
    weight: bool
    earlier: bool
    wanted: Wanted


def _over_rows(
    text: Callable[..., None],
    how: _Forward | _Backward,
    kind: Any,
    read: list[Any],
    written: list[Any],
    along: list[Any],
    sums: int,
) -> list[list[Any]]:
    """Make a text's calls on all rows; chunk by chunk what they added up, in so many vectors.

    Arrays may be None where ``how`` says that they are not used. Threads take chunks; of those of
    another type than ``kind``, or with other strides than rows, there are copies.
    """
    rows, columns = read[0].shape
    # a recording made as calls of NumPy has the bits of calls that are made at once, but is slower
    recorded = columns <= LONG and (rows > ROWS or loops.available())
    chunk = max(CHUNK // columns // ROWS, 1) * ROWS if recorded else max(CHUNK // columns, 1)
    vectors = [_vector(a, columns, kind, ROWS if recorded else 1) for a in along]

    def work(part: slice) -> list[Any]:
        rowwise: list[Any] = []  # the first stands for what is not there
        for a in read:
            rowwise.append(rowwise[0] if a is None else np.ascontiguousarray(a[part], kind))
        for a in written:  # in place, but for those of another type
            made = rowwise[0] if a is None else a[part]
            rowwise.append(made if made.dtype == kind else pool.empty(made.shape, kind))
        added = [np.zeros((1, columns), kind) for _ in range(sums)] if sums else []
        if recorded:
            _run_recorded(text, how, kind, rowwise, [*vectors, *added])
        else:
            text(Immediate((), kind), [*rowwise, *vectors, *added], how)
        for a, result in zip(written, rowwise[len(read) :], strict=True):
            if a is not None and result.dtype != a.dtype:
                a[part] = result
        return added

    if 0 < rows <= chunk and min(rows, ROWS) * columns <= UNSHARED:
        return [work(slice(0, rows))]  # BLAS gives no part of so little to another thread
    return each(slices(rows, chunk), work)


def _vector(a: Any, columns: int, kind: Any, rows: int) -> Any:
    """A vector of a row's length as rows that are the same; calls that are made spread one."""
    if rows == 1:
        return None if a is None else a.astype(kind, copy=False)[None]
    result = np.empty((rows, columns), kind)
    if a is not None:
        result[:] = a
    return result


def _run_recorded(
    text: Callable[..., None], how: Any, kind: Any, rowwise: list[Any], others: list[Any]
) -> None:
    """A few rows at a time, which stay in the L1 cache."""
    rows, columns = rowwise[0].shape
    whole = rows // ROWS * ROWS
    fixed = [*map(loops.address, others)]
    for start, many, repeats in ((0, ROWS, whole // ROWS), (whole, rows - whole, 1)):
        if many and repeats:
            widths, places = [], []
            for a in rowwise:
                widths.append(a.shape[1])
                places.append(loops.address(a) + start * a.strides[0])
            sizes = columns, (*widths,), (*map(len, others),)
            calls = _recorded(text, how, np.dtype(kind).char, many, *sizes)
            calls.run([*places, *fixed], repeats)


@functools.lru_cache(maxsize=128)
def _recorded(
    text: Callable[..., None],
    how: Any,
    kind: str,
    rows: int,
    columns: int,
    widths: tuple[int, ...],
    depths: tuple[int, ...],
) -> Recording:
    """Of so many rows; ``depths`` are the rows of what is not moved on."""
    calls = Recording(kind)
    item = calls.kind.itemsize
    operands = [calls.operand((rows, n), (n * item, item), rows * n * item) for n in widths]
    operands += [calls.operand((min(n, rows), columns), (columns * item, item)) for n in depths]
    text(calls, operands, how)
    return calls


# --- NumPy: what is computed of some rows ---------------------------------------------------------


def _normalize(calls: Any, operands: Sequence[Any], how: _Forward) -> None:
    x, y, mean, rstd, weight, bias = operands
    rows, columns = x.shape
    squares = calls.scratch(rows, columns)
    centered = x
    if not how.rms:
        centered = y
        _means(calls, x, mean)
        calls.rows(np.subtract, x, mean, centered)
    _mean_products(calls, centered, centered, squares, rstd)
    calls(np.add, rstd, calls.constant(how.eps), rstd)
    calls(np.sqrt, rstd, rstd)
    calls(np.divide, calls.constant(1), rstd, rstd)
    calls.rows(np.multiply, centered, rstd, y)
    if how.weight:
        calls(np.multiply, y, weight, y)
    if how.bias:
        calls(np.add, y, bias, y)


def _differentiate(calls: Any, operands: Sequence[Any], how: _Backward) -> None:
    x, g, mean, rstd, earlier, dx, weight, dweight, dbias = operands
    rows, columns = x.shape
    t = calls.scratch(rows, columns)
    along, middle = calls.scratch(rows, 1), calls.scratch(rows, 1)
    part = calls.scratch(1, columns)
    centered, h = x, g
    if not how.rms:
        centered = calls.scratch(rows, columns)
        calls.rows(np.subtract, x, mean, centered)
    if how.wanted.bias:
        calls.matmul(calls.constant(np.ones((1, rows))), g, part)
        calls(np.add, dbias, part, dbias)
    if how.wanted.weight:
        calls(np.multiply, g, centered, t)
        calls.matmul(rstd.T, t, part)
        calls(np.add, dweight, part, dweight)
    if how.wanted.x:
        if how.weight:
            h = calls.scratch(rows, columns)
            calls(np.multiply, g, weight, h)
        _mean_products(calls, h, centered, t, along)
        calls(np.multiply, along, rstd, along)
        calls(np.multiply, along, rstd, along)
        calls.rows(np.multiply, centered, along, t)
        if not how.rms:
            _means(calls, h, middle)
            calls.rows(np.add, t, middle, t)
        calls(np.subtract, h, t, t)
        calls.rows(np.multiply, t, rstd, t if how.earlier else dx)
        if how.earlier:
            calls(np.add, earlier, t, dx)


def _means(calls: Any, x: Any, out: Any) -> None:
    """The mean of each row; long ones are added in pairs, since sums in order lose digits."""
    columns = x.shape[1]
    if columns > LONG:
        np.add.reduce(x, 1, out=out, keepdims=True)
        np.divide(out, columns, out)
    else:
        calls.matmul(x, calls.constant(_share(columns, calls.kind)), out)


def _mean_products(calls: Any, a: Any, b: Any, room: Any, out: Any) -> None:
    """The mean of each row of products; parts of long rows are added in float64."""
    columns = a.shape[1]
    if columns > LONG:
        cuts = slices(columns, LONG)
        sums = np.sum([np.vecdot(a[:, cut], b[:, cut]) for cut in cuts], 0, np.float64)
        np.divide(sums, columns, out[:, 0], casting="unsafe")
    else:
        calls(np.multiply, a, b, room)
        _means(calls, room, out)


@functools.lru_cache(maxsize=16)
def _share(columns: int, kind: Any) -> Any:
    return np.full((columns, 1), 1 / columns, kind)


# --- what programs launch -------------------------------------------------------------------------


def _instances() -> list[tuple[Kernel, dict[str, Any]]]:
    instances: list[tuple[Kernel, dict[str, Any]]] = []
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
            access = width_of(columns, (), d.itemsize)
            for kernel, group in (
                (held_kernel, held(columns, full, d.itemsize)),
                (backward_held_kernel, _columns_kept(columns, access, d.itemsize)),
            ):
                if group is not None:
                    width, lanes, items, _ = group
                    template = {**kinds, "W": width, "LANES": lanes, "ITEMS": items}
                    instances.append((kernel.of(lanes), template))
        instances += [(k, {**kinds, "W": full}) for k in (walked_kernel, backward_walked_kernel)]
        instances.append((column_parts_kernel, kinds))
        if not rms:
            instances.append((parts_kernel, {"T": d, "R": d.compute}))
    return instances


INSTANCES = _instances()
