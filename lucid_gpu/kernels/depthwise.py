"""Convolution of each channel with a filter of its own, on a CPU: sums of shifted images.

A product with columns would multiply one row. Instead the images of a few channels are copied once
into planes with their border, one for each phase of the stride, and tap after tap a plane is read
from its own offset on, multiplied and added: by recorded calls along pieces of the flat plane that
stay in the L1 cache. What that computes where a window would run over an edge is not copied out.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from lucid_gpu.devices.blocks import each, slices
from lucid_gpu.devices.copies import inverse
from lucid_gpu.devices.loops import address
from lucid_gpu.devices.recording import Recording
from lucid_gpu.devices.scratch import memory_of_thread
from lucid_gpu.dtypes import from_numpy_dtype
from lucid_gpu.kernels.windows import Taps

__all__ = ["applies", "convolve", "weight_gradient"]

BLOCK = 1 << 18  # elements of the planes of the channels that a thread takes in turn
PIECE = 2048  # elements, at most, that are added up together


def applies(groups: int, inputs: int, outputs: int, kind: Any) -> bool:
    """Whether each channel has one filter of its own, and its calls can be recorded."""
    return groups == inputs == outputs > 1 and kind.char in "fd"


class Tap(NamedTuple):
    """Where a tap lies in the filter, in which phase's plane it reads, and from which offset on."""

    position: int
    phase: int
    offset: int


class _Planes:
    """Planes of images (n, c, h, w) whose axes lie in the order ``axes``, channels first."""

    def __init__(self, x: Any, slides: tuple[Taps, Taps], axes: Sequence[int]) -> None:
        self.x, self.slides, self.axes = x, slides, axes
        reach = [(t.number - 1) * t.dilation // t.stride for t in slides]
        sizes = [t.steps + r for t, r in zip(slides, reach, strict=True)]
        shape = (len(x), 1, *sizes)
        self.shape = tuple([shape[axis] for axis in axes[1:]])  # of a channel's plane
        self.size = prod(self.shape)
        steps = {axes[i]: prod(self.shape[i:]) for i in range(1, 4)}
        last = sum([r * steps[2 + i] for i, r in enumerate(reach)])  # the largest offset
        self.pieces = -(-(self.size - last) // PIECE)
        self.piece = -(-(self.size - last) // max(self.pieces, 1))
        self.room = last + self.pieces * self.piece  # of a channel: its plane, and a rest of zeros
        phases: dict[tuple[int, int], int] = {}
        self.taps = []
        numbers = itertools.product(*[range(t.number) for t in slides])
        for position, tap in enumerate(numbers):
            ahead = [i * t.dilation for i, t in zip(tap, slides, strict=True)]
            phase = tuple([a % t.stride for a, t in zip(ahead, slides, strict=True)])
            whole = [a // t.stride for a, t in zip(ahead, slides, strict=True)]
            offset = whole[0] * steps[2] + whole[1] * steps[3]
            number = phases.setdefault((phase[0], phase[1]), len(phases))
            self.taps.append(Tap(position, number, offset))
        self.phases = [*phases]

    def settings(self) -> tuple[Any, ...]:
        """What the recorded calls depend on."""
        return self.x.dtype.char, self.piece, self.room, tuple(self.taps)

    def run(self, calls: Recording, arrays: Sequence[Any]) -> None:
        """Run recorded calls on all pieces of some channels."""
        calls.run([address(a) for a in arrays], self.pieces, len(arrays[0]))

    def blocks(self) -> list[slice]:
        """Channels that are taken together."""
        return slices(self.x.shape[1], max(BLOCK // max(self.size, 1), 1))

    def views(self, channels: slice, more: int) -> list[Any]:
        """Scratch memory (channels, size): each phase's plane, filled, and so many more."""
        shape = (channels.stop - channels.start, self.room)
        kinds = [from_numpy_dtype(self.x.dtype)] * (len(self.phases) + more)
        planes = memory_of_thread.views(kinds, shape)
        for phase, plane in zip(self.phases, planes, strict=False):
            plane[:, self.size :] = 0
            self._fill(self.images(plane), self.x[:, channels], phase)
        return planes

    def images(self, plane: Any) -> Any:
        """A plane as images (n, c, H, W)."""
        whole = plane[:, : self.size].reshape(len(plane), *self.shape)
        return whole.transpose(inverse(self.axes))

    def inside(self, plane: Any) -> Any:
        """The part of a plane that stands for windows, (n, c, down, across)."""
        down, across = self.slides
        return self.images(plane)[:, :, : down.steps, : across.steps]

    def _fill(self, out: Any, x: Any, phase: tuple[int, int]) -> None:
        """Copy the pixels of a phase, and zeros where there are none."""
        at, source = [], []
        for t, p, size, extent in zip(self.slides, phase, x.shape[2:], out.shape[2:], strict=True):
            first = t.start + p  # of the plane's first pixel
            low = min(max(-(first // t.stride), 0), extent)
            high = max(min(-((first - size) // t.stride), extent), low)
            at.append(slice(low, high))
            source.append(slice(first + low * t.stride, first + high * t.stride, t.stride))
        (rows, columns), (down, across) = at, source
        out[:, :, : rows.start] = 0
        out[:, :, rows.stop :] = 0
        out[:, :, rows, : columns.start] = 0
        out[:, :, rows, columns.stop :] = 0
        if rows.stop > rows.start and columns.stop > columns.start:
            out[:, :, rows, columns] = x[:, :, down, across]


def convolve(
    filters: Any, x: Any, slides: tuple[Taps, Taps], axes: Sequence[int], out: Any
) -> None:
    """Slide filters (c, kh kw) over images (n, c, h, w), into ``out``, whose axes lie as said."""
    planes = _Planes(x, slides, axes)
    result = out.transpose(inverse(axes))

    filters = np.ascontiguousarray(filters)
    calls = _sums(*planes.settings())

    def work(channels: slice) -> None:
        *laid, total = planes.views(channels, 1)
        planes.run(calls, [*laid, total, filters[channels]])
        result[:, channels] = planes.inside(total)

    each(planes.blocks(), work)


def weight_gradient(x: Any, g: Any, slides: tuple[Taps, Taps], axes: Sequence[int]) -> Any:
    """Products of what each tap reads with cotangents (n, c, down, across), summed: (c, kh kw)."""
    planes = _Planes(x, slides, axes)
    gradient = np.zeros((x.shape[1], len(planes.taps)), x.dtype)
    calls = _products(*planes.settings())

    def work(channels: slice) -> None:
        *laid, cotangents = planes.views(channels, 1)
        cotangents[...] = 0
        planes.inside(cotangents)[...] = g[:, channels]
        planes.run(calls, [*laid, cotangents, gradient[channels]])

    each(planes.blocks(), work)
    return gradient


# --- recorded: a piece of a channel's plane -------------------------------------------------------


@functools.lru_cache(maxsize=64)
def _sums(kind: str, piece: int, room: int, taps: tuple[Tap, ...]) -> Recording:
    """Of planes, what is added up, and a channel's filter."""
    calls, planes, total, weight = _operands(kind, piece, room, taps)
    product = calls.scratch(piece)
    for tap in taps:
        part = planes[tap.phase][tap.offset :][:piece]
        if tap.position:
            calls(np.multiply, part, weight[tap.position :][:1], product)
            calls(np.add, total, product, total)
        else:
            calls(np.multiply, part, weight[:1], total)
    return calls


@functools.lru_cache(maxsize=64)
def _products(kind: str, piece: int, room: int, taps: tuple[Tap, ...]) -> Recording:
    """Of planes, cotangents, and the sums of products for each tap."""
    calls, planes, cotangents, sums = _operands(kind, piece, room, taps)
    more = calls.scratch(len(taps))
    for tap in taps:
        part = planes[tap.phase][tap.offset :][:piece]
        calls.matmul(part[None], cotangents[:, None], more[tap.position :][:1][None])
    calls(np.add, sums, more, sums)
    return calls


def _operands(kind: str, piece: int, room: int, taps: Sequence[Tap]) -> Any:
    calls, item = Recording(kind), np.dtype(kind).itemsize
    along, across = piece * item, room * item
    phases = 1 + max([tap.phase for tap in taps])
    reach = piece + max([tap.offset for tap in taps])
    planes = [calls.operand((reach,), (item,), along, across) for _ in range(phases)]
    written = calls.operand((piece,), (item,), along, across)
    return calls, planes, written, calls.operand((len(taps),), (item,), 0, len(taps) * item)
