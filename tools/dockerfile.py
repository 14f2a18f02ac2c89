"""A Dockerfile's instructions, by stage: what the checks of the image need of its grammar."""

from __future__ import annotations

import json
import re
from typing import NamedTuple

__all__ = ["Instruction", "Stage", "chain", "parse"]

_FLAG = re.compile(r"--([\w-]+)=(\S+)\s*")
_PAIR = re.compile(r"([\w.]+)=(\"(?:[^\"\\]|\\.)*\"|\S+)")


class Instruction(NamedTuple):
    """One instruction: ``COPY --from=wheel /a /b`` has the flag ``from``."""

    name: str
    flags: dict[str, str]
    text: str

    def words(self) -> list[str]:
        """A JSON list, or words."""
        found: list[str] = json.loads(self.text) if self.text[:1] == "[" else self.text.split()
        return found

    def pairs(self) -> dict[str, str]:
        """``NAME=value`` of ENV, LABEL and ARG, quotes taken off."""
        return {name: value.strip('"') for name, value in _PAIR.findall(self.text)}


class Stage(NamedTuple):
    """What follows a FROM."""

    name: str
    base: str
    instructions: list[Instruction]


def parse(text: str) -> dict[str, Stage]:
    """The stages by name, in order."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\s*\\\n\s*", " ", "\n".join(lines))
    stages: dict[str, Stage] = {}
    for line in filter(None, map(str.strip, joined.splitlines())):
        name, _, rest = line.partition(" ")
        flags, rest = _flags(rest.strip())
        if name.upper() == "FROM":
            base, _, title = re.split(r"\s+(as)\s+", rest, flags=re.IGNORECASE)
            stage = stages[title] = Stage(title, base, [])
        else:
            stage.instructions.append(Instruction(name.upper(), flags, rest))
    return stages


def _flags(text: str) -> tuple[dict[str, str], str]:
    flags = {}
    while match := _FLAG.match(text):
        flags[match[1]] = match[2]
        text = text[match.end() :]
    return flags, text


def chain(stages: dict[str, Stage], target: str) -> list[Instruction]:
    """The instructions of a target, those of the stages it is made from before them."""
    stage = stages[target]
    before = chain(stages, stage.base) if stage.base in stages else []
    return [*before, *stage.instructions]
