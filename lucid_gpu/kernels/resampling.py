"""Resampling along an axis: each output is a weighted sum of a few neighbors.

A `Band` is a sparse matrix kept as neighbors and weights of each row, and so is its transpose: the
gradient gathers too, nothing is scattered. The positions are PyTorch's (half-pixel centers, or
corners aligned); cubic weights are those of Keys, "Cubic Convolution Interpolation" (1981).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from lucid_gpu.devices import owners

__all__ = ["Axis", "Band", "band", "resampled"]


class Axis(NamedTuple):
    """How one axis is resampled.

    Attributes
    ----------
    mode : {"nearest", "nearest-exact", "linear", "cubic", "lanczos"}
    size, out : int
    factor : float or None
        The scale the user gave; None takes that of the sizes.
    aligned : bool
        Whether the centers of the corners stay where they are.
    antialias : bool
    wide : bool
        Whether positions are float64, as those of float64 pixels are.
    copies : bool
        Whether an axis that keeps its size is copied, and one of twice the size holds each nearest
        pixel twice, whatever the factor is.
    """

    mode: str
    size: int
    out: int
    factor: float | None
    aligned: bool
    antialias: bool
    wide: bool
    copies: bool


class Band:
    """A sparse matrix: ``out[j] = sum_k weights[k, j] * in[places[k, j]]``."""

    def __init__(self, places: Any, weights: Any, size: int) -> None:
        self.places, self.weights, self.size = places, weights, size
        self._there: dict[Any, Any] = {}

    @functools.cached_property
    def transposed(self) -> Band:
        count, out = self.places.shape
        row: Any = np.broadcast_to(np.arange(out), (count, out)).reshape(-1)
        column, weight = self.places.reshape(-1), self.weights.reshape(-1)
        used = np.flatnonzero(weight)
        order = used[np.argsort(column[used], kind="stable")]
        row, column, weight = row[order], column[order], weight[order]
        starts = np.searchsorted(column, np.arange(self.size))
        rank = np.arange(len(column)) - starts[column]
        most = int(rank.max()) + 1 if len(rank) else 1
        places = np.zeros((most, self.size), np.int64)
        weights = np.zeros((most, self.size))
        places[:] = row[np.minimum(starts, max(len(row) - 1, 0))] if len(row) else 0
        places[rank, column], weights[rank, column] = row, weight
        turned = Band(places, weights, out)
        turned.__dict__["transposed"] = self
        return turned

    @functools.cached_property
    def in_fixed_point(self) -> tuple[Band, int]:
        """Whole weights of 15 bits, and how many of them come after the point: for uint8."""
        weights = self.weights.copy()
        for k in range(1, len(weights)):  # one weight a place, so that each is rounded once
            for j in range(k):
                same = self.places[k] == self.places[j]
                weights[j] += np.where(same, weights[k], 0)
                weights[k] = np.where(same, 0, weights[k])
        bits = 0
        while bits < 22 and int(0.5 + weights.max() * 2 ** (bits + 1)) < 2**15:
            bits += 1
        scaled = weights * 2**bits
        whole = np.trunc(scaled + np.copysign(0.5, scaled))
        return Band(self.places, whole, self.size), bits

    def spread(self) -> None:
        """Give each row's first place to its unused ones, and them part of its weight.

        A weight of 0 would let a NaN or an infinity into sums that do not contain it.
        """
        unused = self.weights == 0
        share = self.weights[0] / (unused.sum(0) + 1)
        self.places = np.where(unused, self.places[0], self.places)
        self.weights = np.where(unused, share, self.weights)
        self.weights[0] = share

    @property
    def copies(self) -> bool:
        """Whether each output is one input: nothing is computed."""
        return len(self.places) == 1 and bool((self.weights == 1).all())

    def is_identity(self) -> bool:
        out = self.places.shape[1]
        used = (self.weights == 0) | (self.places == np.arange(out))
        return bool(out == self.size and used.all() and (self.weights.sum(0) == 1).all())

    def on(self, array: Any) -> Any:
        """The rows of places and weights, of an array's type, as arrays of its device."""
        there, kind = owners[type(array)], array.dtype
        key = there.device_of(array), kind
        if key not in self._there:
            self._there[key] = there.aside(self._rows, there.xp, kind)
        return self._there[key]

    def _rows(self, xp: Any, kind: Any) -> list[tuple[Any, Any]]:
        ones = (self.weights == 1).all(1)
        return [
            (xp.asarray(p), None if one else xp.asarray(w.astype(kind)))
            for p, w, one in zip(self.places, self.weights, ones, strict=True)
        ]


def resampled(array: Any, axis: int, band: Band, xp: Any) -> Any:
    """An array resampled along an axis, which is counted from the end."""
    total = None
    for places, weights in band.on(array):
        part = array.take(places, axis=axis)
        if weights is not None:
            part *= weights.reshape(-1, *[1] * (-axis - 1))
        if total is None:
            total = part
        else:
            total += part
    return total


@functools.lru_cache(maxsize=256)
def band(axis: Axis) -> Band:
    """The matrix of an axis."""
    kind = np.float64 if axis.wide else np.float32
    if axis.aligned:
        scale = kind((axis.size - 1) / (axis.out - 1)) if axis.out > 1 else kind(0)
    else:
        scale = kind(axis.size / axis.out if axis.factor is None else 1 / axis.factor)
    if axis.out == axis.size and axis.copies:
        return Band(np.arange(axis.size)[None], np.ones((1, axis.size)), axis.size)
    if axis.antialias:
        return _antialiased(axis, float(scale))
    if axis.mode.startswith("nearest"):
        return _nearest(axis)
    to: Any = np.arange(axis.out, dtype=kind)
    at = to * scale if axis.aligned else (to + kind(0.5)) * scale - kind(0.5)
    if axis.mode == "linear":
        at = np.maximum(at, 0)
    first = np.minimum(np.floor(at), axis.size - 1) if axis.mode == "linear" else np.floor(at)
    t = at - first
    if axis.mode == "linear":
        t = np.clip(t, 0, 1)
        weights = [1 - t, t]
    else:
        weights = [_cubic(np.abs(t - o), -0.75) for o in (-1, 0, 1, 2)]
        first = first - 1
    places = [np.clip(first + k, 0, axis.size - 1).astype(np.int64) for k in range(len(weights))]
    return Band(np.stack(places), np.stack(weights).astype(np.float64), axis.size)


def _nearest(axis: Axis) -> Band:
    """In float32 whatever the pixels are, as PyTorch reckons."""
    scale = np.float32(axis.size / axis.out if axis.factor is None else 1 / axis.factor)
    shift = np.float32(0.5 if axis.mode == "nearest-exact" else 0)
    at = np.floor((np.arange(axis.out, dtype=np.float32) + shift) * scale)
    if axis.mode == "nearest" and axis.copies and axis.out == 2 * axis.size:
        at = np.arange(axis.out) // 2
    places = np.minimum(at, axis.size - 1).astype(np.int64)
    return Band(places[None], np.ones((1, axis.out)), axis.size)


def _cubic(x: Any, a: float) -> Any:
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0))


def _triangle(x: Any) -> Any:
    return np.maximum(1 - x, 0)


def _lanczos(x: Any) -> Any:
    return np.where(x < 3, np.sinc(x) * np.sinc(x / 3), 0)


def _antialiased(axis: Axis, scale: float) -> Band:
    """A filter as wide as the pixels it makes, as in Pillow's ``Resample.c``."""
    shape: Callable[[Any], Any] = _triangle
    support = 1.0
    if axis.mode == "cubic":
        shape, support = functools.partial(_cubic, a=-0.5), 2.0
    elif axis.mode == "lanczos":
        shape, support = _lanczos, 3.0
    stretch = max(scale, 1.0)
    center = scale * (np.arange(axis.out) + 0.5)
    low = np.maximum((center - support * stretch + 0.5).astype(np.int64), 0)
    high = np.minimum((center + support * stretch + 0.5).astype(np.int64), axis.size)
    places = low + np.arange(int((high - low).max()))[:, None]
    weights = shape(np.abs((places - center + 0.5) / stretch))
    weights = np.where(places < high, weights, 0)
    return Band(np.minimum(places, axis.size - 1), weights / weights.sum(0), axis.size)


@functools.lru_cache(maxsize=256)
def area(size: int, out: int) -> Band:
    """Means of windows that cover the axis, as adaptive average pooling takes them."""
    to: Any = np.arange(out)
    low, high = to * size // out, -(-(to + 1) * size // out)
    places = low + np.arange(int((high - low).max()))[:, None]
    matrix = Band(np.minimum(places, high - 1), (places < high) / (high - low), size)
    for side in (matrix, matrix.transposed):
        side.spread()
    return matrix
