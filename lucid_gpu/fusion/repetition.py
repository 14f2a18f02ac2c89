"""Loops that leave their values pending: finding the turns that lie behind in such a program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from lucid_gpu.core.program import Instruction

__all__ = ["Turns", "turns_behind"]

_INPUTS = ("load", "scalar", "constant", "index")  # computed by no op
# left out where one is the second operand of what is pending
_BY_ONE = ("mul", "div", "pow", "root")


class Turns(NamedTuple):
    """Equal turns of a loop that a program holds.

    Attributes
    ----------
    behind : int
        How many there are, the last perhaps not whole.
    ops : int
        Ops of a turn that are not the same in every turn.
    length : int
        Instructions that a turn adds.
    numbers : int
        Arguments that a turn adds.
    bring_arrays : bool
        Whether each reads an array of its own.
    """

    behind: int
    ops: int
    length: int
    numbers: int
    bring_arrays: bool


def turns_behind(instructions: Sequence[Instruction]) -> Turns | None:
    """The turns of a loop that lie before the last instruction, where that begins another one.

    It does where two equal turns lie behind it, and the first of them began with it on values that
    were given.
    """
    cones = _cones(instructions)
    last = len(instructions) - 1
    before = _earlier(instructions, cones, last)
    if before is None:
        return None
    first = _earlier(instructions, cones, before)
    if first is None:
        return None
    turns, start = 2, first
    while (earlier := _earlier(instructions, cones, start)) is not None:
        turns, start = turns + 1, earlier
    if any(not _is_input(instructions, a) for a in instructions[start].args):
        return None
    onward = sum([1 << i for i, cone in enumerate(cones) if cone >> start & 1])
    now = cones[last] & ~cones[before]
    turn = _steps(instructions, now & onward)  # what is the same in every turn is computed once
    if turn != _steps(instructions, cones[before] & ~cones[first] & onward):
        return None
    added = [ins.op for i, ins in enumerate(instructions) if now >> i & 1]
    return Turns(turns, sum(turn.values()), len(added), added.count("scalar"), "load" in added)


def _cones(instructions: Sequence[Instruction]) -> list[int]:
    """For each instruction the set, as bits, of those that it depends on, with itself."""
    result: list[int] = []
    for i, ins in enumerate(instructions):
        cone = 1 << i
        for a in ins.args:
            cone |= result[a]
        result.append(cone)
    return result


def _earlier(instructions: Sequence[Instruction], cones: Sequence[int], at: int) -> int | None:
    """The last instruction that this one depends on and that does the same."""
    wanted = _sort(instructions, at)
    for i in range(at - 1, -1, -1):
        if cones[at] >> i & 1 and _sort(instructions, i) == wanted:
            return i
    return None


def _sort(instructions: Sequence[Instruction], at: int) -> Any:
    """What an instruction does; numbers among its operands may be others in every turn."""
    ins = instructions[at]
    numbers = [instructions[a].op in ("constant", "scalar") for a in ins.args]
    return ins.op, ins.dtype, ins.shape, tuple(numbers)


def _is_input(instructions: Sequence[Instruction], at: int) -> bool:
    """Whether a value is read or known: constants may be spread over a shape, arrays times one."""
    ins = instructions[at]
    if ins.op == "identity" or (ins.op in _BY_ONE and _is_one(instructions[ins.args[1]])):
        return _is_input(instructions, ins.args[0])
    return ins.op in _INPUTS


def _is_one(ins: Instruction) -> bool:
    return ins.op == "constant" and bool(ins.value[1] == 1)


def _steps(instructions: Sequence[Instruction], which: int) -> Counter[Any]:
    """How often each sort of op is among some instructions."""
    chosen = [i for i in range(len(instructions)) if which >> i & 1]
    return Counter([_sort(instructions, i) for i in chosen if not _is_input(instructions, i)])
