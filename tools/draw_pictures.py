"""Draw docs/pictures/ anew: `make pictures`.

    python tools/draw_pictures.py [PAGE ...]

Where a picture stands right after a block of a page, the block makes it, in a variable called
``picture``. So a page shows what its own lines draw.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tools.pages import PAGES, blocks


def pictures(page: Path) -> Iterator[tuple[Path, Any]]:
    """The pictures of a page, as its blocks draw them now."""
    space: dict[str, Any] = {"__name__": "__main__"}
    found = [block for block in blocks(page) if block.language == "python" and not block.needs_gpu]
    while found and not found[-1].picture:  # what comes after the last picture
        found.pop()
    for block in found:
        with contextlib.redirect_stdout(None):
            exec(compile("\n" * block.line + block.code, str(page), "exec"), space)
        if block.picture:
            yield page.parent / block.picture, space["picture"]


if __name__ == "__main__":
    for page in map(Path, sys.argv[1:] or PAGES):
        for path, picture in pictures(page):
            picture.save(path)
            print(path)
