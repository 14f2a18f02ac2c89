"""Places drawn by their weights."""

from __future__ import annotations

import math
from typing import Any

from lucid_gpu import dtypes as dt
from lucid_gpu.device import CPU
from lucid_gpu.devices import backend, philox
from lucid_gpu.ops.creation import empty
from lucid_gpu.ops.generator import Generator, _draw
from lucid_gpu.ops.random import _finish
from lucid_gpu.ops.random_numbers import _on_device, draws_once
from lucid_gpu.tape.door import op
from lucid_gpu.tape.rules import Batch, batching
from lucid_gpu.tensor import Tensor


@op
def multinomial(
    input: Tensor,
    num_samples: int,
    replacement: bool = False,
    *,
    generator: Generator | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Indices drawn with probabilities proportional to weights.

    Parameters
    ----------
    input : Tensor, shape (n,) or (m, n)
        Weights, not negative; rows are independent.
    num_samples : int
    replacement : bool
        Whether an index may be drawn again.

    Returns
    -------
    Tensor of int64, shape (num_samples,) or (m, num_samples)

    Raises
    ------
    RuntimeError
        For another rank, types that are not floating point, weights that are negative, infinite or
        add up to 0, and more samples than there are without replacement.
    """
    _check_multinomial(input, num_samples, replacement)
    value = input._expr
    (*rows, count), where = value.shape, value.program.device
    if not replacement and count > 2**24:
        raise RuntimeError("number of categories cannot exceed 2^24")
    shape = (*rows, num_samples)
    if where.type == "meta":
        nothing = empty(*shape, dtype=dt.int64, device=where)
        return _finish(nothing, False, out, "multinomial")
    host = input if where is CPU else input.detach().cpu()
    weights = host.array.astype("float64").reshape(-1, count)
    xp = backend(CPU).xp
    every = xp.logical_and.reduce
    if not every((weights >= 0) & (weights < math.inf), None):
        if not replacement:
            raise RuntimeError("probability tensor contains either `inf`, `nan` or element < 0")
        what = "< 0" if (weights < 0).any() else "= infinity or NaN"
        raise RuntimeError(
            f"invalid multinomial distribution (encountering probability entry {what})"
        )
    if not every(xp.add.reduce(weights, 1) > 0):
        raise RuntimeError("invalid multinomial distribution (sum of probabilities <= 0)")
    draw = _draw(generator, where)
    pick = _with_replacement if replacement else _without_replacement
    result = _on_device(pick(weights, num_samples, draw), shape, dt.int64, where)
    return _finish(result, False, out, "multinomial")


@batching(multinomial, unbatched=True)
def _multinomial_batched(level: Batch, f: Any, input: Tensor, *args: Any, **kwargs: Any) -> Any:
    if draws_once(level, f, (input,)):
        return level.outside(f, input, *args, **kwargs)
    weights = level.full(input)
    rows = weights.reshape((-1, weights.shape[-1]))
    drawn = level.outside(f, rows, *args, **kwargs)
    return level.wrap(drawn.reshape((*weights.shape[:-1], drawn.shape[-1])))


def _check_multinomial(input: Tensor, num_samples: int, replacement: bool) -> None:
    shape, d = input._expr.shape, input._expr.program.dtype
    if len(shape) not in (1, 2):
        raise RuntimeError("prob_dist must be 1 or 2 dim")
    if d.category != 2:
        raise RuntimeError(
            f"multinomial only supports floating-point dtypes for input, got: {d.name}"
        )
    if num_samples <= 0:
        raise RuntimeError("cannot sample n_sample <= 0 samples")
    if not replacement and num_samples > shape[-1]:
        raise RuntimeError(
            "cannot sample n_sample > prob_dist.size(-1) samples without replacement: "
            f"{num_samples} > {shape[-1]}"
        )


def _with_replacement(weights: Any, count: int, draw: tuple[int, int]) -> Any:
    """Where uniform numbers fall among the cumulated weights."""
    xp = backend(CPU).xp
    rows = len(weights)
    drawn = philox.uniform(*draw, rows * count, dt.float64).reshape(rows, count)
    sums = weights.cumsum(axis=1)
    positions = [
        xp.searchsorted(row, u * row[-1], side="right") for row, u in zip(sums, drawn, strict=True)
    ]
    last = [row.nonzero()[0][-1] for row in weights]  # rounding must not lead past it
    return xp.minimum(xp.array(positions), xp.array(last)[:, None])


def _without_replacement(weights: Any, count: int, draw: tuple[int, int]) -> Any:
    """The smallest of exponential waiting times: the first events of independent processes."""
    xp = backend(CPU).xp
    waits = philox.exponential(*draw, weights.size).reshape(weights.shape)
    never = weights == 0
    waits = xp.where(never, math.inf, waits / xp.where(never, 1.0, weights))
    return waits.argsort(axis=1, kind="stable")[:, :count]


METHODS = FUNCTIONS = (multinomial,)
