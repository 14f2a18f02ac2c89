"""The walk on arrays: step by step, by kernels and products of the tensors' device.

`lucid_gpu.ops.native_walk` is the same walk without Python between the steps, where that is to be
had.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

from lucid_gpu.device import device
from lucid_gpu.devices import backend, xp_of
from lucid_gpu.dtypes import dtype
from lucid_gpu.launch.observers import library_call, observers
from lucid_gpu.ops.recurrent_cells import Cell, Weights
from lucid_gpu.tensor import Tensor

__all__ = ["Carried", "Walk", "in_order", "split", "steps_of"]


def steps_of(sizes: Sequence[int], reverse: bool) -> list[tuple[int, int]]:
    """First row and rows of each step, in the order of the walk."""
    return in_order(list(zip(accumulate(sizes, initial=0), sizes)), reverse)


def in_order(rows: list[Any], reverse: bool) -> list[Any]:
    """Steps as they are walked."""
    return rows[::-1] if reverse else rows


def split(a: Any, gates: int) -> list[Any]:
    """The parts of each gate."""
    n = a.shape[1] // gates
    return [a[:, k * n : (k + 1) * n] for k in range(gates)]


class Carried:
    """What goes from step to step, for as many rows as there are sequences just then.

    Those that begin bring the rows of ``start``; the rows of those that end are kept.
    """

    def __init__(self, start: Sequence[Any], rows: int, join: Callable[[list[Any]], Any]) -> None:
        self.start, self.join, self.rows = start, join, rows
        whole = rows == start[0].shape[0]
        self.values: list[Any] = list(start) if whole else [s[:rows] for s in start]
        self.ended: list[list[Any]] = [[] for _ in start]

    def at(self, rows: int) -> list[Any]:
        """The values of so many sequences."""
        before, self.rows = self.rows, rows
        if rows < before:
            for value, ended in zip(self.values, self.ended, strict=True):
                ended.insert(0, value[rows:])
            self.values = [value[:rows] for value in self.values]
        elif rows > before:
            more = [s[before:rows] for s in self.start]
            self.values = [self.join(list(pair)) for pair in zip(self.values, more, strict=True)]
        return self.values

    def finals(self) -> list[Any]:
        """The values with which each sequence ended."""
        return [
            self.join([value, *ended]) if ended else value
            for value, ended in zip(self.values, self.ended, strict=True)
        ]


class Walk:
    """There, and back for the gradients.

    Gates lie side by side in a row, so that a step has one large product. Unless ``recorded``,
    nothing is kept of the steps but their outputs.
    """

    recorded = True

    def __init__(self, cell: Cell, x: Tensor, sizes: tuple[int, ...], reverse: bool) -> None:
        self.cell, self.sizes, self.reverse = cell, sizes, reverse
        self.shape: tuple[int, ...] = tuple(x.shape)
        self.dtype: dtype = x.dtype
        self.device: device = x.device
        self.xp = xp_of(x)

    def product(self, a: Any, b: Any) -> Any:
        multiply = backend(self.device).matmul
        if observers:
            return library_call(
                "matmul", self.device, lambda a, b: multiply(a, b, self.dtype), a, b
            )
        return multiply(a, b, self.dtype)

    def empty(self, *shape: int) -> Any:
        return backend(self.device).empty(shape, self.dtype, self.device)

    def join(self, parts: list[Any]) -> Any:
        return self.xp.concatenate(parts) if len(parts) > 1 else parts[0].copy()

    def in_time(self, steps: list[Any]) -> Any:
        """The rows of all steps, given in the order of the walk."""
        return self.join(in_order(steps, self.reverse))

    def forward(self, x: Any, start: list[Any], weights: Weights) -> list[Any]:
        """The outputs and the last states."""
        cell, n = self.cell, self.cell.gates
        shift = [] if weights.bias is None else split(weights.bias[None], n)
        turned, parts = weights.w.T, split(x, n)
        if len(self.sizes) > 1:
            turned = self.xp.ascontiguousarray(turned)
        carried = Carried(start, self.sizes[-1 if self.reverse else 0], self.join)
        self.start = start if self.recorded else []
        outputs: list[Any] = []
        self.before: list[list[Any]] = []
        self.hidden: list[Any] = []
        self.known: list[Sequence[Any]] = []
        for first, count in steps_of(self.sizes, self.reverse):
            states = carried.at(count)
            r = split(self.product(states[0], turned), n)
            operands = [*[part[first : first + count] for part in parts], *r, *states, *shift]
            results = cell.forward(operands, self.dtype, self.device)
            after = list(results[: cell.states])
            if weights.projection is not None:
                after[0] = self.product(results[0], weights.projection.T)
            outputs.append(after[0])
            if self.recorded:
                self.before.append(states)
                self.hidden.append(results[0])
                self.known.append(results[cell.states :])
            carried.values = after
        return [self.in_time(outputs), *carried.finals()]

    def goes_back_from(self, start: list[Any]) -> bool:
        """Whether the first states, which may have been written since, are those that it read."""
        return all(a is b for a, b in zip(self.start, start, strict=True))

    def backward(self, weights: Weights, cotangents: list[Any]) -> list[Any]:
        """The gradients of x, the first states and the weights that there are."""
        to_x, to_r, to_start, to_outputs = self.back(weights, cotangents)
        results = [to_x, *to_start, self.product(to_r.T, self.states_before())]
        if weights.bias is not None:
            wide = to_r.sum(0, dtype=self.dtype.compute.numpy)
            results.append(wide.astype(to_r.dtype, copy=False))
        if weights.projection is not None:
            total = self.join(in_order(to_outputs, not self.reverse))
            results.append(self.product(total.T, self.in_time(self.hidden)))
        return results

    def states_before(self) -> Any:
        """From which each row came."""
        if len(self.before) == 1:
            return self.before[0][0]
        return self.in_time([states[0] for states in self.before])

    def back(self, weights: Weights, cotangents: list[Any]) -> tuple[Any, Any, Any, list[Any]]:
        """Gradients of x, of what the state gives the gates, the first states, and outputs."""
        cell, n = self.cell, self.cell.gates
        to_r = self.empty(*self.shape)
        to_x = self.empty(*self.shape) if cell.apart else to_r
        to_finals = cotangents[1:] + [self.xp.zeros_like(cotangents[1])] * (cell.direct == 0)
        steps = steps_of(self.sizes, not self.reverse)
        carried = Carried(to_finals, steps[0][1], self.join)
        to_outputs: list[Any] = []
        for (first, count), states, known in zip(
            steps, self.before[::-1], self.known[::-1], strict=True
        ):
            rows = slice(first, first + count)
            to = [*carried.at(count), cotangents[0][rows]]
            if weights.projection is not None:
                to_outputs.append(to[0] + to[-1])
                to[0] = self.product(to_outputs[-1], weights.projection)
                to[-1] = self.xp.zeros_like(to[0])
            gradients = list(cell.backward([*states, *to, *known], self.dtype, self.device))
            self.xp.concatenate(gradients[:n], axis=1, out=to_r[rows])
            if cell.apart:
                self.xp.concatenate(gradients[n : 2 * n], axis=1, out=to_x[rows])
            carried.values = [self.product(to_r[rows], weights.w), *gradients[-1:]][
                : cell.cotangents
            ]
        to_start = carried.finals()
        if cell.direct == 0:
            to_start[0] = to_start[0] + to_start.pop()
        return to_x, to_r, to_start, to_outputs
