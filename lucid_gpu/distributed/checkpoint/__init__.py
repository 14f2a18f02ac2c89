"""Checkpoints that several ranks write and read: `save` and `load`, under PyTorch's names."""

from __future__ import annotations

import os
from typing import Any

from lucid_gpu.compat.module_names import imported

_FROM = dict.fromkeys(("load", "save"), "lucid_gpu.serialization.sharded")

__all__ = ["load", "save"]

__path__ = [  # `distributed.checkpoint.hf_storage`
    *__path__,
    os.path.join(
        os.path.dirname(os.path.dirname(os.path.dirname(__file__))),
        "torch_names",
        "distributed",
        "checkpoint",
    ),
]


def __getattr__(name: str) -> Any:
    return imported(globals(), name, _FROM, ("state_dict", "stateful"))
