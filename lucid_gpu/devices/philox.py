"""Random numbers from a counter: Philox 4x32-10, and how NumPy makes them.

J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw, "Parallel random numbers: as easy as 1, 2, 3",
SC 2011. Ten rounds of a keyed bijection turn the counter (c0, c1, c2, c3) and the key (k0, k1), all
of 32 bits, into four random 32-bit words.

The stream
----------
A draw has a 64-bit ``seed`` and a 64-bit ``offset``. Each element depends only on these and on its
position in row-major order, so that a kernel (`kernels/philox.cuh`) can make any of them, in any
order, and make it again in backward:

- key (low half of seed, high half of seed); counter (low half of j, high half of j, low half of
  offset, high half of offset) for block j;
- *word* i of a draw is lane ``i % 4`` of block ``i // 4``;
- *double word* i is word 2 i (low half) and word 2 i + 1 (high half).

What the distributions make of them, one word an element unless said otherwise:

=========  =========================================================================================
uniform    the top ``digits`` bits times 2**-digits, exact in the type: 24 for float32, 11 for
           float16, 8 for bfloat16; for float64 the top 53 of a double word
normal     Box and Muller, Ann. Math. Stat. 29 (1958): words 2 i and 2 i + 1 give elements 2 i and
           2 i + 1, ``sqrt(-2 log u) * cos(2 pi v)`` and ``... * sin(2 pi v)`` with u = (w + 1/2) /
           2**32 and v = w' / 2**32 in float32; for float64 with double words and 53 bits
integer    ``low + (w * span >> 32)`` for spans up to 2**16, else ``low + W % span`` with W a double
           word
exponent   ``-log((w + 1/2) / 2**32)`` in float64; a GPU's float32 numbers are as near
order      the stable order of the double words
=========  =========================================================================================
"""

from __future__ import annotations

import functools
import math
from bisect import bisect_left
from collections.abc import Iterator
from typing import Any

import numpy as np

from lucid_gpu import dtypes as dt
from lucid_gpu.devices.pool import pool
from lucid_gpu.dtypes import dtype

BLOCKS = 8192  # counters at a time: the state stays in the cache
FEW = (16, 64, 256)  # counters up to which a draw takes them from some made ahead
AHEAD = 1024  # counters made together: of few the calls of ten rounds are most of the cost
SMALL_SPAN = 1 << 16  # up to here 32 bits are enough: no integer's probability is off by 2**-16
DIGITS = {dt.float16: 11, dt.bfloat16: 8, dt.float32: 24, dt.float64: 53}

_WHOLE = (1 << 64) - 1
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)


def _column(a: int, b: int) -> Any:
    return np.array([[a], [b]], np.uint64)


_FACTORS = (_column(*_MULTIPLIERS[::-1]), _column(*_MULTIPLIERS))


@functools.lru_cache(maxsize=64)
def _keys(seed: int) -> list[Any]:
    """The rounds' keys for the two rows, which alternate."""
    keys, k0, k1 = [], seed & 0xFFFFFFFF, seed >> 32
    for number in range(10):
        keys.append(_column(k1, k0) if number & 1 else _column(k0, k1))
        k0, k1 = (k0 + _WEYL[0]) & 0xFFFFFFFF, (k1 + _WEYL[1]) & 0xFFFFFFFF
    return keys


def scramble(counter: tuple[Any, Any, Any, Any], seed: int, count: int) -> Any:
    """The ten rounds.

    Parameters
    ----------
    counter : four numbers or uint64 arrays of ``count`` elements, below 2**32
    seed : int

    Returns
    -------
    numpy.ndarray of uint32, shape (count, 4)
    """
    # The lanes that are multiplied and the others, two rows each. A round gives the multiplied ones
    # in exchanged order, so factors and keys alternate instead of the rows.
    inner = np.empty((2, count), np.uint64)
    outer = np.empty((2, count), np.uint64)
    product = np.empty((2, count), np.uint64)
    inner[0], inner[1] = counter[2], counter[0]
    outer[0], outer[1] = counter[3], counter[1]
    for number, key in enumerate(_keys(seed)):
        np.multiply(inner, _FACTORS[number & 1], out=product)
        np.right_shift(product, _HALF, out=inner)
        np.bitwise_xor(inner, outer[::-1], out=inner)
        np.bitwise_xor(inner, key, out=inner)
        np.bitwise_and(inner, _LOW, out=inner)  # `outer` keeps its upper halves until here
        outer, product = product, outer
    words = np.empty((count, 4), np.uint32)
    words[:, 0], words[:, 1] = inner[1], outer[1]
    words[:, 2], words[:, 3] = inner[0], outer[0]
    return words


def _pieces(seed: int, offset: int, count: int, each: int = 1) -> Iterator[tuple[slice, Any]]:
    """The words of ``count`` elements, ``each`` an element, piece by piece: (elements, words)."""
    blocks = -(-count * each // 4)
    if 0 < blocks <= FEW[-1]:
        few = FEW[bisect_left(FEW, blocks)]
        group, draw = divmod(offset, AHEAD // few)
        yield slice(0, count), _ahead(seed, group, few)[draw, : blocks * 4]
        return
    for first in range(0, blocks, BLOCKS):
        here = min(BLOCKS, blocks - first)
        number = np.arange(first, first + here, dtype=np.uint64)
        counter = (number & _LOW, number >> _HALF, offset & 0xFFFFFFFF, offset >> 32)
        words = scramble(counter, seed, here).reshape(-1)
        start = first * 4 // each
        stop = min(start + here * 4 // each, count)
        yield slice(start, stop), words


@functools.lru_cache(maxsize=8)
def _ahead(seed: int, group: int, few: int) -> Any:
    """The first words of draws ``group * AHEAD // few`` and on, ``4 * few`` each, not to write."""
    ahead = AHEAD // few
    blocks = np.tile(np.arange(few, dtype=np.uint64), ahead)
    draws = np.repeat(np.arange(ahead, dtype=np.uint64), few) + np.uint64(group * ahead)
    counter = (blocks, np.uint64(0), draws & _LOW, draws >> _HALF)
    words = scramble(counter, seed, blocks.size).reshape(ahead, 4 * few)
    words.setflags(write=False)
    return words


def _doubled(words: Any) -> Any:
    return words.astype("<u4", copy=False).view("<u8")


def words_at(seed: int, offset: int, index: Any, each: int = 1) -> Any:
    """The words of the elements numbered ``index``, uint32, ``each`` an element, last.

    Parameters
    ----------
    seed, offset : int
        Taken modulo 2**64.
    index : numpy.ndarray of int64
    each : int
        1, 2 or 4.
    """
    seed, offset = seed & _WHOLE, offset & _WHOLE
    half = (offset & 0xFFFFFFFF, offset >> 32)
    flat = index.reshape(-1).astype(np.uint64)
    if flat.size and (flat[1:] - flat[:-1] == 1).all():  # neighbors share a block
        low, high = int(flat[0]) * each, (int(flat[-1]) + 1) * each
        number = np.arange(low // 4, -(-high // 4), dtype=np.uint64)
        drawn = scramble((number & _LOW, number >> _HALF, *half), seed, number.size).reshape(-1)
        drawn = drawn[low % 4 : low % 4 + high - low]
    else:
        first = flat * np.uint64(each)
        number = first >> np.uint64(2)
        drawn = scramble((number & _LOW, number >> _HALF, *half), seed, number.size)
        lanes = (first & np.uint64(3)).astype(np.intp)[:, None] + np.arange(each)
        drawn = np.take_along_axis(drawn, lanes, 1)
    return drawn.reshape(*index.shape, each)


def bits_at(seed: int, offset: int, index: Any, size: int) -> Any:
    """The elements numbered ``index`` of `words`, or where ``size`` is 8 of `double_words`."""
    if size == 8:
        return _doubled(words_at(seed, offset, index, 2))[..., 0]
    return words_at(seed, offset, index)[..., 0]


def normal_at(seed: int, offset: int, index: Any, kind: np.dtype[Any]) -> Any:
    """The elements numbered ``index`` of `normal`, float32 or float64."""
    each = 4 if kind.itemsize == 8 else 2
    bits = words_at(seed, offset, index >> 1, each)
    if each == 4:
        bits = _doubled(bits) >> np.uint64(11)
    pairs = _box_muller(bits.reshape(-1, 2), 2.0**-53 if each == 4 else 2.0**-32, kind.type)
    lanes = (index.reshape(-1, 1) & 1).astype(np.intp)
    return np.take_along_axis(pairs, lanes, 1).reshape(index.shape)


def below_at(seed: int, offset: int, index: Any, span: int) -> Any:
    """The elements numbered ``index`` of `integers` with ``low`` 0, int64."""
    bits = bits_at(seed, offset, index, 4 if span <= SMALL_SPAN else 8)
    return _below(bits, span).view(np.int64)


def words(seed: int, offset: int, count: int) -> Any:
    """The first words of a draw, uint32."""
    out = np.empty(count, np.uint32)
    for where, piece in _pieces(seed, offset, count):
        out[where] = piece[: where.stop - where.start]
    return out


def double_words(seed: int, offset: int, count: int) -> Any:
    """The first double words of a draw, uint64."""
    out = np.empty(count, np.uint64)
    for where, piece in _pieces(seed, offset, count, 2):
        out[where] = _doubled(piece)[: where.stop - where.start]
    return out


def uniform(seed: int, offset: int, count: int, d: dtype) -> Any:
    """Numbers from [0, 1) in a floating point type; those of the 16-bit types come as float32."""
    digits = DIGITS[d]
    kind = d.compute.numpy
    each = 2 if d is dt.float64 else 1
    scale = kind.type(2.0**-digits)
    out = pool.empty((count,), kind)
    for where, piece in _pieces(seed, offset, count, each):
        bits = _doubled(piece) if each == 2 else piece
        bits = bits[: where.stop - where.start] >> bits.dtype.type(32 * each - digits)
        np.multiply(bits, scale, out=out[where], dtype=kind, casting="unsafe")
    return out


def normal(seed: int, offset: int, count: int, d: dtype) -> Any:
    """Numbers of the standard normal distribution; those of the 16-bit types come as float32."""
    kind = d.compute.numpy
    each = 2 if d is dt.float64 else 1
    out = pool.empty((count,), kind)
    for where, piece in _pieces(seed, offset, count, each):
        bits = _doubled(piece) >> np.uint64(11) if each == 2 else piece
        pairs = _box_muller(bits.reshape(-1, 2), 2.0**-53 if each == 2 else 2.0**-32, kind.type)
        out[where] = pairs.reshape(-1)[: where.stop - where.start]
    return out


def _box_muller(bits: Any, unit: float, kind: Any) -> Any:
    u = bits[:, 0].astype(kind) * kind(unit) + kind(unit / 2)  # never 0
    radius = np.sqrt(np.log(u, out=u) * kind(-2), out=u)
    angle = bits[:, 1].astype(kind) * kind(2 * math.pi * unit)
    pairs = np.empty(bits.shape, kind)
    np.multiply(np.cos(angle), radius, out=pairs[:, 0])
    np.multiply(np.sin(angle), radius, out=pairs[:, 1])
    return pairs


def integers(seed: int, offset: int, count: int, low: int, span: int) -> Any:
    """Integers from [low, low + span), int64."""
    draw = words if span <= SMALL_SPAN else double_words
    return _below(draw(seed, offset, count), span).view(np.int64) + np.int64(low)


def _below(bits: Any, span: int) -> Any:
    """Words or double words as numbers below ``span``, uint64."""
    if bits.dtype.itemsize == 4:
        return bits.astype(np.uint64) * np.uint64(span) >> _HALF
    return bits if span == 1 << 64 else bits % np.uint64(span)


def exponential(seed: int, offset: int, count: int) -> Any:
    """Numbers of the exponential distribution of rate 1, float64, never 0."""
    return waiting_times(words(seed, offset, count))


def waiting_times(words: Any) -> Any:
    """The exponential numbers of words, float64."""
    return -np.log((words + 0.5) * 2.0**-32)


def order(seed: int, offset: int, count: int) -> Any:
    """A random order of ``count`` things, int64."""
    return np.argsort(double_words(seed, offset, count), kind="stable").astype(np.int64)
