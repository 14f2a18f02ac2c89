"""Arrays joined along a dimension: CUDA C and the NumPy twin."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

from lucid_gpu.core.layout import collapse
from lucid_gpu.device import device
from lucid_gpu.devices import backend
from lucid_gpu.devices.copies import inverse, row_major, write
from lucid_gpu.kernels.dispatch import by_device
from lucid_gpu.kernels.vector_width import BYTES
from lucid_gpu.launch import Kernel
from lucid_gpu.launch.rows import LONGEST, Row, filled, table_of

__all__ = ["INSTANCES", "concatenate"]

THREADS = 256
ASKED = 64  # bytes that a thread asks for before it writes
TABLES = {columns: table_of(columns, 3) for columns in (2, 4)}  # 2 where a run is all of a part

_kernels = {
    columns: Kernel(
        "concatenate.cu", "concatenate",
        f"{table.type} parts, unsigned char* y, long long total, int abreast",
        template="BYTES, COLUMNS, ROWS, REPEAT", threads=THREADS, forms={"parts": table.form},
    )
    for columns, table in TABLES.items()
}  # fmt: skip


@by_device
def concatenate(arrays: Sequence[Any], dim: int, order: Sequence[int] | None, where: device) -> Any:
    """Arrays of one type, joined along a dimension.

    Parameters
    ----------
    arrays : sequence of arrays, any strides
        A part whose elements are not contiguous from ``dim`` on is copied, where the parts lie one
        after the other to its place, else first.
    dim : int, not negative
    order : sequence of int or None
        The dimensions as they lie in the result, outermost first; None is row-major.
    where : device

    Returns
    -------
    array
    """
    if order is not None:
        turned = [a.transpose(order) for a in arrays]
        return concatenate(turned, order.index(dim), None, where).transpose(inverse(tuple(order)))
    there, first = backend(where), arrays[0]
    shape = list(first.shape)
    shape[dim] = sum([a.shape[dim] for a in arrays])
    y = there.new(shape, first.dtype)
    outer = prod(shape[:dim])
    if outer == 1 and not all(a.flags.c_contiguous for a in arrays):
        at = 0
        for a in arrays:  # each is reordered into its place
            place = (*[slice(None)] * dim, slice(at, at + a.shape[dim]))
            write(y[place], a)
            at += a.shape[dim]
    elif y.size:
        parts = [_runs(a, dim, outer) for a in arrays if a.size]
        _join(parts, outer, y.reshape(-1).view("u1"), y.nbytes // outer, there.address)
    return y


def _runs(array: Any, dim: int, number: int) -> tuple[Any, int, int]:
    """An array, copied where it has to be, the bytes of a run and those from run to run."""
    length = array.nbytes // number
    if array.flags.c_contiguous:
        return array, length, length
    shape, strides = array.shape, array.strides
    inner, (walk,) = collapse(shape[dim:], [strides[dim:]])
    outer, (steps,) = collapse(shape[:dim], [strides[:dim]])
    if (not inner or walk == (array.itemsize,)) and len(outer) < 2 and min((0, *steps)) == 0:
        return array, length, steps[0] if steps else length
    return row_major(array), length, length


def _join(
    parts: Sequence[tuple[Any, int, int]], outer: int, y: Any, total: int, address: Any
) -> None:
    """Launch as often as a table is filled; ``total`` are the bytes of the result's runs."""
    bits, at = address(y) | BYTES | (total if outer > 1 else 0), 0
    found = []
    for array, length, pitch in parts:
        place = address(array)
        found.append((place, at, length, pitch))
        bits |= place | at | length | (pitch if outer > 1 else 0)
        at += length
    width = bits & -bits  # bytes of a word
    total //= width
    columns = 2 if outer == 1 else 4
    rows: list[Row] = []
    for place, at, length, pitch in found:
        if outer == 1:
            rows.append((length // width, place, at // width))
        else:
            rows += _rows(place, at // width, length // width, pitch, outer, total, width)
    table, template = TABLES[columns], _template(columns, width)
    tile = THREADS * template["REPEAT"]
    abreast = len({-(-row[0] // tile) for row in rows}) == 1
    for argument, blocks, words in filled(table, rows, tile, (width, 1)):
        _kernels[columns](
            blocks, (argument, y, total, abreast), reads=words * width, writes=words * width,
            **template,
        )  # fmt: skip


def _template(columns: int, width: int) -> dict[str, int]:
    repeat = min(ASKED // width, 8)
    rows = TABLES[columns].rows
    return {"BYTES": width, "COLUMNS": columns, "ROWS": rows, "REPEAT": repeat}


def _rows(
    place: int, start: int, length: int, pitch: int, outer: int, total: int, width: int
) -> Iterator[Row]:
    """A part, or pieces of it that an int counts: runs, or parts of runs."""
    many, most = max(LONGEST // length, 1), min(length, LONGEST)
    for first in range(0, outer, many):
        for at in range(0, length, most):
            runs, words = min(many, outer - first), min(most, length - at)
            shift = (words - 1).bit_length()
            multiplier = (((1 << shift) - words) << 32) // words + 1
            yield (
                runs * words, place + first * pitch + at * width, start + first * total + at,
                pitch // width, words << 32 | multiplier,
            )  # fmt: skip


INSTANCES = [
    (kernel, _template(columns, 1 << power))
    for columns, kernel in _kernels.items()
    for power in range(5)
]
