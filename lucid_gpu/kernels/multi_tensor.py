"""The norm of many arrays together, and clipping them by it: CUDA C and the NumPy twin.

A fixed small number of launches, however many arrays there are, up to what one table holds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np

from lucid_gpu import dtypes as dt
from lucid_gpu.device import device
from lucid_gpu.devices import backend
from lucid_gpu.dtypes import dtype
from lucid_gpu.kernels.dispatch import by_device
from lucid_gpu.kernels.vector_width import BYTES
from lucid_gpu.launch import Kernel
from lucid_gpu.launch.rows import Row, filled, table_of

__all__ = ["INSTANCES", "clip_to_norm", "total_norm", "unscale"]

THREADS = 256
FINISHING = 1024  # threads of the one block that merges all shares
TILE = 8192  # elements of a block; not read from the device: it decides rounding
PIECE = 1 << 16  # elements NumPy takes at a time: widened, they stay in the cache
KINDS = {1.0: 1, 2.0: 2, math.inf: 4, -math.inf: 5}  # KIND of `multi_tensor.cu`; 3 for other orders

TABLE = table_of(1, 2)
_FORMS = {"rows": TABLE.form}

_norm = Kernel(
    "multi_tensor.cu", "multi_tensor_norm", f"{TABLE.type} rows, A* shares, A order",
    template="T, A, ROWS, WIDTH, TILE, KIND", threads=THREADS, forms=_FORMS,
)  # fmt: skip
_finish = Kernel(
    "multi_tensor.cu", "multi_tensor_norm_finish",
    "const A* shares, int count, A order, R* norm", template="R, A, KIND", threads=FINISHING,
)  # fmt: skip
_clip = Kernel(
    "multi_tensor.cu", "multi_tensor_clip", f"{TABLE.type} rows, const R* norm, A limit",
    template="T, R, A, ROWS, WIDTH, TILE", threads=THREADS, forms=_FORMS,
)  # fmt: skip
_unscale = Kernel(
    "multi_tensor.cu", "multi_tensor_unscale",
    f"{TABLE.type} rows, const float* factor, float* found",
    template="T, A, ROWS, WIDTH, TILE", threads=THREADS, forms=_FORMS,
)  # fmt: skip


@by_device
def total_norm(arrays: Sequence[Any], order: float, to: dtype, where: device) -> Any:
    """The norm of all elements of all arrays.

    Parameters
    ----------
    arrays : sequence of row-major arrays of real floating point types
    order : float, not 0
        Of the norm; may be infinite.
    to : dtype
        Of the result. Sums are kept in float64 where an array has that type, else in float32.
    where : device
        Of the arrays.

    Returns
    -------
    array without dimensions
    """
    new = backend(where).new
    norm = new((), to.numpy)
    wide = _wide([a.dtype for a in arrays])
    launches = [*_launches(arrays, where)]
    shares = new((sum([blocks for *_, blocks, _ in launches]),), wide.numpy)
    kind, power = KINDS.get(order, 3), order if math.isfinite(order) else 0.0
    at = 0
    for d, width, argument, blocks, size in launches:
        _norm(
            blocks, (argument, shares[at : at + blocks], power), reads=size,
            T=d, A=wide, ROWS=TABLE.rows, WIDTH=width, TILE=TILE, KIND=kind,
        )  # fmt: skip
        at += blocks
    _finish(1, (shares, at, power, norm), R=to, A=wide, KIND=kind)
    return norm


@by_device
def clip_to_norm(arrays: Sequence[Any], norm: Any, limit: float, where: device) -> None:
    """Multiply arrays, in place, by ``limit / (norm + 1e-6)`` where that is less than 1.

    Parameters
    ----------
    arrays : sequence of row-major arrays of real floating point types
    norm : array without dimensions, on the same device
    limit : float
    where : device
    """
    of_norm = dt.from_numpy_dtype(norm.dtype)
    for d, width, argument, blocks, size in _launches(arrays, where):
        _clip(
            blocks, (argument, norm, limit), reads=size + norm.nbytes, writes=size,
            T=d, R=of_norm, A=_wide([d.numpy, norm.dtype]), ROWS=TABLE.rows, WIDTH=width, TILE=TILE,
        )  # fmt: skip


@by_device
def unscale(arrays: Sequence[Any], factor: Any, flag: Any, where: device) -> None:
    """Multiply arrays, in place; ``flag`` becomes 1 where an element was infinite or NaN.

    Parameters
    ----------
    arrays : sequence of row-major arrays of real floating point types
    factor, flag : float32 arrays without dimensions, on the same device
    where : device
    """
    for d, width, argument, blocks, size in _launches(arrays, where):
        _unscale(
            blocks, (argument, factor, flag), reads=size + 4, writes=size,
            T=d, A=_wide([d.numpy]), ROWS=TABLE.rows, WIDTH=width, TILE=TILE,
        )  # fmt: skip


def _wide(types: Sequence[Any]) -> dtype:
    return dt.float64 if np.dtype(np.float64) in types else dt.float32


def _launches(
    arrays: Sequence[Any], where: device
) -> Iterator[tuple[dtype, int, list[int], int, int]]:
    """Type, width of accesses, table, blocks and bytes of each launch."""
    address = backend(where).address
    groups: dict[tuple[Any, int], list[Row]] = {}
    for array in arrays:
        start = address(array)
        if array.size:
            width = 1 if start % BYTES else BYTES // array.itemsize
            groups.setdefault((array.dtype, width), []).append((array.size, start))
    for (kind, width), rows in groups.items():
        d, item = dt.from_numpy_dtype(kind), kind.itemsize
        for argument, blocks, count in filled(TABLE, rows, TILE, [item]):
            yield d, width, argument, blocks, count * item


# --- NumPy ----------------------------------------------------------------------------------------


@total_norm.on_meta
def _total_norm_shape(arrays: Sequence[Any], order: float, to: dtype, where: device) -> Any:
    return backend(where).empty((), to, where)


@clip_to_norm.on_meta
def _nothing_clipped(arrays: Sequence[Any], norm: Any, limit: float, where: device) -> None:
    """Nothing is written."""


@unscale.on_meta
def _nothing_unscaled(arrays: Sequence[Any], factor: Any, flag: Any, where: device) -> None:
    """Nothing is written."""


@total_norm.on_host
def _total_norm(arrays: Sequence[Any], order: float, to: dtype, where: device) -> Any:
    norm = backend(where).empty((), to, where)
    norm[...] = _norm_by_numpy(arrays, order)
    return norm


def _norm_by_numpy(arrays: Sequence[Any], order: float) -> Any:
    with np.errstate(all="ignore"):
        parts = [_part(piece, order) for array in arrays for piece in _pieces(array)]
        if math.isinf(order):
            extreme = np.max if order > 0 else np.min
            return extreme(parts, initial=0.0 if order > 0 else math.inf)
        total = np.float64(math.fsum(parts) if all(map(math.isfinite, parts)) else sum(parts))
        return total ** (1 / order)


def _pieces(array: Any) -> Iterable[Any]:
    """Pieces of an array, of float32 or float64."""
    flat = array.reshape(-1)
    if flat.itemsize >= 4 and 0 < flat.size <= PIECE:
        return (flat,)
    pieces = [flat[start : start + PIECE] for start in range(0, flat.size, PIECE)]
    return (piece if piece.itemsize >= 4 else piece.astype(np.float32) for piece in pieces)


def _part(piece: Any, order: float) -> float:
    """A piece's share of the norm."""
    if order == 2:
        return float(piece.dot(piece))
    size = np.abs(piece)
    if math.isinf(order):
        return float(size.max() if order > 0 else size.min())
    return float((size if order == 1 else size**order).sum(dtype=np.float64))


@clip_to_norm.on_host
def _clip_to_norm(arrays: Sequence[Any], norm: Any, limit: float, where: device) -> None:
    factor = limit / (float(norm) + 1e-6)
    if factor >= 1:
        return
    with np.errstate(all="ignore"):
        for array in arrays:
            wide = dt.from_numpy_dtype(array.dtype).compute.numpy
            np.multiply(array, wide.type(factor), out=array, dtype=wide, casting="unsafe")


@unscale.on_host
def _unscale_in_pieces(arrays: Sequence[Any], factor: Any, flag: Any, where: device) -> None:
    by = float(factor)
    for array in arrays:
        wide = dt.from_numpy_dtype(array.dtype).compute.numpy
        with np.errstate(all="ignore"):
            for piece in _pieces(array):
                # a sum is finite unless an element is not, or it overflows
                if not np.isfinite(piece.sum()) and not np.isfinite(piece).all():
                    flag[...] = 1.0
            np.multiply(array, wide.type(by), out=array, dtype=wide, casting="unsafe")


def _instances() -> list[tuple[Kernel, dict[str, Any]]]:
    instances: list[tuple[Kernel, dict[str, Any]]] = []
    for d, wide_access in product((dt.float32, dt.float64, dt.float16, dt.bfloat16), (True, False)):
        width = BYTES // d.itemsize if wide_access else 1
        one: dict[str, Any] = {"T": d, "A": d.compute, "ROWS": TABLE.rows}
        one |= {"WIDTH": width, "TILE": TILE}
        instances += [(_norm, one | {"KIND": kind}) for kind in (1, 2, 3, 4, 5)]
        instances += [(_clip, one | {"R": d}), (_unscale, one)]
    for d, kind in product((dt.float32, dt.float64, dt.float16), (1, 2, 3, 4, 5)):
        instances.append((_finish, {"R": d, "A": d.compute, "KIND": kind}))
    return instances


INSTANCES = _instances()
