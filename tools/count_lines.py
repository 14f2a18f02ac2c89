"""Lines of code in each folder of the package, beside the last tag's.

    python tools/count_lines.py

A line of code is one that is neither empty nor comment nor part of a docstring.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import Counter
from pathlib import Path, PurePosixPath

TREE = Path(__file__).resolve().parents[1]
FOLDERS = ("lucid_gpu", "kernels")
C = (".cu", ".cuh", ".h", ".c", ".cpp")


def lines_of_code(name: str, text: str) -> int:
    """How many lines of a file's text are code; 0 for a file of another language."""
    if name.endswith(C):
        text = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)
        return sum(bool(line.strip()) for line in text.splitlines())
    if not name.endswith(".py"):
        return 0
    skipped = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
    taken: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in (*skipped, tokenize.ENDMARKER):
            taken.update(range(token.start[0], token.end[0] + 1))
    texts = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Expr)]
    for node in texts:
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            taken.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(taken)


def in_tree() -> Counter[str]:
    """Lines of code of each folder as it stands."""
    found: Counter[str] = Counter()
    for folder in FOLDERS:
        for path in (TREE / folder).rglob("*"):
            if path.is_file() and path.suffix in (".py", *C):
                name = path.relative_to(TREE).as_posix()
                found[_folder(name)] += lines_of_code(name, path.read_text("utf-8"))
    return found


def at(revision: str) -> Counter[str]:
    """Lines of code of each folder in a revision."""
    found: Counter[str] = Counter()
    for name in _git("ls-tree", "-r", "--name-only", revision, *FOLDERS).splitlines():
        if name.endswith((".py", *C)):
            found[_folder(name)] += lines_of_code(name, _git("show", f"{revision}:{name}"))
    return found


def _folder(name: str) -> str:
    return str(PurePosixPath(*PurePosixPath(name).parent.parts[:2]))


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=TREE, capture_output=True, text=True, check=True)
    return done.stdout


def last_tag() -> str | None:
    """The newest tag before this commit; None where there is none, or no repository."""
    words = ["git", "describe", "--tags", "--abbrev=0"]
    done = subprocess.run(words, cwd=TREE, capture_output=True, text=True, check=False)
    return done.stdout.strip() or None


def main() -> int:
    """Print the table."""
    now, tag = in_tree(), last_tag()
    before = Counter[str]() if tag is None else at(tag)
    width = max(map(len, {*now, *before, "total"}))
    print(f"{'lines of code':{width}}  {'now':>6}  {tag or 'no tag yet'}")
    for folder in sorted({*now, *before}):
        print(f"{folder:{width}}  {now[folder]:6}", before[folder] if tag else "", sep="  ")
    print(f"{'total':{width}}  {now.total():6}", before.total() if tag else "", sep="  ")
    return 0


if __name__ == "__main__":
    sys.exit(main())
