"""Where scripts with sharded parameters import their scaler of losses from."""

from __future__ import annotations

from typing import Any

from lucid_gpu.compat.module_names import imported

__all__ = ["ShardedGradScaler"]  # noqa: F822
_FROM = dict.fromkeys(__all__, "lucid_gpu.nn.parallel.fully_sharded_data_parallel")


def __getattr__(name: str) -> Any:
    return imported(globals(), name, _FROM)
