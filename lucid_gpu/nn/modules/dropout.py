"""Random zeros: one table of dropout layers."""

from __future__ import annotations

from typing import Any

from lucid_gpu.nn import functional as F
from lucid_gpu.nn.modules.rows import Row, row
from lucid_gpu.tensor import Tensor

__all__ = [
    "AlphaDropout",
    "Dropout",
    "Dropout1d",
    "Dropout2d",
    "Dropout3d",
    "FeatureAlphaDropout",
]


class _DropoutNd(Row):
    def _read(self, settings: dict[str, Any]) -> dict[str, Any]:
        if settings["p"] < 0 or settings["p"] > 1:
            raise ValueError(
                f"{type(self).__name__}: dropout probability has to be between 0 and 1, but got "
                f"{settings['p']}"
            )
        return settings

    def forward(self, input: Tensor) -> Tensor:
        dropped: Tensor = getattr(F, self._name)(input, self.p, self.training, self.inplace)
        return dropped

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


_SETTINGS: dict[str, Any] = {"p": 0.5, "inplace": False}
# fmt: off
Dropout             = row(_DropoutNd, "Dropout", F.dropout, **_SETTINGS)
Dropout1d           = row(_DropoutNd, "Dropout1d", F.dropout1d, **_SETTINGS)
Dropout2d           = row(_DropoutNd, "Dropout2d", F.dropout2d, **_SETTINGS)
Dropout3d           = row(_DropoutNd, "Dropout3d", F.dropout3d, **_SETTINGS)
AlphaDropout        = row(_DropoutNd, "AlphaDropout", F.alpha_dropout, **_SETTINGS)
FeatureAlphaDropout = row(
    _DropoutNd, "FeatureAlphaDropout", F.feature_alpha_dropout, **_SETTINGS
)
# fmt: on
