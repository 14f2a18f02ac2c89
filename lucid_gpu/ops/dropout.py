"""Dropout."""

from __future__ import annotations

from lucid_gpu.ops.random import rand
from lucid_gpu.tensor import Tensor

__all__ = ["dropout"]


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zero elements with probability ``p`` and divide the others by ``1 - p``, in training.

    Parameters
    ----------
    input : Tensor
    p : float
        From 0 to 1.
    training : bool
        False gives the input back.
    inplace : bool
        Write the result into ``input``.

    Returns
    -------
    Tensor, of input's shape
    """
    if p < 0.0 or p > 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    if not training or p == 0.0:
        return input
    # The mask is stored for backward, one byte an element.
    mask = rand(*input.shape, device=input.device) >= p
    mask.array  # noqa: B018  realised here, so that the four-byte random numbers can go
    result = input * mask * (1.0 / (1.0 - p) if p < 1.0 else 0.0)
    return input.copy_(result) if inplace else result
