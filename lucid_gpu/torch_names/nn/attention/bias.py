"""`torch.nn.attention.bias`: causal masks for attention of queries and keys of any two lengths."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from lucid_gpu import Tensor, ones

__all__ = ["CausalBias", "CausalVariant", "causal_lower_right", "causal_upper_left"]


class CausalVariant(IntEnum):
    """The corner at which the diagonal of the mask begins."""

    UPPER_LEFT = 1
    LOWER_RIGHT = 2


class CausalBias(Tensor):
    """A mask of bools, shape (seq_len_q, seq_len_kv), True where a query sees a key."""

    variant: CausalVariant
    seq_len_q: int
    seq_len_kv: int

    @staticmethod
    def __new__(cls: Any, variant: CausalVariant, seq_len_q: int, seq_len_kv: int) -> CausalBias:
        """Make the mask of a `variant` for `seq_len_q` queries and `seq_len_kv` keys."""
        shift = seq_len_kv - seq_len_q if variant == CausalVariant.LOWER_RIGHT else 0
        kind = ones((), dtype=bool).dtype
        made: Any = ones(seq_len_q, seq_len_kv, dtype=kind).tril(shift).as_subclass(cls)
        made.variant, made.seq_len_q, made.seq_len_kv = variant, seq_len_q, seq_len_kv
        return made

    def __init__(self, *given: Any) -> None:
        """Do nothing: `__new__` did."""


def causal_upper_left(*size: int) -> CausalBias:
    """Return the mask whose diagonal begins at the first query and key."""
    return CausalBias(CausalVariant.UPPER_LEFT, *size)


def causal_lower_right(*size: int) -> CausalBias:
    """Return the mask whose diagonal ends at the last query and key."""
    return CausalBias(CausalVariant.LOWER_RIGHT, *size)
