"""Which layers `FullyShardedDataParallel` shards apart, under PyTorch's names."""

from __future__ import annotations

from typing import Any

from lucid_gpu.compat.module_names import imported

__all__ = [  # noqa: F822
    "ModuleWrapPolicy",
    "always_wrap_policy",
    "lambda_auto_wrap_policy",
    "size_based_auto_wrap_policy",
    "transformer_auto_wrap_policy",
]
_FROM = dict.fromkeys(__all__, "lucid_gpu.nn.parallel.wrap_policies")


def __getattr__(name: str) -> Any:
    return imported(globals(), name, _FROM)
