"""Cross entropy of scores with a class number a row: losses, and the gradient of the scores.

With the weights ``w`` of the classes, smoothing ``s`` and ``c`` classes, a row's loss is

    (1 - s) w[t] (lse(x) - x[t])  +  s/c sum_k w[k] (lse(x) - x[k])

and its gradient ``(a + b sum(w)) softmax(x) - a onehot(t) - b w`` with ``a = (1 - s) w[t]`` and
``b = s/c``; both are 0 where the target is to be ignored. The mean divides by the sum of ``w[t]``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from lucid_gpu.devices import backend_of_array
from lucid_gpu.devices.device_errors import DeviceError
from lucid_gpu.dtypes import bfloat16, float16, float32, float64, from_numpy_dtype
from lucid_gpu.kernels.rows import (
    ACCESS,
    WARP,
    Grouped,
    Lines,
    address,
    grouped,
    lines_along,
    power_of_two,
    walkers,
)
from lucid_gpu.launch import Kernel
from lucid_gpu.launch.function import device_of

__all__ = ["Noted", "Settings", "fault", "gradient", "losses"]


class Settings(NamedTuple):
    """What `losses` shall compute.

    Attributes
    ----------
    weight : array of shape (c,), or None
    ignore : int
        Targets that count nothing.
    smoothing : float
    reduction : {"mean", "sum", "none"}
    """

    weight: Any
    ignore: int
    smoothing: float
    reduction: str


def lines_of(shape: tuple[int, ...]) -> Lines:
    """The rows of scores of shape (c,), (n, c) or (n, c, d1, ...)."""
    return lines_along(shape, min(len(shape) - 1, 1))


def _no_class(target: int, classes: int, _: int) -> IndexError:
    return IndexError(
        f"Target {target} is out of bounds: the input of a cross_entropy has {classes} classes. A "
        "kernel found it, so this line only waited for the result; the loss is NaN"
    )


fault = DeviceError(_no_class)

# --- CUDA C ---------------------------------------------------------------------------------------

_FILE = "cross_entropy.cu"
_GIVEN = "const T* x, const long long* target, const T* weight, O* losses, R* lses, "
_KEPT = (
    "const T* x, const R* lses, const long long* target, const T* weight, const R* weights, "
    "const T* g, R factor, const R* count, T* dx, "
)
_HOW = "long long ignore, R smoothing, long long fault"
_EACH = "long long ignore, R smoothing, bool each"
_ROWS, _LINES = "long long rows, int columns, ", "long long lines, int columns, long long inner, "


def _kernel(name: str, declaration: str, template: str, threads: int = 512) -> Kernel:
    return Kernel(_FILE, f"cross_entropy_{name}", declaration, template, threads)


def _grouped(name: str, declaration: str, template: str) -> Grouped:
    return grouped(_FILE, f"cross_entropy_{name}", declaration, template, 512)


rows_kernel = _grouped("rows", _GIVEN + _ROWS + _HOW, "T, R, O, W, LANES, SMOOTH")
columns_kernel = _kernel("columns", _GIVEN + _LINES + _HOW, "T, R, O, SMOOTH")
total_kernel = _kernel(
    "total",
    "const R* losses, const long long* target, const T* weight, T* total, R* count, "
    "long long rows, int columns, long long ignore",
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
    lse : array
        One number a row, float32 at least.
    count : array of one number, or None
        What the mean divided by.
    """

    lse: Any
    count: Any


def losses(x: Any, target: Any, how: Settings) -> tuple[Any, Noted]:
    """The loss, reduced as it shall be, of x's type; a wrong target is reported through `fault`."""
    backend = backend_of_array(x)
    assert backend is not None
    d, lines = from_numpy_dtype(x.dtype), lines_of(x.shape)
    x, target, weight = _as_given(backend.xp, x, target, how)
    wide, each = d.compute, how.reduction == "none"
    where = device_of(x)
    lse = backend.empty(target.shape, wide, where)
    losses = backend.empty(target.shape, d if each else wide, where)
    arrays = x, target, weight, losses, lse
    kinds: dict[str, Any] = {
        "T": d,
        "R": wide,
        "O": d if each else wide,
        "SMOOTH": how.smoothing > 0,
    }
    settings = how.ignore, how.smoothing, fault.address(backend)
    rows = lines.number
    if lines.inner > 1:
        apart = (*arrays, rows, lines.columns, lines.inner, *settings)
        columns_kernel(-(-rows // WARP), apart, threads=_line_threads(lines.columns), **kinds)
    elif rows:
        width = ACCESS // d.itemsize
        lanes, threads = walkers(lines.columns, width)
        grid = -(-rows // (threads // lanes)) if lanes else rows
        given = (*arrays, rows, lines.columns, *settings)
        rows_kernel.of(lanes)(grid, given, threads=threads, **kinds, W=width, LANES=lanes)
    if backend.type == "cpu":
        fault.check()
    if each:
        return losses, Noted(lse, None)
    total = backend.empty((), d, where)
    count = backend.empty((), wide, where) if how.reduction == "mean" else None
    summed = losses, target, weight, total, count, rows, lines.columns, how.ignore
    total_kernel(1, summed, T=d, R=wide, threads=min(max(power_of_two(rows), WARP), 1024))
    return total, Noted(lse, count)


def gradient(x: Any, target: Any, noted: Noted, g: Any, how: Settings) -> Any:
    """The gradient of the scores; ``g`` is a number, or an array of x's type."""
    backend = backend_of_array(x)
    assert backend is not None
    d, lines = from_numpy_dtype(x.dtype), lines_of(x.shape)
    x, target, weight = _as_given(backend.xp, x, target, how)
    dx = backend.empty(x.shape, d, device_of(x))
    weights = None
    if weight is not None and how.smoothing:
        weights = weight.sum(dtype=d.compute.numpy, keepdims=True)
    number = isinstance(g, (int, float))
    cotangent = (None, float(g)) if number else (backend.xp.ascontiguousarray(g), 1.0)
    arrays = x, noted.lse, target, weight, weights, *cotangent, noted.count, dx
    settings = how.ignore, how.smoothing, how.reduction == "none"
    rows = lines.number
    if not dx.size:
        return dx
    if lines.inner > 1:
        apart = (*arrays, rows, lines.columns, lines.inner, *settings)
        threads = _line_threads(lines.columns)
        backward_columns_kernel(-(-rows // WARP), apart, threads=threads, T=d, R=d.compute)
        return dx
    alike = address(x) % ACCESS == address(dx) % ACCESS
    width = ACCESS // d.itemsize if alike else 1
    lanes, threads = walkers(lines.columns, width)
    span = lines.columns if lanes else threads * width * 8
    grid = (-(-rows // (threads // lanes)) if lanes else rows, -(-lines.columns // span))
    given = (*arrays, rows, lines.columns, *settings, span)
    backward_rows_kernel.of(lanes)(
        grid, given, threads=threads, T=d, R=d.compute, W=width, LANES=lanes
    )
    return dx


def _as_given(xp: Any, x: Any, target: Any, how: Settings) -> tuple[Any, Any, Any]:
    """Arrays as the kernels take them."""
    weight = how.weight
    if weight is not None:
        weight = xp.ascontiguousarray(weight.astype(x.dtype, copy=False))
    rows = xp.ascontiguousarray(target.astype(np.int64, copy=False)).reshape(target.shape)
    return xp.ascontiguousarray(x).reshape(x.shape), rows, weight


def _line_threads(classes: int) -> int:
    """Threads of a block on 32 lines: eight classes each."""
    return WARP * min(power_of_two(-(-classes // 8)), 16)


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
    found: list[tuple[Kernel, dict[str, Any]]] = []
    for d, smooth, lengths in _KINDS:
        kinds: dict[str, Any] = {"T": d, "R": d.compute}
        width = ACCESS // d.itemsize
        for classes in lengths:
            lanes, _ = walkers(classes, width)
            some = {**kinds, "W": width, "LANES": lanes}
            given = {**kinds, "O": d.compute, "W": width, "LANES": lanes, "SMOOTH": smooth}
            found += [(rows_kernel.of(lanes), given), (backward_rows_kernel.of(lanes), some)]
        if not smooth:
            found += [(total_kernel, kinds), (backward_columns_kernel, kinds)]
        found.append((columns_kernel, {**kinds, "O": d, "SMOOTH": smooth}))
    return found


INSTANCES = _instances()
