"""Activation modules: one table."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any

from lucid_gpu.nn import functional as F
from lucid_gpu.nn.init import constant_
from lucid_gpu.nn.modules.module import Module
from lucid_gpu.nn.parameter import Parameter
from lucid_gpu.ops.creation import empty
from lucid_gpu.tensor import Tensor

__all__ = [
    "CELU",
    "ELU",
    "GELU",
    "GLU",
    "SELU",
    "Hardshrink",
    "Hardsigmoid",
    "Hardswish",
    "Hardtanh",
    "LeakyReLU",
    "LogSigmoid",
    "LogSoftmax",
    "Mish",
    "PReLU",
    "RReLU",
    "ReLU",
    "ReLU6",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Softmax2d",
    "Softmin",
    "Softplus",
    "Softshrink",
    "Softsign",
    "Tanh",
    "Tanhshrink",
    "Threshold",
]


class _Activation(Module):
    """A function of `functional` with its settings: what every row of the table becomes."""

    function: Callable[..., Tensor]
    signature: inspect.Signature
    shown: str | None = None  # the repr, where it does not name the settings

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
        if self.shown is not None:
            return self.shown.format(**self.__dict__)
        shown = [name for name in self._settings if name != "inplace" or self.inplace]
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)


_NEEDED = inspect.Parameter.empty


def _row(
    name: str, function: Callable[..., Tensor], *, _shown: str | None = None, **settings: Any
) -> Any:
    """A module class of one function; ``settings`` are its arguments and their defaults."""
    parameters = [
        inspect.Parameter(key, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default)
        for key, default in settings.items()
    ]
    body = {
        "shown": _shown,
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
_Hardtanh   = _row("Hardtanh", F.hardtanh, min_val=-1.0, max_val=1.0, inplace=False)
Hardsigmoid = _row("Hardsigmoid", F.hardsigmoid, inplace=False)
Hardswish   = _row("Hardswish", F.hardswish, inplace=False)
LogSigmoid  = _row("LogSigmoid", F.logsigmoid)
Sigmoid     = _row("Sigmoid", F.sigmoid)
Tanh        = _row("Tanh", F.tanh)
Tanhshrink  = _row("Tanhshrink", F.tanhshrink)
Threshold   = _row("Threshold", F.threshold, threshold=_NEEDED, value=_NEEDED, inplace=False)
Hardshrink  = _row("Hardshrink", F.hardshrink, lambd=0.5, _shown="{lambd}")
Softshrink  = _row("Softshrink", F.softshrink, lambd=0.5, _shown="{lambd}")
GLU         = _row("GLU", F.glu, dim=-1)
Softmin     = _row("Softmin", F.softmin, dim=None)
Softmax     = _row("Softmax", F.softmax, dim=None)
LogSoftmax  = _row("LogSoftmax", F.log_softmax, dim=None)
# fmt: on


class Hardtanh(_Hardtanh):  # type: ignore[misc, valid-type]
    """Clamped to ``[min_val, max_val]``; no gradient at and beyond the ends.

    Parameters
    ----------
    min_val, max_val : float
    inplace : bool
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        for old, new in (("min_value", "min_val"), ("max_value", "max_val")):
            if old in kwargs:
                warnings.warn(
                    f"keyword argument `{old}` is deprecated and renamed to `{new}`",
                    FutureWarning,
                    stacklevel=2,
                )
                kwargs[new] = kwargs.pop(old)
        super().__init__(*args, **kwargs)
        if not self.max_val > self.min_val:
            raise AssertionError(
                f"max_val ({self.max_val}) must be greater than min_val ({self.min_val})"
            )


class RReLU(Module):
    """`functional.rrelu`: `LeakyReLU` with random slopes in training, their middle otherwise.

    Parameters
    ----------
    lower, upper : float
        Bounds of the slopes.
    inplace : bool
    """

    def __init__(
        self, lower: float = 1.0 / 8, upper: float = 1.0 / 3, inplace: bool = False
    ) -> None:
        super().__init__()
        self.lower, self.upper, self.inplace = lower, upper, inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.rrelu(input, self.lower, self.upper, self.training, self.inplace)

    def extra_repr(self) -> str:
        end = ", inplace=True" if self.inplace else ""
        return f"lower={self.lower}, upper={self.upper}{end}"


class PReLU(Module):
    """``x`` where positive, else ``weight * x`` with a learnt slope.

    Parameters
    ----------
    num_parameters : int
        1, or the number of channels.
    init : float
        The first slopes.
    device, dtype : optional

    Attributes
    ----------
    weight : Parameter, shape (num_parameters,)
    """

    def __init__(
        self, num_parameters: int = 1, init: float = 0.25, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self.num_parameters, self.init = num_parameters, init
        self.weight = Parameter(empty(num_parameters, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """The first slopes again."""
        constant_(self.weight, self.init)

    def forward(self, input: Tensor) -> Tensor:
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"


class Softmax2d(Module):
    """`Softmax` over the channels of images ``(n, c, h, w)`` or ``(c, h, w)``."""

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim not in (3, 4):
            raise ValueError(f"Softmax2d: expected input to be 3D or 4D, got {input.ndim}D instead")
        return F.softmax(input, -3)
