"""`torch.utils.deterministic`: what becomes of memory that nobody wrote."""

from __future__ import annotations

import sys
from types import ModuleType

from lucid_gpu.devices import determinism

__all__ = ["fill_uninitialized_memory"]
fill_uninitialized_memory: bool  # what the property of this module's class gives


class _Deterministic(ModuleType):
    @property
    def fill_uninitialized_memory(self) -> bool:
        """Whether `empty` is filled under `use_deterministic_algorithms`."""
        return determinism.fills()

    @fill_uninitialized_memory.setter
    def fill_uninitialized_memory(self, mode: bool) -> None:
        determinism.set_fill(mode)


sys.modules[__name__].__class__ = _Deterministic
