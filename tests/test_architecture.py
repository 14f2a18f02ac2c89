"""The map names files that there are; the list of files and the tree are what the tool writes."""

from __future__ import annotations

import re
from pathlib import Path

from tools import list_files

TREE = Path(__file__).resolve().parents[1]
PAGES = ("architecture", "internals", "adding_an_op")


def test_the_list_and_the_tree_are_true() -> None:
    assert list_files.main(["--check"]) == 0, "make files writes them anew"


def test_every_file_and_folder_says_what_it_is_for() -> None:
    for folder, paths in list_files.folders().items():
        assert list_files.of_folder(folder), folder
        for path in paths:
            assert path.name == "__init__.py" or list_files.purpose(path), path


def test_what_a_file_is_for_is_its_first_sentence(tmp_path: Path) -> None:
    told = {
        "a.py": ('"""Streams, in order. More.\n\nEven more."""\n', "Streams, in order"),
        "b.py": ('"""layout: how operands walk.\n"""\n', "layout: how operands walk"),
        "c.cu": ("// Sums over rows,\n// in order. More.\nint x;\n", "Sums over rows, in order"),
        "d.c": ("/* Loops, called\n * in turn.\n *\n * More. */\n", "Loops, called in turn"),
        "e.py": ("x = 1\n", ""),
    }
    for name, (text, wanted) in told.items():
        path = tmp_path / name
        path.write_text(text)
        assert list_files.purpose(path) == wanted


# Words for what the package does without, and the files that still have one of them.
REFUSED = (
    *("__code__", "_getframe(", "currentframe(", "walk_stack(", ".f_back", "get_objects("),
    *("f_globals", "f_locals", "get_referrers(", "environ._data", "from_address(", "mprotect"),
    "[method-assign]",
)
LEFT = {
    ("core/planning.py", "walk_stack("),  # summed up by `traceback`: the user's line in reports
    ("devices/cuda_errors.py", "f_globals"),  # of the traceback of an error of the driver's
    ("devices/cuda_errors.py", "f_locals"),
    # what only the caller's instruction and module tell: `a, b = proxy`, `fx.wrap("name")`
    *(("fx/callers.py", word) for word in ("currentframe(", ".f_back", "f_globals")),
}


def test_no_clever_mechanism_comes_back() -> None:
    package = TREE / "lucid_gpu"
    found = {
        (path.relative_to(package).as_posix(), word)
        for path in package.rglob("*.py")
        for word in REFUSED
        if word in path.read_text("utf-8")
    }
    assert found == LEFT


# Who asks whether CUDA C or NumPy runs, outside of what runs them.
ASKS = {
    "cuda/kernel.py",  # whether a kernel of the user's can run at all
    "fusion/costs.py",  # what costs less
    "fusion/realize.py",  # which executor
}


def test_which_device_runs_is_asked_below_the_ops() -> None:
    package = TREE / "lucid_gpu"
    names = (path.relative_to(package) for path in package.rglob("*.py"))
    asking = {
        name.as_posix()
        for name in names
        if name.parts[0] not in ("launch", "kernels")
        and "runs_cuda_c" in (package / name).read_text("utf-8")
    }
    assert asking == ASKS


def test_every_file_it_names_exists() -> None:
    text = "".join((TREE / "docs" / f"{page}.md").read_text("utf-8") for page in PAGES)
    folders = ("lucid_gpu", "kernels", "tests", "bench", "examples", "tools")
    known = {p.name for folder in folders for p in (TREE / folder).rglob("*")}
    named = set(re.findall(r"`(?:[\w/]+/)?(\w+\.(?:py|cuh|cu|md))`", text))
    assert named - known - {"dtype.py"} == set()
