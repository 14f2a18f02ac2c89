"""Softmax and its logarithm along an axis, and their gradients from the result.

On a GPU one kernel each way: what fits is kept in registers between the passes over it, so that
every element is read once and written once.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from lucid_gpu.device import device
from lucid_gpu.devices import backend_of_array
from lucid_gpu.devices.blocks import BLOCK, each
from lucid_gpu.devices.copies import row_major
from lucid_gpu.devices.pool import pool
from lucid_gpu.devices.scratch import memory_of_thread
from lucid_gpu.devices.threads import quietly
from lucid_gpu.dtypes import bfloat16, float16, float32, float64, from_numpy_dtype
from lucid_gpu.kernels.dispatch import by_device
from lucid_gpu.kernels.rows import (
    ACCESS,
    LONGEST,
    WARP,
    Grouped,
    Lines,
    counted,
    grouped,
    held,
    lines_along,
    power_of_two,
    width_of,
)
from lucid_gpu.kernels.windows import empty
from lucid_gpu.launch import Kernel
from lucid_gpu.launch.kernel import Launch

__all__ = ["backward", "forward"]

WALKERS = 512  # threads of a block that walks a row, or works on lines


class _Ways(NamedTuple):
    """One computation on rows that are held, on longer ones, and on lines."""

    held: Grouped
    walked: Kernel
    columns: Kernel
    arrays: int  # that are held


def _ways(name: str, arrays: str, count: int) -> _Ways:
    def kernel(kind: str, more: str, template: str) -> Kernel:
        return Kernel("softmax.cu", f"{name}_{kind}", arrays + more, template, WALKERS)

    lines = "long long lines, int columns, long long inner"
    return _Ways(
        grouped(
            "softmax.cu",
            f"{name}_held",
            arrays + "long long rows, int columns",
            "T, R, W, LANES, ITEMS, LOG",
            1024,
        ),
        kernel("walked", "int columns", "T, R, W, LOG"),
        kernel("columns", lines, "T, R, ITEMS, LOG"),
        count,
    )


_FORWARD = _ways("softmax", "const T* x, T* y, ", 1)
_BACKWARD = _ways("softmax_backward", "const T* y, const T* g, T* dx, ", 2)


@by_device
def forward(x: Any, axis: int, log: bool) -> Any:
    """``exp(x) / sum(exp(x))`` along an axis, or its logarithm, by CUDA C."""
    return _run(_FORWARD, (x,), axis, log)


@by_device
def backward(y: Any, g: Any, axis: int, log: bool) -> Any:
    """What a cotangent of the result ``y`` is before it, by CUDA C."""
    return _run(_BACKWARD, (y, g), axis, log)


def _run(ways: _Ways, arrays: Sequence[Any], axis: int, log: bool) -> Any:
    backend, length = backend_of_array(arrays[0]), arrays[0].shape[axis]
    assert backend is not None
    if length > LONGEST:  # before there is memory for it
        counted(length)
    address = backend.address
    arrays = [a if a.flags.c_contiguous else row_major(a) for a in arrays]
    first = arrays[0]
    shape, kind = first.shape, first.dtype
    out = backend.new(shape, kind)
    arrays.append(out)
    addresses = list(map(address, arrays))
    places = addresses[0] | addresses[1] | addresses[-1]
    where = backend.device_of(first)
    launch, numbers = _launch(ways, where, shape, axis, places % ACCESS, kind, log)
    if launch is not None:
        launch(arrays, addresses, *numbers)
    elif out.size:  # lines too long for registers
        d = from_numpy_dtype(kind)
        alike = len({a % ACCESS for a in addresses}) == 1
        width = ACCESS // d.itemsize if alike else 1
        rows, columns = numbers
        ways.walked(rows, (*arrays, columns), T=d, R=d.compute, W=width, LOG=log)
    return out


@functools.lru_cache(maxsize=1024)
def _launch(
    ways: _Ways,
    where: device,
    shape: tuple[int, ...],
    axis: int,
    places: int,
    kind: Any,
    log: bool,
) -> tuple[Launch | None, tuple[int, ...]]:
    """The launch for lines along an axis, and its numbers.

    There is none for rows that registers do not hold, and where there are no elements. ``places``
    are the bits that are set in any of the arrays' addresses.
    """
    d, lines = from_numpy_dtype(kind), lines_along(shape, axis)
    _, columns, inner = lines
    kinds = {"T": d, "R": d.compute}
    if not lines.number * columns:
        return None, (lines.outer, columns)
    if inner > 1:
        threads, items = _for_lines(lines, d.itemsize, ways.arrays)
        kernel = ways.columns.instance(**kinds, ITEMS=items, LOG=log)
        grid = -(-lines.number // WARP), 1, 1
        return Launch(kernel, where, grid, (threads, 1, 1)), (lines.number, columns, inner)
    group = held(columns, width_of(columns, (places,), d.itemsize), d.itemsize, ways.arrays)
    if group is None:
        return None, (lines.outer, columns)
    kernel = ways.held.instance(group, **kinds, LOG=log)
    launch = Launch(kernel, where, group.grid(lines.outer), (group.threads, 1, 1))
    return launch, (lines.outer, columns)


def _for_lines(lines: Lines, itemsize: int, arrays: int) -> tuple[int, int]:
    """Threads of a block on 32 lines, and the elements of a line that each of them holds (or 0)."""
    most = (16 if itemsize == 8 else 32) // arrays
    warps = min(power_of_two(-(-lines.columns // most)), WALKERS // WARP)
    items = power_of_two(-(-lines.columns // warps))
    return warps * WARP, items if items <= most else 0


# --- NumPy ----------------------------------------------------------------------------------------


@forward.on_meta
def _forward_shape(x: Any, axis: int, log: bool) -> Any:
    return empty(x, x.shape)


@backward.on_meta
def _backward_shape(y: Any, g: Any, axis: int, log: bool) -> Any:
    return empty(y, y.shape)


@forward.on_host
@quietly
def on_host(x: Any, axis: int, log: bool) -> Any:
    """As `softmax`, by NumPy; 16-bit floats are computed in float32."""
    wide = from_numpy_dtype(x.dtype).compute.numpy
    lowest = _lowest(wide)  # -inf - -inf would be NaN

    def work(x: Any, out: Any, along: int) -> None:
        x = x.astype(wide, copy=False)
        y = _room_for(out, wide)
        top = np.maximum.reduce(x, along, keepdims=True, initial=-np.inf)
        np.subtract(x, np.maximum(top, lowest), y)
        total = np.add.reduce(np.exp(y) if log else np.exp(y, y), along, keepdims=True)
        if log:
            np.subtract(y, np.log(total), out, casting="unsafe")
        else:
            np.divide(y, total, out, casting="unsafe")

    return _of_lines((x,), axis, work)


@backward.on_host
@quietly
def gradient_on_host(y: Any, g: Any, axis: int, log: bool) -> Any:
    """As `gradient`, by NumPy."""
    wide = from_numpy_dtype(y.dtype).compute.numpy

    def work(y: Any, g: Any, out: Any, along: int) -> None:
        y, g = y.astype(wide, copy=False), g.astype(wide, copy=False)
        dx = _room_for(out, wide)
        if log:
            np.multiply(np.exp(y, dx), np.add.reduce(g, along, keepdims=True), dx)
            np.subtract(g, dx, out, casting="unsafe")
        else:
            total = np.add.reduce(np.multiply(y, g, dx), along, keepdims=True)
            np.multiply(np.subtract(g, total, dx), y, out, casting="unsafe")

    return _of_lines((y, g), axis, work)


@functools.lru_cache
def _lowest(wide: Any) -> Any:
    return np.finfo(wide).min


def _room_for(out: Any, wide: Any) -> Any:
    """Memory of a wide type to compute in: the result's own, where its lines lie together."""
    if out.dtype == wide and out.flags.c_contiguous:
        return out
    return memory_of_thread.views([from_numpy_dtype(wide)], out.shape)[0]


def _of_lines(arrays: Sequence[Any], axis: int, work: Callable[..., None]) -> Any:
    """What ``work`` writes for lines along an axis, which it gets in blocks that stay in cache."""
    shape = arrays[0].shape
    out = pool.empty(shape, arrays[0].dtype)
    if out.size <= BLOCK:
        work(*arrays, out, axis)
        return out
    columns, inner = shape[axis], math.prod(shape[axis:][1:])
    form = (-1, columns, inner) if inner > 1 else (-1, columns)
    laid = [*[np.ascontiguousarray(a).reshape(form) for a in arrays], out.reshape(form)]
    width = max(BLOCK // columns, 1)  # lines of a block
    step = max(width // inner, 1)
    cuts = [
        (slice(row, row + step), slice(None), slice(start, start + width))[: len(form)]
        for row in range(0, len(laid[0]), step)
        for start in range(0, inner, width)
    ]
    each(cuts, lambda cut: work(*[a[cut] for a in laid], 1))
    return out


# --- what programs launch -------------------------------------------------------------------------

_KINDS = (
    # type, logarithm, columns
    (float32, False, (10, 1024, 4096, 32768)),
    (float32, True, (1000, 8192)),
    (bfloat16, False, (64, 1024, 32768)),
    (float16, True, (4096,)),
    (float64, False, (1000,)),
)


def _instances(ways: _Ways) -> list[tuple[Kernel, dict[str, Any]]]:
    instances: list[tuple[Kernel, dict[str, Any]]] = []
    for d, log, lengths in _KINDS:
        kinds: dict[str, Any] = {"T": d, "R": d.compute, "LOG": log}
        for columns in lengths:
            group = held(columns, width_of(columns, (), d.itemsize), d.itemsize, ways.arrays)
            if group is not None:
                width, lanes, items, _ = group
                template = {**kinds, "W": width, "LANES": lanes, "ITEMS": items}
                instances.append((ways.held.of(lanes), template))
        instances.append((ways.walked, {**kinds, "W": ACCESS // d.itemsize}))
        for columns in (3, 1000) if d is float32 else (200,):
            _, items = _for_lines(Lines(1, columns, 64), d.itemsize, ways.arrays)
            instances.append((ways.columns, {**kinds, "ITEMS": items}))
    return instances


INSTANCES = [*_instances(_FORWARD), *_instances(_BACKWARD)]
