"""The walk of a recurrent layer along its sequences, as one op.

A cell is the formula of its step (`CELLS`). Each step of the walk is one product of the state and
the recurrent weights, and one kernel for the formula; backward, one kernel for the formula's
gradient and one product. The gradient of the weights is one product for the whole sequence.
Sequences of several lengths are packed: step ``t`` has ``sizes[t]`` rows, the longest first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from lucid_gpu.devices import room, xp_of
from lucid_gpu.launch import runs_cuda_c
from lucid_gpu.launch.observers import library_call, observers
from lucid_gpu.ops.matmul import linear
from lucid_gpu.ops.record import record
from lucid_gpu.ops.shape import cat
from lucid_gpu.ops.traced import Traced
from lucid_gpu.tape.levels import innermost, open_levels
from lucid_gpu.tape.modes import enable_grad, is_grad_enabled
from lucid_gpu.tensor import Tensor, from_array

__all__ = ["CELLS", "Cell", "Weights", "walk"]

# --- the steps -----------------------------------------------------------------------------------
# A step gets what input and state give each gate (``x``, ``r``) and the states before it. It gives
# the states after it, of which the first is its output, and what its gradient wants to know. The
# gradient gets that, the states before and the cotangents of those after; it gives the gradients of
# ``r``, of ``x`` where they are others, and of each state that the formula reads itself.

_Tensors = Sequence[Tensor]
_Step = tuple[list[Tensor], list[Tensor]]
_Slopes = tuple[list[Tensor], list[Tensor], list[Tensor]]


def _lstm(x: _Tensors, r: _Tensors, states: _Tensors) -> _Step:
    i, f, g, o = (a + b for a, b in zip(x, r, strict=True))
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    c = f * states[1] + i * g
    shown = c.tanh()
    return [o * shown, c], [i, f, g, o, shown]


def _lstm_slopes(known: _Tensors, states: _Tensors, to: _Tensors) -> _Slopes:
    i, f, g, o, shown = known
    to_c = to[1] + to[0] * o * (1 - shown * shown)
    to_r = [
        to_c * g * (i * (1 - i)),
        to_c * states[1] * (f * (1 - f)),
        to_c * i * (1 - g * g),
        to[0] * shown * (o * (1 - o)),
    ]
    return to_r, to_r, [to_c * f]


def _gru(x: _Tensors, r: _Tensors, states: _Tensors) -> _Step:
    reset, keep = ((a + b).sigmoid() for a, b in zip(x[:2], r[:2], strict=True))
    new = (x[2] + reset * r[2]).tanh()
    return [(states[0] - new) * keep + new], [reset, keep, new, r[2]]


def _gru_slopes(known: _Tensors, states: _Tensors, to: _Tensors) -> _Slopes:
    reset, keep, new, offered = known
    to_new = to[0] * (1 - keep) * (1 - new * new)
    to_reset = to_new * offered * (reset * (1 - reset))
    to_keep = to[0] * (states[0] - new) * (keep * (1 - keep))
    return [to_reset, to_keep, to_new * reset], [to_reset, to_keep, to_new], [to[0] * keep]


def _rnn_tanh(x: _Tensors, r: _Tensors, states: _Tensors) -> _Step:
    y = (x[0] + r[0]).tanh()
    return [y], [y]


def _rnn_tanh_slopes(known: _Tensors, states: _Tensors, to: _Tensors) -> _Slopes:
    to_r = [to[0] * (1 - known[0] * known[0])]
    return to_r, to_r, []


def _rnn_relu(x: _Tensors, r: _Tensors, states: _Tensors) -> _Step:
    y = (x[0] + r[0]).relu()
    return [y], [y]


def _rnn_relu_slopes(known: _Tensors, states: _Tensors, to: _Tensors) -> _Slopes:
    to_r = [to[0].where(known[0] != 0, 0.0)]  # NaN passes, as in relu
    return to_r, to_r, []


class Cell:
    """A step's formula and its gradient, with their kernels.

    Attributes
    ----------
    gates, states : int
    apart : bool
        Whether a gate does other than add what input and state give it.
    direct : int, optional
        The state that the formula reads itself.
    """

    def __init__(
        self,
        step: Callable[..., _Step],
        slopes: Callable[..., _Slopes],
        gates: int,
        states: int = 1,
        apart: bool = False,
        direct: int | None = None,
    ) -> None:
        self.step, self.slopes = step, slopes
        self.gates, self.states, self.apart, self.direct = gates, states, apart, direct
        self.forward = Traced(self._forward)
        self.backward = Traced(self._backward)

    def _forward(self, tensors: list[Tensor]) -> list[Tensor]:
        """Of ``x``, ``r``, the states and, where there is one, the recurrent bias."""
        n = self.gates
        r, read = tensors[n : 2 * n], 2 * n + self.states
        if tensors[read:]:
            r = [a + b for a, b in zip(r, tensors[read:], strict=True)]
        after, known = self.step(tensors[:n], r, tensors[2 * n : read])
        return [*after, *known]

    def _backward(self, tensors: list[Tensor]) -> list[Tensor]:
        """Of the states before, the cotangents, one more for the output, and what is known."""
        n = self.states
        states, to, known = tensors[:n], tensors[n : 2 * n], tensors[2 * n :]
        to[0] = to[0] + known.pop(0)
        to_r, to_x, to_states = self.slopes(known, states, to)
        return [*to_r, *(to_x if self.apart else ()), *to_states]


CELLS = {
    "LSTM": Cell(_lstm, _lstm_slopes, 4, states=2, direct=1),
    "GRU": Cell(_gru, _gru_slopes, 3, apart=True, direct=0),
    "RNN_TANH": Cell(_rnn_tanh, _rnn_tanh_slopes, 1),
    "RNN_RELU": Cell(_rnn_relu, _rnn_relu_slopes, 1),
}

# --- the walk ------------------------------------------------------------------------------------


class Weights(NamedTuple):
    """Of the states: shape (gates * hidden, out), a bias, a projection (out, hidden) or None."""

    w: Any
    bias: Any
    projection: Any


def _steps(sizes: Sequence[int], reverse: bool) -> list[tuple[int, int]]:
    """First row and rows of each step, in the order of the walk."""
    steps = list(zip(accumulate(sizes, initial=0), sizes))
    return steps[::-1] if reverse else steps


class _Carried:
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


def _split(a: Any, gates: int) -> list[Any]:
    """The parts of each gate."""
    n = a.shape[1] // gates
    return [a[:, k * n : (k + 1) * n] for k in range(gates)]


def _in_order(rows: list[Any], reverse: bool) -> list[Any]:
    return rows[::-1] if reverse else rows


class _Arrays:
    """The array library of a tensor, and gates side by side in a row: one large product a step."""

    def __init__(self, like: Tensor, gates: int) -> None:
        self.dtype, self.device, self.xp = like.dtype, like.device, xp_of(like)
        self.gates = gates

    def product(self, a: Any, b: Any, out: Any = None) -> Any:
        multiply = room(self.device).matmul
        if observers:
            return library_call(
                "matmul", self.device, lambda a, b: multiply(a, b, self.dtype, out), a, b
            )
        return multiply(a, b, self.dtype, out)

    def empty(self, *shape: int) -> Any:
        return room(self.device).empty(shape, self.dtype, self.device)

    def join(self, parts: list[Any]) -> Any:
        return self.xp.concatenate(parts) if len(parts) > 1 else parts[0].copy()

    def split(self, x: Any) -> list[Any]:
        """The parts of each gate."""
        return _split(x, self.gates)

    def turned(self, w: Any) -> Any:
        """Weights as `given` wants them."""
        return self.xp.ascontiguousarray(w.T)

    def given(self, state: Any, turned: Any) -> list[Any]:
        """What the state gives each gate."""
        return _split(self.product(state, turned), self.gates)

    def slopes(self, rows: int, columns: int) -> Any:
        """Memory for the gates' gradients of all rows."""
        return self.empty(rows, columns)

    def keep(self, slopes: Any, rows: slice, parts: list[Any]) -> None:
        """Write a step's gradients there."""
        self.xp.concatenate(parts, axis=1, out=slopes[rows])

    def back(self, slopes: Any, rows: slice, w: Any) -> Any:
        """The state's gradient."""
        return self.product(slopes[rows], w)

    def as_rows(self, slopes: Any) -> Any:
        """Gradients with the gates of a row side by side."""
        return slopes


class _Apart(_Arrays):
    """Gates one after the other, for NumPy.

    OpenBLAS multiplies the small matrix of one gate without packing it, and an array for each gate
    is what NumPy's loops like best.
    """

    def split(self, x: Any) -> list[Any]:
        return [self.xp.ascontiguousarray(part) for part in _split(x, self.gates)]

    def turned(self, w: Any) -> Any:
        return self.xp.ascontiguousarray(self._of_gates(w).transpose(0, 2, 1))

    def given(self, state: Any, turned: Any) -> list[Any]:
        return list(self.product(state, turned))

    def slopes(self, rows: int, columns: int) -> Any:
        return self.empty(self.gates, rows, columns // self.gates)

    def keep(self, slopes: Any, rows: slice, parts: list[Any]) -> None:
        for to, part in zip(slopes, parts, strict=True):
            to[rows] = part

    def back(self, slopes: Any, rows: slice, w: Any) -> Any:
        return self.product(slopes[:, rows], self._of_gates(w)).sum(0)

    def as_rows(self, slopes: Any) -> Any:
        return self.xp.concatenate(list(slopes), axis=1)

    def _of_gates(self, w: Any) -> Any:
        return w.reshape(self.gates, -1, w.shape[1])


def _arrays_of(like: Tensor, gates: int) -> _Arrays:
    return (_Arrays if runs_cuda_c(like.device) else _Apart)(like, gates)


def walk(
    cell: Cell,
    x: Tensor,
    sizes: tuple[int, ...],
    start: Sequence[Tensor],
    weights: Weights,
    reverse: bool,
) -> tuple[Tensor, ...]:
    """The outputs of all steps, shape (rows, out), and the last states.

    Parameters
    ----------
    x : Tensor, shape (rows, gates * hidden)
        What the inputs give the gates.
    sizes : tuple of int
        Rows of each step; they never grow.
    start : sequence of Tensor, shapes (sizes[0], out) and (sizes[0], hidden)
    weights : Weights
    reverse : bool
        Go from the last step to the first.
    """
    given = [t for t in (x, *start, *weights) if t is not None]
    if open_levels and innermost(given) is not None:
        return _composed(cell, x, sizes, start, weights, reverse)
    arrays = _arrays_of(x, cell.gates)
    _, bias, projection = (None if t is None else t.array for t in weights)
    shift = [] if bias is None else _split(bias[None], cell.gates)
    turned, rows = arrays.turned(weights.w.array), arrays.split(x.array)
    carried = _Carried([s.array for s in start], (sizes[-1] if reverse else sizes[0]), arrays.join)
    outputs: list[Any] = []
    known: list[Any] = []
    for first, count in _steps(sizes, reverse):
        states = carried.at(count)
        r = arrays.given(states[0], turned)
        operands = [*[part[first : first + count] for part in rows], *r, *states, *shift]
        found = cell.forward(operands, arrays.dtype, arrays.device)
        after = list(found[: cell.states])
        if projection is not None:
            after[0] = arrays.product(found[0], projection.T)
        outputs.append(after[0])
        known.append((states, found[0], found[cell.states :]))
        carried.values = after
    result: tuple[Tensor, ...] = record(
        "RecurrentBackward0",
        (arrays.join(_in_order(outputs, reverse)), *carried.finals()),
        given,
        _walk_vjp,
        (x, *start, *weights),
        x.dtype,
        cell=cell,
        sizes=sizes,
        reverse=reverse,
        known=known,
    )
    return result


def _walk_vjp(node: Any, *cotangents: Tensor) -> Sequence[Any]:
    cell: Cell = node.cell
    x, *start = node.saved_tensors[: 1 + cell.states]
    weights = Weights(*node.saved_tensors[1 + cell.states :])
    given = [t for t in (x, *start, *weights) if t is not None]
    if is_grad_enabled() or (open_levels and innermost([*given, *cotangents]) is not None):
        return _vjp_composed(node, x, start, weights, given, cotangents)
    found = _gradients(node, x, weights, [g.array for g in cotangents])
    return [None if a is None else from_array(a, x.dtype, x.device) for a in found]


def _gradients(node: Any, x: Tensor, weights: Weights, slopes: list[Any]) -> list[Any]:
    """Walk back: the gradients of x, the first states and the weights that there are."""
    cell, sizes, reverse = node.cell, node.sizes, node.reverse
    arrays, gates = _arrays_of(x, cell.gates), cell.gates
    w, bias, projection = (None if t is None else t.array for t in weights)
    to_r = arrays.slopes(*x.shape)
    to_x = arrays.slopes(*x.shape) if cell.apart else to_r
    steps = _steps(sizes, reverse)
    carried = _Carried(slopes[1:], steps[-1][1], arrays.join)
    to_outputs: list[Any] = []
    for (first, count), (states, _, known) in zip(steps[::-1], node.known[::-1], strict=True):
        rows = slice(first, first + count)
        to = [*carried.at(count), slopes[0][rows]]
        if projection is not None:
            to_outputs.append(to[0] + to[-1])
            to[0] = arrays.product(to_outputs[-1], projection)
            to[-1] = arrays.xp.zeros_like(to[0])
        found = list(cell.backward([*states, *to, *known], arrays.dtype, arrays.device))
        arrays.keep(to_r, rows, found[:gates])
        if cell.apart:
            arrays.keep(to_x, rows, found[gates : 2 * gates])
        before = [arrays.back(to_r, rows, w), *found[-1:]][: cell.states]
        if cell.direct == 0:
            before[0] += found[-1]
        carried.values = before
    to_x = arrays.as_rows(to_x)
    to_r = arrays.as_rows(to_r) if cell.apart else to_x
    results = [to_x, *carried.finals()]
    hidden = arrays.join(_in_order([states[0] for states, _, _ in node.known], reverse))
    results.append(arrays.product(to_r.T, hidden))
    if bias is not None:
        results.append(to_r.sum(0, dtype=x.dtype.compute.numpy).astype(to_r.dtype, copy=False))
    if projection is not None:
        total = arrays.join(_in_order(to_outputs, not reverse))
        middle = arrays.join(_in_order([hidden for _, hidden, _ in node.known], reverse))
        results.append(arrays.product(total.T, middle))
    return results


def _composed(
    cell: Cell,
    x: Tensor,
    sizes: tuple[int, ...],
    start: Sequence[Tensor],
    weights: Weights,
    reverse: bool,
) -> tuple[Tensor, ...]:
    """The walk as single ops, differentiable to any order."""
    carried = _Carried(start, (sizes[-1] if reverse else sizes[0]), cat)
    outputs = []
    for first, count in _steps(sizes, reverse):
        states = carried.at(count)
        r = linear(states[0], weights.w, weights.bias)
        parts = _split(x[first : first + count], cell.gates), _split(r, cell.gates)
        after, _ = cell.step(*parts, states)
        if weights.projection is not None:
            after[0] = linear(after[0], weights.projection)
        outputs.append(after[0])
        carried.values = after
    return (cat(_in_order(outputs, reverse)), *carried.finals())


def _vjp_composed(
    node: Any,
    x: Tensor,
    start: Sequence[Tensor],
    weights: Weights,
    given: Sequence[Tensor],
    cotangents: Sequence[Tensor],
) -> list[Any]:
    """The gradients, to be differentiated again."""
    from lucid_gpu.autograd.backward import gradients

    record_again = is_grad_enabled()
    with enable_grad():
        results = _composed(node.cell, x, node.sizes, start, weights, node.reverse)
    wanted = [t for t in given if t.requires_grad]
    found = iter(gradients(results, wanted, cotangents, True, record_again))
    return [next(found) if t.requires_grad else None for t in given]
