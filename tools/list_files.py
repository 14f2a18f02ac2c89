"""Write docs/files.md, what each file is for, and the tree of docs/architecture.md.

    python tools/list_files.py            # both anew
    python tools/list_files.py --check    # 1 where they are not up to date

What a file is for is the first sentence of its docstring, or of its first comment; a folder's is
that of its `__init__.py`. There is no other place where it is said.
"""

from __future__ import annotations

import ast
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

TREE = Path(__file__).resolve().parents[1]
PAGE = TREE / "docs" / "files.md"
MAP = TREE / "docs" / "architecture.md"
MARKS = "<!-- tree: tools/list_files.py -->", "<!-- end of tree -->"
LISTED = ("lucid_gpu", "kernels", "bench", "examples", "tools")
SUFFIXES = (".py", ".c", ".cu", ".cuh", ".h")
WITHOUT_INIT = {  # folders that are no packages
    "lucid_gpu/tape": "What is on: modes, levels, who watches; the door of ops, and their rules.",
    "lucid_gpu/core/native": "The usual cases of the core in C, compiled as `lucid_gpu._core`.",
    "lucid_gpu/ops": "Ops that are not elementwise, by family, and the compositions.",
    "kernels": "CUDA C: the kernels written by hand, and what generated ones include.",
    "kernels/host": "CUDA C's own functions as C++, for kernels executed on the host.",
    "kernels/host/cooperative_groups": "Cooperative groups by the names that kernels include.",
    "bench": "Measurements side by side with peers, and `make gpu`.",
    "examples": "Training scripts, and what they share.",
    "tools": "What the Makefile runs: checks, pages, long searches.",
}
WIDTH = 118
HEAD = """\
# Files

<!-- Written by tools/list_files.py: make files writes it anew. -->

What each file is for, in its own words. [Architecture](architecture.md) says how they work.
"""


def purpose(path: Path) -> str:
    """The first sentence of a file's docstring or first comment; empty where there is none."""
    text = path.read_text("utf-8")
    if path.suffix == ".py":
        told = ast.get_docstring(ast.parse(text)) or ""
    else:
        found = re.match(r"\s*(?:/\*(.*?)\*/|((?://[^\n]*\n)+))", text, re.DOTALL)
        told = (
            ""
            if found is None
            else re.sub(r"^\s*(?://|\*) ?", "", found[1] or found[2], flags=re.M)
        )
    paragraph = " ".join(told.strip().split("\n\n")[0].split())
    sentence = re.split(r"(?<=[.:;])\s", paragraph)
    taken = sentence[0]
    if taken.endswith((":", ";")) and len(sentence) > 1:  # a name, and then what it is
        taken += " " + sentence[1]
    return taken.rstrip(".:;")


def files() -> list[Path]:
    """The sources of the listed folders."""
    found = [path for folder in LISTED for path in (TREE / folder).rglob("*")]
    return [p for p in found if p.suffix in SUFFIXES and "runs" not in p.parts]


def folders() -> dict[str, list[Path]]:
    """Each folder's files, in the order of `LISTED`."""
    found: dict[str, list[Path]] = {}
    for path in sorted(files(), key=lambda p: (LISTED.index(p.relative_to(TREE).parts[0]), p)):
        found.setdefault(path.parent.relative_to(TREE).as_posix(), []).append(path)
    return found


def of_folder(folder: str) -> str:
    """What a folder is for."""
    first = TREE / folder / "__init__.py"
    return WITHOUT_INIT.get(folder, "").rstrip(".") or (purpose(first) if first.exists() else "")


def page() -> str:
    """docs/files.md."""
    parts = [HEAD]
    for folder, paths in folders().items():
        lines = [f"## {folder}/", "", f"{of_folder(folder)}.", "", "```"]
        width = max(len(p.name) for p in paths) + 2
        for path in paths:
            if path.name != "__init__.py":
                lines += _wrapped(path.name, purpose(path), width)
        parts.append("\n".join([*lines, "```", ""]))
    return "\n".join(parts)


def tree() -> Iterator[str]:
    """The folders, for the map."""
    known = folders()
    shown = {f: f"{'  ' * f.count('/')}{f.rpartition('/')[2]}/" for f in known}
    width = max(map(len, shown.values())) + 2
    for folder in known:
        yield from _wrapped(shown[folder], of_folder(folder), width)


def _wrapped(name: str, told: str, width: int) -> list[str]:
    text = textwrap.wrap(told, WIDTH - width) or [""]
    return [f"{name if i == 0 else '':{width}}{line}".rstrip() for i, line in enumerate(text)]


def with_tree(text: str) -> str:
    """The map with the tree as it is now."""
    before, _, rest = text.partition(MARKS[0])
    _, _, after = rest.partition(MARKS[1])
    block = "\n".join(["```", *tree(), "```"])
    return f"{before}{MARKS[0]}\n{block}\n{MARKS[1]}{after}"


def main(arguments: list[str]) -> int:
    """Write both, or check them; 1 where one is not up to date."""
    if arguments not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    wanted = {PAGE: page(), MAP: with_tree(MAP.read_text("utf-8"))}
    if not arguments:
        for path, text in wanted.items():
            path.write_text(text, "utf-8")
        return 0
    old = [p for p, text in wanted.items() if not p.exists() or p.read_text("utf-8") != text]
    for path in old:
        print(f"{path.relative_to(TREE)} is not up to date: make files")
    return int(bool(old))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
