"""The tree in docs/architecture.md lists the package's files, all of them and no others."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

TREE = Path(__file__).resolve().parents[1]


def listed(text: str) -> Iterator[str]:
    """Paths of the indented listing that begins with the package's folder."""
    (block,) = [b for b in text.split("```\n") if b.startswith("lucid_gpu/")]
    folders: list[str] = []
    for line in block.splitlines():
        name = line.split()[0]
        folders[(len(line) - len(line.lstrip())) // 2 :] = [name]
        if not name.endswith("/"):
            yield "".join(folders)


def test_the_tree_is_true() -> None:
    paths = set(listed((TREE / "docs" / "architecture.md").read_text("utf-8")))
    there = {p.relative_to(TREE).as_posix() for p in (TREE / "lucid_gpu").rglob("*.py")}
    package = {p for p in paths if p.startswith("lucid_gpu/")}
    assert there - package == set(), "say in docs/architecture.md what these are"
    assert package - there == set(), "docs/architecture.md names files that are gone"
    assert all((TREE / p).exists() for p in paths)


def test_every_file_it_names_exists() -> None:
    text = (TREE / "docs" / "architecture.md").read_text("utf-8")
    folders = ("lucid_gpu", "kernels", "tests", "bench", "examples", "tools")
    known = {p.name for folder in folders for p in (TREE / folder).rglob("*")}
    named = set(re.findall(r"`(?:[\w/]+/)?(\w+\.(?:py|cuh|cu|md))`", text))
    assert named - known - {"dtype.py"} == set()
