"""An op appended to a program that is being assembled, with the conversions its operands need."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from lucid_gpu.core.program import SPREAD, Assembly, Instruction, constant_value
from lucid_gpu.dtypes import bfloat16, dtype, float16, iinfo, overflow, scalar_type
from lucid_gpu.fusion.optable import Op
from lucid_gpu.fusion.typing_rules import QUOTIENTS, STEPS, broadcast_shapes, types_of

__all__ = ["Number", "Slot", "emit", "fits", "shape_of"]


class Slot(int):
    """A scalar operand passed as the leaf of this number; ``weak`` is its Python number's type."""

    weak: dtype

    def __new__(cls, leaf: int, weak: dtype) -> Slot:
        self = super().__new__(cls, leaf)
        self.weak = weak
        return self


class Number:
    """A Python number as an operand."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def emit(
    assembly: Assembly,
    op: Op,
    operands: Sequence[Any],
    grad: bool | None,
    to: dtype | None = None,
    shape: tuple[int, ...] | None = None,
    plainly: bool = False,
    value: Any = None,
) -> int:
    """Append an op to a program, with the conversions its operands need.

    Parameters
    ----------
    operands : sequence of int, Number or Slot
        An instruction's number, a Python number, or a scalar passed as a leaf.
    grad : bool or None
        Whether the result may require grad; None where it would, were it recorded.
    to, shape
        The type of a cast; the shape of an identity that broadcasts.
    plainly : bool
        Append the op even where it changes nothing.
    value
        Of the instruction: which operands tell its order, if not all in their order.
    """
    known = assembly.instructions
    described = [_describe(known, o) for o in operands]
    types, result = types_of(op, described)
    if op.name == "pow" and type(operands[1]) is Number and result.category == 1:
        _refuse_exponent(operands[1].value, result)
    if to is not None:
        result = to
    shape = shape_of(tuple([known[o].shape for o in operands if type(o) is int]), op.name, shape)
    args = tuple([_coerce(assembly, o, t, grad) for o, t in zip(operands, types, strict=True)])
    if op.rule in ("compare", "test"):
        args = tuple([as_stored(assembly, a) for a in args])
    elif op.name in ("clamp_min", "clamp_max"):
        numbers = [known[a].op in ("constant", "scalar") for a in args]
        args = tuple([as_stored(assembly, a) if n else a for a, n in zip(args, numbers)])
    elif op.name in STEPS:
        numbers = [known[a].op in ("constant", "scalar") for a in args]
        kept = [n and not _is_cut(known[a]) for a, n in zip(args, numbers)]
        kept[-1] = kept[-1] or (numbers[-1] and op.name in QUOTIENTS)
        args = tuple([a if k else as_stored(assembly, a) for a, k in zip(args, kept)])
    elif op.name == "pow":
        args = tuple([as_stored(assembly, a) if _is_cut(known[a]) else a for a in args])
    elif op.name == "cast" and known[args[0]].dtype is not result:
        args = (as_stored(assembly, args[0]),)
    needs = _needs_grad(grad, op.differentiable, result, [known[a].needs_grad for a in args])
    same = None if plainly else _simpler(assembly, op, args, result, shape, needs)
    if same is not None:
        return same
    if op.name == "identity" and known[args[0]].shape != shape:
        value = SPREAD
    return assembly.append(Instruction(op.name, args, result, shape, needs, value))


@functools.lru_cache(1 << 13)
def shape_of(
    operands: tuple[tuple[int, ...], ...], name: str, wanted: tuple[int, ...] | None = None
) -> tuple[int, ...]:
    """The shape of an op's result, which is ``wanted`` where that is given."""
    if wanted is None:
        return broadcast_shapes(operands, name)
    if broadcast_shapes([wanted, *operands], name) != wanted:
        own = list(operands[0])
        raise RuntimeError(f"a tensor of shape {own} does not broadcast to {list(wanted)}")
    return wanted


def _needs_grad(
    grad: Any, differentiable: bool, result: dtype, operands: list[bool | None]
) -> bool | None:
    """None for what would need a gradient, were it recorded (inside `Function.forward`)."""
    if grad is False or not differentiable or result.category < 2:
        return False
    if grad is None:
        return None if None in operands or True in operands else False
    return True in operands


def _refuse_exponent(exponent: Any, d: dtype) -> None:
    if exponent > iinfo(d).max:
        raise overflow(d)
    if exponent < 0:
        raise RuntimeError(
            "Integers to negative integer powers are not allowed. Write x.float() ** "
            f"{exponent} for fractions."
        )


def _describe(known: list[Instruction], operand: Any) -> tuple[dtype, int, bool]:
    if type(operand) is int:
        return known[operand].dtype, len(known[operand].shape), False
    if type(operand) is Slot:
        return operand.weak, 0, True
    return scalar_type(operand.value), 0, True


def _coerce(assembly: Assembly, operand: Any, wanted: dtype, grad: bool | None) -> int:
    if type(operand) is int:
        have = assembly.instructions[operand]
        if have.dtype is wanted:
            return operand
        needs = _needs_grad(grad, True, wanted, [have.needs_grad])
        kept = as_stored(assembly, operand)
        return assembly.append(Instruction("cast", (kept,), wanted, have.shape, needs))
    if type(operand) is Slot:
        return assembly.append(Instruction("scalar", (), wanted, (), False, int(operand)))
    number = operand.value
    if wanted.category == 1 and not fits(number):
        raise OverflowError(f"value {number} cannot be converted to type {wanted.name}")
    return assembly.append(Instruction("constant", (), wanted, (), False, constant_value(number)))


_STORED = ("load", "cast")  # what has the values that its type can hold
# what has them where its operand has
_EXACT = ("identity", "boundary", "operand", "piecewise", "tied", "retied", "neg", "abs", "relu")


def as_stored(assembly: Assembly, index: int) -> int:
    """A 16-bit value as it would be stored, not as it is computed.

    So are values that become another type, are compared or tested, are read by a function with
    steps (`STEPS`), or were written in place, and numbers as bounds and exponents.
    """
    have = assembly.instructions[index]
    if have.dtype not in (float16, bfloat16):
        return index
    source = have
    while source.op in _EXACT:
        source = assembly.instructions[source.args[0]]
    if source.op in _STORED:
        return index
    return assembly.append(Instruction("cast", (index,), have.dtype, have.shape, have.needs_grad))


SUMS = ("add", "sub")


def sum_as_stored(assembly: Assembly, index: int) -> int:
    """A 16-bit sum as it would be stored, where it is an operand of another one.

    What a sum lost by rounding is the difference between it and its operands (W. Kahan, "Further
    remarks on reducing truncation errors", 1965). Products are not rounded: those of `lerp`,
    `addcmul` and ``alpha=`` are not, in PyTorch.
    """
    source = assembly.instructions[index]
    while source.op in ("identity", "neg"):
        source = assembly.instructions[source.args[0]]
    return as_stored(assembly, index) if source.op in SUMS else index


def _is_cut(instruction: Instruction) -> bool:
    """Whether this is a number that its 16-bit type may not hold."""
    d = instruction.dtype
    if instruction.op != "constant" or d not in (float16, bfloat16):
        return instruction.op == "scalar"
    number = float(instruction.value[1])
    return float(d.numpy.type(number)) != number


def _simpler(
    assembly: Assembly,
    op: Op,
    args: tuple[int, ...],
    result: dtype,
    shape: tuple[int, ...],
    needs: bool | None,
) -> int | None:
    """An operand that already equals the result: ``x * 1``, ``x / 1``, ``x ** 1``."""
    name = op.name
    if name == "mul" and _is_one(assembly, args[0]):
        args = (args[1], args[0])
    elif name not in ("mul", "div", "root") and (name != "pow" or needs):
        return None  # the derivative of a power that is recorded is another power
    if not _is_one(assembly, args[1]):
        return None
    kept = assembly.instructions[args[0]]
    if (kept.dtype, kept.shape, kept.needs_grad) == (result, shape, needs):
        return args[0]
    return None


def _is_one(assembly: Assembly, index: int) -> bool:
    """Is this the constant 1, possibly broadcast?"""
    instruction = assembly.instructions[index]
    while instruction.op == "identity":
        instruction = assembly.instructions[instruction.args[0]]
    return instruction.op == "constant" and bool(instruction.value[1] == 1)


def fits(number: int) -> bool:
    """Whether some type of whole numbers holds it."""
    return -(2**63) <= number < 2**64
