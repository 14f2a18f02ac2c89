"""Activation modules: one table."""

from __future__ import annotations

from typing import Any

from lucid_gpu.nn import functional as F
from lucid_gpu.nn.init import constant_
from lucid_gpu.nn.modules.attention import MultiheadAttention
from lucid_gpu.nn.modules.module import Module
from lucid_gpu.nn.modules.rows import NEEDED, Row, row, signature_of
from lucid_gpu.nn.parameter import Parameter
from lucid_gpu.ops import elementwise
from lucid_gpu.ops.creation import empty
from lucid_gpu.ops.user_warnings import warn_user
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
    "MultiheadAttention",
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


class _Activation(Row):
    def extra_repr(self) -> str:
        shown = [name for name in self._settings if name != "inplace" or self.inplace]
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)


class _Shrink(_Activation):
    def extra_repr(self) -> str:
        return str(self.lambd)


class _Plain(_Activation):
    """Of a function of `lucid_gpu` that `functional` calls as a method, which no handler sees."""

    def forward(self, input: Tensor) -> Tensor:
        return elementwise.FUNCTIONS[self._name](input)


class _Silent(_Activation):
    def extra_repr(self) -> str:
        return ""


# fmt: off
ReLU        = row(_Activation, "ReLU", F.relu, inplace=False)
LeakyReLU   = row(_Activation, "LeakyReLU", F.leaky_relu, negative_slope=0.01, inplace=False)
ELU         = row(_Activation, "ELU", F.elu, alpha=1.0, inplace=False)
SELU        = row(_Activation, "SELU", F.selu, inplace=False)
CELU        = row(_Activation, "CELU", F.celu, alpha=1.0, inplace=False)
SiLU        = row(_Activation, "SiLU", F.silu, inplace=False)
Mish        = row(_Activation, "Mish", F.mish, inplace=False)
GELU        = row(_Activation, "GELU", F.gelu, approximate="none")
Softplus    = row(_Activation, "Softplus", F.softplus, beta=1.0, threshold=20.0)
Softsign    = row(_Activation, "Softsign", F.softsign)
_Clamped    = row(_Activation, "_Clamped", F.hardtanh, min_val=-1.0, max_val=1.0, inplace=False)
Hardsigmoid = row(_Silent, "Hardsigmoid", F.hardsigmoid, inplace=False)
Hardswish   = row(_Silent, "Hardswish", F.hardswish, inplace=False)
LogSigmoid  = row(_Activation, "LogSigmoid", F.logsigmoid)
Sigmoid     = row(_Plain, "Sigmoid", F.sigmoid)
Tanh        = row(_Plain, "Tanh", F.tanh)
Tanhshrink  = row(_Activation, "Tanhshrink", F.tanhshrink)
Threshold   = row(
    _Activation, "Threshold", F.threshold, threshold=NEEDED, value=NEEDED, inplace=False
)
Hardshrink  = row(_Shrink, "Hardshrink", F.hardshrink, lambd=0.5)
Softshrink  = row(_Shrink, "Softshrink", F.softshrink, lambd=0.5)
GLU         = row(_Activation, "GLU", F.glu, dim=-1)
Softmin     = row(_Activation, "Softmin", F.softmin, dim=None)
Softmax     = row(_Activation, "Softmax", F.softmax, dim=None)
LogSoftmax  = row(_Activation, "LogSoftmax", F.log_softmax, dim=None)
# fmt: on


class Hardtanh(_Clamped):  # type: ignore[misc, valid-type]
    """Clamped to ``[min_val, max_val]``; no gradient at and beyond the ends.

    Parameters
    ----------
    min_val, max_val : float
        The first is less, else AssertionError.
    inplace : bool
    """

    _signature = signature_of(
        {"min_val": -1.0, "max_val": 1.0, "inplace": False, "min_value": None, "max_value": None}
    )

    def _read(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Settings by their older names too; AssertionError if the ends are not in order."""
        for old, new in (("min_value", "min_val"), ("max_value", "max_val")):
            given = settings.pop(old, None)
            if given is not None:
                warn_user(
                    f"keyword argument `{old}` is deprecated and renamed to `{new}`", FutureWarning
                )
                settings[new] = given
        if "max_val" in settings and not settings["max_val"] > settings["min_val"]:
            raise AssertionError(
                f"{type(self).__name__}: max_val ({settings['max_val']}) must be greater than "
                f"min_val ({settings['min_val']})"
            )
        return settings

    def forward(self, input: Tensor) -> Tensor:
        """The input, clamped; of its shape."""
        return F.hardtanh(input, self.min_val, self.max_val, self.inplace)


ReLU6 = row(Hardtanh, "ReLU6", F.relu6, inplace=False)
ReLU6.min_val, ReLU6.max_val = 0.0, 6.0


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
    """``x`` where positive, else ``weight * x`` with a learned slope; elementwise.

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
    """`Softmax` over the channels of images ``(n, c, h, w)`` or ``(c, h, w)``, else ValueError.

    TypeError for arguments.
    """

    def forward(self, input: Tensor) -> Tensor:
        if input.dim() not in (3, 4):
            raise ValueError(
                f"Softmax2d: expected input to be 3D or 4D, got {input.dim()}D instead"
            )
        return F.softmax(input, -3)
