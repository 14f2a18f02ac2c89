"""Recurrent layers."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from lucid_gpu.nn.modules.module import Module
from lucid_gpu.nn.modules.rnn_cells import *  # noqa: F403  PyTorch has them here
from lucid_gpu.nn.modules.rnn_cells import draw_uniform
from lucid_gpu.nn.parameter import Parameter
from lucid_gpu.nn.utils.rnn import PackedSequence
from lucid_gpu.ops import recurrent
from lucid_gpu.ops.creation import empty, zeros
from lucid_gpu.ops.recurrence import CELLS
from lucid_gpu.ops.user_warnings import warn_user
from lucid_gpu.tensor import Tensor

__all__ = ["GRU", "LSTM", "RNN", "RNNBase"]


def _apply_permutation(tensor: Tensor, permutation: Tensor, dim: int = 1) -> Tensor:
    """The parts of a tensor in another order, along ``dim``."""
    return tensor.index_select(dim, permutation)


def apply_permutation(tensor: Tensor, permutation: Tensor, dim: int = 1) -> Tensor:
    """`Tensor.index_select` under an older name, with a FutureWarning."""
    warn_user(
        "`apply_permutation` is deprecated, please use `tensor.index_select(dim, permutation)` "
        "instead",
        FutureWarning,
    )
    return _apply_permutation(tensor, permutation, dim)


def _autocast(input: Tensor) -> bool:
    """Whether types are made the same anyway."""
    from lucid_gpu.amp.state import is_autocast_enabled

    return is_autocast_enabled(input.device.type)


class RNNBase(Module):
    """What LSTM, GRU and RNN share.

    Parameters
    ----------
    mode : {"LSTM", "GRU", "RNN_TANH", "RNN_RELU"}
    input_size, hidden_size, num_layers : int
    bias, batch_first : bool
    dropout : float
        Chance of an element of an inner layer's output to be dropped in training.
    bidirectional : bool
    proj_size : int
        Outputs a projected state of an LSTM has; 0 for none.
    device, dtype : optional

    Raises
    ------
    ValueError, TypeError
        For invalid settings.
    """

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if mode not in CELLS:
            raise ValueError(f"Unrecognized RNN mode: {mode}")
        self.mode = mode
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.bias, self.batch_first = bias, batch_first
        self.bidirectional, self.proj_size = bidirectional, proj_size
        self._check_settings(dropout)
        self.dropout = float(dropout)
        self._all_weights: list[list[str]] = []
        for layer in range(num_layers):
            for suffix in ("", "_reverse")[: self._directions]:
                shapes = self._shapes(layer)
                names = [f"{name}_l{layer}{suffix}" for name in shapes]
                self._all_weights.append(names)
                for name, shape in zip(names, shapes.values(), strict=True):
                    setattr(self, name, Parameter(empty(shape, device=device, dtype=dtype)))
        self.reset_parameters()

    def _check_settings(self, dropout: Any) -> None:
        name = type(self).__name__
        number = isinstance(dropout, (int, float)) and not isinstance(dropout, bool)
        if not number or not 0 <= dropout <= 1:
            raise ValueError(
                "dropout should be a number in range [0, 1] representing the probability of an "
                f"element being zeroed; {name} got {dropout!r}"
            )
        if dropout > 0 and self.num_layers == 1:
            warnings.warn(
                "dropout option adds dropout after all but last recurrent layer, so non-zero "
                f"dropout expects num_layers greater than 1, but got dropout={dropout} and "
                f"num_layers={self.num_layers}",
                stacklevel=4,
            )
        for setting, kind in (
            ("bias", bool),
            ("batch_first", bool),
            ("input_size", int),
            ("hidden_size", int),
        ):
            value = getattr(self, setting)
            if not isinstance(value, kind):
                raise TypeError(
                    f"{name}: {setting} should be of type {kind.__name__}, got: "
                    f"{type(value).__name__}"
                )
        for setting in ("input_size", "hidden_size", "num_layers"):
            if getattr(self, setting) <= 0:
                raise ValueError(f"{name}: {setting} must be greater than zero")
        if self.proj_size < 0:
            raise ValueError(
                f"{name}: proj_size should be a positive integer or zero to disable projections"
            )
        if self.proj_size >= self.hidden_size:
            raise ValueError(f"{name}: proj_size has to be smaller than hidden_size")

    def _shapes(self, layer: int) -> dict[str, tuple[int, ...]]:
        """The parameters of one direction of a layer."""
        rows = CELLS[self.mode].gates * self.hidden_size
        columns = self._outputs * self._directions if layer else self.input_size
        shapes: dict[str, tuple[int, ...]] = {
            "weight_ih": (rows, columns),
            "weight_hh": (rows, self._outputs),
        }
        if self.bias:
            shapes.update(bias_ih=(rows,), bias_hh=(rows,))
        if self.proj_size:
            shapes["weight_hr"] = (self.proj_size, self.hidden_size)
        return shapes

    @property
    def _directions(self) -> int:
        return 2 if self.bidirectional else 1

    @property
    def _outputs(self) -> int:
        return self.proj_size or self.hidden_size

    @property
    def all_weights(self) -> list[list[Parameter]]:
        """The parameters of each layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    @property
    def _flat_weights_names(self) -> list[str]:
        return [name for names in self._all_weights for name in names]

    @property
    def _flat_weights(self) -> list[Any]:
        """What `forward` computes with: the parameters, or tensors that were put in their place."""
        replaced = self.__dict__.get("_replaced", {})
        names = self._flat_weights_names
        return [replaced[name] if name in replaced else getattr(self, name) for name in names]

    @_flat_weights.setter
    def _flat_weights(self, weights: Sequence[Any]) -> None:
        pairs = zip(self._flat_weights_names, weights, strict=True)
        self.__dict__["_replaced"] = {n: w for n, w in pairs if w is not getattr(self, n, None)}

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        self.__dict__.get("_replaced", {}).pop(name, None)

    def reset_parameters(self) -> None:
        """Draw all weights anew, uniform in ``+-1 / sqrt(hidden_size)``."""
        draw_uniform(self)

    def flatten_parameters(self) -> None:
        """Nothing: each weight is used where it lies."""

    def forward(self, input: Any, hx: Any = None) -> Any:
        """The outputs of the last layer, and the states after the last step.

        Parameters
        ----------
        input : Tensor, shape (steps, batch, input_size), or PackedSequence
            With ``batch_first`` (batch, steps, input_size); (steps, input_size) is one sequence.
        hx : Tensor, shape (num_layers * directions, batch, features), optional
            The first states, for an LSTM a pair, without the batch for one sequence; else zeros.

        Raises
        ------
        ValueError, RuntimeError
            For input or states of another shape or dtype.
        """
        if isinstance(input, PackedSequence):
            return self._packed(input, hx)
        name = type(self).__name__
        if input.dim() not in (2, 3):
            raise ValueError(f"{name}: Expected input to be 2D or 3D, got {input.dim()}D instead")
        batch_dim = 0 if self.batch_first else 1
        single = input.dim() == 2
        if single:
            input = input.unsqueeze(batch_dim)
        if hx is not None:
            self._check_rank(hx, input.dim() - single)
            hx = self._each(hx, lambda t: t.unsqueeze(1)) if single else hx
        out, states = self._run(input, None, input.shape[batch_dim], hx)
        if single:
            return out.squeeze(batch_dim), self._each(states, lambda t: t.squeeze(1))
        return out, states

    def _packed(self, input: PackedSequence, hx: Any) -> tuple[PackedSequence, Any]:
        data, sizes, order, inverse = input
        hx = None if hx is None else self.permute_hidden(hx, order)
        out, states = self._run(data, sizes, int(sizes[0]), hx)
        return PackedSequence(out, sizes, order, inverse), self.permute_hidden(states, inverse)

    def _run(self, input: Tensor, sizes: Tensor | None, batch: int, hx: Any) -> tuple[Tensor, Any]:
        if hx is None:
            self.check_input(input, sizes)
            made = [zeros(s, dtype=input.dtype, device=input.device) for s in self._sizes(batch)]
            hx = tuple(made) if len(made) > 1 else made[0]
        else:
            self.check_forward_args(input, hx, sizes)
        function = getattr(recurrent, self.mode.lower())
        settings = (self._flat_weights, self.bias, self.num_layers, self.dropout, self.training)
        if sizes is None:
            given: Any = (input, hx, *settings, self.bidirectional, self.batch_first)
        else:
            given = (input, sizes, hx, *settings, self.bidirectional)
        out, *states = getattr(function, "shown", function)(*given)
        return out, tuple(states) if len(states) > 1 else states[0]

    @property
    def _widths(self) -> tuple[int, ...]:
        """Of the states."""
        return (self._outputs, self.hidden_size)[: CELLS[self.mode].states]

    def _each(self, states: Any, function: Any) -> Any:
        """A function of each state, which come as they are taken: one, or several."""
        if isinstance(states, Tensor):
            return function(states)
        return tuple(function(t) for t in states)

    def _check_rank(self, hx: Any, rank: int) -> None:
        several = len(self._widths) > 1
        ranks = [t.ndim for t in (hx if several else (hx,))]
        if all(r == rank for r in ranks):
            return
        kind = "batched" if rank == 3 else "unbatched"
        who, got = ("hx", f"{ranks[0]}-D tensor")
        if several:
            who, got = ("hx and cx", "(" + ", ".join(f"{r}-D" for r in ranks) + ") tensors")
        raise RuntimeError(
            f"For {kind} {rank}-D input, {who} should also be {rank}-D but got {got}; "
            f"{type(self).__name__} takes shape (num_layers * directions"
            f"{', batch' if rank == 3 else ''}, features)"
        )

    def check_input(self, input: Tensor, batch_sizes: Tensor | None) -> None:
        """Refuse input of another type, rank or size than the layer takes.

        Parameters
        ----------
        input : Tensor, shape (steps, batch, input_size), or packed (rows, input_size)
        batch_sizes : Tensor, optional
            Those of a packed batch.

        Raises
        ------
        ValueError
            For another dtype than that of the weights.
        RuntimeError
            For another shape.
        """
        name, kind = type(self).__name__, self.all_weights[0][0].dtype
        if input.dtype is not kind and not _autocast(input):
            raise ValueError(
                f"RNN input dtype ({input.dtype}) does not match weight dtype ({kind}). Convert "
                f"input: input.to({kind}), or convert model: model.to({input.dtype})"
            )
        rank = 3 if batch_sizes is None else 2
        if input.dim() != rank:
            raise RuntimeError(f"{name}: input must have {rank} dimensions, got {input.dim()}")
        if input.shape[-1] != self.input_size:
            raise RuntimeError(
                f"{name}: input.size(-1) must be equal to input_size. Expected "
                f"{self.input_size}, got {input.shape[-1]}"
            )

    def _sizes(self, batch: int) -> list[tuple[int, ...]]:
        """Of the states."""
        return [(self.num_layers * self._directions, batch, n) for n in self._widths]

    def get_expected_hidden_size(
        self, input: Tensor, batch_sizes: Tensor | None
    ) -> tuple[int, ...]:
        """Return the shape of the first state for an input, shape as of `check_input`."""
        batch = input.shape[0 if self.batch_first else 1] if batch_sizes is None else batch_sizes[0]
        return self._sizes(int(batch))[0]

    def check_hidden_size(
        self,
        hx: Tensor,
        expected_hidden_size: tuple[int, ...],
        msg: str = "Expected hidden size {}, got {}",
    ) -> None:
        """Refuse a state of another shape with a RuntimeError that says `msg`."""
        if tuple(hx.shape) != expected_hidden_size:
            told = msg.format(expected_hidden_size, list(hx.shape))
            raise RuntimeError(f"{type(self).__name__}: {told}")

    def check_forward_args(self, input: Tensor, hidden: Any, batch_sizes: Tensor | None) -> None:
        """Refuse what `check_input` refuses, and states of another shape than the layer takes.

        Parameters
        ----------
        input : Tensor, shape (steps, batch, input_size), or packed (rows, input_size)
        hidden : Tensor or tuple of Tensor, shape (num_layers * directions, batch, features)
        batch_sizes : Tensor, optional
            Those of a packed batch.
        """
        self.check_input(input, batch_sizes)
        shapes = self._sizes(self.get_expected_hidden_size(input, batch_sizes)[1])
        several = len(shapes) > 1
        for k, (t, shape) in enumerate(zip(hidden if several else (hidden,), shapes, strict=True)):
            told = f"Expected hidden{f'[{k}]' if several else ''} size {{}}, got {{}}"
            self.check_hidden_size(t, shape, told)

    def permute_hidden(self, hx: Any, permutation: Tensor | None) -> Any:
        """Return states, shape (layers, batch, features), with the batch in another order."""
        if permutation is None:
            return hx
        return self._each(hx, lambda t: _apply_permutation(t, permutation))

    def extra_repr(self) -> str:
        usual = {
            "proj_size": 0,
            "num_layers": 1,
            "bias": True,
            "batch_first": False,
            "dropout": 0,
            "bidirectional": False,
        }
        shown = [f", {k}={getattr(self, k)}" for k, v in usual.items() if getattr(self, k) != v]
        return f"{self.input_size}, {self.hidden_size}{''.join(shown)}"


class LSTM(RNNBase):
    r"""Long short-term memory (Hochreiter and Schmidhuber, 1997), over sequences.

    ``i, f, o = sigmoid(.)`` and ``g = tanh(.)`` of ``W_ih x_t + b_ih + W_hh h_{t-1} + b_hh``, in
    the order i, f, g, o; ``c_t = f c_{t-1} + i g``; ``h_t = o tanh(c_t)``, times ``W_hr`` where
    ``proj_size`` is given.

    Parameters
    ----------
    input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, proj_size
        See `RNNBase`.
    device, dtype : optional

    Attributes
    ----------
    weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0, weight_hr_l0, weight_ih_l0_reverse, ...
        Of layer 0 and its backward direction; initially uniform in ``+-1 / sqrt(hidden_size)``.

    Notes
    -----
    ``layer(input, (h_0, c_0))`` takes input (steps, batch, input_size), with ``batch_first``
    (batch, steps, input_size), for a single sequence (steps, input_size), or a `PackedSequence`;
    states (num_layers * directions, batch, features) are zero where they are not given. It returns
    the outputs of the last layer and ``(h_n, c_n)``.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            "LSTM",
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            proj_size,
            device,
            dtype,
        )


class _OneState(RNNBase):
    def _refuse_projection(self, options: dict[str, Any]) -> None:
        if "proj_size" in options:
            raise ValueError(
                "proj_size argument is only supported for LSTM, not RNN or GRU; "
                f"{type(self).__name__} got proj_size={options['proj_size']}"
            )
        if options:
            raise TypeError(f"{type(self).__name__} got unexpected arguments {sorted(options)}")


class GRU(_OneState):
    r"""Gated recurrent units (Cho et al., 2014), over sequences.

    ``r, z = sigmoid(W_ih x_t + b_ih + W_hh h_{t-1} + b_hh)``; ``n = tanh(W_in x_t + b_in + r (W_hn
    h_{t-1} + b_hn))``; ``h_t = (1 - z) n + z h_{t-1}``. The order is r, z, n.

    Parameters
    ----------
    input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional
        See `RNNBase`; called like `LSTM`, with one state.
    device, dtype : optional
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
        **unsupported: Any,
    ) -> None:
        self._refuse_projection(unsupported)
        settings = (num_layers, bias, batch_first, dropout, bidirectional, 0, device, dtype)
        super().__init__("GRU", input_size, hidden_size, *settings)


class RNN(_OneState):
    r"""``h_t = tanh(W_ih x_t + b_ih + W_hh h_{t-1} + b_hh)`` (Elman, 1990), over sequences.

    Parameters
    ----------
    input_size, hidden_size, num_layers
        See `RNNBase`; called like `LSTM`, with one state.
    nonlinearity : {"tanh", "relu"}
        ValueError for another.
    bias, batch_first, dropout, bidirectional
        See `RNNBase`.
    device, dtype : optional
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
        **unsupported: Any,
    ) -> None:
        self._refuse_projection(unsupported)
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(
                f"{type(self).__name__}: Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' "
                "or 'relu'."
            )
        settings = (num_layers, bias, batch_first, dropout, bidirectional, 0, device, dtype)
        super().__init__(f"RNN_{nonlinearity.upper()}", input_size, hidden_size, *settings)
        self.nonlinearity = nonlinearity
