"""Random tensors, and tensors filled with random numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lucid_gpu import dtypes as dt
from lucid_gpu.device import CPU, device
from lucid_gpu.devices import backend, philox, resolve
from lucid_gpu.dtypes import as_dtype, dtype, get_default_dtype
from lucid_gpu.fusion.costs import costs_of
from lucid_gpu.kernels.bounds import seen_at_once
from lucid_gpu.ops.arguments import extents, into, type_for
from lucid_gpu.ops.creation import empty
from lucid_gpu.ops.elementwise import cast
from lucid_gpu.ops.generator import Generator, _draw
from lucid_gpu.ops.laying import lay
from lucid_gpu.ops.memory_formats import like
from lucid_gpu.ops.number_ranges import largest
from lucid_gpu.ops.random_numbers import (
    _bounds,
    _computed,
    _fused,
    _integers,
    _normal,
    _on_device,
    _uniform,
    drawn_by,
    true_everywhere,
)
from lucid_gpu.ops.registry import named
from lucid_gpu.ops.shape import stack
from lucid_gpu.ops.user_warnings import warn_user
from lucid_gpu.tape.door import op
from lucid_gpu.tape.rules import Batch, batching
from lucid_gpu.tensor import Tensor, from_array


def _shape_of(name: str, size: tuple[Any, ...]) -> tuple[int, ...]:
    if not size:
        raise TypeError(f"{name}() expects a size: {name}(2, 3) or {name}((2, 3))")
    return extents(name, size)


# the number up to which a type holds all whole ones
_WHOLE = {dt.float16: 2**11, dt.float32: 2**24, dt.float64: 2**53}


def _default(d: Any) -> dtype:
    return get_default_dtype() if d is None else as_dtype(d)


def _finish(result: Tensor, requires_grad: bool, out: Tensor | None, name: str) -> Tensor:
    result = into(result, out, name, made=True)
    return result._mark() if requires_grad else result


@op
def rand(
    *sizes: Any,
    size: Sequence[int] | None = None,
    generator: Generator | None = None,
    out: Tensor | None = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """A tensor of shape ``sizes`` of uniform random numbers from [0, 1).

    Parameters
    ----------
    *sizes : ints or a sequence of ints
        Or by name, ``size=(2, 3)``.
    generator : Generator, optional
    dtype : dtype, optional
        A floating point or complex type.

    Raises
    ------
    NotImplementedError
        For integer types.
    RuntimeError
        For a negative size.
    TypeError
        For sizes that are invalid or not integers.
    """
    shape = _shape_of("rand", sizes if size is None else (size,))
    result = _uniform(shape, _default(type_for(dtype, out)), resolve(device, out), generator)
    return _finish(result, requires_grad, out, "rand")


@op
def randn(
    *sizes: Any,
    size: Sequence[int] | None = None,
    generator: Generator | None = None,
    out: Tensor | None = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """A tensor of shape ``sizes`` of standard normal random numbers; parameters as in `rand`.

    RuntimeError for a negative size; TypeError for sizes that are invalid or not integers.
    """
    shape = _shape_of("randn", sizes if size is None else (size,))
    result = _normal(shape, _default(type_for(dtype, out)), resolve(device, out), generator)
    return _finish(result, requires_grad, out, "randn")


@op
def randint(
    *args: Any,
    low: int = 0,
    high: int | None = None,
    size: Sequence[int] | None = None,
    generator: Generator | None = None,
    out: Tensor | None = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Random integers from [low, high), of shape ``size``.

    ``randint(high, size)`` or ``randint(low, high, size)``.

    Parameters
    ----------
    low, high : int
    size : sequence of ints
    dtype : dtype, optional
        int64 if left out.

    Raises
    ------
    RuntimeError
        For an empty range, and bounds the type does not hold.
    TypeError
        For other arguments.
    """
    positional = list(args)
    if positional and isinstance(positional[-1], (tuple, list)):
        size = positional.pop()
    if len(positional) == 2:
        low, high = positional
    elif len(positional) == 1:
        low, high = (0, positional[0]) if high is None else (positional[0], high)
    if high is None or not isinstance(size, (tuple, list)) or len(positional) > 2:
        raise TypeError(
            "randint(): expected randint(high, size) or randint(low, high, size), where argument "
            "'size' must be tuple of ints"
        )
    dtype = type_for(dtype, out)
    d = dt.int64 if dtype is None else as_dtype(dtype)
    if d.category == 3:
        raise RuntimeError(
            "check_random_bounds handles only integral, floating-point and boolean types"
        )
    shape = _shape_of("randint", (size,))
    result = _integers(int(low), int(high), shape, d, resolve(device, out), generator)
    return _finish(result, requires_grad, out, "randint")


@op
def randperm(
    n: int,
    *,
    generator: Generator | None = None,
    out: Tensor | None = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """A vector of the integers below ``n`` in random order, int64 if no type is given.

    RuntimeError for a negative ``n``, and one that the type does not hold; TypeError for an ``n``
    that is not an integer; NotImplementedError for complex types.
    """
    (n,) = _shape_of("randperm", (n,))
    dtype = type_for(dtype, out)
    d = dt.int64 if dtype is None else as_dtype(dtype)
    if d.category == 3:
        raise dt.unimplemented("randperm", d)
    whole = _WHOLE.get(d)
    if whole is not None and n > whole + 1:
        raise RuntimeError(f"n cannot be greater than {whole + 1} for {d.name} type.")
    if n and n - 1 > _bounds(d)[1]:
        raise dt.overflow(d, f": {n - 1}")
    where = resolve(device, out)
    draw = _draw(generator, where)
    if costs_of(where).draws_again:
        words = _fused("random_below", dt.int64, (n,), where, draw, 0).array.view("uint64")
        order = backend(where).xp.argsort(words, kind="stable")
        result = from_array(order.astype(d.numpy, copy=False), d, where)
    else:
        made = backend(CPU).call("randperm", _order_on_host, draw, n, d)
        result = _on_device(made, (n,), d, where)
    return _finish(result, requires_grad, out, "randperm")


def _order_on_host(draw: tuple[int, int], n: int, d: dtype) -> Any:
    return philox.order(*draw, n).astype(d.numpy, copy=False)


@batching(randperm, unbatched=True)
def _randperm_batched(level: Batch, f: Any, *args: Any, **kwargs: Any) -> Any:
    if level.draws_once():
        return level.outside(f, *args, **kwargs)
    return level.wrap(stack([level.outside(f, *args, **kwargs) for _ in range(level.size)]))


def _options_like(input: Tensor, d: Any, where: Any) -> tuple[dtype, device]:
    return (
        input.dtype if d is None else as_dtype(d),
        input.device if where is None else resolve(where),
    )


def _drawn_like(name: str, draw: Callable[..., Tensor]) -> Callable[..., Tensor]:
    @op
    def drawn_like(
        input: Tensor,
        *,
        dtype: Any = None,
        layout: Any = None,
        device: Any = None,
        requires_grad: bool = False,
        memory_format: Any = None,
        generator: Generator | None = None,
    ) -> Tensor:
        result = draw(input._expr.shape, *_options_like(input, dtype, device), generator)
        return _finish(like(result, input, memory_format), requires_grad, None, f"{name}_like")

    doc = f"`{name}` in another tensor's shape, type and device."
    return named(drawn_like, f"{name}_like", doc)


rand_like, randn_like = _drawn_like("rand", _uniform), _drawn_like("randn", _normal)


@op
def randint_like(
    input: Tensor,
    low: int,
    high: int | None = None,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    memory_format: Any = None,
    generator: Generator | None = None,
) -> Tensor:
    """`randint` in another tensor's shape, type and device: (input, high) or (input, low, high)."""
    if high is None:
        low, high = 0, low
    d, where = _options_like(input, dtype, device)
    result = _integers(int(low), int(high), input._expr.shape, d, where, generator)
    return _finish(like(result, input, memory_format), requires_grad, None, "randint_like")


@op
def normal(
    mean: Any,
    std: Any = 1.0,
    size: Sequence[int] | None = None,
    *,
    generator: Generator | None = None,
    out: Tensor | None = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Normal random numbers of given means and standard deviations.

    Parameters
    ----------
    mean, std : float or Tensor
        Tensors broadcast against each other.
    size : sequence of ints
        The shape, where both are numbers.

    Raises
    ------
    RuntimeError
        For negative standard deviations.
    TypeError
        For two numbers without a ``size``, and a ``size`` beside tensors.
    """
    tensors = [x.detach() for x in (mean, std) if isinstance(x, Tensor)]
    if not tensors or (size is not None and not any(t.ndim for t in tensors)):
        if size is None:
            raise TypeError("normal() with numbers for mean and std needs a size")
        shape = _shape_of("normal", (size,))
        where = resolve(device, out)
        kind = _default(type_for(dtype, out))
        made = _normal(shape, kind, where, generator, float(mean), float(std))
        return _finish(made, requires_grad, out, "normal")
    if size is not None:
        raise TypeError(
            "normal() received an invalid combination of arguments - it takes a size only where "
            "mean and std are numbers"
        )
    if isinstance(std, Tensor):
        if not true_everywhere((std.detach() < 0).logical_not()):
            raise RuntimeError("normal expects all elements of std >= 0.0")
    elif std < 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std:g}")
    frame = sum(tensors[1:], tensors[0])
    result = randn_like(frame, generator=generator)
    result = result * (tensors[-1] if isinstance(std, Tensor) else std)
    result = result + (tensors[0] if isinstance(mean, Tensor) else mean)
    means = [x for x in (mean, std) if isinstance(x, Tensor)]
    made = drawn_by(lay(result, None), *means)
    result = into(made, out, "normal")
    return result._mark() if requires_grad else result


@op
def bernoulli(
    input: Tensor,
    p: float | None = None,
    *,
    generator: Generator | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Ones with the probabilities that ``input`` gives, zeros otherwise.

    Parameters
    ----------
    input : Tensor
        Probabilities; with ``p``, only shape and type count.
    p : float, optional
        One probability for all.

    Raises
    ------
    RuntimeError
        For probabilities outside [0, 1].
    NotImplementedError
        For types that are not floating point.
    """
    value = input._expr
    d = value.program.dtype
    if p is None and d.category != 2:
        raise dt.unimplemented("bernoulli", d)
    coins = _coins(input if p is None else p, value.shape, value.program.device, generator)
    result = cast(coins, d)
    if out is not None:
        result = result.to(out.dtype)
    return _finish(drawn_by(result, input), False, out, "bernoulli")


@op
def _coins(p: Any, shape: Sequence[int], where: device, generator: Generator | None) -> Tensor:
    """True with probability ``p``, a number or a tensor that broadcasts to ``shape``."""
    if isinstance(p, Tensor):
        program = p._expr.program
        if not program.independent or p._wrapper is not None:
            p = p.detach()
        if program.device.type != "meta" and not _are_probabilities(p, program.device):
            raise RuntimeError(
                "Expected p_in >= 0 && p_in <= 1 to be true, but got false: bernoulli takes "
                "probabilities"
            )
        p = p if program.device is where else p.to(where)
    elif not 0 <= p <= 1:
        raise RuntimeError(f"bernoulli_ expects p to be in [0, 1], but got p={p:g}")
    double = isinstance(p, Tensor) and program.dtype is dt.float64
    d = dt.float64 if double else dt.float32
    result: Tensor = _uniform(shape, d, where, generator, 0.0, 1.0, True) < p
    return result


def _are_probabilities(p: Tensor, where: device) -> bool:
    if not seen_at_once(where):
        return bool(((p >= 0) & (p <= 1)).all())
    array = p.array
    return bool(backend(where).xp.logical_and.reduce((array >= 0) & (array <= 1), None))


@batching(_coins)
def _coins_batched(
    level: Batch, f: Any, p: Tensor, shape: Sequence[int], where: device, generator: Any
) -> Tensor:
    value = level.value(p).detach()
    if not true_everywhere((value >= 0) & (value <= 1)):
        raise RuntimeError(
            "Expected p_in >= 0 && p_in <= 1 to be true, but got false: bernoulli takes "
            "probabilities"
        )
    drawn: Tensor = _uniform(shape, value.dtype, where, generator) < p.detach()
    return drawn


# --- methods --------------------------------------------------------------------------------------


@op
def uniform_(
    self: Tensor, *limits: float, generator: Generator | None = None, **named: float
) -> Tensor:
    """Fill with uniform random numbers, in place: ``uniform_(from=0, to=1)``, without ``to``.

    RuntimeError where ``from`` is above ``to`` or the type does not hold them; TypeError for
    other arguments.
    """
    low, high = [
        named.pop(name, limits[i] if i < len(limits) else i)
        for i, name in enumerate(("from", "to"))
    ]
    if named or len(limits) > 2:
        raise TypeError("uniform_() takes two limits, from and to")
    if self.dtype.category == 2:
        _check_limits(low, high, self.dtype)
    if low > high:
        raise RuntimeError(
            f"uniform_ expects to return a [from, to) range, but found from={low:g} > to={high:g}"
        )
    value = _uniform(self.shape, self.dtype, self.device, generator, low, high)
    return self._write(value, "uniform_")


def _check_limits(low: float, high: float, d: dtype) -> None:
    most = largest(d)
    for name, limit in (("from", low), ("to", high)):
        if not -most <= limit <= most:
            raise RuntimeError(f"{name} is out of bounds for {d.name}")
    if high - low > most:
        raise RuntimeError(
            f"uniform_ expects to-from <= {most:g}, but found to={high:g} and from={low:g}"
        )


@op
def normal_(
    self: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Generator | None = None
) -> Tensor:
    """Fill with normal random numbers of mean ``mean`` and deviation ``std``, in place."""
    value = _normal(self.shape, self.dtype, self.device, generator, mean, std)
    return self._write(value, "normal_")


@op
def random_(self: Tensor, *limits: Any, generator: Generator | None = None, **named: Any) -> Tensor:
    """Fill with integers, in place: ``random_()``, ``random_(to)`` or ``random_(from, to)``.

    Without limits: all that the type holds, and of floating point types the integers that it
    represents exactly.
    """
    low = named.get("from", limits[0] if len(limits) == 2 else 0)
    high = named.get("to", limits[-1] if limits else None)
    if high is None:
        high = _whole_numbers(self.dtype)
    if self.dtype.category == 2:
        _warn_of_rounded(low, high - 1, self.dtype)
    value = _integers(low, high, self.shape, self.dtype, self.device, generator)
    return self._write(value, "random_")


def _warn_of_rounded(low: int, top: int, d: dtype) -> None:
    """Warn of limits beyond which a type of floats has not all integers."""
    digits = philox.DIGITS[d]
    for word, limit in (("from", low), ("to - 1", top)):
        if not -(1 << digits) <= limit <= 1 << digits:
            warn_user(
                f"{word} is out of bounds [-(2^{digits}), 2^{digits}]. Due to precision "
                f"limitations {d.name} can support discrete uniform distribution only within this "
                "range."
            )


def _whole_numbers(d: dtype) -> int:
    if d.category == 2:
        return (1 << philox.DIGITS[d]) + 1
    return int(_bounds(d)[1]) + 1


@op
def bernoulli_(self: Tensor, p: Any = 0.5, *, generator: Generator | None = None) -> Tensor:
    """Fill with ones of probability ``p`` (a number or a tensor) and zeros, in place.

    RuntimeError for a ``p`` outside ``[0, 1]``.
    """
    value = _coins(p, self.shape, self.device, generator).to(self.dtype)
    return self._write(value, "bernoulli_")


@op
def exponential_(self: Tensor, lambd: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """Fill with exponential random numbers of rate ``lambd``, in place.

    RuntimeError where ``lambd`` is not above 0, and for types that are not floating point.
    """
    if self.dtype.category != 2:
        raise RuntimeError(
            "Exponential distribution is a continuous probability distribution. dtype must be a "
            f"floating point but you specified {self.dtype.name}"
        )
    if lambd <= 0:
        raise RuntimeError(f"exponential_ expects lambda > 0.0, but found lambda={lambd:g}")
    draw, where = _draw(generator, self.device), self.device
    if costs_of(where).draws_again:
        value = _fused("random_exponential", self.dtype, self.shape, where, draw, float(lambd))
        return self._write(_computed(value), "exponential_")
    array = philox.exponential(*draw, self.numel()) / lambd
    return self._write(_on_device(array, self.shape, self.dtype, where), "exponential_")


@batching(uniform_, normal_, random_, bernoulli_, exponential_, unbatched=True)
def _filled_batched(level: Batch, f: Any, self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    if level.draws_once():
        sample = empty(tuple(self.shape), dtype=self.dtype, device=self.device)
        level.outside(f, sample, *args, **kwargs)
        if level.holds(self):
            return self._write(sample, f.__name__)
        return self.copy_(sample)
    if not level.holds(self):
        raise RuntimeError(
            "vmap: Cannot ask for different inplace randomness on an unbatched tensor. This will "
            "appear like same randomness. If this is necessary for your usage, write it out of "
            "place, with rand or randn."
        )
    probabilities = [a for a in (*args, *kwargs.values()) if level.holds(a)]
    if probabilities and tuple(probabilities[0].shape) != tuple(self.shape):
        raise RuntimeError("vmap: bernoulli_(p) wants a batched p of the tensor's own shape")
    positional = [level.value(a) for a in args]
    named = {k: level.value(v) for k, v in kwargs.items()}
    level.outside(f, level.value(self), *positional, **named)
    return self


METHODS = (uniform_, normal_, random_, bernoulli_, exponential_, bernoulli)
FUNCTIONS = (
    bernoulli,
    normal,
    rand,
    rand_like,
    randint,
    randint_like,
    randn,
    randn_like,
    randperm,
)
