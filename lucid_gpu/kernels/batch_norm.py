"""Mean and variance of each channel, and running figures that follow them: CUDA C, NumPy twin."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from lucid_gpu import dtypes as dt
from lucid_gpu.device import device
from lucid_gpu.devices import backend
from lucid_gpu.devices.blocks import each
from lucid_gpu.devices.threads import run_quietly
from lucid_gpu.dtypes import dtype
from lucid_gpu.kernels.vector_width import BYTES, vector_width
from lucid_gpu.kernels.windows import memory_order
from lucid_gpu.launch import Kernel, runs_cuda_c

__all__ = ["INSTANCES", "statistics"]

THREADS = 256
BLOCKS = 1024  # that keep a large GPU busy; not read from the device: it decides rounding
SMALL = 32  # elements of a channel's row below which columns are neighbours instead
LEAST = 4096  # elements a block takes at least, before there are more blocks
CACHED = 1 << 17  # elements NumPy has in cache at a time
FEW = 1 << 12  # elements up to which fewer NumPy calls are faster than faster ones

_rows = Kernel(
    "batch_norm.cu", "batch_norm_rows",
    "const T* x, A* parts, int channels, long long rows, long long inner, long long rows_each, "
    "long long inner_each, int lanes",
    template="T, A, WIDTH", threads=THREADS,
)  # fmt: skip
_columns = Kernel(
    "batch_norm.cu", "batch_norm_columns",
    "const T* x, A* parts, long long rows, long long columns, int inner, long long rows_each, "
    "int lanes",
    template="T, A, WIDTH", threads=THREADS,
)  # fmt: skip
_finish = Kernel(
    "batch_norm.cu", "batch_norm_finish",
    "const T* x, const A* parts, A* mean, A* variance, M* running_mean, V* running_variance, "
    "int channels, long long inner, int shares, int width, A momentum",
    template="T, A, M, V", threads=THREADS,
)  # fmt: skip


def statistics(
    x: Any, where: device, running_mean: Any = None, running_variance: Any = None,
    momentum: float = 0.0,
) -> tuple[Any, Any]:  # fmt: skip
    """Mean and variance (divided by the count) of each channel.

    Parameters
    ----------
    x : array of floats, shape (n, c) or (n, c, *), at least two elements a channel
    where : device
    running_mean, running_variance : array of shape (c,), optional
        Changed in place: ``(1 - momentum) * running + momentum * batch``, with the variance
        divided by the count less 1.
    momentum : float

    Returns
    -------
    mean, variance : arrays of shape (c,)
        In the type x is computed in: float32 for 16-bit floats.
    """
    d = dt.from_numpy_dtype(x.dtype)
    if runs_cuda_c(where):
        return _launch(x, d, where, running_mean, running_variance, momentum)
    channels = x.shape[1]
    count = x.size // channels
    flat = _channel_rows(x)
    if flat is None:
        mean, variance = run_quietly(_moments, x.reshape(len(x), channels, -1), d.compute.numpy)
    else:
        mean, variance = _moments_of_rows(flat, d.compute.numpy)
    for running, now in (
        (running_mean, mean), (running_variance, variance * (count / (count - 1)))
    ):  # fmt: skip
        if running is not None:
            running[...] = running.astype(now.dtype) * (1 - momentum) + now * momentum
    return mean, variance


def _launch(
    x: Any, d: dtype, where: device, running_mean: Any, running_variance: Any, momentum: float
) -> tuple[Any, Any]:
    xp, channels = backend(where).xp, x.shape[1]
    rows, inner = len(x), prod(x.shape[2:])
    last = xp.moveaxis(x, 1, -1)
    if last.flags.c_contiguous:  # channels last
        x, rows, inner = last, rows * inner, 1
    x = xp.ascontiguousarray(x)
    if inner < SMALL:
        parts, shares, width = *_column_parts(x, d, rows, channels, inner, where), inner
    else:
        parts, shares, width = *_row_parts(x, d, rows, channels, inner, where), 1
    mean, variance = [backend(where).empty((channels,), d.compute, where) for _ in "12"]
    types = {
        name: d.compute if a is None else dt.from_numpy_dtype(a.dtype)
        for name, a in (("M", running_mean), ("V", running_variance))
    }
    _finish(
        channels,
        (x, parts, mean, variance, running_mean, running_variance, channels, inner, shares, width,
         momentum),
        threads=32 if shares * width <= 64 else THREADS, reads=parts.nbytes + channels * d.itemsize,
        T=d, A=d.compute, M=types["M"], V=types["V"],
    )  # fmt: skip
    return mean, variance


def _row_parts(
    x: Any, d: dtype, rows: int, channels: int, inner: int, where: device
) -> tuple[Any, int]:
    width = vector_width(inner, where, x)
    packs = inner // width
    blocks = min(BLOCKS // channels, rows * inner // LEAST)
    rows_each = -(-rows // max(min(blocks, rows), 1))
    inner_each = -(-packs // max(blocks // rows, 1)) * width
    grid = (channels, -(-rows // rows_each), -(-inner // inner_each))
    shares = grid[1] * grid[2]
    parts = backend(where).empty((shares, channels, 3), d.compute, where)
    lanes = min(1 << (packs - 1).bit_length(), THREADS)
    _rows(
        grid, (x, parts, channels, rows, inner, rows_each, inner_each, lanes),
        T=d, A=d.compute, WIDTH=width,
    )  # fmt: skip
    return parts, shares


def _column_parts(
    x: Any, d: dtype, rows: int, channels: int, inner: int, where: device
) -> tuple[Any, int]:
    columns = channels * inner
    width = vector_width(columns, where, x)
    packs = columns // width
    lanes = min(1 << (packs - 1).bit_length(), 32)
    across = -(-packs // lanes)
    shares = max(min(BLOCKS // across, rows * lanes * width // LEAST), 1)
    rows_each = -(-rows // shares)
    shares = -(-rows // rows_each)
    parts = backend(where).empty((shares, columns, 3), d.compute, where)
    _columns(
        (across, shares), (x, parts, rows, columns, inner, rows_each, lanes),
        T=d, A=d.compute, WIDTH=width,
    )  # fmt: skip
    return parts, shares


# --- on NumPy -------------------------------------------------------------------------------------


def _moments(x: Any, wide: Any) -> tuple[Any, Any]:
    """Block by block in cache: each block's own mean first, then what lies around it."""
    step = max(CACHED // max(x[0].size, 1), 1)
    return _together(
        [_of_block(x[i : i + step].astype(wide, copy=False)) for i in range(0, len(x), step)], wide
    )


def _together(parts: list[tuple[int, Any, Any]], wide: Any) -> tuple[Any, Any]:
    """Mean and variance of blocks of which count, mean and spread are known."""
    if len(parts) == 1:
        count, mean, spread = parts[0]
        return mean, spread / count
    counts, means, spreads = [np.array(part) for part in zip(*parts, strict=True)]
    weights = (counts / counts.sum())[:, None]
    mean = (weights * means).sum(0)
    variance = (spreads.sum(0, dtype=np.float64) / counts.sum()) + (
        weights * np.square(means - mean)
    ).sum(0)
    return mean.astype(wide), variance.astype(wide)


def _channel_rows(x: Any) -> Any:
    """A view (channels, rest) of an array whose channels lie in memory one after another."""
    laid = x.transpose(1, *[axis for axis in memory_order(x) if axis != 1])
    return laid.reshape(len(laid), -1) if laid.flags.c_contiguous else None


def _moments_of_rows(x: Any, wide: Any) -> tuple[Any, Any]:
    """As `_moments`, for (channels, rest); threads take channels in turn."""
    channels, count = x.shape
    mean, variance = np.empty(channels, wide), np.empty(channels, wide)
    step = max(CACHED // count, 1)

    def work(first: int) -> None:
        part = slice(first, first + step)
        pieces = [x[part, i : i + CACHED] for i in range(0, count, CACHED)]
        found = [_of_rows(piece.astype(wide, copy=False)) for piece in pieces]
        mean[part], variance[part] = _together(found, wide)

    each(range(0, channels, step), work)
    return mean, variance


def _of_rows(x: Any) -> tuple[int, Any, Any]:
    """Count, mean and spread of each row."""
    mean = x.mean(1)
    apart = x - mean[:, None]
    return x.shape[1], mean, (apart[:, None] @ apart[:, :, None])[:, 0, 0]


def _of_block(x: Any) -> tuple[int, Any, Any]:
    """Count, mean and spread of each channel of (rows, channels, inner)."""
    rows, _, inner = x.shape
    if inner < 8 or x.size <= FEW:
        mean = x.mean((0, 2))
        apart = x - mean[:, None]
        return rows * inner, mean, np.einsum("rci,rci->c", apart, apart)
    means = x.mean(2)
    apart = x - means[:, :, None]
    mean = means.mean(0)
    spread = np.einsum("rci,rci->c", apart, apart)
    return rows * inner, mean, spread + inner * np.square(means - mean).sum(0)


def _instances() -> list[tuple[Kernel, dict[str, Any]]]:
    found: list[tuple[Kernel, dict[str, Any]]] = []
    for d in (dt.float32, dt.float64, dt.float16, dt.bfloat16):
        for width in (1, BYTES // d.itemsize):
            way: dict[str, Any] = {"T": d, "A": d.compute, "WIDTH": width}
            found += [(_rows, way), (_columns, way)]
        figures = dict.fromkeys((d, d.compute))
        found += [(_finish, {"T": d, "A": d.compute, "M": f, "V": f}) for f in figures]
    return found


INSTANCES = _instances()
STACK = {"batch_norm_rows": 0, "batch_norm_columns": 0, "batch_norm_finish": 0}  # nothing spills
