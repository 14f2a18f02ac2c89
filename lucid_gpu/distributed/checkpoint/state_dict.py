"""State dicts by the names of the model alone, under PyTorch's names."""

from __future__ import annotations

from typing import Any

from lucid_gpu.compat.module_names import imported

_NAMES = (
    "StateDictOptions",
    "get_model_state_dict",
    "get_optimizer_state_dict",
    "get_state_dict",
    "set_model_state_dict",
    "set_optimizer_state_dict",
    "set_state_dict",
)
_FROM = dict.fromkeys(_NAMES, "lucid_gpu.serialization.wrapped")

__all__ = list(_NAMES)


def __getattr__(name: str) -> Any:
    return imported(globals(), name, _FROM)
