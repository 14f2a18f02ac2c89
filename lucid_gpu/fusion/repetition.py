"""Loops that leave their values pending: where such a program is cut.

A loop whose values nobody reads between its turns builds one program over many turns. Where that
is cut is decided by what repeats, not by where the limit happens to fall, so that every cut comes
at the same place of a turn and the loop runs the same kernels again and again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from lucid_gpu.fusion.program import Instruction

__all__ = ["IN_A_PASS", "TURNS", "ends_a_turn"]

SUMMED = 4  # turns of one op that each bring in an array: a sum of losses
TURNS = 2  # ... of more ops
IN_A_PASS = 8  # ... of more ops in a pass back on the CPU: all turns lie within one step
_GIVEN = ("load", "scalar", "constant", "index")  # computed by no op
_BY_ONE = ("mul", "div", "pow")  # left out where one is the second operand of what is pending


def ends_a_turn(
    instructions: Sequence[Instruction], limit: int, most_leaves: int, most: int = TURNS
) -> bool:
    """Whether the operands of the last instruction should be stored before it is computed.

    It begins a turn of a loop where two equal turns lie behind it, and the first of them began with
    it on values that were given. Turns that each bring in an array of their own are stored after
    ``most`` (after four, where a turn is a single op); turns that go on computing on the same
    arrays when the next whole one would exceed ``limit`` instructions or ``most_leaves`` leaves.
    """
    cones = _cones(instructions)
    last = len(instructions) - 1
    before = _earlier(instructions, cones, last)
    if before is None:
        return False
    first = _earlier(instructions, cones, before)
    if first is None:
        return False
    turns, start = 2, first
    while (earlier := _earlier(instructions, cones, start)) is not None:
        turns, start = turns + 1, earlier
    if any(not _given(instructions, a) for a in instructions[start].args):
        return False
    onward = sum([1 << i for i, cone in enumerate(cones) if cone >> start & 1])
    now = cones[last] & ~cones[before]
    turn = _steps(instructions, now & onward)  # what is the same in every turn is computed once
    if turn != _steps(instructions, cones[before] & ~cones[first] & onward):
        return False
    added = [ins.op for i, ins in enumerate(instructions) if now >> i & 1]
    if "load" in added:
        return turns >= (most if sum(turn.values()) > 1 else max(most, SUMMED))
    leaves = [ins.op for ins in instructions if ins.op in ("load", "scalar")]
    too_long = len(instructions) + len(added) > limit
    return too_long or len(leaves) + added.count("scalar") > most_leaves


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


def _given(instructions: Sequence[Instruction], at: int) -> bool:
    """Whether a value is read or known: constants may be spread over a shape, arrays times one."""
    ins = instructions[at]
    if ins.op == "identity" or (ins.op in _BY_ONE and _is_one(instructions[ins.args[1]])):
        return _given(instructions, ins.args[0])
    return ins.op in _GIVEN


def _is_one(ins: Instruction) -> bool:
    return ins.op == "constant" and bool(ins.value[1] == 1)


def _steps(instructions: Sequence[Instruction], which: int) -> Counter[Any]:
    """How often each sort of op is among some instructions."""
    chosen = [i for i in range(len(instructions)) if which >> i & 1]
    return Counter([_sort(instructions, i) for i in chosen if not _given(instructions, i)])
