"""`torch._C._functorch`: what packages ask about the tensors of `vmap`."""

from __future__ import annotations

from typing import Any

from lucid_gpu.func.batching import BatchedTensor

__all__ = ["is_batchedtensor"]


def is_batchedtensor(tensor: Any) -> bool:
    """Whether a tensor is what the function under a `vmap` sees of a batch."""
    return isinstance(tensor, BatchedTensor)
