"""`torch._VF`: functions of layers, such as ``_VF.lstm``, under the name PyTorch's layers call."""

from __future__ import annotations

from typing import Any

import lucid_gpu


def __getattr__(name: str) -> Any:
    return getattr(lucid_gpu, name)
