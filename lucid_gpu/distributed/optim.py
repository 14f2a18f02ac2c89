"""Optimizers for several ranks."""

from __future__ import annotations

from typing import Any

from lucid_gpu.compat.module_names import imported

__all__ = ["ZeroRedundancyOptimizer"]  # noqa: F822
_FROM = dict.fromkeys(__all__, "lucid_gpu.optim.zero_redundancy")


def __getattr__(name: str) -> Any:
    return imported(globals(), name, _FROM)
