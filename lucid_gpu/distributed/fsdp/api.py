"""Where scripts import the settings of `FullyShardedDataParallel` from, too."""

from __future__ import annotations

from typing import Any

from lucid_gpu.distributed import fsdp

__all__ = [name for name in fsdp._WRAPPED if name != "FullyShardedDataParallel"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(fsdp, name)
    from lucid_gpu.compat.module_names import lacking

    raise lacking("distributed.fsdp.api", name)
