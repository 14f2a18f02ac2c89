"""Where scripts import `FullyShardedDataParallel` and its settings from, too."""

from __future__ import annotations

from typing import Any

from lucid_gpu.distributed import fsdp

__all__ = [*fsdp._WRAPPED]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(fsdp, name)
    from lucid_gpu.compat.module_names import lacking

    raise lacking("distributed.fsdp.fully_sharded_data_parallel", name)
