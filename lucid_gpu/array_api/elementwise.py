"""Elementwise functions: the standard's names for rows of the op table."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import lucid_gpu.numpy.selection as _selection
from lucid_gpu.array_api.types import promoted
from lucid_gpu.fusion.optable import TABLE
from lucid_gpu.numpy.naming import named
from lucid_gpu.ops import registry
from lucid_gpu.tensor import Tensor, apply

__all__ = ["FUNCTIONS"]

DOC = "``{}`` of the standard, element by element."
DOC_OF_TWO = "``{}`` of the standard, element by element; the two broadcast."

# The standard's name where it is another than the op's
UNARY = {"bitwise_invert": "bitwise_not", "conj": "conj_physical", "negative": "neg"}
BINARY = {
    "bitwise_left_shift": "bitwise_left_shift",
    "bitwise_right_shift": "bitwise_right_shift",
    "divide": "div",
    "equal": "eq",
    "greater": "gt",
    "greater_equal": "ge",
    "less": "lt",
    "less_equal": "le",
    "multiply": "mul",
    "not_equal": "ne",
    "subtract": "sub",
}
_SAME = (
    "abs acos acosh asin asinh atan atanh cos cosh exp isfinite isinf isnan log log10 log1p "
    "log2 logical_not reciprocal sin sinh sqrt square tan tanh"
)
_SAME_OF_TWO = (
    "add atan2 bitwise_and bitwise_or bitwise_xor copysign hypot logaddexp "
    "logical_and logical_or logical_xor maximum minimum pow"
)
# Functions whose gradient reads the result
SAVED = {"exp", "expm1", "reciprocal", "sqrt", "tan", "tanh", "copysign", "hypot", "pow"}
UNARY |= {name: name for name in _SAME.split()}
BINARY |= {name: name for name in _SAME_OF_TWO.split()}


def _unary(name: str, op: Callable[[Any], Any]) -> Callable[..., Tensor]:
    def function(x: Tensor, /) -> Tensor:
        return writable(op(x)) if name in SAVED else op(x)

    return named(function, name, DOC)


def _binary(name: str, op: Callable[[Any, Any], Any]) -> Callable[..., Tensor]:
    def function(x1: Any, x2: Any, /) -> Tensor:
        result = op(*promoted(x1, x2))
        return writable(result) if name in SAVED else result

    return named(function, name, DOC_OF_TWO)


def on_promoted(name: str, op: Callable[..., Any]) -> Callable[..., Tensor]:
    """A function of some operands in their common type."""

    def function(*operands: Any) -> Tensor:
        return writable(op(*promoted(*operands)))

    return named(function, name, DOC)


def writable(result: Any) -> Any:
    """A result apart from the one that backward reads, since this code writes into results.

    ``y = xp.sqrt(x); y[y == 0] = 1`` is usual there. Both are one kernel.
    """
    return result.clone() if result.requires_grad else result


def _row(name: str) -> Callable[..., Any]:
    return functools.partial(apply, TABLE[name])


def _to_whole(name: str) -> Callable[[Tensor], Tensor]:
    """Rounding; integers are whole already, complex numbers are rounded by their parts."""

    def op(x: Tensor) -> Tensor:
        if x.dtype.category < 2:
            return x.clone()
        if x.dtype.category == 2:
            return apply(TABLE[name], x)
        parts = apply(TABLE[name], x.real), apply(TABLE[name], x.imag)
        return registry.load("complex_views", "view_as_complex")(_pair(*parts))

    return op


def _pair(real: Tensor, imag: Tensor) -> Tensor:
    from lucid_gpu.ops.shape import stack

    return stack([real, imag], -1)


def _sign(x: Tensor) -> Tensor:
    """NaN where PyTorch has 0."""
    if x.dtype.category == 3:
        return apply(TABLE["sgn"], x)
    signs = apply(TABLE["sign"], x)
    return signs if x.dtype.category < 2 else signs.where(~apply(TABLE["isnan"], x), math.nan)


def _expm1(x: Tensor) -> Tensor:
    """That of complex infinities and NaN is ``exp(x) - 1``, where PyTorch's is NaN."""
    values = apply(TABLE["expm1"], x)
    if x.dtype.category < 3:
        return values
    return values.where(apply(TABLE["isfinite"], x), apply(TABLE["exp"], x) - 1)


def _floor_divide(x1: Any, x2: Any) -> Any:
    """Infinities divided are infinite, where PyTorch has NaN."""
    quotient = apply(TABLE["floor_divide"], x1, x2)
    if quotient.dtype.category < 2:
        return quotient
    whole = apply(TABLE["div"], x1, x2).detach()
    if not isinstance(x1, Tensor):
        return whole if math.isinf(x1) else quotient
    return apply(TABLE["where"], apply(TABLE["isinf"], x1), whole, quotient)


def _remainder(x1: Any, x2: Any) -> Any:
    """A zero has the sign of ``x2``, where PyTorch's has that of ``x1``."""
    rest = apply(TABLE["remainder"], x1, x2)
    if rest.dtype.category < 2:
        return rest
    positive = rest + 0.0  # no zero of it is negative
    if not isinstance(x2, Tensor):
        return -(-rest + 0.0) if x2 < 0 else positive
    return apply(TABLE["where"], x2 < 0, -(-rest + 0.0), positive)


def _nextafter(x1: Any, x2: Any) -> Any:
    like = x1 if isinstance(x1, Tensor) else x2
    a, b = (v if isinstance(v, Tensor) else like.new_tensor(v).to(like.dtype) for v in (x1, x2))
    return registry.load("special_functions", "nextafter")(a, b)


def clip(x: Tensor, /, min: Any = None, max: Any = None) -> Tensor:
    """Elements no less than ``min`` and no more than ``max``, broadcast, in the type of ``x``."""
    clipped = x
    for name, bound in (("maximum", min), ("minimum", max)):
        if bound is not None:
            bound = bound.to(x.dtype) if isinstance(bound, Tensor) else bound
            clipped = apply(TABLE[name], clipped, bound)
    return clipped.to(x.dtype) if clipped is not x else x.clone()


FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: _unary(name, _row(row)) for name, row in UNARY.items()},
    **{name: _binary(name, _row(row)) for name, row in BINARY.items()},
    **{name: _unary(name, _to_whole(name)) for name in ("ceil", "floor", "round", "trunc")},
    "expm1": _unary("expm1", _expm1),
    "floor_divide": _binary("floor_divide", _floor_divide),
    "imag": _unary("imag", _selection.imag),
    "nextafter": _binary("nextafter", _nextafter),
    "positive": _unary("positive", Tensor.clone),
    "remainder": _binary("remainder", _remainder),
    "real": _unary("real", _selection.real),
    "sign": _unary("sign", _sign),
    "signbit": _unary("signbit", registry.load("special_functions", "signbit")),
    "clip": clip,
}
