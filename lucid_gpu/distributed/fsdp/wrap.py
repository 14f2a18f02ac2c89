"""Which layers `FullyShardedDataParallel` shards apart, under PyTorch's names."""

from __future__ import annotations

from typing import Any

__all__ = [  # noqa: F822
    "ModuleWrapPolicy",
    "always_wrap_policy",
    "lambda_auto_wrap_policy",
    "size_based_auto_wrap_policy",
    "transformer_auto_wrap_policy",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from lucid_gpu.nn.parallel import wrap_policies

        return getattr(wrap_policies, name)
    from lucid_gpu.compat.module_names import lacking

    raise lacking("distributed.fsdp.wrap", name)
