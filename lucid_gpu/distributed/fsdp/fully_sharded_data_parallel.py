"""Where scripts import `FullyShardedDataParallel` and its settings from, too."""

from __future__ import annotations

from typing import Any

from lucid_gpu.compat.module_names import imported
from lucid_gpu.distributed.fsdp import _WRAPPED

__all__ = [*_WRAPPED]
_FROM = dict.fromkeys(_WRAPPED, "lucid_gpu.nn.parallel.fully_sharded_data_parallel")


def __getattr__(name: str) -> Any:
    return imported(globals(), name, _FROM)
