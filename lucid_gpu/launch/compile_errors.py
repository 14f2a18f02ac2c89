"""A compiler's refusal, told with the line it refuses."""

from __future__ import annotations

import re

from lucid_gpu.devices.cuda_errors import Telling
from lucid_gpu.launch.failures import kernel_and_work

__all__ = ["CompileError"]

# NVRTC writes `file(12): error: ...`, g++ `file:12:5: error: ...`.
_LOCATION = re.compile(
    r"^(?P<file>[^\s(:]+)(?:\((?P<a>\d+)\)|:(?P<b>\d+):\d+): (?:catastrophic |fatal )?error",
    re.MULTILINE,
)
AROUND = 2  # lines shown before and behind the refused one


class CompileError(Telling):
    """A kernel's source was refused.

    Attributes
    ----------
    log : str
        What the compiler wrote.
    line : int or None
        The first refused line of the file the log names.
    """

    def __init__(self, name: str, compiler: str, log: str, source: str) -> None:
        self.log = log.strip("\0\n ")
        location = _LOCATION.search(self.log)
        self.line = int(location["a"] or location["b"]) if location else None
        shown = (
            "" if location is None else _excerpt(_file(source, location["file"]), self.line or 1)
        )

        def sentence(work: str) -> str:
            who = kernel_and_work(name, work)
            return f"{compiler} refused {who}:\n{self.log}\n{shown}".rstrip()

        super().__init__(sentence(""))
        self._sentence = sentence


def _file(source: str, name: str) -> str:
    """The part of a source that a `#line` directive says is another file."""
    start = re.search(rf'^#line 1 "{re.escape(name)}"\n', source, re.MULTILINE)
    return source[start.end() :] if start else source


def _excerpt(text: str, line: int) -> str:
    """Some lines with their numbers, an arrow before one of them."""
    lines = text.splitlines()
    shown = range(max(line - AROUND, 1), min(line + AROUND, len(lines)) + 1)
    marked = [f"{'->' if n == line else '  '} {n:4} | {lines[n - 1]}" for n in shown]
    return "\n".join(marked)
