"""The blocks of the documentation run in order, and print what is printed below them.

A block of ``text`` right after one of ``python`` is its output. A block marked ``python gpu`` needs
a GPU and runs where there is one.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

TREE = Path(__file__).resolve().parents[1]
PAGES = sorted([TREE / "README.md", *(TREE / "docs").glob("*.md")])
BLOCK = re.compile(
    r"^```python( gpu)?\n(.*?)^```\n(?:```text\n(.*?)^```\n)?", re.DOTALL | re.MULTILINE
)


class Block(NamedTuple):
    line: int
    code: str
    output: str | None
    needs_gpu: bool


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text("utf-8")
    for found in BLOCK.finditer(text):
        gpu, code, output = found.groups()
        yield Block(text.count("\n", 0, found.start()) + 1, code, output, bool(gpu))


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(TREE)))
def test_the_blocks_run_and_print_what_they_say(page: Path, request: pytest.FixtureRequest) -> None:
    from tests.conftest import devices

    space: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(page):
        if block.needs_gpu and "cuda" not in devices(request.config):
            continue
        code = compile("\n" * block.line + block.code, str(page), "exec")  # lines as on the page
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(code, space)
        if block.output is not None:
            assert printed.getvalue() == block.output, f"{page.name}, line {block.line}"


def test_the_guide_is_read_whole() -> None:
    """Every fence of the guide is one of those above: none is left out for its spelling."""
    text = (TREE / "docs" / "custom_functions.md").read_text("utf-8")
    assert len(list(blocks(TREE / "docs" / "custom_functions.md"))) == text.count("```python")
    assert text.count("```text") == sum(
        b.output is not None for b in blocks(TREE / "docs" / "custom_functions.md")
    )


def test_kernels_on_the_pages_compile() -> None:
    """What cannot run without a GPU is at least CUDA C for every one of them."""
    from tests.fusion import nvrtc

    sources = [
        source
        for page in PAGES
        for block in blocks(page)
        for source in re.findall(r'RawKernel\(\s*r"""(.*?)"""', block.code, re.DOTALL)
    ]
    assert sources
    for architecture in nvrtc.architectures():
        for source in sources:
            nvrtc.compiled(source, architecture)
