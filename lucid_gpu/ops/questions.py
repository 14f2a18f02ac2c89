"""What programs ask of a tensor, and methods that are functions too."""

from __future__ import annotations

from lucid_gpu.ops.arguments import require_tensor
from lucid_gpu.tensor import Tensor


def is_complex(input: Tensor) -> bool:
    """Whether a tensor's element type is complex."""
    return input.dtype.is_complex


def is_signed(input: Tensor) -> bool:
    """Whether a tensor's element type has negative numbers."""
    return input.dtype.is_signed


def is_nonzero(input: Tensor) -> bool:
    """Whether a tensor's only element is not zero."""
    require_tensor("is_nonzero", "input", 1, input)
    return bool(input)


def get_device(input: Tensor) -> int:
    """The number of the GPU that a tensor's elements are on, or -1."""
    number: int = input.get_device()
    return number


def detach(input: Tensor) -> Tensor:
    """`Tensor.detach`: the same elements and memory, apart from the graph."""
    return input.detach()


def fill(input: Tensor, value: object) -> Tensor:
    """A tensor of ``input``'s shape, type and device, filled with ``value``."""
    return input.clone().fill_(value)


METHODS = (is_signed, is_nonzero)
FUNCTIONS = (is_complex, is_signed, is_nonzero, get_device, detach, fill)
