"""Dropout."""

from __future__ import annotations

from typing import Any

from lucid_gpu import dtypes as dt
from lucid_gpu.fusion.costs import costs_of
from lucid_gpu.ops.arguments import require_tensor
from lucid_gpu.ops.random_numbers import _uniform
from lucid_gpu.tape.door import Truth, op
from lucid_gpu.tape.rules import Batch, batching
from lucid_gpu.tensor import Tensor

__all__ = ["dropout"]


@op
def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: Truth = False) -> Tensor:
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

    Raises
    ------
    ValueError
        For a ``p`` outside ``[0, 1]``.
    NotImplementedError
        For complex tensors.
    RuntimeError
        For integers, in place or in training.
    """
    if p < 0.0 or p > 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    require_tensor("dropout", "input", 1, input)
    if not training or p == 0.0:
        return input
    program = input._expr.program
    d = program.dtype
    if d.category == 3:
        raise dt.unimplemented("dropout", d)
    if d.category < 2:
        raise RuntimeError(
            f"result type float32 can't be cast to the desired output type {d.type_name}"
        )
    mask = kept(input, p)
    if not costs_of(program.device).draws_again:
        mask.array  # noqa: B018  NumPy takes longer to make it again than to read a byte an element
    return dropped(input, mask, p, inplace)


@batching(dropout, unbatched=True)
def _dropout_batched(
    level: Batch,
    f: Any,
    input: Tensor,
    p: float = 0.5,
    training: bool = True,
    inplace: Truth = False,
) -> Any:
    if p < 0.0 or p > 1.0 or not training or p == 0.0:
        return f.body(input, p, training, inplace)
    return dropped(input, kept(input, p), p, inplace)


def kept(input: Tensor, p: float, draw: tuple[int, int] | None = None) -> Tensor:
    """Where dropout keeps elements. On a GPU an expression that every kernel computes again.

    ``draw`` is a seed and the number of a draw that was made before.
    """
    shape, where = input._expr.shape, input._expr.program.device
    mask: Tensor = _uniform(shape, dt.float32, where, None, 0.0, 1.0, True, draw) >= p
    return mask


def dropped(input: Tensor, mask: Tensor, p: float, inplace: Truth) -> Tensor:
    """``input`` with zeros where the mask is false, the rest scaled up."""
    result = input * mask * (1.0 / (1.0 - p) if p < 1.0 else 0.0)
    return input.copy_(result) if inplace else result
