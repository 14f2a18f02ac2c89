"""Activation modules: one table."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from lucid_gpu.nn import functional as F
from lucid_gpu.nn.modules.module import Module
from lucid_gpu.tensor import Tensor

__all__ = [
    "CELU",
    "ELU",
    "GELU",
    "SELU",
    "Hardsigmoid",
    "Hardswish",
    "Hardtanh",
    "LeakyReLU",
    "LogSigmoid",
    "LogSoftmax",
    "Mish",
    "ReLU",
    "ReLU6",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Softplus",
    "Softsign",
    "Tanh",
    "Tanhshrink",
]


class _Activation(Module):
    """A function of `functional` with its settings: what every row of the table becomes."""

    function: Callable[..., Tensor]
    signature: inspect.Signature

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{type(self).__name__}.__init__() {error}") from None
        bound.apply_defaults()
        self._settings = tuple(bound.arguments)
        for name, value in bound.arguments.items():
            setattr(self, name, value)

    def forward(self, input: Tensor) -> Tensor:
        return type(self).function(input, **{name: getattr(self, name) for name in self._settings})

    def extra_repr(self) -> str:
        shown = [name for name in self._settings if name != "inplace" or self.inplace]
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)


def _row(name: str, function: Callable[..., Tensor], **settings: Any) -> Any:
    """A module class of one function; ``settings`` are its arguments and their defaults."""
    parameters = [
        inspect.Parameter(key, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default)
        for key, default in settings.items()
    ]
    body = {
        "function": staticmethod(function),
        "signature": inspect.Signature(parameters),
        "__signature__": inspect.Signature(parameters),
        "__doc__": f"{function.__doc__}\n\n    Arguments are those of `functional`.",
        "__module__": __name__,
    }
    return type(name, (_Activation,), body)


# fmt: off
ReLU        = _row("ReLU", F.relu, inplace=False)
ReLU6       = _row("ReLU6", F.relu6, inplace=False)
LeakyReLU   = _row("LeakyReLU", F.leaky_relu, negative_slope=0.01, inplace=False)
ELU         = _row("ELU", F.elu, alpha=1.0, inplace=False)
SELU        = _row("SELU", F.selu, inplace=False)
CELU        = _row("CELU", F.celu, alpha=1.0, inplace=False)
SiLU        = _row("SiLU", F.silu, inplace=False)
Mish        = _row("Mish", F.mish, inplace=False)
GELU        = _row("GELU", F.gelu, approximate="none")
Softplus    = _row("Softplus", F.softplus, beta=1.0, threshold=20.0)
Softsign    = _row("Softsign", F.softsign)
Hardtanh    = _row("Hardtanh", F.hardtanh, min_val=-1.0, max_val=1.0, inplace=False)
Hardsigmoid = _row("Hardsigmoid", F.hardsigmoid, inplace=False)
Hardswish   = _row("Hardswish", F.hardswish, inplace=False)
LogSigmoid  = _row("LogSigmoid", F.logsigmoid)
Sigmoid     = _row("Sigmoid", F.sigmoid)
Tanh        = _row("Tanh", F.tanh)
Tanhshrink  = _row("Tanhshrink", F.tanhshrink)
Softmax     = _row("Softmax", F.softmax, dim=None)
LogSoftmax  = _row("LogSoftmax", F.log_softmax, dim=None)
# fmt: on
