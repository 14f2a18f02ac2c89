"""`torch.utils.flop_counter` for files that import it; counting refuses."""

from __future__ import annotations

from typing import Any

__all__ = ["FlopCounterMode"]


class FlopCounterMode:
    """PyTorch's counter of operations, which sees each op; making one refuses."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        raise RuntimeError(
            "lucid_gpu.utils.flop_counter.FlopCounterMode: ops are not counted; "
            "profiler.profile() lists kernels with their times and bytes"
        )
