"""The pages of the documentation as blocks of code, and what they link to.

A block of ``text`` right after one of ``python`` is what it prints. A block marked ``python gpu``
needs a GPU. ``title="NAME"`` makes a block a file of that name; blocks of ``bash`` run where these
files lie.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

TREE = Path(__file__).resolve().parents[1]
PAGES = sorted([TREE / "README.md", *(TREE / "docs").glob("*.md")])
_FENCE = re.compile(
    r"^```(?P<language>\w*)(?P<gpu> gpu)?(?: title=\"(?P<title>[^\"]+)\")?\n(?P<code>.*?)^```\n"
    r"(?:```text\n(?P<output>.*?)^```\n)?",
    re.DOTALL | re.MULTILINE,
)
_LINK = re.compile(r"(?<=\]\()(?!\w+:)([^)#\s]*)(?:#([^)\s]+))?(?=\))")
_PICTURE = re.compile(r"\n*!\[[^\]]*\]\((\S+\.svg)\)")


class Block(NamedTuple):
    """A fenced block.

    Attributes
    ----------
    line : int
        Where its code begins, less one.
    language, code : str
    output : str or None
        The block of ``text`` right after it.
    needs_gpu : bool
    title : str or None
        The file that it is.
    picture : str or None
        The picture right after it, as the page names it.
    """

    line: int
    language: str
    code: str
    output: str | None
    needs_gpu: bool
    title: str | None
    picture: str | None


def blocks(page: Path) -> Iterator[Block]:
    """All fenced blocks of a page, in order, but those that are another's output."""
    text = page.read_text("utf-8")
    for fence in _FENCE.finditer(text):
        picture = _PICTURE.match(text, fence.end())
        yield Block(
            text.count("\n", 0, fence.start()) + 1,
            fence["language"],
            fence["code"],
            fence["output"],
            fence["gpu"] is not None,
            fence["title"],
            picture[1] if picture else None,
        )


def prose(page: Path) -> str:
    """A page without its blocks."""
    return _FENCE.sub("", page.read_text("utf-8"))


def links(page: Path) -> Iterator[tuple[Path, str | None]]:
    """The files a page links to, and the headings in them."""
    for link in _LINK.finditer(prose(page)):
        yield (page.parent / link[1]).resolve() if link[1] else page, link[2]


def anchors(page: Path) -> set[str]:
    """What links to a page's headings end with, as mkdocs and GitHub agree on it."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {_slug(heading) for heading in headings}


def _slug(heading: str) -> str:
    plain = unicodedata.normalize("NFKD", heading).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower())
