"""How values of several ranks become one."""

from __future__ import annotations

import enum
from typing import Any

from lucid_gpu.dtypes import dtype

__all__ = ["ReduceOp", "check_op", "reduce_op", "supports_complex"]


class ReduceOp(enum.IntEnum):
    """How `all_reduce` and similar collectives combine values of several ranks.

    ``AVG`` is the sum divided by the number of ranks; ``BAND``, ``BOR`` and ``BXOR`` are for
    integers and bool.
    """

    SUM = 0
    AVG = 1
    PRODUCT = 2
    MIN = 3
    MAX = 4
    BAND = 5
    BOR = 6
    BXOR = 7

    def __repr__(self) -> str:
        return f"<RedOpType.{self.name}: {self.value}>"

    def __str__(self) -> str:
        return f"RedOpType.{self.name}"


reduce_op = ReduceOp  # its old name

_BITWISE = (ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR)


def supports_complex(reduceOp: ReduceOp) -> bool:
    """Whether an op takes complex numbers."""
    return reduceOp in (ReduceOp.SUM, ReduceOp.AVG)


def check_op(name: str, op: Any, kind: dtype) -> ReduceOp:
    """The op, where it takes elements of a type.

    Raises
    ------
    RuntimeError, ValueError
        If it does not.
    """
    if not isinstance(op, ReduceOp):
        raise TypeError(f"{name}: op must be a ReduceOp such as ReduceOp.SUM, got {op!r}")
    if kind.is_complex and not supports_complex(op):
        raise ValueError(f"{name} does not support {op} on complex tensors")
    if op in _BITWISE and kind.is_floating_point:
        raise RuntimeError(f"Cannot use ReduceOp.{op.name} with non-integral dtype")
    if op is ReduceOp.AVG and kind.category < 2:
        raise RuntimeError(
            f"{name}: ReduceOp.AVG divides and takes floating point tensors, got {kind.name}; use "
            "ReduceOp.SUM"
        )
    return op
