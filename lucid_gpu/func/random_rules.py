"""Random ops under vmap: an error, numbers of each example's own, or the same for all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucid_gpu.func.batching import BatchLevel, batch_levels
from lucid_gpu.func.entries import Entry
from lucid_gpu.ops import dropout, multinomial, random, random_numbers
from lucid_gpu.ops.creation import empty
from lucid_gpu.ops.shape import stack
from lucid_gpu.tensor import Tensor

Rule = Callable[..., Any]
RANDOM: dict[Any, Rule] = {}
_REFUSED = (
    "vmap: called random operation while in randomness error mode. Please either use the 'same' or "
    "'different' randomness flags on vmap or perform the randomness operation out of vmap"
)
_UNBATCHED = (
    "vmap: Cannot ask for different inplace randomness on an unbatched tensor. This will appear "
    "like same randomness. If this is necessary for your usage, write it out of place, with rand "
    "or randn."
)


class RandomEntry(Entry):
    """Comes to the innermost `vmap` of the thread, batched arguments or not."""

    def __init__(self, function: Any, rule: Rule) -> None:
        super().__init__(function)
        self.rule = rule

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any], go_on: Rule) -> Any:
        awake = [level for level in batch_levels() if not level.asleep]
        if not awake:
            return go_on(*args, **kwargs)
        # dropout draws by `_uniform`, if at all
        if awake[-1].randomness == "error" and self.function is not dropout.dropout:
            raise RuntimeError(_REFUSED)
        return self.rule(awake[-1], self, *args, **kwargs)


def _rule(*functions: Any) -> Callable[[Rule], Rule]:
    def register(one: Rule) -> Rule:
        RANDOM.update(dict.fromkeys(functions, one))
        return one

    return register


def _outside(level: BatchLevel, entry: Entry, *args: Any, **kwargs: Any) -> Any:
    """Draw as the levels further out would have it."""
    level.asleep = True
    try:
        return entry.function(*args, **kwargs)
    finally:
        level.asleep = False


@_rule(random_numbers._uniform, random_numbers._normal)
def _fill(level: BatchLevel, entry: Entry, shape: Any, *args: Any) -> Tensor:
    if level.randomness == "same":
        same: Tensor = _outside(level, entry, shape, *args)
        return same
    return level.wrap(_outside(level, entry, (level.size, *shape), *args))


@_rule(random_numbers._integers)
def _whole(level: BatchLevel, entry: Entry, low: int, high: int, shape: Any, *args: Any) -> Tensor:
    if level.randomness == "same":
        same: Tensor = _outside(level, entry, low, high, shape, *args)
        return same
    return level.wrap(_outside(level, entry, low, high, (level.size, *shape), *args))


@_rule(random.randperm)
def _orders(level: BatchLevel, entry: Entry, *args: Any, **kwargs: Any) -> Tensor:
    if level.randomness == "same":
        same: Tensor = _outside(level, entry, *args, **kwargs)
        return same
    return level.wrap(stack([_outside(level, entry, *args, **kwargs) for _ in range(level.size)]))


@_rule(multinomial.multinomial)
def _multinomial(
    level: BatchLevel, entry: Entry, input: Tensor, *args: Any, **kwargs: Any
) -> Tensor:
    if level.randomness == "same":
        if level.holds(input):
            raise RuntimeError(
                "vmap: multinomial on a batched tensor cannot draw the same for every example; use "
                "randomness='different'"
            )
        same: Tensor = _outside(level, entry, input, *args, **kwargs)
        return same
    whole = level.full(input)
    rows = whole.reshape((-1, whole.shape[-1]))
    drawn = _outside(level, entry, rows, *args, **kwargs)
    return level.wrap(drawn.reshape((*whole.shape[:-1], drawn.shape[-1])))


@_rule(random.uniform_, random.normal_, random.random_, random.bernoulli_, random.exponential_)
def _in_place(level: BatchLevel, entry: Entry, self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    if level.randomness == "different":
        if not level.holds(self):
            raise RuntimeError(_UNBATCHED)
        probabilities = [a for a in (*args, *kwargs.values()) if level.holds(a)]
        if probabilities and tuple(probabilities[0].shape) != tuple(self.shape):
            raise RuntimeError("vmap: bernoulli_(p) wants a batched p of the tensor's own shape")
        given = [level.value(a) for a in args]
        named = {k: level.value(v) for k, v in kwargs.items()}
        _outside(level, entry, level.value(self), *given, **named)
        return self
    sample = empty(tuple(self.shape), dtype=self.dtype, device=self.device)
    _outside(level, entry, sample, *args, **kwargs)
    return self._write(sample, entry.function.__name__) if level.holds(self) else self.copy_(sample)


@_rule(dropout.dropout)
def _dropout(
    level: BatchLevel,
    entry: Entry,
    input: Tensor,
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
) -> Tensor:
    if p < 0.0 or p > 1.0 or not training or p == 0.0:
        kept: Tensor = entry.body(input, p, training, inplace)
        return kept
    return dropout.dropped(input, dropout.kept(input, p), p, inplace)
