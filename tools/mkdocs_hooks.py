"""What mkdocs cannot know (its `hooks`): pages of the reference, and links that leave docs/.

- docs/api/ is not in the tree: a page a namespace is made from what tools/reference.py writes, and
  a page each family of `lucid_gpu`'s own names (tools/families.py).
- Blocks of YAML are read as such; the tests have nothing to read them with.
- A page may link to any file of the tree, as it does where the tree is read. The site shows such a
  file on a page of its own, tree/PATH.

`python -m mkdocs` in the tree's folder finds it; `mkdocs` alone does not look there for packages.
"""

from __future__ import annotations

import importlib
import inspect
import os
import pydoc
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from tools import families, reference
from tools.pages import blocks

TREE = Path(__file__).resolve().parents[1]
LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)#\s]+)")
UNDESCRIBED = re.compile(r'–\s*<div class="doc-md-description">\s*</div>')  # a parameter's dash
LANGUAGES = {".py": "python", ".cu": "cuda", ".cuh": "cuda", ".yml": "yaml", ".toml": "toml"}


def on_startup(command: str, dirty: bool) -> None:
    """Write the files that the reference is read from, before mkdocstrings looks for them."""
    reference.write(TREE / "build" / "reference")


def on_files(files: Any, config: Any) -> Any:
    """Add the reference, and the files of the tree that pages link to."""
    from mkdocs.structure.files import File

    for name in (*reference.NAMESPACES, "lucid_gpu.Tensor"):
        page = reference_page(name)
        files.append(File.generated(config, reference_path(name), content=page))
    for family, names in families.members().items():
        page = family_page(family, names)
        files.append(File.generated(config, families.page_of(family), content=page))
    pages = [TREE / "docs" / file.src_uri for file in files.documentation_pages()]
    for path in sorted(linked([page for page in pages if page.exists()])):
        if path.suffix in (".png", ".svg"):
            content: Any = path.read_bytes()
        else:
            content = tree_page(path)
        files.append(File.generated(config, tree_path(path), content=content))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Lead links out of docs/ to the pages that show those files."""
    here = page.file.src_uri
    if here.startswith("tree/"):
        source = TREE / here.removeprefix("tree/")
        source = source if source.exists() else source.with_suffix("")  # tree/x.py.md
    else:
        source = TREE / "docs" / here
        if source.exists():
            read_yaml(source)

    if here == "reference.md":
        markdown += namespaces()

    def led(link: re.Match[str]) -> str:
        target = (source.parent / link[1]).resolve()
        inside = target.is_relative_to(TREE / "docs")
        to = target.relative_to(TREE / "docs").as_posix() if inside else tree_path(target)
        return os.path.relpath(to, PurePosixPath(here).parent)

    return LINK.sub(led, markdown).replace("```python gpu\n", '```python title="needs a GPU"\n')


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    """Stop at a fence that was not understood, which is shown as text; end lines without a dash."""
    if "<p>```" in html:
        from mkdocs.exceptions import PluginError

        raise PluginError(f"{page.file.src_uri}: a block of code is shown as text")
    return UNDESCRIBED.sub("", html)


def read_yaml(page: Path) -> None:
    """Stop at a block of YAML that is none."""
    import yaml
    from mkdocs.exceptions import PluginError

    for block in blocks(page):
        if block.language == "yaml":
            try:
                list(yaml.safe_load_all(block.code))
            except yaml.YAMLError as error:
                raise PluginError(f"{page.name}, line {block.line}: {error}") from error


def reference_path(name: str) -> str:
    """The page of a namespace: ``lucid_gpu.nn`` is on api/nn.md."""
    return f"api/{name.removeprefix('lucid_gpu.')}.md"


def reference_page(name: str) -> str:
    """Its text: what the namespace says of itself, and a directive for mkdocstrings."""
    if name == "lucid_gpu":
        return overview()
    return "\n".join([f"# {name.removeprefix('lucid_gpu.')}", "", f"::: {name}", ""])


def overview() -> str:
    """The page of `lucid_gpu` itself: a table of names a family."""
    top = importlib.import_module("lucid_gpu")
    lines = ["# lucid_gpu", "", inspect.getdoc(top) or ""]
    for family, names in families.members().items():
        lines += ["", f"## [{family}]({os.path.relpath(families.page_of(family), 'api')})"]
        lines += ["", "| name | |", "|---|---|"]
        lines += [f"| [{n}][lucid_gpu.{n}] | {summary(getattr(top, n))} |" for n in names]
    return "\n".join([*lines, ""])


def family_page(family: str, names: list[str]) -> str:
    """The page of a family: a directive a name."""
    shown = "show_root_heading: true, show_root_toc_entry: true, show_root_full_path: false"
    lines = [f"::: lucid_gpu.{name}\n    options: {{{shown}}}\n" for name in names]
    return "\n".join([f"# {family}", "", *lines])


def summary(value: Any) -> str:
    """The first sentence of what it says of itself, fit for a table."""
    if not callable(value):
        return "An element type."
    first, *_ = (inspect.getdoc(value) or "").split("\n\n")
    sentence = re.split(r"(?<=\.)\s", first, maxsplit=1)[0]
    return " ".join(sentence.split()).replace("|", "\\|")


def namespaces() -> str:
    """A table of the reference's pages, each with what the namespace says of itself."""
    rows = ["", "| namespace | what it holds |", "|---|---|"]
    for name in sorted((*reference.NAMESPACES, "lucid_gpu.Tensor"), key=str.lower):
        summary, *_ = (inspect.getdoc(pydoc.locate(name)) or "").split("\n\n")
        short = name.removeprefix("lucid_gpu.")
        rows.append(f"| [{short}]({reference_path(name)}) | {' '.join(summary.split())} |")
    return "\n".join([*rows, ""])


def linked(pages: list[Path]) -> set[Path]:
    """Files outside docs/ that pages link to, and those that these link to."""
    known: set[Path] = set()
    pending = list(pages)
    while pending:
        page = pending.pop()
        for target in targets(page):
            if target not in known and not target.is_relative_to(TREE / "docs"):
                known.add(target)
                pending += [target] if target.suffix == ".md" else []
    return known


def targets(page: Path) -> Iterator[Path]:
    """The files that a page links to."""
    for link in LINK.findall(page.read_text("utf-8")):
        target = (page.parent / link).resolve()
        if target.is_file() and target.is_relative_to(TREE):
            yield target


def tree_path(path: Path) -> str:
    """Where the site has a file of the tree."""
    uri = path.relative_to(TREE).as_posix()
    return f"tree/{uri}" if path.suffix in (".md", ".png", ".svg") else f"tree/{uri}.md"


def tree_page(path: Path) -> str:
    """A page that shows a file of the tree."""
    text = path.read_text("utf-8")
    if path.suffix == ".md":
        return text
    name = path.relative_to(TREE).as_posix()
    return f"# {name}\n\n````{LANGUAGES.get(path.suffix, 'text')}\n{text.rstrip()}\n````\n"
