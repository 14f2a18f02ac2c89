"""Recurrent cells: one step of a layer, with the states given and returned."""

from __future__ import annotations

import math
from typing import Any

from lucid_gpu.nn import init
from lucid_gpu.nn.modules.module import Module
from lucid_gpu.nn.parameter import Parameter
from lucid_gpu.ops import recurrent
from lucid_gpu.ops.creation import empty, zeros
from lucid_gpu.tensor import Tensor

__all__ = ["GRUCell", "LSTMCell", "RNNCell", "RNNCellBase"]


def draw_uniform(module: Any) -> None:
    """Parameters uniform in ``+-1 / sqrt(hidden_size)``."""
    bound = 1.0 / math.sqrt(module.hidden_size) if module.hidden_size else 0.0
    for weight in module.parameters():
        init.uniform_(weight, -bound, bound)


class RNNCellBase(Module):
    """What the cells share.

    Parameters
    ----------
    input_size, hidden_size : int
    bias : bool
    num_chunks : int
        Gates.
    device, dtype : optional
    """

    states = 1

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool,
        num_chunks: int,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        rows = num_chunks * hidden_size
        shapes = {"weight_ih": (rows, input_size), "weight_hh": (rows, hidden_size)}
        for name, shape in shapes.items():
            setattr(self, name, Parameter(empty(shape, device=device, dtype=dtype)))
        for name in ("bias_ih", "bias_hh"):
            made = Parameter(empty(rows, device=device, dtype=dtype)) if bias else None
            self.register_parameter(name, made)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all weights anew, uniform in ``+-1 / sqrt(hidden_size)``."""
        draw_uniform(self)

    def _step(self, function: Any, input: Tensor, hx: Any) -> Any:
        name = type(self).__name__
        if input.dim() not in (1, 2):
            raise ValueError(f"{name}: Expected input to be 1D or 2D, got {input.dim()}D instead")
        several = self.states > 1
        single = input.dim() == 1
        if single:
            input = input.unsqueeze(0)
        if hx is None:
            shape = input.shape[0], self.hidden_size
            states = [zeros(shape, dtype=input.dtype, device=input.device)] * self.states
        else:
            if several and isinstance(hx, Tensor):
                raise TypeError(
                    "lstm_cell(): argument 'hx' (position 2) must be tuple of Tensors, not Tensor: "
                    "give (h, c)"
                )
            states = list(hx) if several else [hx]
            for k, t in enumerate(states):
                if t.ndim not in (1, 2):
                    what = f"hx[{k}]" if several else "hidden"
                    raise ValueError(
                        f"{name}: Expected {what} to be 1D or 2D, got {t.ndim}D instead"
                    )
            states = [t.unsqueeze(0) for t in states] if single else states
        weights = (self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        recurrent.check_cell(f"{name}: ", input, states, *weights[:2])
        updated = function(input, states if several else states[0], *weights)
        if not single:
            return updated
        return tuple(t.squeeze(0) for t in updated) if several else updated.squeeze(0)

    def extra_repr(self) -> str:
        bias = "" if self.bias else f", bias={self.bias}"
        return f"{self.input_size}, {self.hidden_size}{bias}"


class LSTMCell(RNNCellBase):
    """One step of an `LSTM`: ``h, c = cell(input, (h, c))``.

    The input is (batch, input_size), states are (batch, hidden_size), or all without the batch;
    states are zero where they are not given.

    Parameters
    ----------
    input_size, hidden_size : int
    bias : bool
    device, dtype : optional

    Attributes
    ----------
    weight_ih, weight_hh : Parameter, shapes (4 * hidden_size, input_size), (.., hidden_size)
    bias_ih, bias_hh : Parameter, shape (4 * hidden_size,), or None
    """

    states = 2

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(
        self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        return self._step(recurrent.lstm_cell, input, hx)


class GRUCell(RNNCellBase):
    """One step of a `GRU`: ``h = cell(input, h)``; all else, and shapes, as in `LSTMCell`.

    Its weights have rows for 3 gates.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        return self._step(recurrent.gru_cell, input, hx)


class RNNCell(RNNCellBase):
    """One step of an `RNN`: ``h = cell(input, h)``; shapes as in `LSTMCell`.

    Parameters
    ----------
    input_size, hidden_size : int
    bias : bool
    nonlinearity : {"tanh", "relu"}
        RuntimeError for another, when it is called.
    device, dtype : optional
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        if self.nonlinearity not in ("tanh", "relu"):
            raise RuntimeError(f"RNNCell: Unknown nonlinearity: {self.nonlinearity}")
        function = getattr(recurrent, f"rnn_{self.nonlinearity}_cell")
        return self._step(function, input, hx)

    def extra_repr(self) -> str:
        other = "" if self.nonlinearity == "tanh" else f", nonlinearity={self.nonlinearity}"
        return super().extra_repr() + other
