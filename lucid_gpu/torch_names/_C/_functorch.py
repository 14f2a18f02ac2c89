"""`torch._C._functorch`: the tensors of `vmap`, as packages make and ask about them."""

from __future__ import annotations

import enum
from typing import Any

from lucid_gpu.func.batching import BatchedTensor, value_below
from lucid_gpu.func.vmap import _add_batch_dim, _remove_batch_dim
from lucid_gpu.tensor import Tensor

__all__ = [
    "TransformType",
    "_add_batch_dim",
    "_remove_batch_dim",
    "get_unwrapped",
    "is_batchedtensor",
]


class TransformType(enum.Enum):
    """PyTorch's names of the transforms, which packages compare with."""

    Torch = 0
    Vmap = 1
    Grad = 2
    Jvp = 3
    Functionalize = 4


def get_unwrapped(tensor: Tensor) -> Tensor:
    """The value of a batched tensor, the batch in front."""
    return value_below(tensor)


def is_batchedtensor(tensor: Any) -> bool:
    """Whether a tensor is what the function under a `vmap` sees of a batch."""
    return isinstance(tensor, BatchedTensor)
