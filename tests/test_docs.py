"""What the documentation shows runs, and prints what is printed below it; what it links to exists.

tools/pages.py says how blocks are marked. Blocks of Python run in order in one namespace; those
with a title are files, beside which the page's blocks of bash run.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tools import families
from tools.draw_pictures import pictures
from tools.pages import PAGES, TREE, anchors, blocks, links
from tools.reference import NAMESPACES

PLAIN = {"", "python", "text", "bash", "console", "yaml"}


def _name(page: Path) -> str:
    return str(page.relative_to(TREE))


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_the_blocks_run_and_print_what_they_say(page: Path, device: str) -> None:
    space: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(page):
        if block.language != "python" or block.title:
            continue
        if block.needs_gpu and device == "cpu":
            continue
        code = compile("\n" * block.line + block.code, str(page), "exec")  # lines as on the page
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(code, space)
        if block.output is not None:
            assert printed.getvalue() == block.output, f"{page.name}, line {block.line}"


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_the_files_and_commands_work(page: Path, tmp_path: Path) -> None:
    shown = list(blocks(page))
    for block in shown:
        if block.title:
            path = tmp_path / block.title
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.code, "utf-8")
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONPATH": str(TREE),
    }
    for block in shown:
        if block.language == "bash":
            if "host-cuda" in block.code and not shutil.which(os.environ.get("CXX", "g++")):
                pytest.skip("no C++ compiler")
            ended = subprocess.run(
                ["bash", "-euc", block.code],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                timeout=250,
            )
            assert ended.returncode == 0, f"{page.name}, line {block.line}: {ended.stderr}"
            if block.output is not None:
                assert ended.stdout == block.output, f"{page.name}, line {block.line}"


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_pages_are_read_whole(page: Path) -> None:
    """Every fence is one of those above: none is left out for its spelling."""
    shown = list(blocks(page))
    fences = re.findall(r"^```", page.read_text("utf-8"), re.MULTILINE)
    assert len(fences) == 2 * (len(shown) + sum(b.output is not None for b in shown))
    assert {block.language for block in shown} <= PLAIN


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_links_lead_somewhere(page: Path) -> None:
    for target, heading in links(page):
        assert target.exists(), f"{page.name} links to {target}"
        if heading:
            assert heading in anchors(target), f"{target.name} has no heading #{heading}"


def test_every_page_is_in_the_sites_list() -> None:
    nav = re.search(r"^nav:\n((?: +.*\n)+)", (TREE / "mkdocs.yml").read_text("utf-8"), re.MULTILINE)
    assert nav is not None
    listed = re.findall(r"[:-] (\S+\.md)$", nav[1], re.MULTILINE)
    pages = {page.name for page in PAGES if page.parent == TREE / "docs"}
    names = {name.removeprefix("lucid_gpu.") for name in (*NAMESPACES, "lucid_gpu.Tensor")}
    api = {f"api/{name}.md" for name in names} | {families.page_of(f) for f in families.FAMILIES}
    assert sorted(listed) == sorted(pages | api)


@pytest.mark.parametrize(
    "page", [p for p in PAGES if "(pictures/" in p.read_text("utf-8")], ids=_name
)
def test_pictures_are_what_the_page_draws(page: Path) -> None:
    """To renew them: make pictures. A time line shows times of its own each time."""
    for path, picture in pictures(page):
        assert path.exists()
        if "timeline" not in path.name:
            assert path.read_text("utf-8") == picture.svg, "run make pictures"


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
