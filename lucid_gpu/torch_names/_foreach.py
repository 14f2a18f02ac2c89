"""The family ``torch._foreach_*``: one op over a list of tensors; third-party optimizers call it.

In place, on float32 or float64 tensors that nothing records, a call is one kernel for the tensors
of a type on a device. Elsewhere each tensor's op is called, and fuses as it does anywhere.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from numbers import Number
from typing import Any

import lucid_gpu
from lucid_gpu import Tensor, float32, float64
from lucid_gpu.ops.foreach import update_in_place
from lucid_gpu.ops.in_place import before_write
from lucid_gpu.ops.strides import place_of
from lucid_gpu.tape.modes import is_grad_enabled

__all__ = ["FUNCTIONS"]

Tensors = Sequence[Tensor]

UNARY = (
    *("abs", "acos", "asin", "atan", "ceil", "cos", "cosh", "erf", "erfc", "exp", "expm1", "floor"),
    *("frac", "lgamma", "log", "log10", "log1p", "log2", "neg", "reciprocal", "round", "rsqrt"),
    *("sigmoid", "sign", "sin", "sinh", "sqrt", "tan", "tanh", "trunc"),
)
BINARY = ("add", "sub", "mul", "div", "clamp_min", "clamp_max", "maximum", "minimum", "pow")
TERNARY = ("addcmul", "addcdiv", "lerp")
_AS = {"clamp_min": "maximum", "clamp_max": "minimum"}  # beside tensors


def _column(name: str, operand: Any, tensors: Tensors) -> list[Any]:
    """One operand a tensor: of a list each its own, of a number or a tensor the same."""
    if isinstance(operand, Tensor) and not operand.requires_grad and name not in ("mul", "div"):
        # a number to PyTorch, whose type counts for nothing beside that of a tensor of one
        same = operand.dtype  # a number would say no more, and a GPU would wait
        return [operand if t.ndim or t.dtype is same else operand.item() for t in tensors]
    if isinstance(operand, (Number, Tensor)):
        return [operand] * len(tensors)
    column = list(operand)
    if len(column) != len(tensors):
        raise RuntimeError(
            f"_foreach_{name}: Tensor list must have same number of elements as scalar list or "
            f"tensor list, got {len(tensors)} and {len(column)}"
        )
    return column


def _operands(
    name: str, given: Sequence[Any], named: dict[str, Any], words: Sequence[str]
) -> list[Any]:
    """What stands after the list of tensors, by place or by one of the words for it.

    Of a word with a default, `value=1`, that is taken where nothing is given.
    """
    operands = [*given]
    for choices in words[len(given) :]:
        names, _, default = choices.partition("=")
        found = [word for word in names.split() if word in named]
        if not found and not default:
            raise TypeError(f"_foreach_{name}() missing an argument: {' or '.join(names.split())}")
        operands.append(named.pop(found[0]) if found else int(default))
    if named or len(operands) > len(words):
        raise TypeError(
            f"_foreach_{name}() takes {', '.join(words)}; got {len(given)} by place"
            + "".join([f" and {word}=" for word in named])
        )
    return operands


def _checked(name: str, tensors: Any) -> list[Tensor]:
    listed = list(tensors)
    if not listed:
        raise RuntimeError(f"_foreach_{name}: Tensor list must have at least one tensor.")
    return listed


def _op(name: str, operand: Any) -> Callable[..., Any]:
    called = _AS.get(name, name) if isinstance(operand, Tensor) else name
    if called in ("maximum", "minimum") and not isinstance(operand, Tensor):
        called = "clamp_min" if called == "maximum" else "clamp_max"
    function: Callable[..., Any] = getattr(lucid_gpu, called)
    return function


def _put(t: Tensor, name: str, op: Callable[..., Tensor], *operands: Any, **named: Any) -> None:
    """Write as the op's in-place form does, which refuses a result of a higher type."""
    before = before_write(t, f"{name}_", *operands, *named.values())
    t._write(op(before, *operands, **named), f"{name}_")


def _together(tensors: Tensors, *columns: Sequence[Any]) -> bool:
    """Whether all can be written by one kernel: of one shape a row, and nothing is recorded."""
    rows = list(zip(tensors, *columns))
    if not all(
        isinstance(t, Tensor)
        and t.dtype is row[0].dtype
        and t.shape == row[0].shape
        and t.device == row[0].device
        and t.layout == lucid_gpu.strided
        for row in rows
        for t in row
    ):
        return False
    if is_grad_enabled() and any(t.requires_grad for row in rows for t in row):
        return False
    return all(t.dtype in (float32, float64) for t in tensors) and _apart(tensors, columns)


def _apart(tensors: Tensors, columns: Sequence[Tensors]) -> bool:
    """Whether no memory that is written is written or read by another element's thread."""
    spans = sorted([_span(t) for t in tensors if t.numel()])
    starts, ends = [start for start, _ in spans], [end for _, end in spans]
    if any(end > start for end, start in zip(ends, starts[1:])):
        return False
    for column in columns:
        for written, read in zip(tensors, column):
            start, end = _span(read)
            after = bisect_left(starts, end)  # those from here on begin behind it
            itself = start == place_of(written) and read.stride() == written.stride()
            if after and ends[after - 1] > start and not itself:
                return False
    return True


def _span(t: Tensor) -> tuple[int, int]:
    """The first address of a tensor's memory, and the first behind it."""
    start = place_of(t)
    reach = sum([(n - 1) * s for n, s in zip(t.shape, t.stride())])
    return start, start + (reach + 1) * t.element_size()


def _rule_of(name: str) -> Callable[..., tuple[Tensor, ...]]:
    """What becomes of a row of tensors."""
    cached = _RULES.get(name)
    if cached is None:

        def rule(*row: Tensor, number: Any = None, alpha: Any = None) -> tuple[Tensor, ...]:
            operands: tuple[Any, ...] = row if number is None else (*row, number)
            if name in ("addcmul", "addcdiv"):
                first, second, third = row
                product = second * third if name == "addcmul" else second / third
                return (first + product * (1 if number is None else number),)
            if alpha is not None:
                operands = (row[0], operands[1] * alpha)
            called = _AS.get(name, name)
            return (getattr(lucid_gpu, called)(*operands),)

        rule.__name__ = f"{name}_"
        cached = _RULES[name] = rule
    return cached


_RULES: dict[str, Callable[..., tuple[Tensor, ...]]] = {}


def _unary(name: str) -> None:
    def call(self: Any) -> tuple[Tensor, ...]:
        return tuple([getattr(lucid_gpu, name)(t) for t in _checked(name, self)])

    def write(self: Any) -> None:
        tensors = _checked(name, self)
        if _together(tensors):
            update_in_place(_rule_of(name), [(t,) for t in tensors], 1)
            return
        for t in tensors:
            getattr(t, f"{name}_")()

    _publish(name, call, write)


def _binary(name: str) -> None:
    words = ("exponent",) if name == "pow" else ("other scalar scalars",)

    def split(given: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        alpha = {"alpha": named.pop("alpha")} if name in ("add", "sub") and "alpha" in named else {}
        return _operands(name, given, named, words)[0], alpha

    def call(self: Any, *given: Any, **named: Any) -> tuple[Tensor, ...]:
        other, alpha = split(given, named)
        if name == "pow" and isinstance(self, Number):
            return tuple([lucid_gpu.pow(self, e) for e in _checked(name, other)])
        tensors = _checked(name, self)
        column = _column(name, other, tensors)
        return tuple([_op(name, o)(t, o, **alpha) for t, o in zip(tensors, column)])

    def write(self: Any, *given: Any, **named: Any) -> None:
        other, alpha = split(given, named)
        tensors = _checked(name, self)
        column = _column(name, other, tensors)
        refused = name == "sub" and isinstance(other, bool)
        if isinstance(other, (int, float)) and not refused and _together(tensors):
            number = other * alpha.get("alpha", 1)
            update_in_place(_rule_of(name), [(t,) for t in tensors], 1, {"number": number})
            return
        if _together(tensors, column):
            update_in_place(_rule_of(name), list(zip(tensors, column)), 1, alpha or None)
            return
        for t, o in zip(tensors, column):
            _put(t, name, _op(name, o), o, **alpha)

    _publish(name, call, write)


def _ternary(name: str) -> None:
    words = (
        ("tensors1", "weight weights")
        if name == "lerp"
        else ("tensor1", "tensor2", "value scalars=1")
    )

    def split(tensors: Tensors, given: Any, named: Any) -> tuple[list[list[Any]], list[Any]]:
        *lists, numbers = _operands(name, given, named, words)
        if isinstance(numbers, Tensor) and name != "lerp":
            numbers = numbers.tolist()
        return [_column(name, one, tensors) for one in lists], _column(name, numbers, tensors)

    def one(t: Tensor, operands: Sequence[Any], number: Any) -> Tensor:
        if name == "lerp":
            return lucid_gpu.lerp(t, operands[0], number)
        result: Tensor = getattr(lucid_gpu, name)(t, *operands, value=number)
        return result

    def call(self: Any, *given: Any, **named: Any) -> tuple[Tensor, ...]:
        tensors = _checked(name, self)
        lists, numbers = split(tensors, given, named)
        return tuple([one(t, o, n) for t, o, n in zip(tensors, zip(*lists), numbers)])

    def write(self: Any, *given: Any, **named: Any) -> None:
        tensors = _checked(name, self)
        lists, numbers = split(tensors, given, named)
        same = isinstance(numbers[0], (int, float)) and all(n == numbers[0] for n in numbers)
        if same and _together(tensors, *lists):
            number = {"number": numbers[0]}
            update_in_place(_rule_of(name), list(zip(tensors, *lists)), 1, number)
            return
        for t, o, n in zip(tensors, zip(*lists), numbers):
            _put(t, name, one, o, n)

    _publish(name, call, write)


FUNCTIONS: dict[str, Callable[..., Any]] = {}


def _publish(name: str, call: Callable[..., Any], write: Callable[..., Any]) -> None:
    for function, full in ((call, f"_foreach_{name}"), (write, f"_foreach_{name}_")):
        function.__name__ = function.__qualname__ = full
        FUNCTIONS[full] = function


def _foreach_norm(self: Any, ord: float = 2, dtype: Any = None) -> tuple[Tensor, ...]:
    """The norm of each tensor."""
    return tuple(
        [lucid_gpu.linalg.vector_norm(t, ord, dtype=dtype) for t in _checked("norm", self)]
    )


def _foreach_powsum(self: Any, ord: float = 2, dtype: Any = None) -> tuple[Tensor, ...]:
    """The sum of the powers of the absolute values of each tensor."""
    return tuple([t.abs().pow(ord).sum(dtype=dtype) for t in _checked("powsum", self)])


def _foreach_max(self: Any) -> tuple[Tensor, ...]:
    """The largest element of each tensor."""
    return tuple([t.max() for t in _checked("max", self)])


def _foreach_clone(self: Any, *, memory_format: Any = None) -> tuple[Tensor, ...]:
    """A copy of each tensor."""
    return tuple([t.clone() for t in _checked("clone", self)])


def _foreach_zero_(self: Any) -> None:
    """Write zeros into each tensor."""
    for t in _checked("zero_", self):
        t.zero_()


def _foreach_copy_(self: Any, src: Any, non_blocking: bool = False) -> Any:
    """Write each tensor's source into it."""
    tensors = _checked("copy_", self)
    for t, s in zip(tensors, _column("copy_", src, tensors)):
        t.copy_(s, non_blocking)
    return self


def _foreach_mm(self: Any, mat2: Any) -> tuple[Tensor, ...]:
    """The product of each pair of matrices."""
    tensors = _checked("mm", self)
    return tuple([t.mm(m) for t, m in zip(tensors, _column("mm", mat2, tensors))])


for _name in UNARY:
    _unary(_name)
for _name in BINARY:
    _binary(_name)
for _name in TERNARY:
    _ternary(_name)
for _function in (
    _foreach_norm,
    _foreach_powsum,
    _foreach_max,
    _foreach_clone,
    _foreach_zero_,
    _foreach_copy_,
    _foreach_mm,
):
    FUNCTIONS[_function.__name__] = _function
