"""Optimizers for several ranks."""

from __future__ import annotations

from typing import Any

__all__ = ["ZeroRedundancyOptimizer"]  # noqa: F822


def __getattr__(name: str) -> Any:
    if name in __all__:
        from lucid_gpu.optim.zero_redundancy import ZeroRedundancyOptimizer

        return ZeroRedundancyOptimizer
    from lucid_gpu.compat.module_names import lacking

    raise lacking("distributed.optim", name)
