"""Mean and variance of each channel, and running figures that follow them: CUDA C, NumPy twin."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

import numpy as np

from lucid_gpu import dtypes as dt
from lucid_gpu.device import device
from lucid_gpu.devices import backend
from lucid_gpu.devices.blocks import each, slices
from lucid_gpu.devices.copies import row_major
from lucid_gpu.devices.threads import run_quietly
from lucid_gpu.dtypes import dtype
from lucid_gpu.kernels.dispatch import by_device
from lucid_gpu.kernels.vector_width import BYTES, vector_width
from lucid_gpu.kernels.windows import memory_order
from lucid_gpu.launch import Kernel

__all__ = ["INSTANCES", "statistics"]

THREADS = 256
BLOCKS = 1024  # that keep a large GPU busy; not read from the device: it decides rounding
SMALL = 32  # elements of a channel's row below which columns are neighbors instead
LEAST = 4096  # elements a block takes at least, before there are more blocks
CACHED = 1 << 17  # elements NumPy has in cache at a time
FEW = 1 << 12  # elements up to which a thread is not worth waking
LINE = 8  # elements from which on a call of BLAS a line is cheaper than one loop over all

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


@by_device
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
    xp, channels = backend(where).xp, x.shape[1]
    rows, inner = len(x), prod(x.shape[2:])
    last = xp.moveaxis(x, 1, -1)
    if last.flags.c_contiguous:  # channels last
        x, rows, inner = last, rows * inner, 1
    x = row_major(x)
    if inner < SMALL:
        parts, shares, width = *_column_parts(x, d, rows, channels, inner, where), inner
    else:
        parts, shares, width = *_row_parts(x, d, rows, channels, inner, where), 1
    new, wide = backend(where).new, d.compute.numpy
    mean, variance = new((channels,), wide), new((channels,), wide)
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
    parts = backend(where).new((shares, channels, 3), d.compute.numpy)
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
    parts = backend(where).new((shares, columns, 3), d.compute.numpy)
    _columns(
        (across, shares), (x, parts, rows, columns, inner, rows_each, lanes),
        T=d, A=d.compute, WIDTH=width,
    )  # fmt: skip
    return parts, shares


# --- on NumPy -------------------------------------------------------------------------------------


@statistics.on_meta
def _statistics_shape(
    x: Any, where: device, running_mean: Any = None, running_variance: Any = None,
    momentum: float = 0.0,
) -> tuple[Any, Any]:  # fmt: skip
    new, wide = backend(where).new, dt.from_numpy_dtype(x.dtype).compute.numpy
    return new(x.shape[1:2], wide), new(x.shape[1:2], wide)


@statistics.on_host
def _statistics(
    x: Any, where: device, running_mean: Any = None, running_variance: Any = None,
    momentum: float = 0.0,
) -> tuple[Any, Any]:  # fmt: skip
    channels = x.shape[1]
    count = x.size // channels
    mean, variance = _moments(_by_channel(x), dt.from_numpy_dtype(x.dtype).compute.numpy)
    for running, now in (
        (running_mean, mean), (running_variance, variance * (count / (count - 1)))
    ):  # fmt: skip
        if running is not None:
            running[...] = running.astype(now.dtype) * (1 - momentum) + now * momentum
    return mean, variance


def _moments(x: Any, wide: Any) -> tuple[Any, Any]:
    """Mean and variance of each channel of (rows, channels, inner).

    Threads take pieces that stay in cache; of each the mean first, then what lies around it.
    """
    rows, channels, inner = x.shape
    if x.size <= FEW:
        mean, spread = run_quietly(_of_piece, x, wide)
        return mean, spread / (rows * inner)
    long = min(inner, CACHED)
    broad = min(channels, max(CACHED // long, 1))
    high = min(rows, max(CACHED // (broad * long), 1))
    cuts = [*product(slices(rows, high), slices(inner, long))]
    means, spreads = [np.empty((len(cuts), channels), wide) for _ in "12"]

    def work(piece: tuple[int, slice]) -> None:
        number, some = piece
        high, long = cuts[number]
        means[number, some], spreads[number, some] = _of_piece(x[high, some, long], wide)

    each([*product(range(len(cuts)), slices(channels, broad))], work)
    if len(cuts) == 1:
        return means[0], spreads[0] / (rows * inner)
    extents = [len(range(rows)[high]) * len(range(inner)[long]) for high, long in cuts]
    weights = (np.array(extents) / (rows * inner))[:, None]
    mean = (weights * means).sum(0)
    variance = spreads.sum(0, dtype=np.float64) / (rows * inner)
    variance += (weights * np.square(means - mean)).sum(0)
    return mean.astype(wide), variance.astype(wide)


def _of_piece(x: Any, wide: Any) -> tuple[Any, Any]:
    """Mean and sum of squares around it, of each channel of (rows, channels, inner)."""
    rows, channels, inner = x.shape
    x = x.astype(wide, copy=False)
    if inner < LINE:
        sums = np.ones(rows, wide) @ x.reshape(rows, -1)
        mean = sums.reshape(channels, inner).sum(1) / (rows * inner)
        apart = x - mean[:, None]
        return mean, np.einsum("rci,rci->c", apart, apart)
    mean = np.add.reduce(x, (0, 2)) / wide.type(rows * inner)
    apart = x - mean[:, None]
    return mean, np.add.reduce(np.vecdot(apart, apart), 0)


def _by_channel(x: Any) -> Any:
    """A view (rows, channels, inner), with lines or else rows as long as memory has them."""
    channels = x.shape[1]
    if x.ndim > 2:
        order = [axis for axis in memory_order(x) if axis != 1]
        laid = x.transpose(1, *order)
        if laid.flags.c_contiguous:  # one channel after the other
            return laid.reshape(1, channels, -1)
        last = x.transpose(*order, 1)
        if last.flags.c_contiguous:
            return last.reshape(-1, channels, 1)
    return x.reshape(len(x), channels, -1)


def _instances() -> list[tuple[Kernel, dict[str, Any]]]:
    instances: list[tuple[Kernel, dict[str, Any]]] = []
    for d in (dt.float32, dt.float64, dt.float16, dt.bfloat16):
        for width in (1, BYTES // d.itemsize):
            way: dict[str, Any] = {"T": d, "A": d.compute, "WIDTH": width}
            instances += [(_rows, way), (_columns, way)]
        figures = dict.fromkeys((d, d.compute))
        instances += [(_finish, {"T": d, "A": d.compute, "M": f, "V": f}) for f in figures]
    return instances


INSTANCES = _instances()
STACK = {"batch_norm_rows": 0, "batch_norm_columns": 0, "batch_norm_finish": 0}  # nothing spills
