"""`torch._dynamo._trace_wrapped_higher_order_op`: how masks of batches index tensors."""

from __future__ import annotations

from contextlib import nullcontext

__all__ = ["TransformGetItemToIndex"]


class TransformGetItemToIndex(nullcontext[None]):
    """A context manager that changes nothing: `x[i]` takes a tensor ``i`` of a batch anyway."""
