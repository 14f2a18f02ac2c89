"""Probabilities and their logits, numbers and tensors of one shape, properties computed once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from lucid_gpu import dtypes as dt
from lucid_gpu.dtypes import dtype, get_default_dtype
from lucid_gpu.nn import functional as F
from lucid_gpu.ops.creation import tensor
from lucid_gpu.ops.random import randn
from lucid_gpu.ops.shape import broadcast_to
from lucid_gpu.tape.modes import enable_grad
from lucid_gpu.tensor import Tensor

__all__ = ["broadcast_all", "clamp_probs", "lazy_property", "logits_to_probs", "probs_to_logits"]

Number = (int, float, bool)

# What 1 and the next number differ by, and the least normal number.
_LIMITS = {
    dt.float64: (2.0**-52, 2.0**-1022),
    dt.float32: (2.0**-23, 2.0**-126),
    dt.bfloat16: (2.0**-7, 2.0**-126),
    dt.float16: (2.0**-10, 2.0**-14),
}


def eps(d: dtype) -> float:
    """The difference between 1 and the next number of a type."""
    return _LIMITS[d][0]


def tiny(d: dtype) -> float:
    """The least positive number of a type that has all its bits."""
    return _LIMITS[d][1]


def broadcast_all(*values: Any) -> tuple[Tensor, ...]:
    """Numbers and tensors as tensors of their common shape.

    Raises
    ------
    ValueError
        For anything else.
    """
    if not all(isinstance(v, (Tensor, *Number)) for v in values):
        raise ValueError(
            "Input arguments must all be instances of Number, lucid_gpu.Tensor or objects "
            "implementing __torch_function__."
        )
    first = next((v for v in values if isinstance(v, Tensor)), None)
    options: dict[str, Any] = {"dtype": get_default_dtype()}
    if first is not None:
        options = {"dtype": first.dtype, "device": first.device}
    tensors = [v if isinstance(v, Tensor) else tensor(v, **options) for v in values]
    if all(t.shape == tensors[0].shape for t in tensors):
        return tuple(tensors)
    shape = functools.reduce(_joined, [tuple(t.shape) for t in tensors])
    return tuple([broadcast_to(t, shape) for t in tensors])


def _joined(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    """The shape two shapes broadcast to."""
    rank = max(len(a), len(b))
    pairs = list(zip((1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b, strict=True))
    for i, (m, n) in enumerate(pairs):
        if m != n and 1 not in (m, n):
            raise RuntimeError(
                f"The size of tensor a ({m}) must match the size of tensor b ({n}) at "
                f"non-singleton dimension {i}"
            )
    return tuple([n if m == 1 else m for m, n in pairs])


def sum_rightmost(value: Tensor, dim: int) -> Tensor:
    """Sum over the last dimensions."""
    return value.sum(tuple(range(-dim, 0))) if dim else value


_sum_rightmost = sum_rightmost  # PyTorch's name, which packages of distributions import


def logits_to_probs(logits: Tensor, is_binary: bool = False) -> Tensor:
    """Softmax over the last dimension, or the logistic function."""
    return logits.sigmoid() if is_binary else F.softmax(logits, dim=-1)


def clamp_probs(probs: Tensor) -> Tensor:
    """Probabilities that are not quite 0 or 1."""
    least = eps(probs.dtype)
    return probs.clamp(min=least, max=1 - least)


def probs_to_logits(probs: Tensor, is_binary: bool = False) -> Tensor:
    """Logarithms of probabilities, or of their odds."""
    clamped = clamp_probs(probs)
    return clamped.log() - (-clamped).log1p() if is_binary else clamped.log()


class lazy_property(property):
    """A property that becomes an attribute when it is first asked for."""

    def __init__(self, wrapped: Callable[[Any], Any]) -> None:
        super().__init__(wrapped)
        self.name = wrapped.__name__

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        kept = instance.__dict__.get(self.name)
        if kept is None:
            with enable_grad():
                kept = instance.__dict__[self.name] = self.fget(instance)  # type: ignore[misc]
        return kept

    def __set__(self, instance: Any, value: Any) -> None:
        instance.__dict__[self.name] = value


def _standard_normal(shape: Any, dtype: dtype | None, device: Any) -> Tensor:
    """Normal numbers, for distributions that packages derive from ours."""
    return randn(shape, dtype=dtype, device=device)
