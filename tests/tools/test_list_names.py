"""docs/names.md is what tools/list_names.py writes, from names that are PyTorch's."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

TREE = Path(__file__).resolve().parents[2]


def tool() -> Any:
    spec = importlib.util.spec_from_file_location("list_names", TREE / "tools" / "list_names.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_up_to_date() -> None:
    # in a process of its own: a module that another test imported would be one name more
    command = "import runpy, sys; print(runpy.run_path(sys.argv[1])['page'](), end='')"
    run = [sys.executable, "-c", command, str(TREE / "tools" / "list_names.py")]
    wanted = subprocess.run(run, cwd=TREE, check=True, capture_output=True, text=True).stdout
    got = (TREE / "docs" / "names.md").read_text("utf-8")
    assert wanted == got, "names came or went: run `make names` (python tools/list_names.py)"


def test_the_names_are_torchs() -> None:
    torch = pytest.importorskip("torch", reason="the names are PyTorch's: make test ORACLE=1")
    names = tool()
    kept = json.loads(names.NAMES.read_text("utf-8"))
    if torch.__version__.split("+")[0] != kept["version"]:
        pytest.skip(f"the names are those of torch {kept['version']}, here is {torch.__version__}")
    for module, found in names.names_of_torch()["modules"].items():
        here = kept["modules"][module]
        assert set(here) <= set(found), "run python tools/list_names.py --torch"
        more = set(found) - set(here)  # modules that other tests had PyTorch import
        holder = names.held(module)
        assert all(isinstance(getattr(holder, n), ModuleType) for n in more), more


def test_every_reason_leaves_something_out() -> None:
    names = tool()
    data = json.loads(names.NAMES.read_text("utf-8"))["modules"]
    every = {name for found in data.values() for name in found}
    for _, pattern in names.LEFT_OUT:
        parts = re.split(r"\|(?![^(]*\))", pattern)
        assert [p for p in parts if not any(re.fullmatch(p, n) for n in every)] == []


def test_what_is_left_out_or_absent_is_not_here() -> None:
    import lucid_gpu

    page = (TREE / "docs" / "names.md").read_text("utf-8")
    part = page.split("## torch.Tensor")[1].split("\n## ")[0]
    for title, block in re.findall(r"^(\S.*):\n\n```\n(.*?)```", part, re.DOTALL | re.MULTILINE):
        for name in block.split():
            assert hasattr(lucid_gpu.Tensor, name) is (title == "Here"), (title, name)
