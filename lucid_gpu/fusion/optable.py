"""The op table: every elementwise op is one row.

A row says how NumPy computes the op, how CUDA C computes it, and its gradient as expressions in
the same ops. Nothing else in the package lists ops: tensor methods, functions, gradients, kernels
and the tests that compare them with an independent implementation are all made from this table.

Templates
---------
``numpy`` writes into ``{out}`` (``{one}`` and ``{zero}`` are numbers of the op's type) and may use
it as scratch from its first statement on, unless ``reads_late`` says that operands are still read
after that first write. ``cuda`` is an expression of the compute type ``T``. Gradients are one
lambda an operand, ``(g, y, *operands) -> cotangent``, written with operators and methods of
`lucid_gpu.fusion.gradient.Symbol`; the formula that needs only the output ``y`` is preferred.
Complex operands need no formula of their own: the derivation conjugates around the formula (all
rows but ``abs`` and ``sgn`` are holomorphic or real). ``ZERO`` is a gradient that is zero
everywhere (a formula that returns None says the same of some types), ``NONE`` means that the op has
no derivative, as in PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from lucid_gpu.tape.door import Cast

Formula = Callable[..., Any]


class _NoFormula:
    """A marker for operands without a gradient formula."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


ZERO = _NoFormula("ZERO")
NONE = _NoFormula("NONE")
RESULT = -1  # in place of an operand's number


class Tie(NamedTuple):
    """PyTorch's formula of a gradient takes a value only to choose by it, or not at all.

    The gradient's own derivative by that value is zeros then, and not none.
    """

    row: str  # ``tied``, or ``retied`` where this holds of derivatives of the gradient too
    to: int  # the number of an operand, or RESULT


@dataclass(frozen=True, eq=False, slots=True)
class Op:
    """One row of the table.

    ``rule`` decides dtypes (see `lucid_gpu.fusion.typing_rules`): ``same`` promotes the operands
    and keeps their type, ``float`` also turns integers into floats, ``compare`` and ``test`` give
    bool, ``logical`` reads operands as bool, ``bitwise`` takes integers and bools, ``select`` is
    `where`, ``cast`` is told its type, ``draw`` makes random numbers of the type it is told.
    """

    name: str
    rule: str
    numpy: str
    cuda: str
    vjp: tuple[Any, ...]
    reads_late: bool = False
    domain: str = (
        "all"  # what random test inputs must look like: all, positive, unit, above_one, share
    )
    header: str | None = None  # of kernels/, where ``cuda`` needs one
    autocast: Mapping[str, Cast] | None = None  # as of `tape.door.op`
    planned_as: str | None = None  # the row that computes the same and that plans take it for
    ties: tuple[Tie | None, ...] | None = None  # what is tied of the gradients of operands

    @property
    def arity(self) -> int:
        return len(self.vjp)

    @property
    def differentiable(self) -> bool:
        return any(f is not NONE for f in self.vjp)

    @property
    def formula(self) -> str:
        """The row for people: its CUDA C, without our prefixes and the casts of constants."""
        text = self.cuda.format("input", "other", "third")
        return text.replace("lucid_", "").replace("(T)", "")

    def __repr__(self) -> str:
        return f"Op({self.name})"


TABLE: dict[str, Op] = {}


def _row(*args: Any, **kwargs: Any) -> None:
    op = Op(*args, **kwargs)
    TABLE[op.name] = op


_LN2, _LN10 = math.log(2.0), math.log(10.0)
_TWO_OVER_SQRT_PI = 2.0 / math.sqrt(math.pi)
_SQRT_2PI = math.sqrt(2.0 * math.pi)
_WIDE: dict[str, Cast] = {"cuda": "float32"}  # rows of PyTorch's list for GPUs
_WIDEST: dict[str, Cast] = {"cuda": "promote"}
GELU_TANH = math.sqrt(8 / math.pi), 0.044715 * math.sqrt(8 / math.pi)  # see `_gelu_tanh_bend`
HIDDEN = (
    *("bent", "capped", "entr", "erfcx", "gelu_tanh", "gelu_tanh_slope", "hardswish"),
    *("i0e", "i1", "i1e"),
    *(
        "grown",
        "ndtri",
        "operand",
        "piecewise",
        "raised",
        "retied",
        "root",
        "tied",
        "trigamma",
        "truncated_quotient",
        "zeta",
    ),
)  # no names of PyTorch's top level


def _pow_base(g: Any, y: Any, a: Any, b: Any) -> Any:
    n = b.number()
    if n is None:
        return (b == 0).pick(0.0, g * (b * a.pow(b - 1)))
    return None if n == 0 else g * (b * a.pow(n - 1))


def _pow_exponent(g: Any, y: Any, a: Any, b: Any) -> Any:
    zero = a == 0 if b.dtype.is_complex else (a == 0) & (b >= 0)
    return zero.pick(0.0, g * (y * zero.pick(1.0, a).log()))


def _root_base(g: Any, y: Any, a: Any, b: Any) -> Any:
    """The slope of a norm, which is a root of a sum, is 0 where the norm is."""
    none, n = y == 0, b.number()
    safe = none.pick(1.0, y)
    return none.pick(0.0, g / (safe * 2) if n == 0.5 else g * (b * safe.pow(1 - 1 / b)))


def _without(value: float, x: Any) -> Any:
    """``x``, and 1 where it is ``value``: derivatives of a branch not taken stay finite there.

    A condition around the result alone does not help: its gradient is 0 times theirs.
    """
    return (x == value).pick(1.0, x)


def _hardswish(g: Any, y: Any, x: Any) -> Any:
    """Conditions inside and outside: neither ``g`` nor the slope is read where the result is 0."""
    none = x <= -3
    return none.pass_on(0.0, g * none.pick(0.0, (x >= 3).pick(1.0, x / 3 + 0.5)))


def _i1(g: Any, y: Any, x: Any) -> Any:
    """Near 0 the limit: ``y / x`` of numbers without all their digits is not 1/2."""
    near = x.abs() < 1e-15
    return g * near.pick(0.5, x.i0() - y / near.pick(1.0, x))


def _i1e(g: Any, y: Any, x: Any) -> Any:
    near = x.abs() < 1e-15
    return g * near.pick(0.5, x.apply("i0e", x) - y * x.sign() - y / near.pick(1.0, x))


def _sgn(g: Any, y: Any, x: Any) -> Any:
    """Zero for real numbers; the direction of a complex one turns with its angle."""
    if not x.dtype.is_complex:
        return None
    along = g * y
    along = (along + along.conj_physical()) * 0.5  # real: the part that only changes the size
    return (x == 0).pick(0.0, (g - y.conj_physical() * along) / x.abs())


def _gelu_tanh_bend(g: Any, y: Any, x: Any) -> Any:
    """The second derivative of ``x s(z)``, where s is the logistic function and z = a x + b x^3.

    That is gelu's form by tanh, ``x (1 + tanh(z / 2)) / 2``.
    """
    a, b = GELU_TANH
    square = x * x
    z, steep = x * (square * b + a), square * (3 * b) + a
    s, rest = z.sigmoid(), (-z).sigmoid()
    bend = steep * 2 + square * (6 * b) + x * steep * steep * (rest - s)
    return g * (s * rest * bend)


def _turned(g: Any, a: Any, b: Any) -> Any:
    """``g * a / (a**2 + b**2)``, and nothing at the origin, which has no angle."""
    square = a * a + b * b
    origin = square == 0
    return origin.pick(0.0, g * (a / origin.pick(1.0, square)))


def _larger_share(g: Any, a: Any, b: Any) -> Any:
    """The part of ``g`` that goes to ``a``: none where ``b`` wins, half of it in a tie.

    Both get all of it where one is NaN, as in PyTorch.
    """
    return (a == b).pick(g * 0.5, (a < b).pick(0.0, g))


# fmt: off
# name, dtype rule, NumPy, CUDA C, gradient for each operand
# --- one operand -------------------------------------------------------------------------------
_row("neg", "same", "np.negative({0}, {out})", "-{0}", (lambda g, y, x: -g,))
_row("abs", "abs", "np.absolute({0}, {out})", "lucid_abs({0})", (lambda g, y, x: g * x.sgn(),))
_row("sign", "same", "special.sign({0}, {out})", "lucid_sign({0})", (ZERO,))
_row("sgn", "same", "special.sign({0}, {out})", "lucid_sign({0})", (_sgn,))
_row("conj_physical", "same", "np.conjugate({0}, {out})", "lucid_conj({0})",
     (lambda g, y, x: g.conj_physical(),))
_row("exp", "float", "np.exp({0}, {out})", "exp({0})", (lambda g, y, x: g * y,), autocast=_WIDE)
_row("exp2", "float", "np.exp2({0}, {out})", "exp2({0})", (lambda g, y, x: g * (y * _LN2),))
_row("expm1", "float", "np.expm1({0}, {out})", "expm1({0})", (lambda g, y, x: g * (y + 1),),
     autocast=_WIDE)
# whose gradient keeps its digits where the result is near -1
_row("grown", "float", "np.expm1({0}, {out})", "expm1({0})", (lambda g, y, x: g * x.exp(),),
     planned_as="expm1")
_row("log", "float", "np.log({0}, {out})", "log({0})", (lambda g, y, x: g / x,),
     domain="positive", autocast=_WIDE)
_row("log2", "float", "np.log2({0}, {out})", "log2({0})", (lambda g, y, x: g / (x * _LN2),),
     domain="positive", autocast=_WIDE)
_row("log10", "float", "np.log10({0}, {out})", "log10({0})", (lambda g, y, x: g / (x * _LN10),),
     domain="positive", autocast=_WIDE)
_row("log1p", "float", "np.log1p({0}, {out})", "log1p({0})", (lambda g, y, x: g / (x + 1),),
     domain="positive", autocast=_WIDE)
_row("sqrt", "float", "np.sqrt({0}, {out})", "sqrt({0})", (lambda g, y, x: g / (y * 2),),
     domain="positive")
_row("rsqrt", "float", "np.sqrt({0}, {out}); np.divide({one}, {out}, {out})", "lucid_rsqrt({0})",
     (lambda g, y, x: g * (y * y * y * -0.5),), domain="positive", autocast=_WIDE)
_row("reciprocal", "float", "np.divide({one}, {0}, {out})", "(T)1 / {0}",
     (lambda g, y, x: -g * (y * y),), domain="positive", autocast=_WIDE)
_row("square", "same", "np.square({0}, {out})", "{0} * {0}",
     (lambda g, y, x: g * (x.pow(1) * 2),))  # as x ** 2: third derivatives are zeros, not none
_row("sin", "float", "np.sin({0}, {out})", "sin({0})", (lambda g, y, x: g * x.cos(),))
_row("cos", "float", "np.cos({0}, {out})", "cos({0})", (lambda g, y, x: -g * x.sin(),))
_row("tan", "float", "np.tan({0}, {out})", "tan({0})", (lambda g, y, x: g * (y * y + 1),),
     domain="unit", autocast=_WIDE)
_row("asin", "float", "np.arcsin({0}, {out})", "asin({0})",
     (lambda g, y, x: g * (1 - x * x).rsqrt(),), domain="unit", autocast=_WIDE)
_row("acos", "float", "np.arccos({0}, {out})", "acos({0})",
     (lambda g, y, x: -g * (1 - x * x).rsqrt(),), domain="unit", autocast=_WIDE)
_row("atan", "float", "np.arctan({0}, {out})", "atan({0})", (lambda g, y, x: g / (x * x + 1),))
_row("sinh", "float", "np.sinh({0}, {out})", "sinh({0})", (lambda g, y, x: g * x.cosh(),),
     autocast=_WIDE)
_row("cosh", "float", "np.cosh({0}, {out})", "cosh({0})", (lambda g, y, x: g * x.sinh(),),
     autocast=_WIDE)
_row("tanh", "float", "np.tanh({0}, {out})", "tanh({0})", (lambda g, y, x: g * (1 - y * y),))
_row("asinh", "float", "np.arcsinh({0}, {out})", "asinh({0})",
     (lambda g, y, x: g * (x * x + 1).rsqrt(),))
_row("acosh", "float", "np.arccosh({0}, {out})", "acosh({0})",
     (lambda g, y, x: g * (x * x - 1).rsqrt(),), domain="above_one")
_row("atanh", "float", "np.arctanh({0}, {out})", "atanh({0})",
     (lambda g, y, x: g / (1 - x * x),), domain="unit")
_row("sigmoid", "float",
     "np.negative({0}, {out}); np.exp({out}, {out}); np.add({out}, {one}, {out}); "
     "np.divide({one}, {out}, {out})",
     "(T)1 / ((T)1 + exp(-{0}))", (lambda g, y, x: g * (y * (1 - y)),))
_row("erf", "float", "special.erf({0}, {out})", "erf({0})",
     (lambda g, y, x: (-(x * x)).exp() * _TWO_OVER_SQRT_PI * g,), reads_late=True)
_row("erfc", "float", "special.erfc({0}, {out})", "erfc({0})",
     (lambda g, y, x: (-(x * x)).exp() * -_TWO_OVER_SQRT_PI * g,), reads_late=True)
_row("erfcx", "float", "special.erfcx({0}, {out})", "lucid_erfcx({0})",
     (lambda g, y, x: g * (x * y * 2 - _TWO_OVER_SQRT_PI),), reads_late=True, header="special.cuh")
_row("entr", "float", "special.entr({0}, {out})", "lucid_entr({0})",
     (lambda g, y, x: g * (-1 - x.log()),), reads_late=True, domain="positive",
     header="special.cuh")
_row("erfinv", "float", "special.erfinv({0}, {out})", "lucid_erfinv({0})",
     (lambda g, y, x: (y * y).exp() / _TWO_OVER_SQRT_PI * g,), reads_late=True, domain="unit",
     header="special.cuh", autocast=_WIDE)
_row("ndtri", "float", "special.ndtri({0}, {out})", "lucid_ndtri({0})",
     (lambda g, y, x: g * ((y * y * 0.5).exp() * _SQRT_2PI),), reads_late=True, domain="share",
     header="special.cuh")
_row("gelu_tanh", "float", "special.gelu_tanh({0}, {out})", "lucid_gelu_tanh({0})",
     (lambda g, y, x: g * x.gelu_tanh_slope(),), reads_late=True)
_row("gelu_tanh_slope", "float", "special.gelu_tanh_slope({0}, {out})",
     "lucid_gelu_tanh_slope({0})", (_gelu_tanh_bend,), reads_late=True)
_row("hardswish", "float", "special.hardswish({0}, {out})", "lucid_hardswish({0})",
     (_hardswish,), reads_late=True)
_row("lgamma", "float", "special.lgamma({0}, {out})", "lgamma({0})",
     (lambda g, y, x: g * x.digamma(),), reads_late=True, domain="positive")
_row("digamma", "float", "special.digamma({0}, {out})", "lucid_digamma({0})",
     (lambda g, y, x: g * x.trigamma(),), reads_late=True, domain="positive", header="special.cuh")
_row("trigamma", "float", "special.trigamma({0}, {out})", "lucid_trigamma({0})",
     (lambda g, y, x: g * (x.apply("zeta", 3.0, x) * -2.0),), reads_late=True, domain="positive",
     header="special.cuh")
_row("i0", "float", "special.i0({0}, {out})", "lucid_i0({0})",
     (lambda g, y, x: g * x.apply("i1", x),), reads_late=True, header="special.cuh")
_row("i0e", "float", "special.i0e({0}, {out})", "lucid_i0e({0})",
     (lambda g, y, x: g * (x.apply("i1e", x) - x.sign() * y),), reads_late=True,
     header="special.cuh")
_row("i1", "float", "special.i1({0}, {out})", "lucid_i1({0})",
     (_i1,), reads_late=True, header="special.cuh")
_row("i1e", "float", "special.i1e({0}, {out})", "lucid_i1e({0})",
     (_i1e,), reads_late=True, header="special.cuh")
_row("floor", "same", "np.floor({0}, {out})", "lucid_floor({0})", (ZERO,))
_row("ceil", "same", "np.ceil({0}, {out})", "lucid_ceil({0})", (ZERO,))
_row("round", "same", "np.rint({0}, {out})", "lucid_rint({0})", (ZERO,))
_row("trunc", "same", "np.trunc({0}, {out})", "lucid_trunc({0})", (ZERO,))
_row("relu", "same", "np.maximum({0}, {zero}, out={out})", "lucid_maximum({0}, (T)0)",
     (lambda g, y, x: y.ne(0).pick(g, 0.0),),  # of NaN it passes, as in PyTorch
     ties=(Tie("retied", RESULT),))
_row("isnan", "test", "np.isnan({0}, {out})", "lucid_isnan({0})", (NONE,))
_row("isinf", "test", "np.isinf({0}, {out})", "lucid_isinf({0})", (NONE,))
_row("isfinite", "test", "np.isfinite({0}, {out})", "lucid_isfinite({0})", (NONE,))
_row("logical_not", "logical", "np.logical_not({0}, {out})", "!{0}", (NONE,))
_row("bitwise_not", "bitwise", "np.invert({0}, {out})", "lucid_invert({0})", (NONE,))
# --- two operands ------------------------------------------------------------------------------
_row("add", "same", "np.add({0}, {1}, {out})", "{0} + {1}",
     (lambda g, y, a, b: g, lambda g, y, a, b: g))
_row("sub", "same", "np.subtract({0}, {1}, {out})", "{0} - {1}",
     (lambda g, y, a, b: g, lambda g, y, a, b: -g))
_row("mul", "same", "np.multiply({0}, {1}, {out})", "{0} * {1}",
     (lambda g, y, a, b: g * b, lambda g, y, a, b: g * a))
_row("div", "float", "np.divide({0}, {1}, {out})", "{0} / {1}",
     (lambda g, y, a, b: g / b, lambda g, y, a, b: -g * (y / b)),
     domain="positive")
# a quotient rounded towards zero, whose gradient is zeros even where the quotient's would be NaN
_row("truncated_quotient", "float", "special.truncated_quotient({0}, {1}, {out})",
     "lucid_trunc({0} / {1})", (ZERO, ZERO), domain="positive")
_row("floor_divide", "same", "np.floor_divide({0}, {1}, {out})", "lucid_floor_divide({0}, {1})",
     (ZERO, ZERO), domain="positive")
_row("remainder", "same", "special.remainder({0}, {1}, {out})", "lucid_remainder({0}, {1})",
     (lambda g, y, a, b: g, lambda g, y, a, b: -g * a.floor_divide(b)), reads_late=True,
     domain="positive")
_row("fmod", "same", "np.fmod({0}, {1}, {out})", "lucid_fmod({0}, {1})",
     (lambda g, y, a, b: g, lambda g, y, a, b: -g * a.apply("truncated_quotient", a, b)),
     domain="positive")
_row("pow", "same", "np.power({0}, {1}, {out})", "lucid_pow({0}, {1})",
     (_pow_base, _pow_exponent), domain="positive", autocast=_WIDE)
_row("root", "same", "np.power({0}, {1}, {out})", "lucid_pow({0}, {1})",
     (_root_base, _pow_exponent), domain="positive", planned_as="pow")
_row("maximum", "same", "np.maximum({0}, {1}, out={out})", "lucid_maximum({0}, {1})",
     (lambda g, y, a, b: _larger_share(g, a, b), lambda g, y, a, b: _larger_share(g, b, a)))
_row("minimum", "same", "np.minimum({0}, {1}, out={out})", "lucid_minimum({0}, {1})",
     (lambda g, y, a, b: _larger_share(g, b, a), lambda g, y, a, b: _larger_share(g, a, b)))
_row("clamp_min", "same", "np.maximum({0}, {1}, out={out})", "lucid_maximum({0}, {1})",
     (lambda g, y, x, low: (x >= low).pick(g, 0.0), lambda g, y, x, low: (x < low).pick(g, 0.0)))
_row("clamp_max", "same", "np.minimum({0}, {1}, out={out})", "lucid_minimum({0}, {1})",
     (lambda g, y, x, top: (x <= top).pick(g, 0.0), lambda g, y, x, top: (x > top).pick(g, 0.0)))
# as clamp_min and clamp_max, but at the bound itself nothing goes back to what is bounded
_row("raised", "same", "np.maximum({0}, {1}, out={out})", "lucid_maximum({0}, {1})",
     (lambda g, y, x, low: (x <= low).pass_on(0.0, g),
      lambda g, y, x, low: (x <= low).pick(g, 0.0)))
_row("capped", "same", "np.minimum({0}, {1}, out={out})", "lucid_minimum({0}, {1})",
     (lambda g, y, x, top: (x >= top).pass_on(0.0, g),
      lambda g, y, x, top: (x >= top).pick(g, 0.0)))
# x^2 / 2, and beyond a positive bound on either side the line that goes on from there
_row("bent", "float", "special.bent({0}, {1}, {out})", "lucid_bent({0}, {1})",
     (lambda g, y, x, bound: g * x.apply("capped", x.apply("raised", x, -bound), bound),
      lambda g, y, x, bound: g * (x.abs() - bound).clamp_min(0.0)), domain="positive")
_row("atan2", "float", "np.arctan2({0}, {1}, {out})", "atan2({0}, {1})",
     (lambda g, y, a, b: _turned(g, b, a), lambda g, y, a, b: _turned(-g, a, b)), domain="positive",
     autocast=_WIDEST)
_row("hypot", "same", "np.hypot({0}, {1}, {out})", "hypot({0}, {1})",
     (lambda g, y, a, b: g * (a / y), lambda g, y, a, b: g * (b / y)), domain="positive")
_row("logaddexp", "same", "np.logaddexp({0}, {1}, {out})", "lucid_logaddexp({0}, {1})",
     (lambda g, y, a, b: g * (a - b).sigmoid(), lambda g, y, a, b: g * (b - a).sigmoid()))
_row("xlogy", "float", "special.xlogy({0}, {1}, {out})", "lucid_xlogy({0}, {1})",
     (lambda g, y, a, b: ((a == 0) & (b <= 0)).fill(0.0, g.apply("xlogy", g, b)),
      lambda g, y, a, b: g * (a / b)), reads_late=True, domain="positive", header="special.cuh")
_row("zeta", "float", "special.zeta({0}, {1}, {out})", "lucid_zeta({0}, {1})",
     (NONE, lambda g, y, s, q: -g * (s * (s + 1).zeta(q))), reads_late=True, domain="above_one",
     header="special.cuh")
_row("copysign", "float", "np.copysign({0}, {1}, {out})", "copysign({0}, {1})",
     (lambda g, y, a, b: (a == 0).pass_on(0.0, g * (y / _without(0, a))), ZERO), domain="positive")
_row("eq", "compare", "np.equal({0}, {1}, {out})", "{0} == {1}", (NONE, NONE))
_row("ne", "compare", "np.not_equal({0}, {1}, {out})", "{0} != {1}", (NONE, NONE))
_row("lt", "compare", "np.less({0}, {1}, {out})", "{0} < {1}", (NONE, NONE))
_row("le", "compare", "np.less_equal({0}, {1}, {out})", "{0} <= {1}", (NONE, NONE))
_row("gt", "compare", "np.greater({0}, {1}, {out})", "{0} > {1}", (NONE, NONE))
_row("ge", "compare", "np.greater_equal({0}, {1}, {out})", "{0} >= {1}", (NONE, NONE))
_row("logical_and", "logical", "np.logical_and({0}, {1}, {out})", "{0} && {1}", (NONE, NONE))
_row("logical_or", "logical", "np.logical_or({0}, {1}, {out})", "{0} || {1}", (NONE, NONE))
_row("logical_xor", "logical", "np.logical_xor({0}, {1}, {out})", "{0} != {1}", (NONE, NONE))
_row("bitwise_and", "bitwise", "np.bitwise_and({0}, {1}, {out})", "{0} & {1}", (NONE, NONE))
_row("bitwise_or", "bitwise", "np.bitwise_or({0}, {1}, {out})", "{0} | {1}", (NONE, NONE))
_row("bitwise_xor", "bitwise", "np.bitwise_xor({0}, {1}, {out})", "{0} ^ {1}", (NONE, NONE))
_row("bitwise_left_shift", "bitwise", "np.left_shift({0}, {1}, {out})",
     "lucid_left_shift({0}, {1})", (NONE, NONE))
_row("bitwise_right_shift", "bitwise", "np.right_shift({0}, {1}, {out})",
     "lucid_right_shift({0}, {1})", (NONE, NONE))
# --- three operands, and the ones with a type of their own --------------------------------------
_row("where", "select", "special.where({0}, {1}, {2}, {out})", "{0} ? {1} : {2}",
     (NONE, lambda g, y, c, a, b: c.pick(g, 0.0), lambda g, y, c, a, b: c.pick(0.0, g)),
     reads_late=True)
# the operand of a function made of pieces, as its composition reads it
_row("piecewise", "same", "np.copyto({out}, {0})", "{0}", (lambda g, y, x: g,),
     planned_as="identity", ties=(Tie("retied", 0),))
_row("operand", "same", "np.copyto({out}, {0})", "{0}", (lambda g, y, x: g,),
     planned_as="identity", ties=(Tie("tied", 0),))
# a gradient and a value, see `Tie`
_row("tied", "same", "np.copyto({out}, {0})", "{0}", (lambda g, y, a, b: g, ZERO),
     planned_as="identity")
_row("retied", "same", "np.copyto({out}, {0})", "{0}", (lambda g, y, a, b: g, ZERO),
     planned_as="identity", ties=(Tie("retied", 1), None))
_row("cast", "cast", "special.cast({0}, {out})", "lucid_cast<T>({0})",
     (lambda g, y, x: g.cast(x.dtype),))
_row("identity", "identity", "np.copyto({out}, {0})", "{0}", (lambda g, y, x: g,))
# --- random numbers: of an index, a seed, the number of the draw --------------------------------
_row("random_uniform", "draw", "special.random_uniform({0}, {1}, {2}, {3}, {4}, {5}, {out})",
     "lucid_random_uniform<T>({0}, {1}, {2}, {3}, {4}, {5})", (NONE,) * 6, reads_late=True,
     header="philox.cuh")  # the words without their operand 3 last bits, scaled and shifted
_row("random_normal", "draw", "special.random_normal({0}, {1}, {2}, {3}, {4}, {out})",
     "lucid_random_normal<T>({0}, {1}, {2}, {3}, {4})", (NONE,) * 5, reads_late=True,
     header="philox.cuh")
_row("random_below", "draw", "special.random_below({0}, {1}, {2}, {3}, {out})",
     "lucid_random_below({0}, {1}, {2}, {3})", (NONE,) * 4, reads_late=True, header="philox.cuh")
_row("random_exponential", "draw", "special.random_exponential({0}, {1}, {2}, {3}, {out})",
     "lucid_random_exponential<T>({0}, {1}, {2}) / {3}", (NONE,) * 4, reads_late=True,
     header="philox.cuh")
# fmt: on

PLANNED_AS = {row.name: row.planned_as for row in TABLE.values() if row.planned_as is not None}
