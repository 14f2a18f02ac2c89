"""`torch.nn.quantized`: layers of quantized numbers, for imports; making one refuses."""

from __future__ import annotations

from typing import Any

from lucid_gpu.nn import Module
from lucid_gpu.torch_names.ao.quantization.observer import refuse

__all__ = ["BatchNorm2d"]


class BatchNorm2d(Module):
    """What no module is: for `isinstance`; making one refuses with a RuntimeError."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        refuse("BatchNorm2d")
