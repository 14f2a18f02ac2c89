"""Training with sharded parameters, under PyTorch's names: `fully_shard` and what belongs to it."""

from __future__ import annotations

from typing import Any

from lucid_gpu.compat.module_names import imported

_SHARDED = (
    "CPUOffloadPolicy",
    "FSDPModule",
    "MixedPrecisionPolicy",
    "OffloadPolicy",
    "UnshardHandle",
    "fully_shard",
    "register_fsdp_forward_method",
)
_WRAPPED = (
    "BackwardPrefetch",
    "CPUOffload",
    "FullOptimStateDictConfig",
    "FullStateDictConfig",
    "FullyShardedDataParallel",
    "LocalOptimStateDictConfig",
    "LocalStateDictConfig",
    "MixedPrecision",
    "OptimStateDictConfig",
    "ShardedOptimStateDictConfig",
    "ShardedStateDictConfig",
    "ShardingStrategy",
    "StateDictConfig",
    "StateDictSettings",
    "StateDictType",
)
_MODULES = ("api", "fully_sharded_data_parallel", "sharded_grad_scaler", "wrap")
__all__ = [*_SHARDED, *_WRAPPED]
_FROM = dict.fromkeys(_SHARDED, "lucid_gpu.nn.parallel.fully_sharded") | dict.fromkeys(
    _WRAPPED, "lucid_gpu.nn.parallel.fully_sharded_data_parallel"
)


def __getattr__(name: str) -> Any:
    return imported(globals(), name, _FROM, _MODULES)
