"""What `check_function` found, as a table for people."""

from __future__ import annotations

import textwrap
from collections import Counter
from typing import NamedTuple

PASSED, FAILED, NOT_APPLICABLE = "passed", "FAILED", "not applicable"
_WIDTH = 72  # of the last column
_LINES = 12  # of one row's explanation


class Row(NamedTuple):
    """One check: its name, how it ended, and what a person should know."""

    name: str
    result: str
    why: str


class Report:
    """The rows of one call of `check_function`; prints as a table.

    Attributes
    ----------
    subject : str
        What was checked.
    rows : list of Row
    passed : bool
        Whether no check failed.
    """

    def __init__(self, subject: str, rows: list[Row]) -> None:
        self.subject = subject
        self.rows = rows

    @property
    def passed(self) -> bool:
        """Whether no row failed."""
        return all(row.result != FAILED for row in self.rows)

    def __getitem__(self, name: str) -> Row:
        return next(row for row in self.rows if row.name == name)

    def __str__(self) -> str:
        counts = Counter(row.result for row in self.rows)
        summary = ", ".join(
            f"{counts[r]} {r.lower()}" for r in (PASSED, FAILED, NOT_APPLICABLE) if counts[r]
        )
        width = max(len(row.name) for row in self.rows)
        lines = [f"check_function({self.subject}): {summary}"]
        for row in self.rows:
            head = f"  {row.name:<{width}}  {row.result:<{len(NOT_APPLICABLE)}}  "
            for i, line in enumerate(_wrapped(row.why)):
                lines.append(((head if i == 0 else " " * len(head)) + line).rstrip())
        return "\n".join(lines)

    __repr__ = __str__


def _wrapped(text: str) -> list[str]:
    """Lines as they were where they fit, so that matrices stay readable."""
    lines = [part for line in text.splitlines() for part in textwrap.wrap(line, _WIDTH) or [""]]
    lines = [line for line in lines if line] or [""]
    return lines if len(lines) <= _LINES else [*lines[:_LINES], "..."]


class CheckFunctionError(AssertionError):
    """A check of `check_function` failed; ``report`` says which, and how the others went."""

    def __init__(self, report: Report) -> None:
        super().__init__(f"{report}")
        self.report = report
