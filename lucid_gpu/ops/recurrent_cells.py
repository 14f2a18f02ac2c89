"""The cells of recurrent layers: the formula of a step, and its gradient.

A step gets what input and state give each gate (``x``, ``r``) and the states before it. It gives
the states after it, of which the first is its output, and what its gradient wants to know. The
gradient gets that, the states before and the cotangents of those after; it gives the gradients of
``r``, of ``x`` where they are others, and of the state that the formula reads itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from lucid_gpu.ops.traced import Traced
from lucid_gpu.tensor import Tensor

__all__ = ["CELLS", "Cell", "Weights"]

_Tensors = Sequence[Tensor]
_Step = tuple[list[Tensor], list[Tensor]]
_Slopes = tuple[list[Tensor], list[Tensor], list[Tensor]]


class Weights(NamedTuple):
    """Of the states: shape (gates * hidden, out), a bias, a projection (out, hidden) or None."""

    w: Any
    bias: Any
    projection: Any

    def arrays(self) -> Weights:
        return Weights(*[None if t is None else t.array for t in self])


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
    cotangents : int
        That go from step to step: what the product gives the first state, and what the formula
        gives the one it reads.
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
        self.cotangents = 1 if direct is None else 2
        self.forward = Traced(self.after)
        self.backward = Traced(self.before)

    def after(self, tensors: list[Tensor]) -> list[Tensor]:
        """Of ``x``, ``r``, the states and, where there is one, the recurrent bias."""
        n = self.gates
        r, read = tensors[n : 2 * n], 2 * n + self.states
        if tensors[read:]:
            r = [a + b for a, b in zip(r, tensors[read:], strict=True)]
        after, known = self.step(tensors[:n], r, tensors[2 * n : read])
        return [*after, *known]

    def before(self, tensors: list[Tensor]) -> list[Tensor]:
        """Of the states before, the cotangents, one more for the output, and what is known."""
        n, m = self.states, self.states + self.cotangents
        states, to, known = tensors[:n], tensors[n:m], tensors[m:]
        to[0] = to[0] + known.pop(0)
        if self.direct == 0:
            to[0] = to[0] + to.pop()
        to_r, to_x, to_states = self.slopes(known, states, to)
        return [*to_r, *(to_x if self.apart else ()), *to_states]


CELLS = {
    "LSTM": Cell(_lstm, _lstm_slopes, 4, states=2, direct=1),
    "GRU": Cell(_gru, _gru_slopes, 3, apart=True, direct=0),
    "RNN_TANH": Cell(_rnn_tanh, _rnn_tanh_slopes, 1),
    "RNN_RELU": Cell(_rnn_relu, _rnn_relu_slopes, 1),
}
