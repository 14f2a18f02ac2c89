"""Scratch memory of the threads that compute on the host."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from math import prod
from typing import Any

from lucid_gpu.devices.pool import aligned
from lucid_gpu.dtypes import dtype

__all__ = ["memory_of_thread"]


class _Scratch(threading.local):
    """Of each thread its own; all that it computes takes it in turn."""

    def __init__(self) -> None:
        self.memory: list[Any] = []

    def views(self, types: Sequence[dtype], shape: tuple[int, ...]) -> list[Any]:
        """Uninitialized arrays of one shape; they hold until somebody asks for others."""
        count = prod(shape)
        result = []
        for i, d in enumerate(types):
            nbytes = count * d.itemsize
            if i == len(self.memory):
                self.memory.append(aligned(0))
            if self.memory[i].nbytes < nbytes:
                self.memory[i] = aligned(nbytes)
            result.append(self.memory[i][:nbytes].view(d.numpy).reshape(shape))
        return result


memory_of_thread = _Scratch()
