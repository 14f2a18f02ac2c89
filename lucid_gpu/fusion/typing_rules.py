"""Which types and shapes an op takes and gives: PyTorch's rules, checked once a program."""

from __future__ import annotations

from collections.abc import Sequence

from lucid_gpu import dtypes as dt
from lucid_gpu.dtypes import dtype, promote_types, result_type
from lucid_gpu.fusion.optable import Op

Operand = tuple[dtype, int, bool]  # type, number of dimensions, is it a Python number


def broadcast_shapes(shapes: Sequence[tuple[int, ...]], what: str = "") -> tuple[int, ...]:
    """The shape NumPy's broadcasting gives.

    Raises
    ------
    RuntimeError
        With PyTorch's sentence and the operands' shapes.
    """
    result: list[int] = []
    rank = max(map(len, shapes), default=0)
    for k in range(1, rank + 1):
        extents = {s[-k] for s in shapes if len(s) >= k} - {1}
        if len(extents) > 1:
            sizes = [s[-k] if len(s) >= k else 1 for s in shapes]
            a = next(n for n in sizes if n != 1)
            b = next(n for n in sizes if n not in (1, a))
            raise RuntimeError(
                f"The size of tensor a ({a}) must match the size of tensor b ({b}) at "
                f"non-singleton dimension {rank - k}"
                + (f"; {what} got shapes {' and '.join(str(list(s)) for s in shapes)}")
            )
        result.append(extents.pop() if extents else 1)
    return tuple(reversed(result))


def _promoted(operands: Sequence[Operand]) -> dtype:
    tensors = [(d, n) for d, n, number in operands if not number]
    return result_type(tensors, [d for d, _, number in operands if number])


def types_of(op: Op, operands: Sequence[Operand]) -> tuple[list[dtype], dtype]:
    """The type each operand is converted to, and the type of the result.

    Raises
    ------
    RuntimeError, TypeError
        If PyTorch refuses the op for these types.
    """
    rule = op.rule
    if rule == "cast" or rule == "identity" or rule == "test":
        return [operands[0][0]], dt.bool if rule == "test" else operands[0][0]
    if rule == "logical":
        return [dt.bool] * len(operands), dt.bool
    if rule == "select":
        condition, *values = operands
        if condition[0] is not dt.bool:
            raise RuntimeError(
                f"where expected condition to be a boolean tensor, but got a tensor with dtype "
                f"{condition[0]}"
            )
        common = _promoted(values)
        return [dt.bool, *_kept(common, values)], common
    if rule == "draw":
        return [dt.int64] * 3 + [d for d, _, _ in operands[3:]], dt.float32
    common = _promoted(operands)
    _refuse(op, common)
    if op.name == "sub" and any(d is dt.bool for d, _, _ in operands):
        raise RuntimeError(_NO_BOOL["sub of one"])
    if rule == "float" and common.category < 2:
        common = dt.get_default_dtype()
    if op.name == "square" and common is dt.bool:  # x ** 2, where 2 is an integer
        common = dt.int64
    if rule == "compare":
        return [common] * len(operands), dt.bool
    if rule == "abs":
        real = {dt.complex64: dt.float32, dt.complex128: dt.float64}.get(common, common)
        return [common], real
    if op.name in BY_STEPS:
        types = [common] * len(operands)
        return types[:-1] + _kept(common, operands[-1:]) if op.name in QUOTIENTS else types, common
    return _kept(common, operands), common


def _kept(common: dtype, operands: Sequence[Operand]) -> list[dtype]:
    """The types that operands are read in: one number of another type is not cut to 16 bits."""
    wide = common.compute
    if wide is common:
        return [common] * len(operands)
    kept = [not (n or number or d is common) for d, n, number in operands]
    return [wide if k else common for k in kept]


# A last digit of what they read decides on a whole unit of their results.
STEPS = ("floor", "ceil", "round", "trunc", "sign", "sgn", "floor_divide", "truncated_quotient",
         "fmod", "remainder")  # fmt: skip
QUOTIENTS = ("floor_divide", "truncated_quotient")  # whose divisor, if a number, is not rounded
BY_STEPS = (*STEPS, "pow", "clamp_min", "clamp_max")  # of which other numbers are rounded


_NO_BOOL = {
    "neg": "Negation, the `-` operator, on a bool tensor is not supported. If you are trying to "
    "invert a mask, use the `~` or `logical_not()` operator instead.",
    "sub": "Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or "
    "`logical_xor()` operator instead.",
    "sub of one": "Subtraction, the `-` operator, with a bool tensor is not supported. If you are "
    "trying to invert a mask, use the `~` or `logical_not()` operator instead.",
}
_NO_COMPLEX = frozenset(
    [
        "lt",
        "le",
        "gt",
        "ge",
        "maximum",
        "minimum",
        "clamp_min",
        "clamp_max",
        "raised",
        "bent",
        "capped",
        "floor",
        "ceil",
        "trunc",
        "round",
        "floor_divide",
        "truncated_quotient",
        "remainder",
        "fmod",
        "atan2",
        "hypot",
        "copysign",
        "relu",
        "erf",
        "erfc",
        "sign",
        "entr",
        "erfcx",
        "erfinv",
        "gelu_tanh",
        "gelu_tanh_slope",
        "hardswish",
        "i0",
        "i0e",
        "i1",
        "i1e",
        "ndtri",
        "lgamma",
        "digamma",
        "trigamma",
        "xlogy",
        "zeta",
    ]
)


# PyTorch has no kernels of these for bools; of the last two none for integers either.
_NOT_FOR_BOOL = frozenset(
    [
        "abs",
        "relu",
        "floor",
        "ceil",
        "round",
        "trunc",
        "pow",
        "remainder",
        "fmod",
        "floor_divide",
        "bitwise_left_shift",
        "bitwise_right_shift",
        "hypot",
        "logaddexp",
    ]
)
_FLOATS_ONLY = ("hypot", "logaddexp")


def _refuse(op: Op, common: dtype) -> None:
    unknown = common is dt.bool and op.name in _NOT_FOR_BOOL
    if unknown or (op.name in _FLOATS_ONLY and common.category < 2):
        raise dt.unimplemented(op.name, common)
    if op.rule == "bitwise" and common.category > 1:
        raise dt.unimplemented(f"{op.name}_cpu", common, "; give integers")
    if op.name in _NO_BOOL and common is dt.bool:
        raise RuntimeError(_NO_BOOL[op.name])
    if op.name in _NO_COMPLEX and common.is_complex:
        raise NotImplementedError(f"{op.name} is not implemented for complex tensors, got {common}")


def refusals(op: Op) -> str:
    """Which types a row refuses, in a sentence for its docstring."""
    name = op.name
    kinds = ["integers"] if name in _FLOATS_ONLY else []
    kinds += ["floating point"] if op.rule == "bitwise" else []
    kinds += ["bool"] if name in _NOT_FOR_BOOL else []
    kinds += ["complex"] if name in _NO_COMPLEX or op.rule == "bitwise" else []
    if kinds:
        return f" NotImplementedError for {', '.join(kinds)}."
    return " RuntimeError for bool." if name in _NO_BOOL else ""


__all__ = ["broadcast_shapes", "promote_types", "refusals", "types_of"]
