"""Random tensors.

Numbers are counter-based: a generator is a seed and the number of draws made so far, and element i
of a draw is a function of seed, draw and i alone (`lucid_gpu.devices.philox` defines it). So the
same seed gives the same numbers on every device, whatever the number of threads: bit for bit, but
for the last places of normal and exponential numbers, where another library computes the logarithm.

On the CPU NumPy makes them. On a GPU they are rows of the op table on an index, and so part of any
kernel: of one of their own, as a rule, but dropout's mask is made where it is used.
"""

from __future__ import annotations

import math
import secrets
import threading
from collections.abc import Sequence
from typing import Any

from lucid_gpu import dtypes as dt
from lucid_gpu.device import CPU, device, resolve
from lucid_gpu.devices import philox, room
from lucid_gpu.dtypes import as_dtype, dtype, get_default_dtype
from lucid_gpu.fusion.expression import drawn
from lucid_gpu.fusion.optable import TABLE
from lucid_gpu.launch import runs_cuda_c
from lucid_gpu.ops.creation import tensor
from lucid_gpu.ops.elementwise import into
from lucid_gpu.tensor import Tensor, _tensor, apply, from_array

DEFAULT_SEED = 67280421310721  # PyTorch's, before `manual_seed`
_STATE_BYTES = 16


class Generator:
    """A stream of random numbers: a seed and a count of draws.

    Parameters
    ----------
    device : device or str
        Where the tensors it fills are; the numbers do not depend on it.

    Attributes
    ----------
    device : device
    """

    def __init__(self, device: Any = "cpu") -> None:
        self.device: device = resolve(device)
        self._seed = DEFAULT_SEED
        self._draws = 0
        self._lock = threading.Lock()

    def manual_seed(self, seed: int) -> Generator:
        """Start the stream of a seed from its beginning; negative seeds count from 2**64 down."""
        seed = int(seed)
        if not -(1 << 63) <= seed < 1 << 64:
            raise ValueError(
                f"Overflow when unpacking long long: seed {seed} is not within [-2**63, 2**64)"
            )
        with self._lock:
            self._seed, self._draws = seed & ((1 << 64) - 1), 0
        return self

    def seed(self) -> int:
        """Start a stream that nobody can foresee; returns its seed."""
        return self.manual_seed(secrets.randbits(64)).initial_seed()

    def initial_seed(self) -> int:
        """The seed of the stream."""
        return self._seed

    def get_state(self) -> Tensor:
        """The state as a CPU tensor of 16 bytes."""
        with self._lock:
            state = self._seed.to_bytes(8, "little") + self._draws.to_bytes(8, "little")
        return tensor(list(state), dtype=dt.uint8)

    def set_state(self, new_state: Tensor) -> Generator:
        """Go to a state that `get_state` gave.

        Raises
        ------
        TypeError, RuntimeError
            For another type or size of tensor.
        """
        if not isinstance(new_state, Tensor) or new_state.dtype is not dt.uint8:
            raise TypeError("RNG state must be a ByteTensor (uint8)")
        if tuple(new_state.shape) != (_STATE_BYTES,):
            raise RuntimeError(
                f"Expected an RNG state of size {_STATE_BYTES} but found the input RNG state size "
                f"to be {new_state.numel()}"
            )
        state = bytes(new_state.tolist())
        with self._lock:
            self._seed = int.from_bytes(state[:8], "little")
            self._draws = int.from_bytes(state[8:], "little")
        return self

    def clone_state(self) -> Generator:
        """A generator of its own in the same state."""
        other = Generator(self.device)
        return other.set_state(self.get_state())

    def next_draw(self) -> tuple[int, int]:
        """Seed and offset of a draw, which nobody else gets."""
        with self._lock:
            offset = self._draws
            self._draws = (offset + 1) & ((1 << 64) - 1)
            return self._seed, offset

    def __getstate__(self) -> dict[str, Any]:
        return {"device": self.device, "seed": self._seed, "draws": self._draws}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["device"])  # type: ignore[misc]
        self._seed, self._draws = state["seed"], state["draws"]

    def __repr__(self) -> str:
        return f"<lucid_gpu.Generator device={self.device} seed={self._seed} draws={self._draws}>"


# One for all devices: a script draws the same numbers wherever its tensors are.
default_generator = Generator()


def manual_seed(seed: int) -> Generator:
    """Seed the default generator, of all devices."""
    return default_generator.manual_seed(seed)


def seed() -> int:
    """Give the default generator a seed nobody can foresee, and return it."""
    return default_generator.seed()


def initial_seed() -> int:
    """The default generator's seed."""
    return default_generator.initial_seed()


def get_rng_state() -> Tensor:
    """The default generator's state."""
    return default_generator.get_state()


def set_rng_state(new_state: Tensor) -> None:
    """Set the default generator's state."""
    default_generator.set_state(new_state)


# --- draws ----------------------------------------------------------------------------------------


def _draw(generator: Generator | None, where: device) -> tuple[int, int]:
    if generator is None:
        return default_generator.next_draw()
    if not isinstance(generator, Generator):
        raise TypeError(f"generator must be a Generator or None, not {type(generator).__name__}")
    if generator.device.type != where.type:
        raise RuntimeError(
            f"Expected a '{where.type}' device type for generator but found "
            f"'{generator.device.type}'"
        )
    return generator.next_draw()


def _placed(array: Any, shape: Sequence[int], d: dtype, where: device) -> Tensor:
    """Host numbers as a tensor of a type on a device."""
    array = array.reshape(shape).astype(d.numpy, copy=False)
    return from_array(room(where).from_numpy(array, where), d, where)


def _real(d: dtype) -> dtype:
    """The type of a complex type's parts."""
    return {dt.complex64: dt.float32, dt.complex128: dt.float64}.get(d, d)


def _floating(name: str, d: dtype) -> None:
    if d.category < 2:
        raise NotImplementedError(
            f'"{name}" not implemented for {d.name}: give a floating point dtype'
        )


def _fractions(make: Any, shape: Sequence[int], d: dtype, draw: tuple[int, int]) -> Any:
    """Uniform or normal numbers on the host, of ``d``'s compute type or complex."""
    count = math.prod(shape) * (2 if d.is_complex else 1)
    array = make(*draw, count, _real(d))
    return array.view(d.numpy) if d.is_complex else array


def _fused(
    row: str, d: dtype, shape: Sequence[int], where: device, draw: tuple[int, int], *numbers: float
) -> Tensor:
    """A row of random numbers as a pending value; 16-bit types are rounded from float32."""
    made = _tensor(drawn(TABLE[row], d.compute, tuple(shape), where, draw, numbers))
    return made if made.dtype is d else made.to(d)


def _computed(value: Tensor) -> Tensor:
    """A value as data, which nobody computes again."""
    value._realise()
    return value


def _complex(pairs: Tensor, d: dtype, shift: float) -> Tensor:
    """Pairs of real numbers as complex ones."""
    array = pairs.array.view(d.numpy).reshape(pairs.shape[:-1])
    value = from_array(array, d, pairs.device)
    return value + shift if shift else value


def _uniform(
    shape: Sequence[int],
    d: dtype,
    where: device,
    generator: Generator | None,
    low: float = 0.0,
    high: float = 1.0,
    pending: bool = False,
) -> Tensor:
    """Uniform numbers; ``pending`` leaves them, on a GPU, to the kernel that uses them."""
    _floating("uniform", d)
    draw = _draw(generator, where)
    if runs_cuda_c(where):
        value = _uniform_fused(shape, d, where, draw, low, high)
        return value if pending else _computed(value)
    array = _fractions(philox.uniform, shape, d, draw)
    if (low, high) != (0.0, 1.0):
        array *= array.dtype.type(high - low)
        array += array.dtype.type(low)
        if not d.is_complex:
            array = array.astype(d.numpy, copy=False)
            array[array >= high] = low  # rounding must not give the end that is left out
    return _placed(array, shape, d, where)


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
        end = float(room(CPU).xp.asarray(high).astype(d.numpy))
        value = apply(TABLE["where"], value >= end, low, value)
    return value


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
    if d.is_complex:
        std = std * math.sqrt(0.5)  # the variance is shared by the two parts
    if runs_cuda_c(where):
        if d.is_complex:
            pairs = _fused("random_normal", _real(d), (*shape, 2), where, draw, float(std), 0.0)
            return _complex(pairs, d, mean)
        numbers = (float(std), float(mean))
        return _computed(_fused("random_normal", d, shape, where, draw, *numbers))
    array = _fractions(philox.normal, shape, d, draw)
    if std != 1:
        array *= array.dtype.type(std)
    if mean != 0:
        array += array.dtype.type(mean)
    return _placed(array, shape, d, where)


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
    if runs_cuda_c(where):
        found = _fused("random_below", dt.int64, shape, where, draw, span % (1 << 64))
        return _computed((found + low if low else found).to(d))
    return _placed(philox.integers(*draw, math.prod(shape), low, span), shape, d, where)


def _bounds(d: dtype) -> tuple[float, float]:
    if d is dt.bool:
        return 0, 1
    if d.category == 1:
        bits = 8 * d.itemsize - d.is_signed
        return (-(1 << bits) if d.is_signed else 0), (1 << bits) - 1
    most = {dt.float16: 65504.0}.get(d, 3e38)
    return -most, most


# --- functions ------------------------------------------------------------------------------------


def _shape_of(name: str, size: tuple[Any, ...]) -> tuple[int, ...]:
    if len(size) == 1 and isinstance(size[0], (tuple, list)):
        size = tuple(size[0])
    elif not size:
        raise TypeError(f"{name}() expects a size: {name}(2, 3) or {name}((2, 3))")
    for n in size:
        if not hasattr(n, "__index__"):
            raise TypeError(f"{name}(): argument 'size' must be ints, got {type(n).__name__}")
        if n < 0:
            raise RuntimeError(f"Trying to create tensor with negative dimension {n}: {list(size)}")
    return tuple([int(n) for n in size])


def _default(d: Any) -> dtype:
    return get_default_dtype() if d is None else as_dtype(d)


def _finish(result: Tensor, requires_grad: bool, out: Tensor | None, name: str) -> Tensor:
    result = into(result, out, name)
    return result.requires_grad_() if requires_grad else result


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
    """Uniform random numbers from [0, 1).

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
    """
    shape = _shape_of("rand", sizes if size is None else (size,))
    result = _uniform(shape, _default(dtype), resolve(device), generator)
    return _finish(result, requires_grad, out, "rand")


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
    """Random numbers of the standard normal distribution; parameters as for `rand`."""
    shape = _shape_of("randn", sizes if size is None else (size,))
    result = _normal(shape, _default(dtype), resolve(device), generator)
    return _finish(result, requires_grad, out, "randn")


def randint(
    *args: Any,
    low: int = 0,
    high: int | None = None,
    size: Sequence[int] | None = None,
    generator: Generator | None = None,
    out: Tensor | None = None,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Random integers from [low, high): ``randint(high, size)`` or ``randint(low, high, size)``.

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
    """
    given = list(args)
    if given and isinstance(given[-1], (tuple, list)):
        size = given.pop()
    if len(given) == 2:
        low, high = given
    elif len(given) == 1:
        low, high = (0, given[0]) if high is None else (given[0], high)
    if high is None or not isinstance(size, (tuple, list)) or len(given) > 2:
        raise TypeError(
            "randint(): expected randint(high, size) or randint(low, high, size), where argument "
            "'size' must be tuple of ints"
        )
    d = dt.int64 if dtype is None else as_dtype(dtype)
    shape = _shape_of("randint", (size,))
    result = _integers(int(low), int(high), shape, d, resolve(device), generator)
    return _finish(result, requires_grad, out, "randint")


def randperm(
    n: int,
    *,
    generator: Generator | None = None,
    out: Tensor | None = None,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """The integers below ``n`` in random order, int64 if no type is given."""
    (n,) = _shape_of("randperm", (n,))
    d = dt.int64 if dtype is None else as_dtype(dtype)
    if n and n - 1 > _bounds(d)[1]:
        raise RuntimeError(f"value cannot be converted to type {d.name} without overflow: {n - 1}")
    where = resolve(device)
    draw = _draw(generator, where)
    if runs_cuda_c(where):
        words = _fused("random_below", dt.int64, (n,), where, draw, 0).array.view("uint64")
        order = room(where).xp.argsort(words, kind="stable")
        result = from_array(order.astype(d.numpy, copy=False), d, where)
    else:
        result = _placed(philox.order(*draw, n), (n,), d, where)
    return _finish(result, requires_grad, out, "randperm")


def _options_like(input: Tensor, d: Any, where: Any) -> tuple[dtype, device]:
    return (
        input.dtype if d is None else as_dtype(d),
        input.device if where is None else resolve(where),
    )


def rand_like(
    input: Tensor,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    memory_format: Any = None,
    generator: Generator | None = None,
) -> Tensor:
    """`rand` in another tensor's shape, type and device."""
    result = _uniform(input.shape, *_options_like(input, dtype, device), generator)
    return _finish(result, requires_grad, None, "rand_like")


def randn_like(
    input: Tensor,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    memory_format: Any = None,
    generator: Generator | None = None,
) -> Tensor:
    """`randn` in another tensor's shape, type and device."""
    result = _normal(input.shape, *_options_like(input, dtype, device), generator)
    return _finish(result, requires_grad, None, "randn_like")


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
    result = _integers(int(low), int(high), input.shape, d, where, generator)
    return _finish(result, requires_grad, None, "randint_like")


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
    """
    tensors = [x.detach() for x in (mean, std) if isinstance(x, Tensor)]
    if not tensors:
        if size is None:
            raise TypeError("normal() with numbers for mean and std needs a size")
        shape = _shape_of("normal", (size,))
        made = _normal(shape, _default(dtype), resolve(device), generator, float(mean), float(std))
        return _finish(made, requires_grad, out, "normal")
    if size is not None:
        raise TypeError("normal() takes a size only where mean and std are numbers")
    if isinstance(std, Tensor):
        if bool((std.detach() < 0).any()):
            raise RuntimeError("normal expects all elements of std >= 0.0")
    elif std < 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std:g}")
    frame = sum(tensors[1:], tensors[0])
    result = randn_like(frame, generator=generator)
    result = result * (tensors[-1] if isinstance(std, Tensor) else std)
    result = result + (tensors[0] if isinstance(mean, Tensor) else mean)
    return _finish(result, requires_grad, out, "normal")


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
    """
    if p is None:
        if input.dtype.category != 2:
            raise NotImplementedError(f'"bernoulli" not implemented for {input.dtype.name}')
        result = _coins(input, input.shape, input.device, generator).to(input.dtype)
    else:
        result = _coins(p, input.shape, input.device, generator).to(input.dtype)
    return _finish(result, False, out, "bernoulli")


def _coins(p: Any, shape: Sequence[int], where: device, generator: Generator | None) -> Tensor:
    """True with probability ``p``, a number or a tensor that broadcasts to ``shape``."""
    if isinstance(p, Tensor):
        p = p.detach()
        if not bool(((p >= 0) & (p <= 1)).all()):
            raise RuntimeError(
                "Expected p_in >= 0 && p_in <= 1 to be true, but got false: bernoulli takes "
                "probabilities"
            )
        p = p.to(where)
    elif not 0 <= p <= 1:
        raise RuntimeError(f"bernoulli_ expects p to be in [0, 1], but got p={p:g}")
    double = isinstance(p, Tensor) and p.dtype is dt.float64
    d = dt.float64 if double else dt.float32
    result: Tensor = _uniform(shape, d, where, generator, 0.0, 1.0, True) < p
    return result


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
    """
    _check_multinomial(input, num_samples, replacement)
    weights = input.detach().cpu().array.astype("float64").reshape(-1, input.shape[-1])
    if not (weights >= 0).all() or not (weights < math.inf).all():
        raise RuntimeError("probability tensor contains either `inf`, `nan` or element < 0")
    if not (weights.sum(axis=1) > 0).all():
        raise RuntimeError("invalid multinomial distribution (sum of probabilities <= 0)")
    draw = _draw(generator, input.device)
    pick = _with_replacement if replacement else _without_replacement
    shape = (*input.shape[:-1], num_samples)
    result = _placed(pick(weights, num_samples, draw), shape, dt.int64, input.device)
    return _finish(result, False, out, "multinomial")


def _check_multinomial(input: Tensor, num_samples: int, replacement: bool) -> None:
    if input.ndim not in (1, 2):
        raise RuntimeError("prob_dist must be 1 or 2 dim")
    if input.dtype.category != 2:
        raise RuntimeError(
            f"multinomial only supports floating-point dtypes for input, got: {input.dtype.name}"
        )
    if num_samples <= 0:
        raise RuntimeError("cannot sample n_sample <= 0 samples")
    if not replacement and num_samples > input.shape[-1]:
        raise RuntimeError(
            "cannot sample n_sample > prob_dist.size(-1) samples without replacement: "
            f"{num_samples} > {input.shape[-1]}"
        )


def _with_replacement(weights: Any, count: int, draw: tuple[int, int]) -> Any:
    """Where uniform numbers fall among the cumulated weights."""
    xp = room(CPU).xp
    rows = len(weights)
    drawn = philox.uniform(*draw, rows * count, dt.float64).reshape(rows, count)
    sums = weights.cumsum(axis=1)
    found = [
        xp.searchsorted(row, u * row[-1], side="right") for row, u in zip(sums, drawn, strict=True)
    ]
    last = [row.nonzero()[0][-1] for row in weights]  # rounding must not lead past it
    return xp.minimum(xp.array(found), xp.array(last)[:, None])


def _without_replacement(weights: Any, count: int, draw: tuple[int, int]) -> Any:
    """The smallest of exponential waiting times: the first events of independent processes."""
    xp = room(CPU).xp
    waits = philox.exponential(*draw, weights.size).reshape(weights.shape)
    never = weights == 0
    waits = xp.where(never, math.inf, waits / xp.where(never, 1.0, weights))
    return waits.argsort(axis=1, kind="stable")[:, :count]


# --- methods --------------------------------------------------------------------------------------


def uniform_(
    self: Tensor, *limits: float, generator: Generator | None = None, **named: float
) -> Tensor:
    """Fill with uniform random numbers, in place: ``uniform_(from=0, to=1)``, without ``to``."""
    low, high = [
        named.pop(name, limits[i] if i < len(limits) else i)
        for i, name in enumerate(("from", "to"))
    ]
    if named or len(limits) > 2:
        raise TypeError("uniform_() takes two limits, from and to")
    if low > high:
        raise RuntimeError(
            f"uniform_ expects to return a [from, to) range, but found from={low:g} > to={high:g}"
        )
    value = _uniform(self.shape, self.dtype, self.device, generator, low, high)
    return self._write(value, "uniform_")


def normal_(
    self: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Generator | None = None
) -> Tensor:
    """Fill with normal random numbers, in place."""
    value = _normal(self.shape, self.dtype, self.device, generator, mean, std)
    return self._write(value, "normal_")


def random_(self: Tensor, *limits: int, generator: Generator | None = None, **named: int) -> Tensor:
    """Fill with integers, in place: ``random_()``, ``random_(to)`` or ``random_(from, to)``.

    Without limits: all that the type holds, and of floating point types the integers that it
    represents exactly.
    """
    low = named.get("from", limits[0] if len(limits) == 2 else 0)
    high = named.get("to", limits[-1] if limits else None)
    if high is None:
        high = _whole_numbers(self.dtype)
    value = _integers(low, high, self.shape, self.dtype, self.device, generator)
    return self._write(value, "random_")


def _whole_numbers(d: dtype) -> int:
    if d.category == 2:
        return (1 << philox.DIGITS[d]) + 1
    return int(_bounds(d)[1]) + 1


def bernoulli_(self: Tensor, p: Any = 0.5, *, generator: Generator | None = None) -> Tensor:
    """Fill with ones of probability ``p`` (a number or a tensor) and zeros, in place."""
    value = _coins(p, self.shape, self.device, generator).to(self.dtype)
    return self._write(value, "bernoulli_")


def exponential_(self: Tensor, lambd: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """Fill with exponential random numbers of rate ``lambd``, in place."""
    if self.dtype.category != 2:
        raise RuntimeError(
            "Exponential distribution is a continuous probability distribution. dtype must be a "
            f"floating point but you specified {self.dtype.name}"
        )
    if lambd <= 0:
        raise RuntimeError(f"exponential_ expects lambda > 0.0, but found lambda={lambd:g}")
    draw, where = _draw(generator, self.device), self.device
    if runs_cuda_c(where):
        value = _fused("random_exponential", dt.float64, self.shape, where, draw, float(lambd))
        return self._write(_computed(value.to(self.dtype)), "exponential_")
    array = philox.exponential(*draw, self.numel()) / lambd
    return self._write(_placed(array, self.shape, self.dtype, where), "exponential_")


METHODS = (uniform_, normal_, random_, bernoulli_, exponential_, bernoulli, multinomial)
FUNCTIONS = (
    Generator,
    bernoulli,
    get_rng_state,
    initial_seed,
    manual_seed,
    multinomial,
    normal,
    rand,
    rand_like,
    randint,
    randint_like,
    randn,
    randn_like,
    randperm,
    seed,
    set_rng_state,
)
