"""Copies that bring elements into another order in memory."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from lucid_gpu.core.layout import strides_of_view
from lucid_gpu.devices import on_gpu_of, owners
from lucid_gpu.devices.reordering import fill

__all__ = [
    "duplicate", "laid_in", "laid_out", "part_of", "reshaped", "row_major",
    "unspread", "write",
]  # fmt: skip

LINE = 64  # bytes of a cache line
ALIASED = 1024  # steps of so many bytes, and multiples, meet in few places of the L1 cache


def write(out: Any, source: Any) -> None:
    """``out[...] = source``, of one shape.

    NumPy walks in the order of ``out``. Where the source's elements then lie far apart by a power
    of two, each of its cache lines is gone before its next element is read, unless no more lines
    are read at a time than fit beside one another: as many as elements fill one line.

    Where they overlap, the source is as it was before.
    """
    owner = owners[type(out)]
    if owner.records:
        owner.call("a copy", write, out, source)
        return
    if (
        type(out) is np.ndarray
        and (out.base is not None or source.base is not None or out is source)
        and np.may_share_memory(out, source)
    ):
        source = source.copy()  # NumPy's own way is wrong for some vectors, and strips are
    strip = LINE // source.itemsize
    if (
        isinstance(source, np.ndarray)
        and source.ndim > 1
        and source.shape[-1] > strip > 1
        and source.strides[-1] % ALIASED == 0 != source.strides[-1]
    ):
        for start in range(0, source.shape[-1], strip):
            out[..., start : start + strip] = source[..., start : start + strip]
    elif isinstance(out, np.ndarray):
        out[...] = source
    else:
        fill(out, source)


def laid_out(array: Any, strides: tuple[int, ...]) -> Any:
    """A copy, of NumPy or CuPy, with these strides in bytes, which are multiples of an item."""
    owner = owners[type(array)]
    return owner.call("a copy", _laid_out, owner.xp, array, strides)


def row_major(array: Any) -> Any:
    """The elements in row-major order: the array itself, or a copy."""
    if array.flags.c_contiguous:
        return array
    copy = np.ascontiguousarray if type(array) is np.ndarray else _in_a_row
    return owners[type(array)].call("a copy", copy, array)


def _in_a_row(array: Any) -> Any:
    owner = owners[type(array)]
    with on_gpu_of(owner.device_of(array)):
        copy = owner.new(array.shape, array.dtype)
        write(copy, array)
    return copy


def reshaped(array: Any, shape: Sequence[int]) -> Any:
    """The elements in another shape, none of it -1: a view where the layout allows it."""
    moves = not (isinstance(array, np.ndarray) or array.flags.c_contiguous)
    if moves and strides_of_view(array.shape, array.strides, shape, array.itemsize) is None:
        array = row_major(array)
    return array.reshape(shape)


@functools.lru_cache(maxsize=1 << 10)
def inverse(order: tuple[int, ...]) -> tuple[int, ...]:
    """Return the permutation that undoes another."""
    return tuple(sorted(range(len(order)), key=order.__getitem__))


def laid_in(array: Any, order: Sequence[int]) -> Any:
    """The elements with the dimensions in this order in memory: the array itself, or a copy."""
    turned = array.transpose(order)
    if turned.flags.c_contiguous:
        return array
    return row_major(turned).transpose(inverse(tuple(order)))


def as_laid(row: Any, shape: Sequence[int], order: Sequence[int] | None) -> Any:
    """A row of elements as an array whose dimensions lie in this order; None is row-major."""
    if order is None:
        return row.reshape(shape)
    return row.reshape([shape[i] for i in order]).transpose(inverse(tuple(order)))


def part_of(
    memory: Any, shape: tuple[int, ...], kind: Any, offset: int, strides: tuple[int, ...]
) -> Any:
    """An array in a row of memory, from a byte on, with strides in bytes."""
    if type(memory) is np.ndarray:
        return np.ndarray(shape, kind, memory, offset, strides)
    steps = zip(shape, strides, strict=True)
    end = offset if 0 in shape else offset + kind.itemsize + sum([(n - 1) * s for n, s in steps])
    return strided(memory.view("uint8")[offset:end].view(kind), shape, strides)


def strided(array: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    """Return a view of elements within an array, from the first on, with strides in bytes."""
    if type(array) is np.ndarray and array.flags.forc:  # a buffer: that is ten times as fast
        return np.ndarray(shape, array.dtype, array, 0, strides)
    return owners[type(array)].xp.lib.stride_tricks.as_strided(array, shape, strides)


def where_cut(part: Any, array: Any, index: tuple[Any, ...]) -> Any:
    """Return ``array[index]``, of ints, slices forwards, None and ``...``, given as ``part``.

    One without elements begins where it was cut too, which NumPy forgets and CuPy does not.
    """
    if part.size or not isinstance(part, np.ndarray):
        return part
    named = [p for p in index if type(p) is int or type(p) is slice]
    dim = ahead = 0
    for p in index:
        if p is Ellipsis:
            dim += array.ndim - len(named)
        elif p is not None:
            extent = array.shape[dim]
            start = p.indices(extent)[0] if type(p) is slice else p % extent
            ahead += start * array.strides[dim]
            dim += 1
    return np.asarray(_Ahead(part, array, ahead)).view(part.dtype, type(part))


class _Ahead:
    """An array without elements as NumPy takes it, some bytes after the start of another."""

    def __init__(self, part: Any, array: Any, ahead: int) -> None:
        self.base = array  # `ops.strides` looks for the memory here
        address, read_only = array.__array_interface__["data"]
        begun = {"data": (address + ahead, read_only), "strides": part.strides}
        self.__array_interface__ = part.__array_interface__ | begun


def _copied(array: Any) -> Any:
    return array.copy()


def duplicate(array: Any) -> Any:
    """A copy with the same strides: programs that read the array know them."""
    step = array.itemsize
    if array.flags.c_contiguous or not array.size or any(s % step for s in array.strides):
        return owners[type(array)].call("a copy", _copied, array)
    return laid_out(array, array.strides)


def _laid_out(xp: Any, array: Any, strides: tuple[int, ...]) -> Any:
    step = array.itemsize
    reach = [(n - 1) * s // step for n, s in zip(array.shape, strides, strict=True)]
    low, high = sum(min(r, 0) for r in reach), sum(max(r, 0) for r in reach)
    memory = xp.empty(high - low + 1, array.dtype)
    copy = xp.lib.stride_tricks.as_strided(memory[-low:], array.shape, strides)
    write(copy, array)
    return copy


def unspread(array: Any) -> Any:
    """One of each line along which an array was expanded."""
    if 0 not in array.strides:
        return array
    return array[tuple([slice(None) if step else slice(0, 1) for step in array.strides])]
