"""Random ops under vmap: an error, numbers of each example's own, or the same for all."""

from __future__ import annotations

from typing import Any

from lucid_gpu.func.batching import BatchLevel
from lucid_gpu.ops import dropout, multinomial, random, random_numbers
from lucid_gpu.ops.creation import empty
from lucid_gpu.ops.shape import stack
from lucid_gpu.tape.rules import batching
from lucid_gpu.tensor import Tensor

_UNBATCHED = (
    "vmap: Cannot ask for different inplace randomness on an unbatched tensor. This will appear "
    "like same randomness. If this is necessary for your usage, write it out of place, with rand "
    "or randn."
)


@batching(random_numbers._uniform, random_numbers._normal, unbatched=True)
def _fill(level: BatchLevel, f: Any, shape: Any, *args: Any) -> Tensor:
    if level.draws_once():
        same: Tensor = level.outside(f, shape, *args)
        return same
    return level.wrap(level.outside(f, (level.size, *shape), *args))


@batching(random_numbers._integers, unbatched=True)
def _whole(level: BatchLevel, f: Any, low: int, high: int, shape: Any, *args: Any) -> Tensor:
    if level.draws_once():
        same: Tensor = level.outside(f, low, high, shape, *args)
        return same
    return level.wrap(level.outside(f, low, high, (level.size, *shape), *args))


@batching(random.randperm, unbatched=True)
def _orders(level: BatchLevel, f: Any, *args: Any, **kwargs: Any) -> Tensor:
    if level.draws_once():
        same: Tensor = level.outside(f, *args, **kwargs)
        return same
    return level.wrap(stack([level.outside(f, *args, **kwargs) for _ in range(level.size)]))


@batching(multinomial.multinomial, unbatched=True)
def _multinomial(level: BatchLevel, f: Any, input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    if level.draws_once():
        if level.holds(input):
            raise RuntimeError(
                "vmap: multinomial on a batched tensor cannot draw the same for every example; use "
                "randomness='different'"
            )
        same: Tensor = level.outside(f, input, *args, **kwargs)
        return same
    whole = level.full(input)
    rows = whole.reshape((-1, whole.shape[-1]))
    drawn = level.outside(f, rows, *args, **kwargs)
    return level.wrap(drawn.reshape((*whole.shape[:-1], drawn.shape[-1])))


@batching(
    random.uniform_,
    random.normal_,
    random.random_,
    random.bernoulli_,
    random.exponential_,
    unbatched=True,
)
def _in_place(level: BatchLevel, f: Any, self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    if not level.draws_once():
        if not level.holds(self):
            raise RuntimeError(_UNBATCHED)
        probabilities = [a for a in (*args, *kwargs.values()) if level.holds(a)]
        if probabilities and tuple(probabilities[0].shape) != tuple(self.shape):
            raise RuntimeError("vmap: bernoulli_(p) wants a batched p of the tensor's own shape")
        given = [level.value(a) for a in args]
        named = {k: level.value(v) for k, v in kwargs.items()}
        level.outside(f, level.value(self), *given, **named)
        return self
    sample = empty(tuple(self.shape), dtype=self.dtype, device=self.device)
    level.outside(f, sample, *args, **kwargs)
    return self._write(sample, f.__name__) if level.holds(self) else self.copy_(sample)


@batching(dropout.dropout, unbatched=True)
def _dropout(
    level: BatchLevel,
    f: Any,
    input: Tensor,
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
) -> Tensor:
    if p < 0.0 or p > 1.0 or not training or p == 0.0:
        kept: Tensor = f.body(input, p, training, inplace)
        return kept
    return dropout.dropped(input, dropout.kept(input, p), p, inplace)
