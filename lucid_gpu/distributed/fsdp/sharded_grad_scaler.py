"""Where scripts with sharded parameters import their scaler of losses from."""

from __future__ import annotations

from typing import Any

__all__ = ["ShardedGradScaler"]  # noqa: F822


def __getattr__(name: str) -> Any:
    if name in __all__:
        from lucid_gpu.nn.parallel import fully_sharded_data_parallel

        return getattr(fully_sharded_data_parallel, name)
    from lucid_gpu.compat.module_names import lacking

    raise lacking("distributed.fsdp.sharded_grad_scaler", name)
