"""Cross entropy by NumPy: see `lucid_gpu.kernels.cross_entropy` for the formula.

Small problems, where calls are what costs, keep the exponentials for the gradient; large ones are
computed in blocks that stay in cache, and keep one number a row.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from lucid_gpu.devices.pool import pool
from lucid_gpu.kernels.cross_entropy import Settings, lines_of
from lucid_gpu.kernels.row_blocks import each
from lucid_gpu.kernels.rows import Lines

__all__ = ["gradient", "losses", "out_of_bounds"]

BLOCK = 1 << 18  # scores that a thread takes in turn; fewer are kept
FEW = 64  # classes up to which a copy with the classes in front is reduced faster
_sum: Any = np.add.reduce  # newer stubs of NumPy want an argument that it does not
_largest: Any = np.maximum.reduce


def out_of_bounds(target: int, classes: int, ignore: int) -> IndexError:
    """The error of a target that is no class."""
    return IndexError(
        f"Target {target} is out of bounds: the input has {classes} classes, and ignore_index is "
        f"{ignore}"
    )


class Kept(NamedTuple):
    """What `gradient` reads of what `losses` computed.

    Attributes
    ----------
    lse : array, shape (outer, inner)
    places : array of lse's shape
        Of each row's target among the scores.
    own : array of lse's shape, or None
        ``a`` of this module's formula, where it is not 1 everywhere.
    ignored : array of bool, or None
    count : number
        What a mean divides by.
    scored : Scored or None
        The exponentials of all scores, where they are few.
    """

    lse: Any
    places: Any
    own: Any
    ignored: Any
    count: Any
    scored: Scored | None


class Scored(NamedTuple):
    """``exp(x - shift)`` of some rows, (c, outer, inner) or (outer, c, inner), and its sums.

    ``axis`` is that of the classes.
    """

    exponentials: Any
    sums: Any
    axis: int


def losses(x: Any, target: Any, how: Settings) -> tuple[Any, Kept]:
    """The loss, reduced as it shall be, in float32 at least; and what its gradient needs."""
    outer, classes, inner = extents = lines_of(x.shape)
    target, ignored = _classes_of(target.reshape(outer, inner), classes, how.ignore)
    places = target * inner + _first_places(outer, classes, inner)
    each = x.ravel().take(places)  # for now the targets' scores
    rows, scored, own = x.reshape(extents), None, None
    if x.size <= BLOCK:
        scored, lse, spread = _score(rows, how)
    else:
        lse, spread = _score_by_blocks(rows, how)
    each = lse - each
    if how.weight is not None or how.smoothing or ignored is not None:
        own = _own(target, ignored, how, lse.dtype)
        each *= own
        each += spread
        if ignored is not None:
            each[ignored] = 0
    count = 1
    if how.reduction == "mean":
        count = each.size if own is None else _own(target, ignored, how._replace(smoothing=0)).sum()
    if how.reduction != "none":
        each = _sum(each, None) / lse.dtype.type(count)
    return each, Kept(lse, places, own, ignored, count, scored)


def gradient(x: Any, kept: Kept, g: Any, how: Settings) -> Any:
    """The gradient of the scores for the cotangent ``g`` of the loss: a number or an array."""
    lse, places, own, ignored, count, scored = kept
    extents, wide = lines_of(x.shape), lse.dtype
    scale = wide.type(g / count) if np.ndim(g) == 0 else g.astype(wide).reshape(lse.shape)
    share = total = scale if own is None else scale * own
    spread = None
    if how.smoothing:
        spread = _evenly(how, extents.columns, wide)
        total = share + scale * spread.sum()
    out = pool.empty(extents, wide)
    if scored is not None:
        _spread_out(scored, total, out)
    else:
        rows = x.reshape(extents)

        def block(of: Block) -> None:
            scores, axis = _lined_up(rows[of.scores])
            shift = np.expand_dims(lse[of.rows], axis)
            exponentials = np.subtract(scores, shift)
            np.exp(exponentials, exponentials)
            part = total[of.rows] if np.ndim(total) else total
            _spread_out(Scored(exponentials, _ONE, axis), part, out[of.scores])

        _over_blocks(extents, block)
    out.reshape(-1)[places] -= share
    if spread is not None:
        out -= (np.expand_dims(scale, 1) if np.ndim(scale) else scale) * spread[:, None]
    if ignored is not None:
        out.swapaxes(0, 1)[:, ignored] = 0
    return out.reshape(x.shape)


def _score(rows: Any, how: Settings) -> tuple[Scored, Any, Any]:
    """Exponentials, ``lse`` and the losses that smoothing spreads over all classes (or 0)."""
    scores, axis = _lined_up(rows)
    top = np.maximum.reduce(scores, axis, keepdims=True)
    exponentials = np.subtract(scores, top)
    np.exp(exponentials, exponentials)
    sums = _sum(exponentials, axis, keepdims=True)
    top += np.log(sums)
    shape = (rows.shape[0], rows.shape[2])
    spread: Any = 0
    if how.smoothing:
        evenly = _evenly(how, scores.shape[axis], scores.dtype)
        shaped = evenly.reshape((-1, 1, 1) if axis == 0 else (-1, 1))
        spread = _sum((top - scores) * shaped, axis).reshape(shape)
    return Scored(exponentials, sums, axis), top.reshape(shape), spread


def _score_by_blocks(rows: Any, how: Settings) -> tuple[Any, Any]:
    shape = (rows.shape[0], rows.shape[2])
    wide = np.float64 if rows.dtype == np.float64 else np.float32
    lse, spread = np.empty(shape, wide), np.empty(shape, wide)

    def block(of: Block) -> None:
        _, lse[of.rows], spread[of.rows] = _score(rows[of.scores], how)

    _over_blocks(Lines(*rows.shape), block)
    return lse, spread


def _spread_out(scored: Scored, total: Any, out: Any) -> None:
    """``total * softmax`` into ``out``, shaped (outer, c, inner)."""
    exponentials, sums, axis = scored
    factor = np.expand_dims(total, axis) if np.ndim(total) else total
    np.multiply(exponentials, factor / sums, out.swapaxes(0, 1) if axis == 0 else out)


class Block(NamedTuple):
    """Some rows: where they stand among all rows, and where their scores do."""

    rows: tuple[slice, slice]
    scores: tuple[slice, slice, slice]


def _over_blocks(extents: Lines, work: Callable[[Block], None]) -> None:
    """Call ``work`` for blocks of whole rows that stay in cache, on the team of threads."""
    outer, classes, inner = extents
    columns = min(inner, max(BLOCK // max(classes, 1), 1))
    lines = max(BLOCK // max(classes * columns, 1), 1)
    blocks = [
        Block((i, j), (i, slice(None), j))
        for i in [slice(k, k + lines) for k in range(0, outer, lines)]
        for j in [slice(k, k + columns) for k in range(0, inner, columns)]
    ]
    each(blocks, work)


_ONE = np.float32(1)


@functools.lru_cache(maxsize=64)
def _first_places(outer: int, classes: int, inner: int) -> Any:
    """The place of each row's first score."""
    return np.arange(outer)[:, None] * (classes * inner) + np.arange(inner)


def _lined_up(x: Any) -> tuple[Any, int]:
    """The scores, 16-bit floats widened, with the classes where they are reduced fast; their axis.

    NumPy's reductions run along the last axis one row at a time; with few classes a copy that has
    them in front costs less.
    """
    wide = np.float64 if x.dtype == np.float64 else np.float32
    if x.shape[2] > 1 or x.shape[1] <= FEW:
        return np.array(x.swapaxes(0, 1), wide, order="C"), 0
    return x.astype(wide, copy=False), 1


def _classes_of(target: Any, classes: int, ignore: int) -> tuple[Any, Any]:
    """Targets with 0 for those to be ignored, and which those are (None: none of them)."""
    if target.dtype != np.int64:
        target = target.astype(np.int64)
    # one look finds those too large, and as unsigned numbers negative ones are
    if not target.size or (
        _largest(target.view(np.uint64), None) < classes and not 0 <= ignore < classes
    ):
        return target, None
    ignored = target == ignore
    wrong = ((target < 0) | (target >= classes)) & ~ignored
    if wrong.any():
        raise out_of_bounds(int(target[wrong][0]), classes, ignore)
    return np.where(ignored, 0, target), ignored


def _own(target: Any, ignored: Any, how: Settings, d: Any = np.float64) -> Any:
    """How much a row counts for its own class: ``(1 - s) w[t]``, 0 where it is to be ignored."""
    own = np.full(target.shape, 1 - how.smoothing, d)
    if how.weight is not None:
        own *= how.weight.take(target)
    if ignored is not None:
        own[ignored] = 0
    return own


def _evenly(how: Settings, classes: int, d: Any) -> Any:
    """``s/c w``: how much a row counts for each class."""
    spread = np.full(classes, how.smoothing / classes, d)
    return spread if how.weight is None else spread * how.weight.astype(d)
