"""Layer normalisation and root mean square normalisation of rows, and their gradients.

``y = (x - mean) rstd w + b``, where mean is 0 for root mean squares. On a GPU one kernel forward;
backward one that makes the gradient of x and gathers those of weight and bias on the way, and a
small one that adds up what the blocks gathered. Sums have a fixed order.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from lucid_gpu.devices import backend_of_array
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
from lucid_gpu.launch import Kernel
from lucid_gpu.launch.function import device_of
from lucid_gpu.launch.launchers import launcher_of

__all__ = ["Statistics", "Wanted", "gradients", "normalised"]

_FILE = "layer_norm.cu"
_GIVEN = "const T* x, const T* weight, const T* bias, T* y, R* means, R* rstds, "
_STATISTICS = "const R* means, const R* rstds, "
_PARTS = "R* weight_parts, R* bias_parts, long long rows, int columns"
_HELD = "T, R, W, LANES, ITEMS, RMS"
KEPT = 8  # elements of a row whose sums a thread keeps; twice as many in long rows
SUMMERS = 512  # threads of a block that keeps sums, at most
CHUNKS = 64  # of the rows, where columns are summed apart

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
    """Rows, shape (rows, columns), normalised by CUDA C; weight and bias may be None."""
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


def gradients(
    x: Any, g: Any, weight: Any, known: Statistics, wanted: Wanted
) -> tuple[Any, Any, Any]:
    """The gradients of rows, weight and bias, those that are wanted, by CUDA C."""
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
