"""The CUDA sources are found in a source tree and in an installed package."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lucid_gpu.launch import kernel_sources

TREE = Path(__file__).resolve().parents[2]


def test_a_source_tree_has_them():
    assert kernel_sources.kernel_path("README.md") == TREE / "kernels" / "README.md"


def test_an_unknown_name_lists_what_there_is():
    with pytest.raises(FileNotFoundError, match=r"no kernel source 'nothing.cu'"):
        kernel_sources.kernel_path("nothing.cu")


def test_an_installed_package_prefers_its_own(tmp_path, monkeypatch):
    (tmp_path / "lucid_gpu" / "_kernels").mkdir(parents=True)
    (tmp_path / "kernels").mkdir()  # somebody else's
    monkeypatch.setattr(kernel_sources, "_PACKAGE", tmp_path / "lucid_gpu")
    assert kernel_sources.kernel_folder() == tmp_path / "lucid_gpu" / "_kernels"


def test_the_build_carries_them(tmp_path):
    """`setup.py build` lays out what a wheel holds; it needs setuptools alone, no index."""
    pytest.importorskip("setuptools")
    tree = tmp_path / "tree"
    keep = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for folder in ("lucid_gpu", "kernels"):
        shutil.copytree(TREE / folder, tree / folder, ignore=keep)
    for file in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(TREE / file, tree / file)
    command = [sys.executable, "setup.py", "-q", "build", "--build-base", "out"]
    subprocess.run(command, cwd=tree, check=True, capture_output=True, timeout=250)
    (installed,) = (tree / "out").rglob("lucid_gpu/_kernels")
    sources = {p.name for p in (TREE / "kernels").rglob("*") if p.suffix in {".cu", ".cuh", ".h"}}
    assert sources <= {p.name for p in installed.rglob("*")}
    assert (installed / "README.md").is_file()
    assert (installed.parent / "py.typed").is_file()
