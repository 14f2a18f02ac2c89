"""Attention on the host for heads whose scores stay in the cache: recorded calls, no interpreter.

A head is a few hundred calls of NumPy's loops and BLAS (`lucid_gpu.devices.recording`). Of a
causal head only scores that are seen are computed, but for the corners of the blocks on the
diagonal.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from lucid_gpu.devices import threads
from lucid_gpu.devices.blocks import each
from lucid_gpu.devices.loops import address
from lucid_gpu.devices.recording import Recording

__all__ = ["applies", "backward", "forward"]

FEWEST = 1 << 15  # scores of all heads: below it a table is not worth recording
SCORES = 1 << 18  # of one head
ROWS = 16  # of a block of a causal head: what is computed in vain is a triangle in each
LOG2_E = math.log2(math.e)

Layout = tuple[tuple[int, ...], tuple[int, ...]]  # shape, and strides in bytes


def applies(arrays: tuple[Any, ...], causal: bool) -> bool:
    """Whether heads, shape (batch, heads, rows, columns), are of the kind computed here."""
    q, k = arrays[:2]
    queries, keys = q.shape[2], k.shape[2]
    return (
        q.shape[0] * q.shape[1] * queries * keys >= FEWEST
        and queries * keys <= SCORES
        and q.shape[1] == k.shape[1]
        and (queries == keys or not causal)
        and all(x.dtype == np.float32 and x.strides[3] == 4 for x in arrays)
        and all(x.strides[2] >= 0 for x in arrays)
    )


def forward(q: Any, k: Any, v: Any, out: Any, lse: Any, scale: float, causal: bool) -> None:
    """As `lucid_gpu.kernels.attention.forward`; the last two arrays are written."""
    _run(_forward, (q, k, v, out, lse), scale, causal)


def backward(
    saved: tuple[Any, ...], g: Any, gradients: tuple[Any, ...], scale: float, causal: bool
) -> None:
    """As `lucid_gpu.kernels.attention.backward`; ``gradients`` are written."""
    _run(_backward, (*saved, g, *gradients), scale, causal)


def _run(
    record: Callable[..., Recording], arrays: tuple[Any, ...], scale: float, causal: bool
) -> None:
    """Each thread is given its heads at once: between two calls it would wait for the others."""
    batch, heads = arrays[0].shape[:2]
    calls = record(tuple([(x.shape[2:], x.strides) for x in arrays]), scale, causal)
    addresses = [address(x) for x in arrays]
    strides = [x.strides[:2] for x in arrays]
    shares = threads.team.count
    groups, together = -(-batch // shares), heads
    if batch < shares:
        groups, together = 1, -(-heads * batch // shares)

    def work(place: tuple[int, int]) -> None:
        b, h = place
        places = [at + b * one + h * two for at, (one, two) in zip(addresses, strides, strict=True)]
        calls.run(places, min(together, heads - h), min(groups, batch - b))

    each([(b, h) for b in range(0, batch, groups) for h in range(0, heads, together)], work)


def _blocks(queries: int, keys: int, causal: bool) -> Iterator[tuple[slice, slice, Any]]:
    """Rows, the keys that are computed for them, and how many of these each row sees."""
    step = ROWS if causal else queries
    for first in range(0, queries, step):
        last = min(first + step, queries)
        seen = np.arange(first, last) + 1 if causal else keys
        yield slice(first, last), slice(0, last if causal else keys), seen


def _operands(calls: Recording, layouts: tuple[Layout, ...]) -> list[Any]:
    return [
        calls.operand(shape, (down, 4)[: len(shape)], over, across)
        for shape, (across, over, down, *_) in layouts
    ]


@functools.lru_cache(maxsize=32)
def _forward(layouts: tuple[Layout, ...], scale: float, causal: bool) -> Recording:
    calls = Recording()
    q, k, v, out, lse = _operands(calls, layouts)
    (queries, width), keys = q.shape, len(k)
    s, my_q, top, total = (calls.scratch(queries, n) for n in (keys, width, 1, 1))
    turned = calls.scratch(width, keys)
    factor, ones = calls.constant(scale), calls.constant(np.ones((keys, 1)))
    least, zero = calls.constant(-np.inf), calls.constant(0)
    calls(np.positive, least, top)
    calls.rows(np.multiply, q, factor, my_q)
    calls.rows(np.positive, k.T, turned)  # BLAS takes longer over so narrow a transpose
    for rows, keys_of, seen in _blocks(queries, keys, causal):
        part, most = s[rows, keys_of], top[rows]
        calls.matmul(my_q[rows], turned[:, keys_of], part)
        calls.rows(np.maximum, most, part, most, count=seen)
        calls.rows(np.subtract, part, most, part, count=seen)
        calls.rows(np.exp, part, part, count=seen)
        calls.rows(np.positive, zero, part, first=seen, count=keys_of.stop - seen)
        calls.matmul(part, ones[keys_of], total[rows])
        calls.matmul(part, v[keys_of], out[rows])
    calls.rows(np.divide, out, total, out)
    calls(np.log, total, total)
    calls(np.add, top, total, top)
    calls(np.multiply, top, calls.constant(LOG2_E), lse)
    return calls


@functools.lru_cache(maxsize=32)
def _backward(layouts: tuple[Layout, ...], scale: float, causal: bool) -> Recording:
    calls = Recording()
    q, k, v, out, lse, g, dq, dk, dv = _operands(calls, layouts)
    (queries, width), keys = q.shape, len(k)
    p, ds, less, delta = (calls.scratch(queries, n) for n in (keys, keys, 1, 1))
    my_q, along = calls.scratch(queries, width), calls.scratch(queries, width)
    turned_k, turned_v = calls.scratch(width, keys), calls.scratch(width, keys)
    factor, ones = calls.constant(scale), calls.constant(np.ones((width, 1)))
    zero = calls.constant(0)
    calls(np.multiply, lse, calls.constant(1 / LOG2_E), less)
    calls.rows(np.multiply, q, factor, my_q)
    calls.rows(np.positive, k.T, turned_k)
    calls.rows(np.positive, v.T, turned_v)
    calls.rows(np.multiply, g, out, along)
    calls.matmul(along, ones, delta)
    blocks = [*_blocks(queries, keys, causal)]
    for rows, keys_of, seen in blocks:
        weights, slopes = p[rows, keys_of], ds[rows, keys_of]
        calls.matmul(my_q[rows], turned_k[:, keys_of], weights)
        calls.rows(np.subtract, weights, less[rows], weights, count=seen)
        calls.rows(np.exp, weights, weights, count=seen)
        calls.matmul(g[rows], turned_v[:, keys_of], slopes)
        calls.rows(np.subtract, slopes, delta[rows], slopes, count=seen)
        calls.rows(np.multiply, slopes, weights, slopes, count=seen)
        for part in (weights, slopes):
            calls.rows(np.positive, zero, part, first=seen, count=keys_of.stop - seen)
        calls.matmul(slopes, k[keys_of], dq[rows])
        calls.rows(np.multiply, dq[rows], factor, dq[rows])
    for rows, keys_of, _ in blocks:
        columns, under = (rows, slice(rows.start, None)) if causal else (keys_of, rows)
        calls.matmul(p[under, columns].T, g[under], dv[columns])
        calls.matmul(ds[under, columns].T, my_q[under], dk[columns])
    return calls
