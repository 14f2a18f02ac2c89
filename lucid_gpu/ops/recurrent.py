"""Recurrent layers and cells, with the arguments of PyTorch's functions.

A layer is one product for the inputs of the whole sequence and a walk along it
(`lucid_gpu.ops.recurrence`), for each direction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lucid_gpu.ops.creation import zeros
from lucid_gpu.ops.dropout import dropout
from lucid_gpu.ops.matmul import linear
from lucid_gpu.ops.recurrence import CELLS, Weights, walk
from lucid_gpu.ops.shape import cat, stack
from lucid_gpu.tape.door import op
from lucid_gpu.tensor import Tensor

__all__ = [
    "gru",
    "gru_cell",
    "lstm",
    "lstm_cell",
    "rnn_relu",
    "rnn_relu_cell",
    "rnn_tanh",
    "rnn_tanh_cell",
]

_DOC = """{title}: layers over sequences.

    The arguments are, by position, ``input, hx, params, has_biases, num_layers, dropout, train,
    bidirectional, batch_first``, or for packed sequences ``data, batch_sizes, hx, params,
    has_biases, num_layers, dropout, train, bidirectional``. ``params`` lists the weights of each
    layer and direction, in the order of the module's parameters. The result are the outputs and the
    last states, of the shapes that the module gives. RuntimeError for sequences of length 0.
    """


def _recurrent(mode: str, arguments: tuple[Any, ...]) -> tuple[Tensor, ...]:
    input, *rest = arguments
    if isinstance(rest[2], (list, tuple)):  # the weights are one place further
        sizes, hx, *settings = rest
        return _layers(mode, input, tuple(sizes.tolist()), hx, *settings)
    hx, *settings, batch_first = rest
    if batch_first:
        input = input.transpose(0, 1)
    steps, batch = input.shape[:2]
    if not steps:
        raise RuntimeError("Expected sequence length to be larger than 0 in RNN")
    rows = input.reshape(steps * batch, input.shape[2])
    out, *states = _layers(mode, rows, (batch,) * steps, hx, *settings)
    out = out.reshape(steps, batch, out.shape[1])
    return (out.transpose(0, 1) if batch_first else out, *states)


def _layers(
    mode: str,
    rows: Tensor,
    sizes: tuple[int, ...],
    hx: Any,
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    p: float,
    train: bool,
    bidirectional: bool,
) -> tuple[Tensor, ...]:
    start = [hx] if isinstance(hx, Tensor) else list(hx)
    directions = 2 if bidirectional else 1
    each = len(params) // (num_layers * directions)
    finals: list[list[Tensor]] = []
    for layer in range(num_layers):
        if layer and train and p:
            rows = dropout(rows, p)
        outs = []
        for direction in range(directions):
            k = layer * directions + direction
            own = list(params[k * each : (k + 1) * each])
            first = [s[k] for s in start]
            out, *last = _direction(mode, rows, sizes, first, own, has_biases, bool(direction))
            outs.append(out)
            finals.append(last)
        rows = cat(outs, 1) if bidirectional else outs[0]
    return (rows, *[stack(states) for states in zip(*finals, strict=True)])


def _direction(
    mode: str,
    rows: Tensor,
    sizes: tuple[int, ...],
    start: Sequence[Tensor],
    params: list[Tensor],
    has_biases: bool,
    reverse: bool,
) -> tuple[Tensor, ...]:
    w_ih, w_hh = params[:2]
    bias = other = None
    if has_biases:
        bias, other = params[2:4]
        if not CELLS[mode].apart:  # gates that add both biases can have their sum
            bias, other = None, bias + other
    projection = params[-1] if len(params) % 2 else None
    gates = linear(rows, w_ih, bias)
    if gates.dtype.category < 2 and mode != "RNN_RELU":
        raise RuntimeError(
            f"{mode.lower()}: result type Float can't be cast to the desired output type "
            f"{gates.dtype.name}: convert input, states and weights with .float()"
        )
    return walk(CELLS[mode], gates, sizes, start, Weights(w_hh, other, projection), reverse)


def _layer_function(mode: str) -> Callable[..., tuple[Tensor, ...]]:
    @op(autocast="lower")
    def function(*arguments: Any) -> tuple[Tensor, ...]:
        return _recurrent(mode, arguments)

    function.__name__ = mode.lower()
    function.__doc__ = _DOC.format(title=mode.replace("_", " with "))
    return function


lstm, gru, rnn_tanh, rnn_relu = [_layer_function(mode) for mode in CELLS]


# --- one step ------------------------------------------------------------------------------------


def _cell(
    mode: str,
    input: Tensor,
    states: Sequence[Tensor],
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None,
    b_hh: Tensor | None,
) -> tuple[Tensor, ...]:
    check_cell("", input, states, w_ih, w_hh)
    params = [w_ih, w_hh]
    if b_ih is not None or b_hh is not None:
        params += [zeros(w_ih.shape[0]).to(w_ih) if b is None else b for b in (b_ih, b_hh)]
    sizes = (input.shape[0],)
    return _direction(mode, input, sizes, states, params, len(params) > 2, False)[1:]


def check_cell(
    who: str, input: Tensor, states: Sequence[Tensor], w_ih: Tensor, w_hh: Tensor
) -> None:
    """Refuse sizes that do not go together; ``who`` begins the sentence."""
    if input.shape[1] != w_ih.shape[1]:
        raise RuntimeError(
            f"{who}input has inconsistent input_size: got {input.shape[1]} expected {w_ih.shape[1]}"
        )
    for k, state in enumerate(states):
        if state.shape[0] != input.shape[0]:
            raise RuntimeError(
                f"{who}Input batch size {input.shape[0]} doesn't match hidden{k} batch size "
                f"{state.shape[0]}"
            )
        if state.shape[1] != w_hh.shape[1]:
            raise RuntimeError(
                f"{who}hidden{k} has inconsistent hidden_size: got {state.shape[1]}, expected "
                f"{w_hh.shape[1]}"
            )


@op(autocast="lower")
def lstm_cell(
    input: Tensor,
    hx: Sequence[Tensor],
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """One step of an LSTM, as `lucid_gpu.nn.LSTMCell` takes it.

    Parameters
    ----------
    input : Tensor, shape (batch, features)
    hx : pair of Tensor, shape (batch, hidden)
    w_ih, w_hh : Tensor, shapes (4 * hidden, features), (4 * hidden, hidden)
    b_ih, b_hh : Tensor, shape (4 * hidden,), optional

    Returns
    -------
    tuple of Tensor
        The states after the step.
    """
    h, c = _cell("LSTM", input, tuple(hx), w_ih, w_hh, b_ih, b_hh)
    return h, c


def _cell_function(mode: str, name: str) -> Callable[..., Tensor]:
    @op(autocast="lower")
    def function(
        input: Tensor,
        hx: Tensor,
        w_ih: Tensor,
        w_hh: Tensor,
        b_ih: Tensor | None = None,
        b_hh: Tensor | None = None,
    ) -> Tensor:
        return _cell(mode, input, (hx,), w_ih, w_hh, b_ih, b_hh)[0]

    function.__name__ = name
    function.__doc__ = f"The state after one step of {mode}; as `lstm_cell`, with one state."
    return function


gru_cell = _cell_function("GRU", "gru_cell")
rnn_tanh_cell = _cell_function("RNN_TANH", "rnn_tanh_cell")
rnn_relu_cell = _cell_function("RNN_RELU", "rnn_relu_cell")

FUNCTIONS = (lstm, gru, rnn_tanh, rnn_relu, lstm_cell, gru_cell, rnn_tanh_cell, rnn_relu_cell)
