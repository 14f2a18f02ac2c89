"""Factors ``L D L^T`` of symmetric matrices with Bunch's and Kaufman's pivots, on the host.

The pivots are chosen by numbers met on the way, so no backend does a batch at once; libraries of
GPUs do it on the host too. The lower triangle is read and written, in LAPACK's form (``sytf2``):
Bunch and Kaufman, Some Stable Methods for Calculating Inertia and Solving Symmetric Linear
Systems (1977).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lucid_gpu.device import device
from lucid_gpu.devices import backend

__all__ = ["factored", "solved"]

ALPHA = (1 + math.sqrt(17)) / 8


def factored(where: device, array: Any, hermitian: bool) -> tuple[Any, Any, Any]:
    """Factors of each matrix, its pivots, from 1, and the first block of ``D`` that is zero, or 0.

    Two equal negative pivots stand for a block of two rows.
    """
    *batch, n, _ = array.shape
    if where.type == "meta":
        empty = backend(where).xp.empty
        return empty(array.shape, array.dtype), empty((*batch, n), np.int32), empty(batch, np.int32)
    factors = np.tril(backend(where).to_numpy(array))
    flat = factors.reshape(math.prod(batch), n, n)
    pivots = np.empty((len(flat), n), np.int32)
    info = np.empty(len(flat), np.int32)
    with np.errstate(all="ignore"):
        for i, A in enumerate(flat):
            info[i] = _factor(A, pivots[i], hermitian)
    results = factors, pivots.reshape(*batch, n), info.reshape(batch)
    given = [backend(where).from_numpy(r, where) for r in results]
    return given[0], given[1], given[2]


def _size(x: Any) -> Any:
    """LAPACK's size of a complex number."""
    return np.abs(x.real) + np.abs(x.imag)


def _factor(A: Any, pivots: Any, hermitian: bool) -> int:
    conj = np.conj if hermitian else np.positive
    n, k, info = len(A), 0, 0
    if hermitian:
        np.fill_diagonal(A, A.diagonal().real)
    while k < n:
        largest, row = _size(A[k, k]), k
        below = _size(A[k + 1 :, k])
        under = below.max(initial=0)
        if not max(largest, under) > 0:  # NaN too
            info = info or k + 1
            pivots[k] = k + 1
            k += 1
            continue
        two = False
        if largest < ALPHA * under:
            row = k + 1 + int(below.argmax())
            beside = max(_size(A[row, k:row]).max(), _size(A[row + 1 :, row]).max(initial=0))
            if largest >= ALPHA * under * (under / beside):
                row = k
            elif _size(A[row, row]) < ALPHA * beside:
                two = True
        last = k + two
        if row != last:
            _exchange(A, last, row, conj)
            if two:
                A[[k + 1, row], k] = A[[row, k + 1], k]
        rest = slice(last + 1, n)
        if two:
            _eliminate_two(A, k, rest, conj)
            pivots[k : k + 2] = -(row + 1)
        else:
            column = A[rest, k].copy()
            A[rest, k] /= A[k, k]
            A[rest, rest] -= np.tril(np.outer(A[rest, k], conj(column)))
            pivots[k] = row + 1
        if hermitian:
            np.fill_diagonal(A, A.diagonal().real)
        k = last + 1
    return info


def _exchange(A: Any, i: int, j: int, conj: Any) -> None:
    """Exchange rows and columns ``i < j`` of what is left, whose lower triangle is stored."""
    A[j + 1 :, [i, j]] = A[j + 1 :, [j, i]]
    between = conj(A[i + 1 : j, i]).copy()
    A[i + 1 : j, i] = conj(A[j, i + 1 : j])
    A[j, i + 1 : j] = between
    A[j, i] = conj(A[j, i])
    A[[i, j], [i, j]] = A[[j, i], [j, i]]


def _eliminate_two(A: Any, k: int, rest: slice, conj: Any) -> None:
    """Take the part of a block of two rows out of what is below it."""
    corner = A[k + 1, k]
    first, second = A[k, k] / conj(corner), A[k + 1, k + 1] / corner
    scale = 1 / (first * second - 1)
    x, y = A[rest, k].copy(), A[rest, k + 1].copy()
    A[rest, k] = scale * (second * x - y) / conj(corner)
    A[rest, k + 1] = scale * (first * y - x) / corner
    A[rest, rest] -= np.tril(np.outer(A[rest, k], conj(x)) + np.outer(A[rest, k + 1], conj(y)))


def solved(where: device, factors: Any, pivots: Any, B: Any, hermitian: bool) -> Any:
    """Solutions of systems by what `factored` gave; all have the same batch."""
    if where.type == "meta":
        return backend(where).xp.empty(B.shape, B.dtype)
    LD, places, X = [backend(where).to_numpy(a) for a in (factors, pivots, B)]
    X = np.array(X)
    *batch, n, k = X.shape
    count = math.prod(batch)
    flat = X.reshape(count, n, k)
    for A, rows, x in zip(LD.reshape(count, n, n), places.reshape(count, n), flat, strict=True):
        with np.errstate(all="ignore"):
            _solve(A, [int(r) for r in rows], x, hermitian)
    return backend(where).from_numpy(X, where)


def _solve(A: Any, pivots: list[int], x: Any, hermitian: bool) -> None:
    conj = np.conj if hermitian else np.positive
    n, k = len(A), 0
    starts = []
    while k < n:  # L and D, from the top
        starts.append(k)
        two = pivots[k] < 0
        last = k + two
        row = abs(pivots[k]) - 1
        x[[last, row]] = x[[row, last]]
        x[last + 1 :] -= A[last + 1 :, k : last + 1] @ x[k : last + 1]
        if two:
            corner = A[k + 1, k]
            first, second = A[k, k] / conj(corner), A[k + 1, k + 1] / corner
            upper, lower = x[k] / conj(corner), x[k + 1] / corner
            scale = first * second - 1
            x[k], x[k + 1] = (second * upper - lower) / scale, (first * lower - upper) / scale
        else:
            x[k] /= A[k, k]
        k = last + 1
    for k in reversed(starts):  # L^T, from the bottom
        two = pivots[k] < 0
        last = k + two
        row = abs(pivots[k]) - 1
        x[k : last + 1] -= conj(A[last + 1 :, k : last + 1]).T @ x[last + 1 :]
        x[[last, row]] = x[[row, last]]
