"""Uniform, normal and whole numbers of any type, on any device.

Numbers are counter-based: a generator is a seed and the number of draws made so far, and element i
of a draw is a function of seed, draw and i alone (`lucid_gpu.devices.philox` defines it). So the
same seed gives the same numbers on every device, whatever the number of threads: bit for bit, but
for the last places of normal and exponential numbers, where another library computes the logarithm.

On the CPU NumPy makes them. On a GPU they are rows of the op table on an index, and so part of any
kernel: of one of their own, as a rule, but dropout's mask is made where it is used.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from lucid_gpu import dtypes as dt
from lucid_gpu.device import CPU, device
from lucid_gpu.devices import backend, philox
from lucid_gpu.dtypes import dtype
from lucid_gpu.fusion.building import drawn
from lucid_gpu.fusion.costs import costs_of
from lucid_gpu.fusion.optable import TABLE
from lucid_gpu.ops.generator import Generator, _draw
from lucid_gpu.tape.door import op
from lucid_gpu.tape.modes import is_grad_enabled
from lucid_gpu.tape.rules import Batch, batching
from lucid_gpu.tensor import Tensor, _tensor, apply, from_array


def _on_device(array: Any, shape: Sequence[int], d: dtype, where: device) -> Tensor:
    """Host numbers as a tensor of a type on a device."""
    array = array.reshape(shape).astype(d.numpy, copy=False)
    return from_array(backend(where).from_numpy(array, where), d, where)


def drawn_by(sample: Tensor, *parameters: Tensor) -> Tensor:
    """A sample as the result of its parameters; their gradients are zeros, as in PyTorch."""
    for parameter in parameters:
        if parameter.requires_grad and is_grad_enabled():
            sample = apply(TABLE["tied"], sample, parameter)
    return sample


def _real(d: dtype) -> dtype:
    """The type of a complex type's parts."""
    return {dt.complex64: dt.float32, dt.complex128: dt.float64}.get(d, d)


def _floating(name: str, d: dtype) -> None:
    if d.category < 2:
        raise dt.unimplemented(name, d, ": give a floating point dtype")


def _fractions(make: Any, shape: Sequence[int], d: dtype, draw: tuple[int, int]) -> Any:
    """Uniform or normal numbers on the host, of ``d``'s compute type or complex."""
    if d.category < 3:
        return make(*draw, math.prod(shape), d)
    return make(*draw, 2 * math.prod(shape), _real(d)).view(d.numpy)


def _fused(
    row: str, d: dtype, shape: Sequence[int], where: device, draw: tuple[int, int], *numbers: float
) -> Tensor:
    """A row of random numbers as a pending value; 16-bit types are rounded from float32."""
    made = _tensor(drawn(TABLE[row], d.compute, tuple(shape), where, draw, numbers))
    return made if made.dtype is d else made.to(d)


def _computed(value: Tensor) -> Tensor:
    """A value as data, which nobody computes again."""
    value._realize()
    return value


def _complex(pairs: Tensor, d: dtype, shift: float) -> Tensor:
    """Pairs of real numbers as complex ones."""
    array = pairs.array.view(d.numpy).reshape(pairs.shape[:-1])
    value = from_array(array, d, pairs.device)
    return value + shift if shift else value


@op
def _uniform(
    shape: Sequence[int],
    d: dtype,
    where: device,
    generator: Generator | None,
    low: float = 0.0,
    high: float = 1.0,
    pending: bool = False,
    draw: tuple[int, int] | None = None,
) -> Tensor:
    """Uniform numbers; ``pending`` leaves them, on a GPU, to the kernel that uses them.

    ``draw`` is a seed and the number of a draw that was made before.
    """
    _floating("uniform", d)
    if draw is None:
        draw = _draw(generator, where)
    if costs_of(where).draws_again:
        value = _uniform_fused(shape, d, where, draw, low, high)
        return value if pending else _computed(value)
    made = backend(CPU).call("uniform", _uniform_on_host, draw, tuple(shape), d, low, high)
    return _on_device(made, shape, d, where)


def _uniform_on_host(
    draw: tuple[int, int], shape: Sequence[int], d: dtype, low: float, high: float
) -> Any:
    array = _fractions(philox.uniform, shape, d, draw)
    if (low, high) != (0.0, 1.0):
        array *= array.dtype.type(high - low)
        array += array.dtype.type(low)
        if d.category < 3:
            array = array.astype(d.numpy, copy=False)
            array[array >= high] = low  # rounding must not give the end that is left out
    return array.astype(d.numpy, copy=False)


def _uniform_fused(
    shape: Sequence[int], d: dtype, where: device, draw: tuple[int, int], low: float, high: float
) -> Tensor:
    real = _real(d)
    digits = philox.DIGITS[real]
    spare, unit = (64 if real is dt.float64 else 32) - digits, (high - low) * 2.0**-digits
    if d.is_complex:
        pairs = _fused("random_uniform", real, (*shape, 2), where, draw, spare, unit, 0.0)
        return _complex(pairs, d, low)
    value = _fused("random_uniform", d, shape, where, draw, spare, unit, float(low))
    if (low, high) != (0.0, 1.0):
        end = float(backend(CPU).xp.asarray(high).astype(d.numpy))
        value = apply(TABLE["where"], value >= end, low, value)
    return value


@op
def _normal(
    shape: Sequence[int],
    d: dtype,
    where: device,
    generator: Generator | None,
    mean: float = 0.0,
    std: float = 1.0,
) -> Tensor:
    if std < 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std:g}")
    _floating("normal", d)
    draw = _draw(generator, where)
    if d.category == 3:
        std = std * math.sqrt(0.5)  # the variance is shared by the two parts
    if costs_of(where).draws_again:
        if d.is_complex:
            pairs = _fused("random_normal", _real(d), (*shape, 2), where, draw, float(std), 0.0)
            return _complex(pairs, d, mean)
        numbers = (float(std), float(mean))
        return _computed(_fused("random_normal", d, shape, where, draw, *numbers))
    made = backend(CPU).call("normal", _normal_on_host, draw, tuple(shape), d, mean, std)
    return _on_device(made, shape, d, where)


def _normal_on_host(
    draw: tuple[int, int], shape: Sequence[int], d: dtype, mean: float, std: float
) -> Any:
    array = _fractions(philox.normal, shape, d, draw)
    if std != 1:
        array *= array.dtype.type(std)
    if mean != 0:
        array += array.dtype.type(mean)
    return array.astype(d.numpy, copy=False)


@batching(_uniform, _normal, unbatched=True)
def _numbers_batched(level: Batch, f: Any, shape: Sequence[int], *args: Any) -> Any:
    if level.draws_once():
        return level.outside(f, shape, *args)
    return level.wrap(level.outside(f, (level.size, *shape), *args))


def drawn_for_each(
    level: Batch, f: Any, parameters: Sequence[Tensor], generator: Generator | None
) -> Tensor:
    """What ops draw by tensors of parameters, of one shape, for each example of a batch.

    RuntimeError where the examples' own parameters are to draw the same.
    """
    if draws_once(level, f, parameters):
        return level.outside(f, *parameters, generator)
    return level.wrap(level.outside(f, *[level.full(t) for t in parameters], generator))


def draws_once(level: Batch, f: Any, parameters: Sequence[Tensor]) -> bool:
    """Whether an op draws the same for all examples; RuntimeError if these have parameters."""
    once = level.draws_once()
    if once and any(level.holds(t) for t in parameters):
        raise RuntimeError(
            "Vmap does not currently support same randomness with a batched tensor input: "
            f"{f.__name__} draws each example's own; use randomness='different'"
        )
    return once


def true_everywhere(condition: Tensor) -> bool:
    """Whether a condition holds for all elements, of all examples of a batch too."""
    while condition._wrapper is not None:
        (condition,) = condition._wrapper.level.parts(condition)
    return bool(condition.all())


@op
def _integers(
    low: int,
    high: int,
    shape: Sequence[int],
    d: dtype,
    where: device,
    generator: Generator | None,
) -> Tensor:
    """Whole numbers from [low, high) in any type that holds them."""
    if low >= high:
        raise RuntimeError(
            f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}"
        )
    least, most = _bounds(d)
    for name, value in (("from", low), ("to - 1", high - 1)):
        if not least <= value <= most:
            raise RuntimeError(f"{name} is out of bounds for {d.name}: {value}")
    draw, span = _draw(generator, where), high - low
    if costs_of(where).draws_again:
        offsets = _fused("random_below", dt.int64, shape, where, draw, span % (1 << 64))
        return _computed((offsets + low if low else offsets).to(d))
    count = math.prod(shape)
    made = backend(CPU).call("randint", _integers_on_host, draw, count, low, span, d)
    return _on_device(made, shape, d, where)


def _integers_on_host(draw: tuple[int, int], count: int, low: int, span: int, d: dtype) -> Any:
    return philox.integers(*draw, count, low, span).astype(d.numpy, copy=False)


@batching(_integers, unbatched=True)
def _integers_batched(
    level: Batch, f: Any, low: int, high: int, shape: Sequence[int], *args: Any
) -> Any:
    if level.draws_once():
        return level.outside(f, low, high, shape, *args)
    return level.wrap(level.outside(f, low, high, (level.size, *shape), *args))


def _bounds(d: dtype) -> tuple[float, float]:
    if d is dt.bool:
        return 0, 1
    if d.category == 1:
        bits = 8 * d.itemsize - d.is_signed
        return (-(1 << bits) if d.is_signed else 0), (1 << bits) - 1
    most = {dt.float16: 65504.0}.get(d, 3e38)
    return -most, most
