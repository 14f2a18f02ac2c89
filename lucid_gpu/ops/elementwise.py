"""The op table as tensor methods and functions, and the elementwise compositions.

A composition is written with table rows; it fuses, and its gradient follows.
"""

from __future__ import annotations

import builtins
import functools
import math
from collections.abc import Callable, Sequence
from inspect import unwrap
from numbers import Integral
from typing import Any

from lucid_gpu import dtypes as dt
from lucid_gpu.core.program import WRAPPED
from lucid_gpu.core.saved import reread
from lucid_gpu.core.value import give, order_of
from lucid_gpu.device import CPU, device
from lucid_gpu.devices import backend
from lucid_gpu.devices.port import READ_ONCE
from lucid_gpu.dtypes import as_dtype, dtype
from lucid_gpu.fusion.building import of_number, zeros_like
from lucid_gpu.fusion.optable import HIDDEN, TABLE, Op
from lucid_gpu.fusion.typing_rules import refusals
from lucid_gpu.ops.arguments import (
    LACKING,
    by_numpys_names,
    into,
    require_float,
    require_one_dtype,
    require_tensor,
    require_tensors,
    signature_of,
    takes_out,
)
from lucid_gpu.ops.in_place import (
    alias_before,
    alias_to_write,
    before_write,
    refuse_overlap,
    written,
)
from lucid_gpu.ops.laying import lay
from lucid_gpu.ops.memory_formats import joint_order, lying
from lucid_gpu.ops.number_ranges import number_in, refuse_beyond, refuse_unheld
from lucid_gpu.ops.record import composes, constant, keeping, keeps, record
from lucid_gpu.ops.registry import attach, named
from lucid_gpu.ops.user_warnings import warn_user
from lucid_gpu.storage import preserve_format
from lucid_gpu.tape.door import body_of, op, type_name
from lucid_gpu.tape.modes import is_grad_enabled, state
from lucid_gpu.tape.native import core
from lucid_gpu.tape.overrides import (
    UNHANDLED,
    declined,
    handled,
    handled_after,
    handling,
    overridable,
)
from lucid_gpu.tape.rules import Batch, batching
from lucid_gpu.tensor import (
    _READY,
    Tensor,
    _set,
    _tensor,
    apply,
    binary,
    in_free_order,
    is_foreign,
    unary,
)

Number = int | float | complex | bool
_TESTS = ("compare", "logical", "test")
_INTERNAL = ("cast", "identity", "where", "add", "sub", *HIDDEN)


# --- the table ------------------------------------------------------------------------------------


def _out(out: Tensor | None) -> dict[str, Any]:
    """``out=``, where it was given, as those are shown it that override ops."""
    return {} if out is None else {"out": out}


def _unary_function(op: Op, method: Callable[..., Any]) -> Callable[..., Tensor]:
    def function(input: Any = LACKING, *, out: Tensor | None = None, **named: Any) -> Any:
        if named or input is LACKING:
            return function(**by_numpys_names(function, named, input=input), out=out)
        if handling and (answer := handled(function, (input,), _out(out))) is not UNHANDLED:
            return answer
        if out is None and isinstance(input, Tensor):
            return method(input)
        if (answer := handled_after(function, (input,), _out(out))) is not UNHANDLED:
            return answer
        require_tensor(op.name, "input", 1, input)
        result = apply(op, input)
        if out is not None and result.dtype is not input.dtype and op.name == "abs":
            return into(result, out, "abs of complex numbers")  # of which PyTorch converts
        return into(result, out, op.name)

    return function


# Functions that take tensors alone, in each place or in the first, as PyTorch's do.
_OF_TENSORS = ("atan2", "hypot", "logaddexp", "logical_and", "logical_or", "logical_xor",
               "maximum", "minimum")  # fmt: skip
_OF_A_TENSOR = ("copysign", "eq", "ne", "lt", "le", "gt", "ge", "fmod")


def _binary_function(op: Op, method: Callable[..., Any]) -> Callable[..., Tensor]:
    first, second = op.name in (*_OF_A_TENSOR, *_OF_TENSORS), op.name in _OF_TENSORS

    def function(
        input: Any = LACKING, other: Any = LACKING, *, out: Tensor | None = None, **named: Any
    ) -> Any:
        if named or other is LACKING:
            return function(**by_numpys_names(function, named, input=input, other=other), out=out)
        if handling and (answer := handled(function, (input, other), _out(out))) is not UNHANDLED:
            return answer
        try:
            if second:
                require_tensors(op.name, input=input, other=other)
            if isinstance(input, Tensor):
                result = method(input, other)
            else:
                if first:
                    require_tensor(op.name, "input", 1, input)
                if op.name in _DIVIDES:
                    input = _dividend(input, other) if op.name == "floor_divide" else input
                    _refuse_zero(input, other)
                result = apply(op, input, other)
            return result if out is None else into(result, out, op.name)
        except TypeError:
            if (answer := handled_after(function, (input, other), _out(out))) is UNHANDLED:
                raise
            return answer

    return function


def _function(op: Op, method: Callable[..., Any]) -> Callable[..., Tensor]:
    function = (_unary_function if op.arity == 1 else _binary_function)(op, method)
    named(function, op.name, method.__doc__)
    function.__signature__ = signature_of("input", *["other"] * (op.arity - 1))  # type: ignore[attr-defined]
    return function


_GIVES = {"float": "; integers count as floats", **dict.fromkeys(_TESTS, ": bool")}
_OF_TWO = (
    "\n\nThe two broadcast: RuntimeError for shapes that do not, TypeError for anything but "
    "tensors and numbers."
)


def _said_of(op: Op) -> str:
    """What a row computes, of which shapes and types, and what it refuses."""
    text = f"``{op.formula}``, element by element{_GIVES.get(op.rule, '')}."
    return text + (_OF_TWO if op.arity == 2 else "") + refusals(op)


def _dividend(input: Any, other: Any) -> Any:
    """The first of two numbers as a tensor; the first of any others as it is."""
    if isinstance(input, Tensor) or isinstance(other, Tensor):
        return input
    return apply(TABLE["add"], input, 0)


@op
def _refuse_zero(dividend: Any, divisor: Any) -> None:
    """Integers divided by zero raise on the user's line; only the CPU looks, as in PyTorch."""
    for value in (dividend, divisor):
        if isinstance(value, Tensor):
            if value.dtype.category > 1 or value.device.type != "cpu":
                return
        elif not isinstance(value, int) and not _whole_of_numpy(value):
            return
    if isinstance(divisor, int):  # of the dividend's type: 256 is 0 beside a byte
        bits = 8 * dividend.dtype.itemsize if dividend.dtype.category else 64
        zero = divisor % 2**bits == 0 and -(2**63) <= divisor < 2**63  # others are refused as such
    else:
        zero = (divisor == 0).any().item()
    if zero and all(value.numel() for value in (dividend, divisor) if isinstance(value, Tensor)):
        raise RuntimeError(
            "ZeroDivisionError: integers were divided by zero; convert one with .float() for inf "
            "and nan."
        )


@batching(_refuse_zero)
def _refuse_zero_batched(level: Batch, f: Any, dividend: Any, divisor: Any) -> None:
    f(level.value(dividend), level.value(divisor))


def _whole_of_numpy(value: Any) -> bool:
    return getattr(getattr(value, "dtype", None), "kind", "") in ("b", "i", "u")


def _checked(method: Callable[..., Any], reflected: bool = False) -> Callable[..., Any]:
    """A method that divides integers too."""

    def function(self: Tensor, other: Any) -> Any:
        if self._expr.program.dtype.category < 2:
            _refuse_zero(*((other, self) if reflected else (self, other)))
        return method(self, other)

    return function


def _bounded(method: Callable[..., Any], name: str) -> Callable[..., Any]:
    """A method whose bound, where it is a whole number, is one of the tensor's type."""

    def at_least(self: Tensor, min: Any) -> Any:
        d = self._expr.program.dtype
        return method(self, *_within(d, min) if d.category < 2 else (min,))

    def at_most(self: Tensor, max: Any) -> Any:
        d = self._expr.program.dtype
        return method(self, *_within(d, max) if d.category < 2 else (max,))

    return at_least if name == "clamp_min" else at_most


def _of_complex(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method that gives real tensors themselves, as `conj` does."""

    def function(self: Tensor) -> Any:
        return method(self) if self._expr.program.dtype.is_complex else self

    return function


_BOUNDS = ("clamp_min", "clamp_max")
_DIVIDES = {"floor_divide": "floordiv", "remainder": "mod", "fmod": None}
FUNCTIONS: dict[str, Callable[..., Any]] = {}
# Methods of rows with no checks but those of their types.
_straight: dict[str, Callable[..., Any]] = {
    name: unary(op) if op.arity == 1 else binary(op, "")
    for name, op in TABLE.items()
    if op.arity < 3 and op.rule != "draw"
}


def _whole(op: Op, method: Callable[..., Any]) -> Callable[..., Any]:
    """A row's method with what it checks."""
    if op.name in _DIVIDES:
        method = _checked(method)
    if op.name in _BOUNDS:
        method = _bounded(method, op.name)
    if op.name == "conj_physical":
        method = _of_complex(method)
    method.__name__, method.__qualname__ = op.name, f"Tensor.{op.name}"
    method.__doc__ = _said_of(op)
    return method


for _name, _op in TABLE.items():
    if _name in _INTERNAL or _op.rule == "draw":
        continue
    _called = _whole(_op, _straight[_name] if _op.arity < 3 else binary(_op, ""))
    _set(_name, _called if _op.arity == 1 else _whole(_op, binary(_op, _name)))
    FUNCTIONS[_name] = _function(_op, _called)


_power: Callable[..., Any] = body_of(Tensor.pow)


@op(autocast=TABLE["pow"].autocast)
def _pow(self: Tensor, exponent: Any) -> Any:
    """``self ** exponent``, element by element."""
    return _power(self, exponent)


@op(autocast=TABLE["pow"].autocast)
def pow(input: Any, exponent: Any, *, out: Tensor | None = None) -> Tensor:
    """``input ** exponent``, element by element."""
    return into(apply(TABLE["pow"], input, exponent), out, "pow")


@overridable
def clamp_min(input: Any, min: Any, *, out: Tensor | None = None) -> Tensor:
    """The larger of ``input`` and ``min``, element by element."""
    if not isinstance(input, Tensor):
        require_tensor("clamp_min", "input", 1, input)
    return into(input.clamp_min(min), out, "maximum" if isinstance(min, Tensor) else "clamp_min")


@overridable
def clamp_max(input: Any, max: Any, *, out: Tensor | None = None) -> Tensor:
    """The smaller of ``input`` and ``max``, element by element."""
    if not isinstance(input, Tensor):
        require_tensor("clamp_max", "input", 1, input)
    return into(input.clamp_max(max), out, "minimum" if isinstance(max, Tensor) else "clamp_max")


_set("pow", _pow)
FUNCTIONS |= {"pow": pow, "clamp_min": clamp_min, "clamp_max": clamp_max}


def _in_place(op: Op) -> Callable[..., Tensor]:
    name, straight = f"{op.name}_", _straight[op.name]
    made: Callable[..., Tensor]
    if op.arity == 1:

        def made(self: Tensor) -> Tensor:
            if name == "abs_" and self.dtype.is_complex:
                raise RuntimeError("In-place abs is not supported for complex tensors.")
            return self._write(straight(before_write(self, name)), name)

    elif op.name == "pow":

        def made(self: Tensor, exponent: Any) -> Tensor:
            return self._write(straight(before_write(self, name, exponent), exponent), name)

    else:

        def made(self: Tensor, other: Any) -> Tensor:
            return self._write(straight(before_write(self, name, other), other), name)

    as_it_is = op.name == "abs" or op.name in _DIVIDES or op.name in _BOUNDS
    made = _checked(made) if op.name in _DIVIDES else made
    made = _bounded(made, op.name) if op.name in _BOUNDS else made
    made.__doc__ = f"`{op.name}`, in place."
    return made if as_it_is else _short(made, op)


def _short(made: Callable[..., Tensor], op: Op) -> Callable[..., Tensor]:
    """The in-place form of a row, in C for what is called as the row is."""
    if core is None:
        return made
    settings = min(op.arity, 2), False, False, _straight[op.name], f"{op.name}_"
    return functools.update_wrapper(core.Method(made, op, *settings), made)


for _name, _op in TABLE.items():
    if _name not in _INTERNAL and _op.rule not in ("test", "draw"):
        _set(f"{_name}_", _in_place(_op))


def _scaled(input: Any, other: Any, alpha: Number) -> Any:
    """``alpha * other``, of the type that the sum with the input has."""
    if type(alpha) is float and type(input) is type(other) is Tensor:
        d = input._expr.program.dtype
        if d is other._expr.program.dtype and d.category >= 2:
            return other * alpha
    if not isinstance(alpha, (builtins.bool, int, float, complex)):
        alpha = _number_of(alpha)
    category = builtins.max(map(_category, (input, other)))
    if category and isinstance(alpha, builtins.bool):
        raise RuntimeError("Boolean alpha only supported for Boolean results.")
    if category < 2 and not isinstance(alpha, int):
        raise RuntimeError(
            "For integral input tensors, argument alpha must not be a floating point number."
        )
    if category < 3 and isinstance(alpha, complex):
        raise RuntimeError(
            "For non-complex input tensors, argument alpha must not be a complex number."
        )
    if not category:
        return other if alpha else other * False if isinstance(other, Tensor) else False
    if alpha == 1:
        return other
    if not isinstance(other, (Tensor, builtins.bool, int, float, complex)):
        other = _number_of(other)
    if isinstance(input, Tensor) and isinstance(other, Tensor):  # small integers do not wrap first
        _, other = _of_one_type(input, other)
    of = other if isinstance(other, Tensor) else input
    return other * (factors_in(of.dtype, alpha)[0] if category == 1 else alpha)


def _scaled_unrounded(input: Any, other: Any, alpha: Number) -> Any:
    """The same, which is rounded with the sum, also where each op is computed on its line."""
    before, state.composing = state.composing, True
    try:
        return _scaled(input, other, alpha)
    finally:
        state.composing = before


def factors_in(d: dtype, *numbers: Any) -> list[Any]:
    """Factors of tensors of a type; those of integers are cut off and must fit, as in PyTorch."""
    if d.category == 1:
        return [number_in(n, d) for n in numbers]
    return [int(n) if d is dt.bool and isinstance(n, float) else n for n in numbers]


def _number_of(alpha: Any) -> Number:
    """A 0-d tensor or a number of NumPy's as a Python number; its bools are floats to PyTorch."""
    if isinstance(alpha, Tensor) and alpha.requires_grad:  # no gradient would come to it
        raise TypeError("argument 'alpha' or 'value' must be Number, not Tensor that requires grad")
    if not hasattr(alpha, "item"):
        raise TypeError(f"argument 'alpha' or 'value' must be Number, not {type_name(alpha)}")
    value: Any = alpha.item()
    numpy_bool = isinstance(value, builtins.bool) and not isinstance(alpha, Tensor)
    return float(value) if numpy_bool else value


_CATEGORIES = {builtins.bool: 0, int: 1, float: 2, complex: 3}


def _category(operand: Any) -> int:
    """Bool, whole, real or complex."""
    if isinstance(operand, Tensor):
        return operand.dtype.category
    return _CATEGORIES.get(type(getattr(operand, "item", lambda: operand)()), 2)


def _two(name: str, a: Any, b: Any) -> Any:
    """A row of two operands, by its straight path where the first is a tensor."""
    return _straight[name](a, b) if type(a) is Tensor else apply(TABLE[name], a, b)


def _old_order(name: str, keyword: str, given: Any, number: Any, *operands: Any) -> Any:
    """Operands of ``add(x, alpha, other)``, which once was ``add(x, other, alpha=alpha)``."""
    wanted = 1 if keyword == "alpha" else 2
    kinds = (Tensor, builtins.bool, int, float, complex) if wanted == 1 else Tensor
    right = len(operands) == wanted and all(isinstance(t, kinds) for t in operands)
    if not (right and _is_single(number) and given == 1):
        raise TypeError(
            f"{name}() takes {wanted} positional argument{'s' * (wanted > 1)} but "
            f"{1 + len(operands)} were given; a number is given as {keyword}="
        )
    warn_user(
        f"This overload of {name} is deprecated: give the number behind the tensors, as {keyword}=",
    )
    return number.item() if isinstance(number, Tensor) else number, *operands


def _is_single(number: Any) -> builtins.bool:
    return not isinstance(number, Tensor) or not number.ndim


def in_old_order(function: Callable[..., Tensor], operands: Any, beta: Any, alpha: Any) -> Tensor:
    """A sum of products called as ``addmm(beta, input, alpha, mat1, mat2)``, or without `alpha`.

    The tensor whose method it is stands first.
    """
    name, (input, number, *rest) = function.__name__, operands
    if not isinstance(input, Tensor):
        input, number = number, input
    numbers, tensors = (number, *rest[:-2]), (input, *rest[-2:])
    right = len(numbers) <= 2 and all(map(_is_single, numbers)) and beta == alpha == 1
    if not (right and all(isinstance(t, Tensor) for t in tensors)):
        raise TypeError(
            f"{name}() takes 3 positional arguments but {len(operands)} were given; numbers are "
            "given as beta= and alpha="
        )
    warn_user(
        f"This overload of {name} is deprecated: give the numbers behind the tensors, as beta= "
        "and alpha=",
    )
    return function(*tensors, **dict(zip(("beta", "alpha"), numbers, strict=False)))


def _sum_function(name: str, said: str) -> Callable[..., Any]:
    def function(
        input: Any = LACKING,
        other: Any = LACKING,
        *old: Any,
        alpha: Number = 1,
        out: Tensor | None = None,
        **named: Any,
    ) -> Tensor:
        if named or other is LACKING:
            given = by_numpys_names(function, named, input=input, other=other)
            return function(**given, alpha=alpha, out=out)
        if old:
            alpha, other = _old_order(name, "alpha", alpha, other, *old)
        plain = type(alpha) is int and alpha == 1
        if name == "sub" and not plain:  # bools are refused below
            plain = isinstance(other, builtins.bool) or getattr(other, "dtype", None) is dt.bool
        scaled = other if plain else _scaled_unrounded(input, other, alpha)
        result: Tensor = _two(name, input, scaled)
        return result if out is None else into(result, out, name)

    named(function, name, said)
    function.__signature__ = signature_of("input", "other", "*old", alpha=1)  # type: ignore[attr-defined]
    return overridable(function)


add = _sum_function(
    "add",
    """``input + alpha * other``, element by element; the two broadcast.

    RuntimeError for an ``alpha`` that is a float where both are integers, shapes that do not
    broadcast, and an ``out`` of a type that cannot hold the result; TypeError for operands
    beside the two.
    """,
)
sub = _sum_function(
    "sub",
    """``input - alpha * other``, element by element; the two broadcast.

    RuntimeError for bool, an ``alpha`` that is a float where both are integers, and shapes that
    do not broadcast; TypeError for operands beside the two.
    """,
)


@overridable
def rsub(input: Any, other: Any, *, alpha: Number = 1) -> Tensor:
    """``other - alpha * input``, element by element; refuses what `sub` refuses."""
    require_tensor("rsub", "input", 1, input)
    return sub(other, input, alpha=alpha)


@overridable
def div(
    input: Any, other: Any, *, rounding_mode: str | None = None, out: Tensor | None = None
) -> Tensor:
    """``input / other``, broadcast; ``rounding_mode`` is None, ``"trunc"`` or ``"floor"``.

    RuntimeError for another ``rounding_mode``, integers that are rounded and divided by zero
    (on the CPU, which looks), and shapes that do not broadcast.
    """
    if rounding_mode is None:
        return into(apply(TABLE["div"], input, other), out, "div")
    input = _dividend(input, other)
    _refuse_zero(input, other)
    if rounding_mode == "floor":
        floored = apply(TABLE["floor_divide"], input, other)
        by = type(other) is Tensor and other.requires_grad  # whose gradient alone reads the input
        read = [t for t, wanted in ((input, by), (other, True)) if wanted and type(t) is Tensor]
        return into(keeps(floored, *read), out, "div")
    if rounding_mode != "trunc":
        raise RuntimeError(
            "div expected rounding_mode to be one of None, 'trunc', or 'floor' but found "
            f"'{rounding_mode}'"
        )
    if all(
        isinstance(o, int) or isinstance(o, Tensor) and o.dtype.category < 2 for o in (input, other)
    ):
        if isinstance(input, Tensor) and input.dtype is dt.bool:
            input = input.to(_common_type(input, other))
        rest = apply(TABLE["fmod"], input, other)
        quotient = apply(TABLE["floor_divide"], apply(TABLE["sub"], input, rest), other)
    else:
        quotient = apply(TABLE["truncated_quotient"], input, other)
    return into(quotient, out, "div")


def _common_type(*operands: Any) -> dtype:
    """The type that tensors and numbers have in common."""
    tensors = [(x.dtype, x.ndim) for x in operands if isinstance(x, Tensor)]
    return dt.result_type(
        tensors, [dt.scalar_type(x) for x in operands if not isinstance(x, Tensor)]
    )


@overridable
def where(
    condition: Tensor, input: Any = None, other: Any = None, *, out: Tensor | None = None
) -> Any:
    """Elements of ``input`` where the condition holds, else of ``other``; alone, its indices.

    TypeError for a ``condition`` that is not a tensor; RuntimeError for one that is neither bool
    nor uint8, and shapes that do not broadcast.
    """
    if input is None and other is None and isinstance(condition, Tensor):
        return condition.nonzero(as_tuple=True)
    if not isinstance(condition, Tensor):
        raise TypeError(
            f"where(): argument 'condition' (position 1) must be Tensor, not {type_name(condition)}"
        )
    if condition.dtype is dt.uint8:
        condition = condition.to(dt.bool)
    elif condition.dtype is not dt.bool:
        raise RuntimeError(
            "where expected condition to be a boolean tensor, but got a tensor with dtype "
            f"{condition.dtype.type_name}; compare it, as in x != 0"
        )
    if isinstance(input, Tensor):
        other = _held(other, input.dtype)
    elif isinstance(other, Tensor):
        input = _held(input, other.dtype)
    return into(apply(TABLE["where"], condition, input, other), out, "where")


def _held(value: Any, d: dtype) -> Any:
    """A whole number as a type of integers holds it; anything else as it is."""
    return number_in(value, d) if d.category == 1 and isinstance(value, Integral) else value


def _where_method(self: Tensor, condition: Tensor, other: Any) -> Tensor:
    """This tensor's elements where the condition holds, else ``other``'s."""
    result: Tensor = where(condition, self, other)
    return result


# --- compositions ---------------------------------------------------------------------------------


@takes_out
def clamp(input: Tensor, min: Any = None, max: Any = None) -> Tensor:
    """Elements moved into ``[min, max]``, which broadcast; the gradient passes where they were.

    RuntimeError without either bound; NotImplementedError for bool.
    """
    if min is None and max is None:
        raise RuntimeError("torch.clamp: At least one of 'min' or 'max' must not be None")
    if isinstance(min, Tensor) and isinstance(max, Tensor):
        return _clamp_between(input, min, max)
    if input.dtype.category < 2:
        if isinstance(min, float) or isinstance(max, float):  # then the other one is no integer
            input = input.to(dt.get_default_dtype())
        min, max = _within(input.dtype, min, max)
    if max is None:
        return _clamp_min(input, min)
    if min is None:
        return _clamp_max(input, max)
    return _clamp(input, min, max)


_clamp_min, _clamp_max = binary(TABLE["clamp_min"], ""), binary(TABLE["clamp_max"], "")


@op(whole=True)
def _clamp(input: Tensor, min: Any, max: Any) -> Tensor:
    """`clamp` with both bounds."""
    return composes(_clamp_max(_clamp_min(input, min), max), input, title="ClampBackward1")


def _within(d: dtype, *bounds: Any) -> list[Any]:
    """Whole bounds as a type of integers holds them; beside bool one of them is of a wider type."""
    if d is not dt.bool:
        return [_held(b, d) for b in bounds]
    given = [b for b in bounds if b is not None]
    wider = {getattr(b, "dtype", type(b)) for b in given} - {dt.bool, builtins.bool}
    if not wider and not (len(given) == 1 and isinstance(given[0], Tensor)):
        raise dt.unimplemented("clamp", d, ": use logical_and, logical_or")
    return [int(b) if type(b) is builtins.bool else b for b in bounds]


@keeping("input", "low", "high")
def _clamp_between(input: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Which of the three gets the gradient is PyTorch's choice: none where ``low == high``."""
    input, low, high = _of_one_type(input, low, high)
    if input.dtype is dt.bool:
        raise dt.unimplemented("clamp", dt.bool, ": use logical_and, logical_or")
    x, a, b = input.detach(), low.detach(), high.detach()
    value = x.maximum(a).minimum(b)
    clamped = where((a < b).logical_and(x < a), low, value)
    clamped = where((x > b).logical_or(b < a), high, clamped)
    clamped = where((x >= a).logical_and(x <= b), input, clamped)
    kept: Tensor = where(value.isnan(), value, clamped)
    return kept


@takes_out
def clip(input: Tensor, min: Any = None, max: Any = None) -> Tensor:
    """Alias of `clamp`."""
    return clamp(input, min, max)


@op(whole=True)
@takes_out
@keeping("weight")
@lying("input", "end", "weight", rule=joint_order)
def lerp(input: Tensor, end: Tensor, weight: Any) -> Tensor:
    """``input + weight * (end - input)``, broadcast; exactly ``end`` at weight 1.

    RuntimeError for types that differ; NotImplementedError for integers and bool, unless the
    weight is a 0-d tensor of floats.
    """
    require_one_dtype("lerp: expected input and end to have the same dtype", input, end)
    if isinstance(weight, Tensor) and weight.ndim:
        require_one_dtype("lerp: expected input and weight to have the same dtype", input, weight)
    category = weight.dtype.category if isinstance(weight, Tensor) else 0
    if max(category, input.dtype.category) < 2:
        raise dt.unimplemented("lerp", input.dtype)
    if isinstance(weight, Tensor):
        if category > input.dtype.category or not (input.ndim or end.ndim or weight.ndim):
            input, end, weight = _of_one_type(input, end, weight)
        else:
            weight = weight.to(input.dtype)
        near = weight.abs() < 0.5
        moved = where(near, input, end) + where(near, weight, weight - 1) * (end - input)
        every, title = (input, end, weight), "LerpBackward1"
        if weight.requires_grad:
            return keeps(moved, input, end, title=title, operands=every)
        return composes(moved, title=title, operands=every)  # weight: by `keeping`
    if abs(weight) >= 0.5:
        rest = (1 - input.dtype.compute.numpy.type(weight)).item()  # rounds as PyTorch's
        moved = (input - end) * rest + end
    else:
        moved = input + weight * (end - input)
    return composes(moved, title="LerpBackward0", operands=(input, end))


def _of_one_type(*operands: Tensor) -> tuple[Tensor, ...]:
    """Operands that more than one op joins: the ranks of all of them decide on the type."""
    first = operands[0].dtype
    if all(t.dtype is first for t in operands):
        return operands
    common = dt.result_type([(t.dtype, t.ndim) for t in operands], [])
    return tuple(t if t.dtype is common else t.to(common) for t in operands)


@op(autocast={"cuda": "promote"}, whole=True)
@takes_out
def addcmul(
    input: Tensor, tensor1: Tensor, tensor2: Tensor, *old: Any, value: Number = 1
) -> Tensor:
    """``input + value * tensor1 * tensor2``; the tensors broadcast.

    NotImplementedError for bool; TypeError for operands beside the three.
    """
    if old:
        value, tensor1, tensor2 = _old_order("addcmul", "value", value, tensor1, tensor2, *old)
    if isinstance(value, Tensor):
        value = _number_of(value)
    operands = tensor1, tensor2
    input, tensor1, tensor2 = _of_one_type(input, tensor1, tensor2)
    if input.dtype is dt.bool:
        raise dt.unimplemented("addcmul", dt.bool)
    (value,) = factors_in(input.dtype, value)
    scaled = tensor1 if value == 1 else tensor1 * value  # first: rounds as PyTorch's
    result = input + scaled * tensor2
    composes(result, *operands, title="AddcmulBackward0", operands=(input, *operands))
    needed = operands[1].requires_grad, operands[0].requires_grad
    return _keeps_converted(result, operands, (scaled, tensor2), needed)


def _keeps_converted(result: Tensor, operands: Any, used: Any, needed: Sequence[bool]) -> Tensor:
    """Have writes to operands refused that were converted or scaled: they are not what we save."""
    if operands[0] is used[0] and operands[1] is used[1]:
        return result
    return keeps(result, *[t for t, u, n in zip(operands, used, needed) if n and t is not u])


@op(autocast={"cuda": "promote"}, whole=True)
@takes_out
def addcdiv(
    input: Tensor, tensor1: Tensor, tensor2: Tensor, *old: Any, value: Number = 1
) -> Tensor:
    """``input + value * tensor1 / tensor2``; the tensors broadcast.

    RuntimeError if both of the quotient are integers; TypeError for operands beside the three.
    """
    if old:
        value, tensor1, tensor2 = _old_order("addcdiv", "value", value, tensor1, tensor2, *old)
    if tensor1.dtype.category < 2 and tensor2.dtype.category < 2:
        raise RuntimeError(
            "Integer division with addcdiv is no longer supported: convert one with .float(), or "
            "write input + value * tensor1 // tensor2"
        )
    if isinstance(value, Tensor):
        value = _number_of(value)
    operands = tensor1, tensor2
    input, tensor1, tensor2 = _of_one_type(input, tensor1, tensor2)
    scaled = tensor1 if value == 1 else tensor1 * value  # first: rounds as PyTorch's
    result = input + scaled / tensor2
    composes(result, *operands, title="AddcdivBackward0", operands=(input, *operands))
    needed = operands[1].requires_grad, operands[0].requires_grad or operands[1].requires_grad
    return _keeps_converted(result, operands, (scaled, tensor2), needed)


@overridable
def masked_fill(input: Tensor, mask: Tensor, value: Any) -> Tensor:
    """``value`` where the mask is true, else the input's elements; the mask broadcasts.

    RuntimeError for a number that the input's type does not hold, a value with dimensions, and
    a mask that is not boolean.
    """
    d = input._expr.program.dtype
    if isinstance(mask, Tensor) and mask._expr.program.dtype is not dt.bool:
        raise RuntimeError(
            f"masked_fill only supports boolean masks, but got mask with dtype {mask.dtype}"
        )
    if isinstance(value, Tensor):
        if value.ndim:
            raise RuntimeError(
                "masked_fill_ only supports a 0-dimensional value tensor, but got tensor with "
                f"{value.ndim} dimension(s)."
            )
        refuse_unheld(value, d)
    elif d is not dt.bool:
        value = number_in(value, d)
        refuse_beyond(value, d)
    filled = cast(apply(TABLE["where"], mask, value, input), d)
    operands = (input, value) if isinstance(value, Tensor) else (input,)
    title = f"MaskedFillBackward{len(operands) - 1}"
    composes(filled, mask, title=title, operands=operands)
    return filled if order_of(filled._expr) is None else lay(filled, None)


@op(whole=True)
@takes_out
@keeping("input", title="NanToNumBackward0")
def nan_to_num(
    input: Tensor, nan: float | None = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    """NaN and infinite elements replaced; infinite ones by the largest finite numbers by default.

    Parameters
    ----------
    nan : float
        What NaN becomes.
    posinf, neginf : float, optional
        What infinity and its negative become; by default the largest and the smallest number.
    """
    if input.dtype.category < 2:
        return input.clone()
    if input.dtype.is_complex:
        whole: Tensor = input.clone()
        for part, own in ((whole.real, input.real), (whole.imag, input.imag)):
            part.copy_(nan_to_num(own, nan, posinf, neginf))  # which saves what it reads
        return whole
    import ml_dtypes

    top = float(ml_dtypes.finfo(input.dtype.numpy).max)
    result = where(input.isnan(), 0.0 if nan is None else nan, input)
    result = where(input == math.inf, top if posinf is None else posinf, result)
    kept: Tensor = where(input == -math.inf, -top if neginf is None else neginf, result)
    return kept


@op(whole=True)
@takes_out
def rad2deg(input: Tensor) -> Tensor:
    """Radians to degrees, element by element.

    RuntimeError for complex tensors.
    """
    turned = _real("rad2deg", input) * (180.0 / math.pi)
    return composes(turned, title="Rad2DegBackward0", operands=(input,))


@op(whole=True)
@takes_out
def deg2rad(input: Tensor) -> Tensor:
    """Degrees to radians, element by element.

    RuntimeError for complex tensors.
    """
    turned = _real("deg2rad", input) * (math.pi / 180.0)
    return composes(turned, title="Deg2RadBackward0", operands=(input,))


def _real(name: str, input: Tensor) -> Tensor:
    require_tensor(name, "input", 1, input)
    if input.dtype.is_complex:
        raise RuntimeError(f"{name} is not supported for complex tensors.")
    return input


def _round(input: Tensor, *, decimals: int = 0, out: Tensor | None = None) -> Tensor:
    """Each element to the nearest number of ``decimals`` decimal places, of two the even one.

    NotImplementedError for ``decimals`` of integers, bool and complex.
    """
    rounded = _rounded(input, decimals)
    return rounded if out is None else into(rounded, out, "round")


_round.__name__ = _round.__qualname__ = "round"
round = overridable(_round)


def _rounded(input: Tensor, decimals: int) -> Tensor:
    if not decimals:
        return apply(TABLE["round"], input)
    if input.dtype.category != 2:
        raise dt.unimplemented("round with decimals", input.dtype)
    if input.dtype.itemsize == 2:  # the scaled number has more digits than this type
        return _rounded(input.to(dt.float32), decimals).to(input.dtype)
    scale = 10.0 ** builtins.abs(decimals)
    if decimals > 0:
        return apply(TABLE["round"], input * scale) / scale
    return apply(TABLE["round"], input / scale) * scale


@op(whole=True)
@takes_out
def frac(input: Tensor) -> Tensor:
    """The elements' fractional parts.

    NotImplementedError for integers, bool and complex.
    """
    require_float("frac", input)
    part = apply(TABLE["fmod"], input, 1) + 0.0  # no -0.0
    return composes(part, title="FracBackward0", operands=(input,))


# --- activations ----------------------------------------------------------------------------------


def piecewise(input: Tensor) -> Tensor:
    """The operand of a function made of pieces, as its composition reads it: see `Tie`."""
    return _tied(TABLE["piecewise"], input)


def operand(input: Tensor) -> Tensor:
    """An operand as a composition reads it whose gradient is tied to it: see `Tie`."""
    return _tied(TABLE["operand"], input)


def _tied(row: Op, input: Tensor) -> Tensor:
    program = input._expr.program
    if not is_grad_enabled() or not (program.needs_grad or program.marks & WRAPPED):
        return input
    return apply(row, input)


@op(whole=True)
def leaky_relu(input: Tensor, negative_slope: float = 0.01) -> Tensor:
    """``x`` where positive, else ``negative_slope * x``; elementwise.

    NotImplementedError for integers, bool and complex.
    """
    require_float("leaky_relu", input)
    x = piecewise(input)
    leaky = apply(TABLE["where"], x > 0, x, x * negative_slope)
    return keeps(leaky, input, title="LeakyReluBackward0")


@op(whole=True)
def elu(input: Tensor, alpha: float = 1.0) -> Tensor:
    """``x`` where positive, else ``alpha * (exp(x) - 1)``; elementwise.

    NotImplementedError for integers, bool and complex.
    """
    require_float("elu", input)
    below = apply(TABLE["grown"], apply(TABLE["clamp_max"], input, 0.0)) * alpha
    return composes(input.relu() + below, input, title="EluBackward0")


@op(whole=True)
def celu(input: Tensor, alpha: float = 1.0) -> Tensor:
    """``x`` where positive, else ``alpha * (exp(x / alpha) - 1)``, element by element.

    RuntimeError for an ``alpha`` of zero; NotImplementedError for integers, bool and complex.
    """
    require_float("celu", input)
    if alpha == 0:
        raise RuntimeError("ZeroDivisionError: alpha cannot be 0 for CELU")
    below = apply(TABLE["grown"], apply(TABLE["clamp_max"], input, 0.0) / alpha) * alpha
    if alpha != alpha:  # NaN is below 0 alone
        return composes(where(input < 0, below, input), input, title="CeluBackward0")
    return composes(input.relu() + below, input, title="CeluBackward0")


@op(whole=True)
def selu(input: Tensor) -> Tensor:
    """Scaled elu of each element (Klambauer et al., Self-Normalizing Neural Networks, 2017)."""
    scaled = elu(input, 1.6732632423543772848170429916717) * 1.0507009873554804934193349852946
    return composes(scaled, input, title="EluBackward0")


@op(whole=True)
def silu(input: Tensor) -> Tensor:
    """``x * sigmoid(x)``; elementwise.

    NotImplementedError for integers and bool.
    """
    if input.dtype.category < 2:
        require_float("silu", input)
    return composes(input * input.sigmoid(), input, title="SiluBackward0")


def unrounded(input: Tensor) -> Tensor:
    """What PyTorch compares with a threshold: 16-bit elements in float32, as the number is."""
    return input.float() if input.dtype in (dt.float16, dt.bfloat16) else input


@op(autocast={"cuda": "float32"}, whole=True)
def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """``log(1 + exp(beta * x)) / beta``, elementwise; ``x`` where ``beta * x > threshold``.

    NotImplementedError for integers, bool and complex.
    """
    require_float("softplus", input)
    scaled = input * beta
    far = unrounded(scaled) > threshold
    if beta:
        curve = apply(TABLE["where"], far, 0.0, scaled).exp().log1p() / beta
    else:
        curve = input * 0.5 + math.inf  # infinite, with the slope that it comes to
    return keeps(apply(TABLE["where"], far, input, curve), input, title="SoftplusBackward0")


@op(whole=True)
def mish(input: Tensor) -> Tensor:
    """``x * tanh(softplus(x))``; elementwise.

    NotImplementedError for integers, bool and complex.
    """
    require_float("mish", input)
    return composes(input * softplus(input).tanh(), input, title="MishBackward0")


_gelu_tanh = unary(TABLE["gelu_tanh"])


@op(whole=True)
def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """``x * Phi(x)``, elementwise, for the normal distribution function (Hendrycks, Gimpel, 2016).

    Parameters
    ----------
    input : Tensor
    approximate : {"none", "tanh"}
        ``"tanh"`` for ``0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))``.

    Raises
    ------
    RuntimeError
        For another ``approximate``.
    NotImplementedError
        For integers, bool and complex.
    """
    require_float("gelu", input)
    if approximate == "tanh":
        return _gelu_tanh(input)
    if approximate != "none":
        raise RuntimeError("approximate argument must be either none or tanh.")
    whole = (1 + (input * math.sqrt(0.5)).erf()) * 0.5 * input
    return keeps(whole, input, title="GeluBackward0")


@op(whole=True)
def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """Elements clamped to ``[min_val, max_val]``; no gradient at and beyond the ends.

    Raises
    ------
    ValueError
        If ``min_val`` is above ``max_val``.
    RuntimeError, NotImplementedError
        For bool and complex, and for negative limits of uint8.
    """
    if min_val > max_val:
        raise ValueError(f"min_val cannot be greater than max_val; got {min_val} and {max_val}")
    if input.dtype.category != 2:
        return _hardtanh_of_integers(input, min_val, max_val)
    low = apply(TABLE["raised"], piecewise(input), min_val)
    return keeps(apply(TABLE["capped"], low, max_val), input, title="HardtanhBackward0")


def _hardtanh_of_integers(input: Tensor, low: float, high: float) -> Tensor:
    if input.dtype.category != 1:
        kind = RuntimeError if input.dtype is dt.bool else NotImplementedError
        raise kind(f"{input.dtype.name} inputs not supported for hardtanh")
    if input.dtype is dt.uint8 and (low < 0 or high < 0):
        raise RuntimeError("cannot do hardtanh on an unsigned type with negative limits")
    return clamp(input, number_in(low, input.dtype), number_in(high, input.dtype))


@op
def relu6(input: Tensor) -> Tensor:
    """``min(max(x, 0), 6)``; elementwise."""
    return hardtanh(input, 0.0, 6.0)


@op(whole=True)
def hardsigmoid(input: Tensor) -> Tensor:
    """``relu6(x + 3) / 6``; elementwise.

    NotImplementedError for integers, bool and complex.
    """
    require_float("hardsigmoid", input)
    # x + 3 is compared with nothing: rounded to 16 bits it is 6 before x is 3
    return keeps((hardtanh(input, -3.0, 3.0) + 3) / 6, input, title="HardsigmoidBackward0")


_hardswish = unary(TABLE["hardswish"])


@op
def hardswish(input: Tensor) -> Tensor:
    """``x * relu6(x + 3) / 6``; elementwise.

    NotImplementedError for integers, bool and complex.
    """
    require_float("hardswish", input)
    return _hardswish(input)


@op(whole=True)
def logsigmoid(input: Tensor) -> Tensor:
    """``log(sigmoid(x))`` without overflow; elementwise.

    NotImplementedError for integers, bool and complex.
    """
    require_float("logsigmoid", input)
    below = input < 0  # each branch is the whole function, so derivatives at 0 are right too
    size = apply(TABLE["where"], below, input, -input)
    whole = apply(TABLE["where"], below, input, 0.0) - size.exp().log1p()
    return keeps(whole, input, title="LogSigmoidBackward0")


@op
def softsign(input: Tensor) -> Tensor:
    """``x / (1 + |x|)``; elementwise."""
    require_tensor("softsign", "input", 1, input)
    return input / (1 + input.abs())


@op
def tanhshrink(input: Tensor) -> Tensor:
    """``x - tanh(x)``; elementwise."""
    require_tensor("tanhshrink", "input", 1, input)
    return input - input.tanh()


ACTIVATIONS = (leaky_relu, elu, celu, selu, silu, softplus, mish, gelu, hardtanh, relu6,
               hardsigmoid, hardswish, logsigmoid, softsign, tanhshrink)  # fmt: skip
METHODS = (add, sub, div, clamp, clip, lerp, addcmul, addcdiv, masked_fill, nan_to_num, rad2deg,
           deg2rad, frac, round)  # fmt: skip
for _composition in METHODS:
    attach(Tensor, _composition)
    FUNCTIONS[_composition.__name__] = _composition
# Those who override ops tell torch.add from Tensor.add.
_methods = [overridable(unwrap(function)) for function in (add, sub, div, masked_fill)]
attach(Tensor, *_methods, round=_round)
FUNCTIONS |= {"where": where, "rsub": rsub}
_set("where", _where_method)


for _composition in METHODS:
    _set(f"{_composition.__name__}_", written(_composition))
for _name in ("add", "sub"):  # with no ``alpha``
    _set(f"{_name}_", _short(written(FUNCTIONS[_name]), TABLE[_name]))
for _composition in (clamp, clip):  # the first of two ops reads the old value
    _set(f"{_composition.__name__}_", written(_composition, alias_before))
ALIASES = {
    "subtract": "sub", "multiply": "mul", "divide": "div", "true_divide": "div",
    "negative": "neg", "absolute": "abs", "greater": "gt", "greater_equal": "ge",
    "less": "lt", "less_equal": "le", "not_equal": "ne", "arcsin": "asin",
    "arccos": "acos", "arctan": "atan", "arctan2": "atan2", "arcsinh": "asinh",
    "arccosh": "acosh", "arctanh": "atanh", "fix": "trunc",
}  # fmt: skip
for _alias, _original in ALIASES.items():
    FUNCTIONS[_alias] = FUNCTIONS[_original]
    attach(Tensor, **{_alias: getattr(Tensor, _original)})
attach(Tensor, __div__=Tensor.__truediv__, __rdiv__=Tensor.__rtruediv__)
_IN_PLACE_OPERATORS = {
    "iadd": "add", "isub": "sub", "imul": "mul", "itruediv": "div", "idiv": "div", "ipow": "pow",
    "ifloordiv": "floor_divide", "imod": "remainder", "iand": "bitwise_and",
    "ior": "bitwise_or", "ixor": "bitwise_xor",
}  # fmt: skip


def _operator(name: str, method: Callable[..., Tensor]) -> Callable[..., Any]:
    """``x += other``: as the method, but what has methods of its own for it comes to its turn."""

    def operator(self: Tensor, other: Any) -> Any:
        if type(other) not in _READY and not isinstance(other, Tensor) and is_foreign(name, other):
            return declined(f"__{name}__", self, other)
        return method(self, other)

    operator.__doc__ = method.__doc__
    return operator


for _dunder, _original in _IN_PLACE_OPERATORS.items():
    _set(f"__{_dunder}__", _operator(_dunder, _in_place(TABLE[_original])))


for _name, _dunder_name in _DIVIDES.items():
    if _dunder_name is not None:
        _set(f"__{_dunder_name}__", _checked(binary(TABLE[_name], f"__{_dunder_name}__")))
        _reflected = binary(TABLE[_name], f"__r{_dunder_name}__", reflected=True)
        _set(f"__r{_dunder_name}__", _checked(_reflected, True))


# --- conversion -----------------------------------------------------------------------------------


def cast(input: Tensor, d: dtype) -> Tensor:
    """The tensor in another element type; itself if it has it."""
    if input._expr.program.dtype is d:
        return input
    return apply(TABLE["cast"], input, to=d)


_TO_FLAGS = ("non_blocking", "copy")
_TO_FORMS = {  # what the arguments of `to` are, by the first one
    "tensor": ("tensor", *_TO_FLAGS),
    "device": ("device", "dtype", *_TO_FLAGS),
    "dtype": ("dtype", *_TO_FLAGS),
}


def read_to(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[device | None, dtype | None, bool, bool, Any]:
    """What `Tensor.to` and `Module.to` are asked for.

    Returns
    -------
    device, dtype, non_blocking, copy, memory_format
        None where nothing is asked.

    Raises
    ------
    TypeError
        For arguments that are none of the three forms.
    """
    first = args[0] if args else kwargs.get("tensor")
    if isinstance(first, Tensor):
        form = "tensor"
    elif first is None or isinstance(first, (str, device, int)) and not isinstance(first, bool):
        form = "device"
    else:
        form = "dtype"
    names = _TO_FORMS[form]
    options: dict[str, Any] = dict(zip(names, args, strict=False))
    if (
        len(args) > len(names)
        or not options.keys().isdisjoint(kwargs)
        or not kwargs.keys() <= {*names, "memory_format"}
        or isinstance(first, (list, tuple, dict))
    ):
        raise _no_form(args, kwargs)
    options |= kwargs
    non_blocking, copy = options.get("non_blocking", False), options.get("copy", False)
    if type(non_blocking) is not bool or type(copy) is not bool:
        raise _no_form(args, kwargs)
    where, kind = options.get("device"), options.get("dtype")
    if form == "tensor":
        where, kind = first.device, first.dtype  # type: ignore[union-attr]
    if isinstance(kind, (Tensor, bool)):
        raise _no_form(args, kwargs)
    return (
        None if where is None else device(where),
        None if kind is None else as_dtype(kind),
        non_blocking,
        copy,
        options.get("memory_format"),
    )


def _no_form(args: tuple[Any, ...], kwargs: dict[str, Any]) -> TypeError:
    got = [type(a).__name__ for a in args] + [f"{k}={type(a).__name__}" for k, a in kwargs.items()]
    forms = ", ".join(f"({', '.join(names)}, memory_format)" for names in _TO_FORMS.values())
    return TypeError(
        f"to() received an invalid combination of arguments - got ({', '.join(got)}), but expected "
        f"one of: {forms}"
    )


def to(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """The elements in a dtype, on a device, both, or those of another tensor.

    Returns
    -------
    Tensor
        The same object where nothing has to change (and ``copy`` is False).

    Raises
    ------
    TypeError
        For other arguments.
    """
    if len(args) == 1 and type(args[0]) is dtype and not kwargs:  # nearly always
        return cast(input, args[0])
    wanted_device, wanted_dtype, non_blocking, copy, wanted_format = read_to(args, kwargs)
    result = input
    if wanted_dtype is not None:
        result = cast(result, wanted_dtype)
    if wanted_device is not None:
        from lucid_gpu.ops.transfer import to_device

        result = to_device(result, wanted_device, non_blocking)
    if wanted_format is not None and wanted_format is not preserve_format:
        from lucid_gpu.ops.memory_formats import in_format

        result = in_format(result, wanted_format)
    return result.clone() if copy and result is input else result


def _convert(d: dtype) -> Callable[..., Tensor]:
    def method(self: Tensor, memory_format: Any = None) -> Tensor:
        return cast(self, d) if memory_format is None else to(self, d, memory_format=memory_format)

    method.__doc__ = f"The elements as {d.name}."
    return method


_set("to", to)
for _type_name, _type in (*dt.ALIASES.items(), ("bool", dt.bool), ("bfloat16", dt.bfloat16)):
    _set(_type_name, _convert(_type))


def _type_as(self: Tensor, other: Tensor) -> Tensor:
    """The elements with another tensor's type, on its device."""
    return to(self, other)


def _numel(self: Tensor) -> int:
    """Number of elements."""
    n = 1
    for extent in self._expr.shape:
        n *= extent
    return n


def _zero_(self: Tensor) -> Tensor:
    """Fill with zeros, in place.

    RuntimeError for a leaf that requires grad.
    """
    return self._write(_tensor(zeros_like(self._expr)), "fill_")


def _fill_(self: Tensor, value: Any) -> Tensor:
    """Fill with a number (or a 0-d tensor), in place.

    RuntimeError for a tensor of one dimension or more.
    """
    if isinstance(value, Tensor):
        if value.ndim:
            raise RuntimeError(
                "fill_ only supports 0-dimension value tensor but got tensor with "
                f"{value.ndim} dimensions."
            )
        if self._expr.program.strided:
            refuse_overlap(self.array, "fill_")
        return self._write(_over(self, spread_copy(cast(value, self.dtype), self)), "fill_")
    program = self._expr.program
    number = number_in(value, program.dtype)
    filled = of_number(number, program.dtype, self._expr.shape, program.device)
    return self._write(_tensor(filled), "fill_")


def _copy_(self: Tensor, source: Any, non_blocking: bool = False) -> Tensor:
    """Take another tensor's values, broadcast and converted, in place.

    NotImplementedError for a sparse source; RuntimeError for a shape that does not broadcast to
    this one's.
    """
    if core is not None and core.copy(self, source):
        return self
    from lucid_gpu.ops.creation import as_tensor

    value = source if type(source) is Tensor else as_tensor(source)
    if value._is_sparse:
        raise NotImplementedError(
            "copy_() between dense and sparse Tensors is not implemented; the source is sparse: "
            "call .to_dense() first"
        )
    mine, theirs = self._expr.program, value._expr.program
    if mine.dtype is not theirs.dtype or mine.device is not theirs.device:
        value = to(value, dtype=self.dtype, device=self.device)
    theirs = value._expr.program
    told = theirs.needs_grad or value._wrapper is not None
    if theirs.strided and theirs.is_load and not (told or order_of(self._expr)):
        value = in_free_order(value)  # or the copy would lie as it does, and be copied again
    return self._write(_over(self, spread_copy(value, self)), "copy_")


def _over(old: Tensor, value: Tensor) -> Tensor:
    """The value that replaces another: the gradient of that one is zero, and not none."""
    both = old.requires_grad and value.requires_grad
    if not (both and is_grad_enabled()) or old._wrapper is not None or value._wrapper is not None:
        return value
    if old._base is not None:
        old = alias_to_write(old, "copy_")  # the hooks of a view do not see the write
    recorded: Tensor = record("CopyBackwards", value.detach(), (old, value), _over_vjp)
    return recorded


def _over_vjp(node: Any, g: Tensor) -> tuple[Tensor, Tensor]:
    return constant(0, g), g


def spread_copy(value: Tensor, like: Tensor) -> Tensor:
    """A value broadcast to another's shape, which shares neither writes nor history with it."""
    program = value._expr.program
    # an expanded one is shared, and what a level's tensor consists of may be
    row_major = value._wrapper is None and (not program.is_load or not program.strided)
    shape = like._expr.shape
    if value._expr.shape == shape and not program.needs_grad and row_major:
        own = value.alias()
        if not program.is_load:
            give(own, reread(own._expr))
        return own
    return apply(TABLE["identity"], value, shape=shape)


def _tolist(self: Tensor) -> Any:
    """The elements as nested lists of Python numbers."""
    backend(CPU).once("tolist()", READ_ONCE)
    array = self.detach().cpu().array
    return (array.astype("float64") if self.dtype is dt.bfloat16 else array).tolist()


def _dim(self: Tensor) -> int:
    """Number of dimensions."""
    return self.ndim


def _element_size(self: Tensor) -> int:
    """Bytes of an element."""
    return self.dtype.itemsize


def _is_floating_point(self: Tensor) -> bool:
    """Whether the elements are real floating point numbers."""
    return self.dtype.is_floating_point


def _is_complex(self: Tensor) -> bool:
    """Whether the elements are complex."""
    return self.dtype.is_complex


for _plain_name, _plain in (
    ("type_as", _type_as),
    ("nelement", _numel),
    ("numel", _numel),
    ("zero_", _zero_),
    ("fill_", _fill_),
    ("copy_", _copy_),
    ("tolist", _tolist),
    ("ndimension", _dim),
    ("dim", _dim),
    ("element_size", _element_size),
    ("is_floating_point", _is_floating_point),
    ("is_complex", _is_complex),
):
    _set(_plain_name, _plain)


def _nbytes(self: Tensor) -> int:
    """Bytes of all elements."""
    return self.numel() * self.dtype.itemsize


def _itemsize(self: Tensor) -> int:
    """Bytes of an element."""
    return self.dtype.itemsize


def _is_cuda(self: Tensor) -> bool:
    """Whether it is on a GPU."""
    return self.device.type == "cuda"


def _is_cpu(self: Tensor) -> bool:
    """Whether it is in host memory."""
    return self.device.type == "cpu"


def _is_meta(self: Tensor) -> bool:
    """Whether it has no elements."""
    return self.device.type == "meta"


_GETTERS = (_nbytes, _itemsize, _is_cuda, _is_cpu, _is_meta)
attach(Tensor, **{getter.__name__[1:]: property(getter) for getter in _GETTERS})
