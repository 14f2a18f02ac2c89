"""Special functions that are compositions of the table's, and functions of a float's parts."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, NoReturn

from lucid_gpu import dtypes as dt
from lucid_gpu.devices import xp_of
from lucid_gpu.fusion.optable import TABLE
from lucid_gpu.fusion.typing_rules import broadcast_shapes
from lucid_gpu.ops.arguments import public, require_tensors
from lucid_gpu.ops.creation import arange
from lucid_gpu.ops.elementwise import _common_type, where
from lucid_gpu.ops.in_place import written
from lucid_gpu.ops.memory_formats import joint_order, lying
from lucid_gpu.ops.named_results import result_of
from lucid_gpu.ops.record import keeping, keeps, record
from lucid_gpu.tape.door import op
from lucid_gpu.tensor import Tensor, apply, from_array


@op
def polygamma(n: Any, input: Any) -> Tensor:
    """The ``n``-th derivative of `digamma`: ``(-1)**(n + 1) n! zeta(n + 1, x)``.

    Parameters
    ----------
    n : int, not negative
    input : Tensor

    Raises
    ------
    TypeError
        For a tensor as ``n``.
    RuntimeError
        For a negative ``n``.
    """
    if isinstance(n, Tensor):
        raise TypeError("polygamma(): argument 'n' (position 1) must be int, not Tensor")
    if n < 0:
        raise RuntimeError("polygamma(n, x) does not support negative n.")
    if n < 2:
        return apply(TABLE["trigamma" if n else "digamma"], input)
    return apply(TABLE["zeta"], float(n + 1), input) * float((-1) ** (n + 1) * math.factorial(n))


def _polygamma(self: Tensor, n: Any) -> Tensor:
    """The ``n``-th derivative of `digamma` at each element: see `lucid_gpu.polygamma`."""
    return polygamma(n, self)


_polygamma.__name__ = _polygamma.__qualname__ = "polygamma"


@op
def mvlgamma(input: Tensor, p: int) -> Tensor:
    """The logarithm of the multivariate gamma function of dimension ``p`` at each element.

    RuntimeError for a ``p`` below 1.
    """
    if p < 1:
        raise RuntimeError("p has to be greater than or equal to 1")
    x = input if input.dtype.category > 1 else input.to(dt.get_default_dtype())
    halves = arange(p, device=input.device).to(x.dtype) / 2
    total: Tensor = (x.unsqueeze(-1) - halves).lgamma().sum(-1)
    return total + p * (p - 1) / 4 * math.log(math.pi)


@op(whole=True)
def logit(input: Tensor, eps: float | None = None) -> Tensor:
    """``log(x / (1 - x))`` of each element moved into ``[eps, 1 - eps]``; NaN outside [0, 1].

    NotImplementedError for complex tensors.
    """
    if input.dtype.is_complex:
        raise dt.unimplemented("logit", input.dtype)
    if input.dtype.category < 2:  # 1 - x of bytes would wrap
        input = input.to(dt.get_default_dtype())
    whole = input
    if eps is not None:  # also where eps is above 1 - eps, or NaN
        high = where(input > 1 - eps, 1 - eps, input)
        input = where(input < eps, eps, high)
    inside = (input >= 0).logical_and(input <= 1)
    unchanged = where(inside, -0.0, math.nan).to(input.dtype)
    input = input + unchanged  # or the derivative were that of other functions
    slopes = input.log() - (-input).log1p()  # infinite at 0 and 1, not NaN
    return keeps(slopes, whole, title="LogitBackward0")


@op(whole=True)
@keeping("input", title="SincBackward0")
def sinc(input: Tensor) -> Tensor:
    """``sin(pi x) / (pi x)``, 1 at 0, element by element."""
    angle = input * math.pi
    near = abs(angle) < 1
    # Taylor's series (DLMF 4.19.1): derivatives of the quotient are differences of near numbers.
    square = where(near, angle, 0.0) ** 2
    flat = square * _SINC[-1]
    for coefficient in _SINC[-2:0:-1]:
        flat = (flat + coefficient) * square
    far = where(near, 1.0, angle)
    return where(near, flat + 1, far.sin() / far)


_SINC = [(-1) ** n / math.factorial(2 * n + 1) for n in range(10)]  # the next is below 2e-20


@op(whole=True)
@keeping("input", "other", title="Logaddexp2Backward0")
def logaddexp2(input: Tensor, other: Tensor) -> Tensor:
    """``log2(2**a + 2**b)`` without overflow, element by element; the two broadcast.

    NotImplementedError for complex tensors.
    """
    input, other = _floats(input, other)
    if input.dtype.is_complex:
        raise dt.unimplemented("logaddexp2", input.dtype)
    ln2 = math.log(2.0)
    return (input * ln2).logaddexp(other * ln2) / ln2


@op(whole=True)
@keeping("input", "other", title="FmaxBackward0")
def fmax(input: Tensor, other: Tensor) -> Tensor:
    """The larger of two elements; a number where the other is NaN. The two broadcast."""
    require_tensors("fmax", input=input, other=other)
    return where((input >= other).logical_or(other.isnan()), input, other)


@op(whole=True)
@keeping("input", "other", title="FminBackward0")
def fmin(input: Tensor, other: Tensor) -> Tensor:
    """The smaller of two elements; a number where the other is NaN. The two broadcast."""
    require_tensors("fmin", input=input, other=other)
    return where((input <= other).logical_or(other.isnan()), input, other)


@op
def float_power(input: Any, exponent: Any) -> Tensor:
    """Powers in double precision, element by element; the two broadcast.

    TypeError if neither is a tensor.
    """
    both = [x for x in (input, exponent) if isinstance(x, Tensor)]
    number = any(isinstance(x, complex) or getattr(x, "dtype", dt.bool).is_complex
                 for x in (input, exponent) if isinstance(x, (Tensor, complex)))  # fmt: skip
    wide = dt.complex128 if number else dt.float64
    operands = [x.to(wide) if isinstance(x, Tensor) else x for x in (input, exponent)]
    if not both:
        raise TypeError("float_power(): one of input and exponent must be a Tensor")
    return apply(TABLE["pow"], *operands)


_write_powers = written(float_power)


def float_power_(self: Tensor, exponent: Any) -> Tensor:
    """`float_power`, in place.

    RuntimeError for tensors that are not of the result's type, float64 or complex128.
    """
    of_complex = isinstance(exponent, complex) or getattr(exponent, "dtype", dt.bool).is_complex
    wanted = dt.complex128 if of_complex or self.dtype.is_complex else dt.float64
    if self.dtype is not wanted:
        raise RuntimeError(
            f"the base given to float_power_ has dtype {self.dtype.name} but the operation's "
            f"result requires dtype {wanted.name}"
        )
    return _write_powers(self, exponent)


@op
def heaviside(input: Tensor, values: Tensor) -> Tensor:
    """0 for negative elements, 1 for positive ones, ``values`` for zero; the two broadcast.

    RuntimeError for complex tensors, and two types.
    """
    if input.dtype.is_complex or values.dtype.is_complex:
        raise RuntimeError("heaviside is not yet implemented for complex tensors.")
    if input.dtype is not values.dtype:
        raise RuntimeError(
            "heaviside is not yet implemented for tensors with different dtypes, got "
            f"{input.dtype.name} and {values.dtype.name}"
        )
    step = (input.detach() > 0).to(input.dtype)
    chosen = where(input.detach() == 0, values.detach(), step)
    if not (input.requires_grad or values.requires_grad):
        return chosen
    result: Tensor = record("NotImplemented", chosen, (input, values), _heaviside_vjp)
    return result


def _heaviside_vjp(node: Any, g: Tensor) -> NoReturn:
    raise RuntimeError("derivative for aten::heaviside is not implemented; give it x.detach()")


@op
def positive(input: Tensor) -> Tensor:
    """The input, of its shape.

    RuntimeError for bool.
    """
    if input.dtype is dt.bool:
        raise RuntimeError("The `+` operator, on a bool tensor is not supported.")
    return input


# --- what floats are made of ----------------------------------------------------------------------


@op
@lying("input")
def signbit(input: Tensor) -> Tensor:
    """Whether each element's sign is negative; of -0.0 and some NaNs it is.

    NotImplementedError for complex tensors.
    """
    if input.dtype.is_complex:
        raise NotImplementedError("signbit is not implemented for complex tensors.")
    if input.dtype.category < 2:
        return input < 0
    array = input.detach().array.astype(input.dtype.compute.numpy, copy=False)
    return from_array(xp_of(input).signbit(array), dt.bool, input.device)


@op
def isposinf(input: Tensor) -> Tensor:
    """Whether each element is infinity.

    RuntimeError for complex tensors.
    """
    return _is(input, math.inf, "isposinf")


@op
def isneginf(input: Tensor) -> Tensor:
    """Whether each element is negative infinity.

    RuntimeError for complex tensors.
    """
    return _is(input, -math.inf, "isneginf")


def _is(input: Tensor, number: float, name: str) -> Tensor:
    if input.dtype.is_complex:
        raise RuntimeError(f"{name} does not support complex inputs.")
    if input.dtype.category < 2:
        return (input != input).to(dt.bool)
    return input == number


@op
def isreal(input: Tensor) -> Tensor:
    """Whether each element's imaginary part is 0."""
    return input.imag == 0 if input.dtype.is_complex else input.detach().isnan().logical_or(True)


@op
def ldexp(input: Tensor, other: Tensor) -> Tensor:
    """``input * 2**other``, element by element; the two broadcast."""
    input, other = _floats(input, other)
    if other.dtype.is_complex:
        product = input * apply(TABLE["pow"], 2.0, other)
        return keeps(product, *([other] if input.requires_grad else []), output=True)
    half = (other.detach() * 0.5).trunc()  # a power may be out of range, the product not
    half = where(half.isfinite(), half, 0.0)
    product = input * apply(TABLE["pow"], 2.0, half) * apply(TABLE["pow"], 2.0, other - half)
    return keeps(product, *([other] if input.requires_grad else []), output=True)


def _floats(*operands: Tensor) -> tuple[Tensor, ...]:
    """Operands as the type of floats that they have in common."""
    common = _common_type(*operands)
    common = common if common.category >= 2 else dt.get_default_dtype()  # not by way of integers
    return tuple([t.to(common) for t in operands])


@result_of("frexp")
class Parts(NamedTuple):
    """What `frexp` gives."""

    mantissa: Tensor
    exponent: Tensor


@op
def frexp(input: Tensor) -> Parts:
    """Each element's mantissa, in [0.5, 1), and exponent (int32): ``mantissa * 2**exponent``.

    RuntimeError for types that are not floating point.
    """
    if input.dtype.category != 2:
        raise RuntimeError("torch.frexp() only supports floating-point dtypes")
    array = input.detach().array.astype(input.dtype.compute.numpy, copy=False)
    exponents = from_array(xp_of(input).frexp(array)[1].astype("int32"), dt.int32, input.device)
    scale = apply(TABLE["pow"], 2.0, exponents.to(input.dtype))
    return Parts(where(input.detach().isfinite(), input / scale, input), exponents)


@op
@lying("input", "other", rule=joint_order)
def nextafter(input: Tensor, other: Tensor) -> Tensor:
    """The neighbor of each element, of the type's numbers, toward ``other``; the two broadcast.

    Its gradient goes to ``input`` where that is not ``other``. NotImplementedError for types that
    are not floating point.
    """
    read, value = (input, other), _of_arrays("nextafter", input, other)
    input, other = input.to(value.dtype), other.to(value.dtype)
    x = input.detach()
    moved = x != other.detach()
    step = where(moved.logical_and(x.isfinite()), x - input, 0.0)  # 0, with the gradient of -input
    step = where(moved.logical_and(moved.logical_not()), other, step)  # zeros go to ``other``
    result: Tensor = value - step
    return keeps(result, *read) if read[0].requires_grad else result


@op
@lying("input", "other", rule=joint_order)
def gcd(input: Tensor, other: Tensor) -> Tensor:
    """The greatest common divisors, element by element; the two broadcast.

    NotImplementedError for types that are not integers.
    """
    return _of_arrays("gcd", input, other)


@op
@lying("input", "other", rule=joint_order)
def lcm(input: Tensor, other: Tensor) -> Tensor:
    """The least common multiples, element by element; the two broadcast.

    NotImplementedError for types that are not integers.
    """
    return _of_arrays("lcm", input, other)


def _of_arrays(name: str, input: Tensor, other: Tensor) -> Tensor:
    d = dt.result_type([(t.dtype, t.ndim) for t in (input, other)], [])
    if d.is_complex or (d.category == 2) is not (name == "nextafter") or d is dt.bool:
        raise dt.unimplemented(name, d)
    broadcast_shapes([tuple(input.shape), tuple(other.shape)], name)
    # C multiplies narrow integers as int32; what the type does not hold is cut off at the end
    of = dt.int32 if name == "lcm" and d.itemsize < 4 else d
    arrays = [t.detach().to(of).array for t in (input, other)]
    values = getattr(xp_of(input), name)(*arrays)
    if name == "lcm":
        values = abs(values)
    return from_array(xp_of(input).asarray(values, dtype=d.numpy), d, input.device)


_OPS: tuple[Any, ...] = (
    polygamma, mvlgamma, logit, sinc, logaddexp2, fmax, fmin, float_power, heaviside, positive,
    signbit, isposinf, isneginf, isreal, ldexp, frexp, nextafter, gcd, lcm,
)  # fmt: skip
FUNCTIONS = tuple([public(op) for op in _OPS])
METHODS = (
    *(_polygamma, *FUNCTIONS[1:], written(logit), written(sinc), written(_polygamma), float_power_),
)
