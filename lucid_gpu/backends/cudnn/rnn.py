"""`torch.backends.cudnn.rnn`: the numbers that cuDNN gives recurrent layers."""

from __future__ import annotations

__all__ = ["get_cudnn_mode"]

_MODES = ("RNN_RELU", "RNN_TANH", "LSTM", "GRU")


def get_cudnn_mode(mode: str) -> int:
    """Return the number of a `mode`, such as "LSTM"; Exception for any other."""
    if mode not in _MODES:
        raise Exception(f"Unknown mode: {mode}")
    return _MODES.index(mode)
