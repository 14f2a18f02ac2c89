"""Checkpoints that several ranks write and read: `save` and `load`, under PyTorch's names."""

from __future__ import annotations

from typing import Any

__all__ = ["load", "save"]  # noqa: F822


def __getattr__(name: str) -> Any:
    if name in __all__:
        from lucid_gpu.serialization import sharded

        return getattr(sharded, name)
    from lucid_gpu.compat.module_names import lacking

    raise lacking("distributed.checkpoint", name)
