"""Cross entropy of scores with a class number a row: losses, and the gradient of the scores.

With the weights ``w`` of the classes, smoothing ``s`` and ``c`` classes, a row's loss is

    (1 - s) w[t] (lse(x) - x[t])  +  s/c sum_k w[k] (lse(x) - x[k])

and its gradient ``(a + b sum(w)) softmax(x) - a onehot(t) - b w`` with ``a = (1 - s) w[t]`` and
``b = s/c``; both are 0 where the target is to be ignored. The mean divides by the sum of ``w[t]``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from lucid_gpu.device import device
from lucid_gpu.devices import backend_of_array
from lucid_gpu.devices.blocks import each
from lucid_gpu.devices.copies import row_major
from lucid_gpu.devices.device_errors import DeviceError
from lucid_gpu.devices.pool import pool
from lucid_gpu.devices.threads import run_quietly
from lucid_gpu.dtypes import bfloat16, float16, float32, float64, from_numpy_dtype, int32
from lucid_gpu.kernels.dispatch import by_device
from lucid_gpu.kernels.rows import (
    ACCESS,
    WARP,
    Grouped,
    Lines,
    grouped,
    lines_along,
    power_of_two,
    walkers,
)
from lucid_gpu.kernels.windows import empty
from lucid_gpu.launch import Kernel
from lucid_gpu.launch.kernel import Launch

__all__ = ["Settings", "fault", "gradient", "losses", "out_of_bounds"]


class Settings(NamedTuple):
    """What `losses` shall compute.

    Attributes
    ----------
    weight : array of shape (c,), or None
    ignore : int
        Targets that count nothing.
    smoothing : float
    reduction : {"mean", "sum", "none"}
    masked : bool
        Take it that some targets are to be ignored: for a graph, where later ones may be.
    differentiated : bool
        The gradient of a reduced loss will be wanted: CUDA C computes it at once where that is
        faster and loses nothing.
    """

    weight: Any
    ignore: int
    smoothing: float
    reduction: str
    masked: bool = False
    differentiated: bool = False


@functools.lru_cache(maxsize=1 << 10)
def lines_of(shape: tuple[int, ...]) -> Lines:
    """Return the rows of scores of shape (c,), (n, c) or (n, c, d1, ...)."""
    return lines_along(shape, min(len(shape) - 1, 1))


def _no_class(target: int, classes: int, _: int) -> IndexError:
    return IndexError(
        f"Target {target} is out of bounds: the input of a cross_entropy has {classes} classes. A "
        "kernel found it, so this line only waited for the result; the loss is NaN"
    )


fault = DeviceError(_no_class)


# --- CUDA C ---------------------------------------------------------------------------------------

LONG = 1024  # threads that walk a long row twice: fewer rows are under way, which caches have then
MANY = 64  # rows that occupy a GPU, a block each; of fewer, several blocks write a long gradient
_FILE = "cross_entropy.cu"
_GIVEN = (
    "const T* x, const long long* target, const T* weight, const R* count, T* losses, R* lses, "
    "T* dx, R* parts, int* ticket, "
)
_KEPT = (
    "const T* x, const R* lses, const long long* target, const T* weight, const R* weights, "
    "const T* g, const R* count, T* dx, R factor, "
)
_HOW = "long long ignore, R smoothing, long long fault"
_EACH = "long long ignore, R smoothing, bool each"
_ROWS, _LINES = "long long rows, int columns, ", "long long lines, int columns, long long inner, "


def _kernel(name: str, declaration: str, template: str, threads: int = 512) -> Kernel:
    return Kernel(_FILE, f"cross_entropy_{name}", declaration, template, threads)


def _grouped(name: str, declaration: str, template: str, threads: int = 512) -> Grouped:
    return grouped(_FILE, f"cross_entropy_{name}", declaration, template, threads)


rows_kernel = _grouped("rows", _GIVEN + _ROWS + _HOW, "T, R, W, LANES, SMOOTH, GRADIENT", LONG)
columns_kernel = _kernel("columns", _GIVEN + _LINES + _HOW, "T, R, SMOOTH, GRADIENT")
count_kernel = _kernel(
    "count",
    "const long long* target, const T* weight, R* count, int* ticket, long long rows, "
    "int columns, long long ignore",
    "T, R",
    1024,
)
backward_rows_kernel = _grouped(
    "backward_rows", _KEPT + _ROWS + _EACH + ", int span", "T, R, W, LANES"
)
backward_columns_kernel = _kernel("backward_columns", _KEPT + _LINES + _EACH, "T, R")


class Noted(NamedTuple):
    """What `gradient` reads beside scores and targets.

    Attributes
    ----------
    lse : array or None
        One number a row, float32 at least; None with ``ready``.
    count : array of one number, or None
        What the mean divided by.
    ready : array or None
        The gradient for the cotangent 1.
    """

    lse: Any
    count: Any
    ready: Any = None


@by_device
def losses(x: Any, target: Any, how: Settings) -> tuple[Any, Any]:
    """The loss, reduced as it shall be, of x's type, and what `gradient` needs.

    A target that is no class raises IndexError, on a GPU where the host next waits for it: then it
    is reported through `fault`.
    """
    backend = backend_of_array(x)
    assert backend is not None
    x, target, weight = _prepared(x, target, how.weight)
    new, address, where, kind = backend.new, backend.address, backend.device_of(x), x.dtype
    each, smooth, of_x = how.reduction == "none", how.smoothing > 0, address(x)
    at_once = how.differentiated and not each and of_x % ACCESS == 0 and at_once_of(x.shape, kind)
    before, first, lines, wide = _forward(where, x.shape, kind, smooth, at_once)
    lse = None if at_once else new(target.shape, wide)
    dx = new(x.shape, kind) if at_once else None
    loss = new(target.shape if each else (), kind)
    if first is None:
        if not each:
            loss.fill(0 if how.reduction == "sum" else np.nan)
        return loss, Noted(lse, None)
    count = parts = ticket = None
    of_target, of_weight = address(target), 0 if weight is None else address(weight)
    of_count = of_parts = of_ticket = 0
    if not each:
        parts, ticket = new(first.grid[:1], wide), new((), int32.numpy)
        of_parts, of_ticket = address(parts), address(ticket)
        if how.reduction == "mean":
            count = new((), wide)
            of_count = address(count)
        addresses: tuple[int, ...] = of_target, of_weight, of_count, of_ticket
        before((target, weight, count, ticket), addresses, *lines[:2], how.ignore)
    addresses = of_x, of_target, of_weight, of_count, address(loss)
    addresses += 0 if lse is None else address(lse), 0 if dx is None else address(dx)
    arrays = x, target, weight, count, loss, lse, dx, parts, ticket
    settings = how.ignore, how.smoothing, fault.address(backend)
    first(arrays, (*addresses, of_parts, of_ticket), *lines, *settings)
    if backend.type == "cpu":
        fault.check()
    return loss, Noted(lse, count, dx)


@functools.lru_cache(maxsize=1024)
def at_once_of(shape: tuple[int, ...], kind: Any) -> bool:
    """Whether the gradient for a cotangent of 1 is to be computed with the losses.

    float16 has no room for it: a scaled loss is for that.
    """
    d, lines = from_numpy_dtype(kind), lines_of(shape)
    short = lines.inner > 1 or lines.columns <= _span(lines.columns, ACCESS // d.itemsize)
    some = lines.number * lines.columns > 0
    return some and d is not float16 and (short or lines.number >= MANY)


@functools.lru_cache(maxsize=1024)
def _forward(
    where: device, shape: tuple[int, ...], kind: Any, smooth: bool, at_once: bool
) -> tuple[Launch, Launch | None, tuple[int, ...], Any]:
    """The launch that comes before a reduced loss; that for the losses, None where there are no
    rows, and the lines that it takes; and the type of sums.
    """
    d, lines = from_numpy_dtype(kind), lines_of(shape)
    wide, rows, first = d.compute, lines.number, None
    numbers: tuple[int, ...] = rows, lines.columns
    kinds: dict[str, Any] = {"T": d, "R": wide}
    ways = {"SMOOTH": smooth, "GRADIENT": at_once}
    threads = min(max(power_of_two(rows), WARP), 1024)
    before = Launch(count_kernel.instance(**kinds), where, (1, 1, 1), (threads, 1, 1))
    if lines.inner > 1:
        numbers = (*numbers, lines.inner)
    if lines.inner > 1 and rows:
        block = _line_threads(lines.columns), 1, 1
        kernel = columns_kernel.instance(**kinds, **ways)
        first = Launch(kernel, where, (-(-rows // WARP), 1, 1), block)
    elif rows:
        width = ACCESS // d.itemsize
        lanes, threads = walkers(lines.columns, width)
        if at_once and not lanes:
            threads = min(max(power_of_two(lines.columns // (8 * width)), threads), LONG)
        grid = -(-rows // (threads // lanes)) if lanes else rows
        kernel = rows_kernel.of(lanes).instance(**kinds, W=width, LANES=lanes, **ways)
        first = Launch(kernel, where, (grid, 1, 1), (threads, 1, 1))
    return before, first, numbers, wide.numpy


@by_device
def gradient(x: Any, target: Any, kept: Any, g: Any, how: Settings) -> Any:
    """The gradient of the scores, of x's type; ``g`` is a number, or an array of x's type."""
    backend = backend_of_array(x)
    assert backend is not None
    x, target, weight = _prepared(x, target, how.weight)
    new, address, where, kind = backend.new, backend.address, backend.device_of(x), x.dtype
    dx = new(x.shape, kind)
    if not dx.size:
        return dx
    of_x, of_dx = address(x), address(dx)
    alike = of_x % ACCESS == of_dx % ACCESS
    launch, lines, span = _backward(where, x.shape, kind, alike)
    weights, of_weight, of_weights = None, 0, 0
    if weight is not None:
        of_weight = address(weight)
        if how.smoothing:
            wide = from_numpy_dtype(kind).compute.numpy
            weights = weight.sum(dtype=wide, keepdims=True)
            of_weights = address(weights)
    factor, of_g = 1.0, 0
    if isinstance(g, (int, float)):
        factor, g = float(g), None
    else:
        g = row_major(g)
        of_g = address(g)
    lse, count, _ = kept
    of_count = 0 if count is None else address(count)
    arrays = (x, lse, target, weight, weights, g, count, dx)
    of_kept = (of_x, address(lse), address(target), of_weight, of_weights)
    settings = how.ignore, how.smoothing, how.reduction == "none", *span
    launch(arrays, (*of_kept, of_g, of_count, of_dx), factor, *lines, *settings)
    return dx


@functools.lru_cache(maxsize=1024)
def _backward(
    where: device, shape: tuple[int, ...], kind: Any, alike: bool
) -> tuple[Launch, tuple[int, ...], tuple[int, ...]]:
    """The launch for the gradient, the lines that it takes, and the columns that a block takes.

    ``alike`` is whether scores and gradient are aligned alike.
    """
    d, lines = from_numpy_dtype(kind), lines_of(shape)
    rows, columns = lines.number, lines.columns
    if lines.inner > 1:
        block = _line_threads(columns), 1, 1
        kernel = backward_columns_kernel.instance(T=d, R=d.compute)
        launch = Launch(kernel, where, (-(-rows // WARP), 1, 1), block)
        return launch, (rows, columns, lines.inner), ()
    width = ACCESS // d.itemsize if alike else 1
    lanes, threads = walkers(columns, width)
    span = _span(columns, width)
    grid = (-(-rows // (threads // lanes)) if lanes else rows, -(-columns // span), 1)
    kernel = backward_rows_kernel.of(lanes).instance(T=d, R=d.compute, W=width, LANES=lanes)
    return Launch(kernel, where, grid, (threads, 1, 1)), (rows, columns), (span,)


def _prepared(x: Any, target: Any, weight: Any) -> tuple[Any, Any, Any]:
    """Arrays as the kernels take them."""
    if weight is not None:
        weight = row_major(weight.astype(x.dtype, copy=False))
    if target.dtype != np.int64:
        target = target.astype(np.int64)
    if not x.flags.c_contiguous:
        x = row_major(x)
    if not target.flags.c_contiguous:
        target = row_major(target)
    return x, target, weight


def _span(columns: int, width: int) -> int:
    """The columns of a row that a block takes where it writes the gradient alone."""
    lanes, threads = walkers(columns, width)
    return columns if lanes else threads * width * 8


def _line_threads(classes: int) -> int:
    """Threads of a block on 32 lines: eight classes each."""
    return WARP * min(power_of_two(-(-classes // 8)), 16)


# --- NumPy: exponentials are kept where scores are few, else blocks stay in cache ----------------

BLOCK = 1 << 18  # scores that a thread takes in turn; fewer are kept
FEW = 64  # classes up to which a copy with the classes in front is reduced faster
_sum: Any = np.add.reduce  # newer stubs of NumPy want an argument that it does not
_largest: Any = np.maximum.reduce


def out_of_bounds(target: int, classes: int, ignore: int) -> IndexError:
    """The error of a target that is not a class."""
    return IndexError(
        f"Target {target} is out of bounds: the input has {classes} classes, and ignore_index is "
        f"{ignore}"
    )


class Kept(NamedTuple):
    """What `gradient` reads of what `losses` computed.

    Attributes
    ----------
    lse : array, shape (outer, inner)
    places : array of lse's shape
        Of each row's target among the scores.
    own : array of lse's shape, or None
        ``a`` of this module's formula, where it is not 1 everywhere.
    ignored : array of bool, or None
    count : number
        What a mean divides by.
    scored : Scored or None
        The exponentials of all scores, where they are few.
    ready : None
        No gradient is computed with the losses.
    """

    lse: Any
    places: Any
    own: Any
    ignored: Any
    count: Any
    scored: Scored | None
    ready: None = None


class Scored(NamedTuple):
    """``exp(x - shift)`` of some rows, (c, outer, inner) or (outer, c, inner), and its sums.

    ``axis`` is that of the classes.
    """

    exponentials: Any
    sums: Any
    axis: int


@losses.on_meta
def _losses_shape(x: Any, target: Any, how: Settings) -> tuple[Any, Any]:
    lse = empty(x, target.shape, from_numpy_dtype(x.dtype).compute.numpy)
    return empty(x, target.shape if how.reduction == "none" else ()), Noted(lse, None)


@gradient.on_meta
def _gradient_shape(x: Any, target: Any, kept: Any, g: Any, how: Settings) -> Any:
    return empty(x, x.shape)


@losses.on_host
def _losses(x: Any, target: Any, how: Settings) -> tuple[Any, Any]:
    value, kept = run_quietly(on_host, x, target, how)
    if how.reduction == "none":
        value = value.reshape(target.shape)
    return value if value.dtype == x.dtype else run_quietly(value.astype, x.dtype), kept


@gradient.on_host
def _gradient(x: Any, target: Any, kept: Any, g: Any, how: Settings) -> Any:
    return run_quietly(gradient_on_host, x, kept, g, how).astype(x.dtype, copy=False)


def on_host(x: Any, target: Any, how: Settings) -> tuple[Any, Kept]:
    """The loss, reduced as it shall be, in float32 at least; and what its gradient needs."""
    outer, classes, inner = extents = lines_of(x.shape)
    target, ignored = _classes_of(target.reshape(outer, inner), classes, how)
    places = target * inner + _first_offsets(outer, classes, inner)
    each = x.ravel().take(places)  # for now the targets' scores
    rows, scored, own = x.reshape(extents), None, None
    if x.size <= BLOCK:
        scored, lse, spread = _score(rows, how)
    else:
        lse, spread = _score_by_blocks(rows, how)
    each = lse - each
    if how.weight is not None or how.smoothing or ignored is not None:
        own = _own(target, ignored, how, lse.dtype)
        each *= own
        each += spread
        if ignored is not None:
            each[ignored] = 0
    count = 1
    if how.reduction == "mean":
        count = each.size if own is None else _own(target, ignored, how._replace(smoothing=0)).sum()
    if how.reduction != "none":
        each = _sum(each, None) / lse.dtype.type(count)
    return each, Kept(lse, places, own, ignored, count, scored)


def gradient_on_host(x: Any, kept: Kept, g: Any, how: Settings) -> Any:
    """The gradient of the scores for the cotangent ``g`` of the loss: a number or an array."""
    lse, places, own, ignored, count, scored, _ = kept
    extents, wide = lines_of(x.shape), lse.dtype
    scale = g.astype(wide).reshape(lse.shape) if np.ndim(g) else wide.type(g) / wide.type(count)
    share = total = scale if own is None else scale * own
    spread = None
    if how.smoothing:
        spread = _evenly(how, extents.columns, wide)
        total = share + scale * spread.sum()
    out = pool.empty(extents, wide)
    if scored is not None:
        _spread_out(scored, total, out)
    else:
        rows = x.reshape(extents)

        def block(of: Block) -> None:
            scores, axis = _lined_up(rows[of.scores])
            shift = np.expand_dims(lse[of.rows], axis)
            exponentials = np.subtract(scores, shift)
            np.exp(exponentials, exponentials)
            part = total[of.rows] if np.ndim(total) else total
            _spread_out(Scored(exponentials, _ONE, axis), part, out[of.scores])

        _over_blocks(extents, block)
    out.reshape(-1)[places] -= share
    if spread is not None:
        out -= (np.expand_dims(scale, 1) if np.ndim(scale) else scale) * spread[:, None]
    if ignored is not None:
        out.swapaxes(0, 1)[:, ignored] = 0
    return out.reshape(x.shape)


def _score(rows: Any, how: Settings) -> tuple[Scored, Any, Any]:
    """Exponentials, ``lse`` and the losses that smoothing spreads over all classes (or 0)."""
    scores, axis = _lined_up(rows)
    top = np.maximum.reduce(scores, axis, keepdims=True)
    exponentials = np.subtract(scores, top)
    np.exp(exponentials, exponentials)
    sums = _sum(exponentials, axis, keepdims=True)
    top += np.log(sums)
    shape = (rows.shape[0], rows.shape[2])
    spread: Any = 0
    if how.smoothing:
        evenly = _evenly(how, scores.shape[axis], scores.dtype)
        shaped = evenly.reshape((-1, 1, 1) if axis == 0 else (-1, 1))
        spread = _sum((top - scores) * shaped, axis).reshape(shape)
    return Scored(exponentials, sums, axis), top.reshape(shape), spread


def _score_by_blocks(rows: Any, how: Settings) -> tuple[Any, Any]:
    shape = (rows.shape[0], rows.shape[2])
    wide = np.float64 if rows.dtype == np.float64 else np.float32
    lse, spread = np.empty(shape, wide), np.empty(shape, wide)

    def block(of: Block) -> None:
        _, lse[of.rows], spread[of.rows] = _score(rows[of.scores], how)

    _over_blocks(Lines(*rows.shape), block)
    return lse, spread


def _spread_out(scored: Scored, total: Any, out: Any) -> None:
    """``total * softmax`` into ``out``, shaped (outer, c, inner)."""
    exponentials, sums, axis = scored
    factor = np.expand_dims(total, axis) if np.ndim(total) else total
    np.multiply(exponentials, factor / sums, out.swapaxes(0, 1) if axis == 0 else out)


class Block(NamedTuple):
    """Some rows: where they stand among all rows, and where their scores do."""

    rows: tuple[slice, slice]
    scores: tuple[slice, slice, slice]


def _over_blocks(extents: Lines, work: Callable[[Block], None]) -> None:
    """Call ``work`` for blocks of whole rows that stay in cache, on the team of threads."""
    outer, classes, inner = extents
    columns = min(inner, max(BLOCK // max(classes, 1), 1))
    lines = max(BLOCK // max(classes * columns, 1), 1)
    blocks = [
        Block((i, j), (i, slice(None), j))
        for i in [slice(k, k + lines) for k in range(0, outer, lines)]
        for j in [slice(k, k + columns) for k in range(0, inner, columns)]
    ]
    each(blocks, work)


_ONE = np.float32(1)


@functools.lru_cache(maxsize=64)
def _first_offsets(outer: int, classes: int, inner: int) -> Any:
    """The place of each row's first score."""
    return np.arange(outer)[:, None] * (classes * inner) + np.arange(inner)


def _lined_up(x: Any) -> tuple[Any, int]:
    """The scores, 16-bit floats widened, with the classes where they are reduced fast; their axis.

    NumPy's reductions run along the last axis one row at a time; with few classes a copy that has
    them in front costs less.
    """
    wide = np.float64 if x.dtype == np.float64 else np.float32
    if x.shape[2] > 1 or x.shape[1] <= FEW:
        return np.array(x.swapaxes(0, 1), wide, order="C"), 0
    return x.astype(wide, copy=False), 1


def _classes_of(target: Any, classes: int, how: Settings) -> tuple[Any, Any]:
    """Targets with 0 for those to be ignored, and which those are (None: none of them)."""
    if target.dtype != np.int64:
        target = target.astype(np.int64)
    ignore = how.ignore
    # one look finds those too large, and as unsigned numbers negative ones are
    if not how.masked and (
        not target.size
        or (_largest(target.view(np.uint64), None) < classes and not 0 <= ignore < classes)
    ):
        return target, None
    ignored = target == ignore
    wrong = ((target < 0) | (target >= classes)) & ~ignored
    if wrong.any():
        raise out_of_bounds(int(target[wrong][0]), classes, ignore)
    return np.where(ignored, 0, target), ignored


def _own(target: Any, ignored: Any, how: Settings, d: Any = np.float64) -> Any:
    """How much a row counts for its own class: ``(1 - s) w[t]``, 0 where it is to be ignored."""
    own = np.full(target.shape, 1 - how.smoothing, d)
    if how.weight is not None:
        own *= how.weight.take(target)
    if ignored is not None:
        own[ignored] = 0
    return own


def _evenly(how: Settings, classes: int, d: Any) -> Any:
    """``s/c w``: how much a row counts for each class."""
    spread = np.full(classes, how.smoothing / classes, d)
    return spread if how.weight is None else spread * how.weight.astype(d)


# --- what programs launch -------------------------------------------------------------------------


_KINDS = (
    # type, smoothing, classes
    (float32, False, (10, 1000, 50257)),
    (float32, True, (1000,)),
    (bfloat16, False, (100, 128256)),
    (float16, True, (50257,)),
    (float64, False, (10,)),
)


def _instances() -> list[tuple[Kernel, dict[str, Any]]]:
    instances: list[tuple[Kernel, dict[str, Any]]] = []
    for d, smooth, lengths in _KINDS:
        kinds: dict[str, Any] = {"T": d, "R": d.compute}
        width = ACCESS // d.itemsize
        ways = [{"SMOOTH": smooth, "GRADIENT": at_once} for at_once in (False, True)]
        for classes in lengths:
            lanes, _ = walkers(classes, width)
            some = {**kinds, "W": width, "LANES": lanes}
            instances += [(rows_kernel.of(lanes), some | way) for way in ways]
            instances.append((backward_rows_kernel.of(lanes), some))
        if not smooth:
            instances += [(count_kernel, kinds), (backward_columns_kernel, kinds)]
        instances += [(columns_kernel, kinds | way) for way in ways]
    return instances


INSTANCES = _instances()
