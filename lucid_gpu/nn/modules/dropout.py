"""Random zeros: one table of dropout layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucid_gpu.nn import functional as F
from lucid_gpu.nn.modules.module import Module
from lucid_gpu.tensor import Tensor

__all__ = [
    "AlphaDropout",
    "Dropout",
    "Dropout1d",
    "Dropout2d",
    "Dropout3d",
    "FeatureAlphaDropout",
]


class _DropoutNd(Module):
    """A dropout function, in training: what every row of the table becomes."""

    function: Callable[..., Tensor]

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if p < 0 or p > 1:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
        self.p, self.inplace = p, inplace

    def forward(self, input: Tensor) -> Tensor:
        return type(self).function(input, self.p, self.training, self.inplace)

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


def _row(name: str, function: Callable[..., Tensor], what: str) -> Any:
    text = f"""In training, {what}

    Parameters
    ----------
    p : float
        From 0 to 1.
    inplace : bool
    """
    body = {"function": staticmethod(function), "__doc__": text, "__module__": __name__}
    return type(name, (_DropoutNd,), body)


_CHANNELS = "zero whole channels with probability ``p`` and divide the others by ``1 - p``."
_ALPHA = "set {} to selu's lower limit with probability ``p`` and restore mean and variance."
# fmt: off
Dropout = _row(
    "Dropout", F.dropout, "zero elements with probability ``p`` and divide the others by ``1 - p``."
)
Dropout1d           = _row("Dropout1d", F.dropout1d, _CHANNELS)
Dropout2d           = _row("Dropout2d", F.dropout2d, _CHANNELS)
Dropout3d           = _row("Dropout3d", F.dropout3d, _CHANNELS)
AlphaDropout        = _row("AlphaDropout", F.alpha_dropout, _ALPHA.format("elements"))
FeatureAlphaDropout = _row(
    "FeatureAlphaDropout", F.feature_alpha_dropout, _ALPHA.format("whole channels")
)
# fmt: on
