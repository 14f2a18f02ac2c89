"""The wheel as somebody has it who installed it: what it holds; all of it can be imported."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TREE = Path(__file__).resolve().parents[1]
LEFT_OUT = ("__pycache__", "*.egg-info", "*.so")
IMPORT_ALL = """
import importlib, pathlib, sys
import lucid_gpu

lucid_gpu.install_as_torch()
package = pathlib.Path(lucid_gpu.__file__).parent
for file in sorted(package.rglob("*.py")):
    parts = file.relative_to(package.parent).with_suffix("").parts
    name = ".".join(part for part in parts if part not in ("torch_names", "__init__"))
    importlib.import_module(name)
    if "torch_names" in parts:
        importlib.import_module(f"torch{name.removeprefix('lucid_gpu')}")
    print(*parts, sep="/")
"""

pytestmark = pytest.mark.slow  # a wheel is built and installed


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The folder in which pip installs the wheel that it builds of a copy of the tree."""
    pytest.importorskip("setuptools")
    tree, folder = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("installed")
    for name in ("lucid_gpu", "kernels"):
        shutil.copytree(TREE / name, tree / name, ignore=shutil.ignore_patterns(*LEFT_OUT))
    for name in (
        "setup.py",
        "pyproject.toml",
        "MANIFEST.in",
        "README.md",
        "CHANGELOG.md",
        "LICENSE",
    ):
        shutil.copy(TREE / name, tree / name)
    told = ["--no-index", "--no-deps", "--no-build-isolation", "--target", str(folder), str(tree)]
    command = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", *told]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=250)
    assert ran.returncode == 0, ran.stderr
    return folder


def test_it_carries_the_kernels_and_the_types(installed):
    def named(folder, *kinds):
        return {p.relative_to(folder).as_posix() for k in kinds for p in folder.rglob(f"*.{k}")}

    kernels = named(TREE / "kernels", "cu", "cuh", "h", "md")
    assert kernels and kernels <= named(installed / "lucid_gpu" / "_kernels", "*")
    typed = {"py.typed", "_core.pyi", "_gpu.pyi", "devices/_native.pyi"}
    assert typed <= named(installed / "lucid_gpu", "typed", "pyi")


def test_every_module_of_the_tree_can_be_imported_from_it(installed, tmp_path):
    """Under its own name, and those that stand for PyTorch's private files also under PyTorch's."""
    for package in ("einops", "tensorboardX"):  # two modules are for these alone
        pytest.importorskip(package)
    variables = {**os.environ, "PYTHONPATH": str(installed)}
    command = [sys.executable, "-c", IMPORT_ALL]
    ran = subprocess.run(
        command, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=250
    )
    assert ran.returncode == 0, ran.stderr
    files = {
        p.relative_to(TREE).with_suffix("").as_posix() for p in (TREE / "lucid_gpu").rglob("*.py")
    }
    assert set(ran.stdout.split()) == files
    assert len(files) > 700
