"""Scratch memory of the threads that compute on the host."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from lucid_gpu.devices.pool import aligned
from lucid_gpu.dtypes import dtype

__all__ = ["memory_of_thread"]


class _Scratch(threading.local):
    """Of each thread its own; all that it computes takes it in turn."""

    def __init__(self) -> None:
        self.memory: list[Any] = []

    def view(self, kind: Any, shape: tuple[int, ...], nbytes: int, number: int = 0) -> Any:
        """An uninitialized array; it holds until somebody asks for another of this number."""
        if number == len(self.memory):
            self.memory.append(aligned(nbytes))
        elif self.memory[number].nbytes < nbytes:
            self.memory[number] = aligned(nbytes)
        return np.ndarray(shape, kind, self.memory[number])

    def views(self, types: Sequence[dtype], shape: tuple[int, ...]) -> list[Any]:
        """Uninitialized arrays of one shape; they hold until somebody asks for others."""
        count = prod(shape)
        return [self.view(d.numpy, shape, count * d.itemsize, i) for i, d in enumerate(types)]


memory_of_thread = _Scratch()
