"""NumPy implementations of table rows that are not one ufunc, each writing into ``out``."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lucid_gpu.devices import philox
from lucid_gpu.fusion.optable import GELU_TANH

_BITS = {1: np.dtype(np.int8), 2: np.dtype(np.int16), 4: np.dtype(np.int32), 8: np.dtype(np.int64)}


def where(condition: Any, a: Any, b: Any, out: Any) -> None:
    """``out = a`` where the condition holds, else ``b``.

    The choice is made on the elements' bits, multiplied by the condition as 0 or 1: no branches,
    which on an unpredictable condition makes it twenty times faster than `numpy.where`.
    """
    bits = _BITS.get(out.itemsize)
    if bits is None:
        out[...] = np.where(condition, a, b)
        return
    chosen, x, y = out.view(bits), a.view(bits), b.view(bits)
    if y.ndim == 0 and not y:  # nothing (positive zero) elsewhere
        np.copyto(chosen, condition)
        np.multiply(chosen, x, chosen)
    elif x.ndim == 0 and not x:
        np.copyto(chosen, condition)
        np.bitwise_xor(chosen, 1, chosen)
        np.multiply(chosen, y, chosen)
    else:
        difference = np.bitwise_xor(x, y)
        np.copyto(chosen, condition)
        np.multiply(chosen, difference, chosen)
        np.bitwise_xor(chosen, y, chosen)


def sign(x: Any, out: Any) -> None:
    """-1, 0 or 1; 0 for NaN, as in PyTorch; the direction of complex numbers.

    Those with a part that is infinite or NaN have no direction.
    """
    if out.dtype.kind == "f":  # by comparisons, which are vectorized
        above, below = (np.empty(x.shape, np.int8) for _ in range(2))
        np.greater(x, 0, above.view(np.bool_))
        np.less(x, 0, below.view(np.bool_))
        np.copyto(out, np.subtract(above, below, above))
        return
    lost = ~np.isfinite(x) if out.dtype.kind == "c" else None
    np.sign(x, out)
    if lost is not None:
        np.copyto(out, complex(np.nan, np.nan), where=lost)


def complex_log1p(z: Any, out: Any) -> None:
    """``log(1 + z)``: NumPy's, but where ``|1 + z|`` is near 1 its real part would be rounded away.

    There it is ``log1p(|1 + z|^2 - 1) / 2``.
    """
    x, y = np.real(z), np.imag(z)
    size = x * (2 + x) + y * y
    near = np.abs(size) < 0.5
    np.log1p(z, out)
    np.copyto(out.real, np.log1p(np.where(near, size, 0)) / 2, where=near)


def complex_logaddexp(a: Any, b: Any, out: Any) -> None:
    """``log(exp(a) + exp(b))``, from the operand with the larger real part."""
    swap = np.real(a) < np.real(b)
    top, other = np.where(swap, b, a), np.where(swap, a, b)
    rest = np.empty_like(out)
    complex_log1p(np.exp(other - top), rest)
    value = top + rest
    ends = np.isinf(np.real(top)) & (np.real(a) == np.real(b))  # their difference is not a number
    if ends.any():
        value = np.where(
            ends, np.where(np.real(top) < 0, other, np.log(np.exp(a) + np.exp(b))), value
        )
    np.copyto(out, np.where(np.isnan(a) | np.isnan(b), complex(np.nan, np.nan), value))


def power(x: Any, n: Any, out: Any) -> None:
    """C's powers, also where the exponent is 1/2.

    NumPy takes a square root where all elements of a row have that exponent, and only there: of
    minus infinity it is NaN, not infinity, and of -0 it is -0, not 0.
    """
    half = np.equal(n, 0.5)
    if half.any():
        x = np.where(half & ((x == 0) | np.isinf(x)), np.abs(x), x)
    np.power(x, n, out)


def integer_power(x: Any, n: Any, out: Any) -> None:
    """Powers of integers; negative ones are rounded toward zero, as in PyTorch."""
    negative = np.less(n, 0)
    if negative.any():
        inverse = np.where(x == 1, 1, np.where(x == -1, 1 - 2 * (n & 1), 0))
        whole = np.where(negative, inverse, np.power(x, np.maximum(n, 0)))
        np.copyto(out, whole, casting="unsafe")
    else:
        np.power(x, n, out)


def cast(x: Any, out: Any) -> None:
    """Convert as C does: truncation to integers, real part of complex numbers."""
    if x.dtype.kind == "c" and out.dtype.kind not in "cb":
        x = x.real
    np.copyto(out, x, casting="unsafe")


def round_through(x: Any, narrow: np.dtype[Any], out: Any) -> None:
    """Round to a 16-bit float and back."""
    np.copyto(out, x.astype(narrow), casting="unsafe")


def random_uniform(
    index: Any, seed: Any, draw: Any, spare: Any, scale: Any, shift: Any, out: Any
) -> None:
    """``shift`` plus ``scale`` times the draw's words at ``index``, without ``spare`` last bits."""
    words = philox.bits_at(int(seed), int(draw), index, out.itemsize)
    _scale((words >> words.dtype.type(spare)).astype(out.dtype), scale, shift, out)


def random_normal(index: Any, seed: Any, draw: Any, scale: Any, shift: Any, out: Any) -> None:
    """``shift`` plus ``scale`` times the draw's normal numbers at the places ``index``."""
    _scale(philox.normal_at(int(seed), int(draw), index, out.dtype), scale, shift, out)


def _scale(x: Any, scale: Any, shift: Any, out: Any) -> None:
    np.multiply(x, scale, out)
    np.add(out, shift, out)


def random_below(index: Any, seed: Any, draw: Any, span: Any, out: Any) -> None:
    """The draw's whole numbers below ``span`` at the places ``index``; 0 stands for 2**64."""
    n = int(span) & ((1 << 64) - 1)
    np.copyto(out, philox.below_at(int(seed), int(draw), index, n or 1 << 64))


def random_exponential(index: Any, seed: Any, draw: Any, rate: Any, out: Any) -> None:
    """The draw's exponential numbers at the places ``index``."""
    words = philox.bits_at(int(seed), int(draw), index, 4)
    np.divide(philox.waiting_times(words), rate, out)


# W. J. Cody, "Rational Chebyshev approximations for the error function", Math. Comp. 23 (1969).
# fmt: off
_P1 = (3.16112374387056560e00, 1.13864154151050156e02, 3.77485237685302021e02,
       3.20937758913846947e03, 1.85777706184603153e-1)
_Q1 = (2.36012909523441209e01, 2.44024637934444173e02, 1.28261652607737228e03,
       2.84423683343917062e03)
_P2 = (5.64188496988670089e-1, 8.88314979438837594e0, 6.61191906371416295e01,
       2.98635138197400131e02, 8.81952221241769090e02, 1.71204761263407058e03,
       2.05107837782607147e03, 1.23033935479799725e03, 2.15311535474403846e-8)
_Q2 = (1.57449261107098347e01, 1.17693950891312499e02, 5.37181101862009858e02,
       1.62138957456669019e03, 3.29079923573345963e03, 4.36261909014324716e03,
       3.43936767414372164e03, 1.23033935480374942e03)
_P3 = (3.05326634961232344e-1, 3.60344899949804439e-1, 1.25781726111229246e-1,
       1.60837851487422766e-2, 6.58749161529837803e-4, 1.63153871373020978e-2)
_Q3 = (2.56852019228982242e00, 1.87295284992346725e00, 5.27905102951428412e-1,
       6.05183413124413191e-2, 2.33520497626869185e-3)
# fmt: on
_ONE_OVER_SQRT_PI = 5.6418958354775628695e-1


def _erf_near_zero(x: Any) -> Any:
    """erf for |x| <= 0.46875."""
    z = x * x
    top, bottom = _P1[4] * z, z
    for p, q in zip(_P1[:3], _Q1[:3], strict=True):
        top, bottom = (top + p) * z, (bottom + q) * z
    return x * (top + _P1[3]) / (bottom + _Q1[3])


def _erfcx_middle(x: Any) -> Any:
    """exp(x * x) erfc(x) for 0.46875 <= x <= 4."""
    top, bottom = _P2[8] * x, x
    for p, q in zip(_P2[:7], _Q2[:7], strict=True):
        top, bottom = (top + p) * x, (bottom + q) * x
    return (top + _P2[7]) / (bottom + _Q2[7])


def _erfcx_far(x: Any) -> Any:
    """exp(x * x) erfc(x) for x > 4."""
    z = 1 / (x * x)
    top, bottom = _P3[5] * z, z
    for p, q in zip(_P3[:4], _Q3[:4], strict=True):
        top, bottom = (top + p) * z, (bottom + q) * z
    tail = z * (top + _P3[4]) / (bottom + _Q3[4])
    return (_ONE_OVER_SQRT_PI - tail) / x


def _exp_of_minus_square(x: Any) -> Any:
    """exp(-x*x) without the rounding error of the square: x is split at four binary digits."""
    high = np.trunc(x * 16) / 16
    return np.exp(-high * high) * np.exp(-(x - high) * (x + high))


def _erfcx_of_magnitude(magnitude: Any) -> Any:
    """``exp(x * x) * erfc(x)`` for x >= 0.46875 (and something finite below)."""
    middle = np.clip(magnitude, 0.46875, 4.0)
    far = np.maximum(magnitude, 4.0)
    return np.where(magnitude <= 4.0, _erfcx_middle(middle), _erfcx_far(far))


def _erfc_of_magnitude(magnitude: Any) -> Any:
    middle = np.clip(magnitude, 0.46875, 30.0)
    return _erfcx_of_magnitude(middle) * _exp_of_minus_square(middle)


# In float32 erf(x) is tanh(x p(x^2)), where p is a minimax fit of atanh(erf(x)) / x up to a bound
# where both are 1: three units in the last place (four where the processor has no FMA) for a sixth
# of what the three branches cost.
ERF_BOUND = 4.4
# fmt: off
ERF_FLOAT32 = (1.12837923e+00, 1.02770291e-01, -1.97310830e-04, -6.11528542e-04, 8.21599343e-05,
               -3.89368095e-06, -1.44545799e-07, 2.15183259e-08, -5.79049191e-10)
# fmt: on


NUMBERS = {f"erf_p{i}": np.array(c, np.float32) for i, c in enumerate(ERF_FLOAT32)}
NUMBERS.update(erf_high=np.array(ERF_BOUND, np.float32), erf_low=np.array(-ERF_BOUND, np.float32))

_ERF = ["minimum x erf_high out", "maximum out erf_low out"]
_ERF += ["multiply out out s0", "multiply s0 erf_p8 s1"]
for _i in range(7, 0, -1):
    _ERF += [f"add s1 erf_p{_i} s1", "multiply s1 s0 s1"]
_ERF += ["add s1 erf_p0 s1", "multiply s1 out out", "tanh out out"]

# gelu by tanh is x / (1 + exp(-z)), z = a x + b x^3, and its slope s (1 + (1 - s) x z'), where s is
# 1 / (1 + exp(-z)). NumPy's exp2 takes half the time of its tanh.
_GELU_P = "multiply {0} gelu_b{1} out; add out gelu_a{1} out; multiply out x out; exp2 out out; "
_GELU_P += "add out gelu_one{1} out; "
_GELU = "multiply x x out; " + _GELU_P + "divide x out out"
_SLOPE = "multiply x x s0; " + _GELU_P + "divide gelu_one{1} out out; "
_SLOPE += "multiply s0 gelu_d{1} s0; add s0 gelu_c{1} s0; multiply s0 x s0; "
_SLOPE += "subtract gelu_one{1} out s1; multiply s1 s0 s1; add s1 gelu_one{1} s1; "
_SLOPE += "multiply s1 out out"

# Rows that are several ufuncs in a type, which `native_loops` can walk: each with its operands and
# where its result goes; s0 and s1 are scratch.
Steps = list[list[str]]
STEPS: dict[tuple[str, str], Steps] = {("erf", "float32"): [step.split() for step in _ERF]}


def _add_gelu(a: float, b: float) -> None:
    log2_e = math.log2(math.e)
    numbers = {"a": -a * log2_e, "b": -b * log2_e, "c": a, "d": 3 * b, "one": 1.0}
    for name in ("float32", "float64"):
        NUMBERS.update({f"gelu_{k}_{name}": np.array(v, name) for k, v in numbers.items()})
        for op, text, first in (("gelu_tanh", _GELU, "out"), ("gelu_tanh_slope", _SLOPE, "s0")):
            steps = text.format(first, f"_{name}").split("; ")
            STEPS[op, name] = [step.split() for step in steps]


_add_gelu(*GELU_TANH)


def _stepwise(steps: Steps, x: Any, out: Any) -> None:
    names = {**NUMBERS, "x": x, "out": out, "s0": np.empty_like(x), "s1": np.empty_like(x)}
    for ufunc, *arguments in steps:
        *operands, into = [names[a] for a in arguments]
        getattr(np, ufunc)(*operands, out=into)


def gelu_tanh(x: Any, out: Any) -> None:
    """gelu in its form by tanh."""
    _stepwise(STEPS["gelu_tanh", x.dtype.name], x, out)


def gelu_tanh_slope(x: Any, out: Any) -> None:
    """Its derivative."""
    _stepwise(STEPS["gelu_tanh_slope", x.dtype.name], x, out)


def bent(x: Any, bound: Any, out: Any) -> None:
    """``x^2 / 2``, beyond ``bound`` on either side a line; nothing that an infinity makes NaN."""
    far = np.empty_like(out)
    np.absolute(x, far)
    np.minimum(far, bound, out=out)
    np.add(far, far, far)
    np.subtract(far, out, far)
    np.multiply(out, far, out)
    np.multiply(out, 0.5, out)


def remainder(x: Any, y: Any, out: Any) -> None:
    """NumPy's, but that a zero has the sign of ``x`` and not of ``y``, as in PyTorch."""
    np.remainder(x, y, out)
    if out.dtype.kind != "f":
        return
    zero = np.equal(out, 0)
    if zero.any():
        np.copysign(out, x, out, where=zero)


def truncated_quotient(x: Any, y: Any, out: Any) -> None:
    """``x / y``, rounded towards zero."""
    np.divide(x, y, out)
    np.trunc(out, out)


def hardswish(x: Any, out: Any) -> None:
    """``x`` times a ramp that rises from zero at -3 to one at 3."""
    np.add(x, 3, out)
    np.maximum(out, 0, out=out)
    np.minimum(out, 6, out=out)
    np.multiply(out, x, out)
    np.divide(out, 6, out)


def erf(x: Any, out: Any) -> None:
    """The error function, right to a few units in the last place."""
    if x.dtype == np.float32:
        return _stepwise(STEPS["erf", "float32"], x, out)
    magnitude = np.abs(x)
    near = _erf_near_zero(np.minimum(magnitude, x.dtype.type(0.46875)))
    value = np.where(magnitude <= 0.46875, near, 1 - _erfc_of_magnitude(magnitude))
    np.copysign(value, x, out)
    return None


def erfc(x: Any, out: Any) -> None:
    """``1 - erf(x)``, without the cancellation where that is small."""
    magnitude = np.abs(x)
    near = 1 - _erf_near_zero(np.clip(x, -0.46875, 0.46875))
    tail = _erfc_of_magnitude(magnitude)
    far = np.where(x < 0, 2 - tail, tail)
    np.copyto(out, np.where(magnitude <= 0.46875, near, far))


def erfcx(x: Any, out: Any) -> None:
    """``exp(x**2) * erfc(x)`` by float64; it neither overflows nor vanishes for positive x."""
    x = np.array(x, np.float64, ndmin=1)
    near = np.minimum(x, 0.46875)
    value = np.empty_like(x)
    erfc(near, value)
    value *= np.exp(near * near)
    value = np.where(x > 0.46875, _erfcx_of_magnitude(np.maximum(x, 0.46875)), value)
    np.copyto(out, value.reshape(out.shape), casting="same_kind")


def __getattr__(name: str) -> Any:
    """The rarer ones, whose file is imported when one is first computed."""
    from lucid_gpu.fusion import special_functions

    return getattr(special_functions, name)
