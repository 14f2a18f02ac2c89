"""What the user's own line does with a proxy, and where it stands.

PyTorch's contract needs the caller here: ``a, b = proxy`` takes as many parts as there are names on
its left, which only the calling instruction tells, and ``fx.wrap("name")`` means a global of the
module that calls it. Nothing of a frame is kept or changed.
"""

from __future__ import annotations

import dis
import inspect
from types import FrameType
from typing import Any

__all__ = ["is_asserted", "top_level", "unpacked"]


def _caller() -> FrameType:
    """The frame that called the function that called one of this file's."""
    frame = inspect.currentframe()
    for _ in range(3):
        frame = frame.f_back if frame is not None else None
    assert frame is not None
    return frame


def _instructions(frame: FrameType) -> list[dis.Instruction]:
    """The instruction that a frame is at, and all that follow."""
    code = list(dis.get_instructions(frame.f_code))
    return [step for step in code if step.offset >= frame.f_lasti]


def unpacked() -> int | None:
    """How many names the caller's caller unpacks a value to; None where it does another thing."""
    step = _instructions(_caller())[0]
    return step.argval if step.opname == "UNPACK_SEQUENCE" else None


def is_asserted() -> bool:
    """Whether the caller's caller asks for a truth value in ``assert``."""
    steps = _instructions(_caller())
    following = [s for s in steps[:4] if s.opname not in ("CACHE", "NOT_TAKEN", "EXTENDED_ARG")]
    jump, first = following[0], following[1]
    if jump.opname == "TO_BOOL":
        jump, first = following[1], following[2]
    return "JUMP" in jump.opname and "AssertionError" in (str(first.argval), str(first.argrepr))


def top_level() -> dict[str, Any]:
    """The globals of the module that the caller's caller is the top level of.

    Raises
    ------
    NotImplementedError
        Inside of a function.
    """
    frame = _caller()
    if frame.f_code.co_name != "<module>":
        raise NotImplementedError("wrap must be called at the top level of a module")
    return frame.f_globals
