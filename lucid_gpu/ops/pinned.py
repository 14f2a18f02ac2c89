"""Tensors in page-locked memory."""

from __future__ import annotations

from typing import Any

from lucid_gpu.device import CPU
from lucid_gpu.devices import pinned
from lucid_gpu.devices.cupy_backend import problem
from lucid_gpu.tensor import Tensor, from_array


def pin_memory(self: Tensor, device: Any = None) -> Tensor:
    """A copy, of the same shape, in page-locked memory, from where copies to a GPU do not wait.

    So ``x.pin_memory().to("cuda", non_blocking=True)`` returns at once.

    Returns
    -------
    Tensor
        The same object if it is there already.

    Raises
    ------
    RuntimeError
        For tensors on a GPU, and where there is none.
    """
    if self.device != CPU:
        raise RuntimeError(
            f"cannot pin '{self.device}': only dense CPU tensors can be pinned; call .cpu() first"
        )
    if missing := problem():
        raise RuntimeError(f"Cannot access accelerator device to pin memory for: {missing}")
    if is_pinned(self):
        return self
    return from_array(pinned.copied(self.detach().array), self.dtype)


def is_pinned(self: Tensor, device: Any = None) -> bool:
    """Whether the tensor is in page-locked memory."""
    return self.device == CPU and pinned.is_pinned(self.array)


METHODS = (is_pinned, pin_memory)
