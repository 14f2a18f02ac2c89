"""`torch.ao.quantization.qconfig`: what would observe a layer; nothing reads it here."""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["QConfig"]


class QConfig(NamedTuple):
    """Makers of the observers of a layer's activations and weights."""

    activation: Any
    weight: Any
