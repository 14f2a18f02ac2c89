"""Checkpoints that several ranks write and read: `save` and `load`, under PyTorch's names."""

from __future__ import annotations

from typing import Any

from lucid_gpu.compat.module_names import imported

_FROM = dict.fromkeys(("load", "save"), "lucid_gpu.serialization.sharded")

__all__ = ["load", "save"]


def __getattr__(name: str) -> Any:
    return imported(globals(), name, _FROM, ("state_dict", "stateful"))
