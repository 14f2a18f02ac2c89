"""Commands that install what is missing name this copy, and no package of an index."""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import types
import warnings
from pathlib import Path

import pytest

import lucid_gpu
from lucid_gpu.devices import cudnn, installing
from lucid_gpu.ops import user_warnings

TREE = Path(__file__).resolve().parents[2]
# The Makefile says what it installs, and release_check.py names the file behind an "@".
NAMED = {"Makefile", "tools/release_check.py", "tests/devices/test_installing.py"}
ON_AN_INDEX = re.compile(r"lucid[-_]gpu\\?\[|pip install[^`'\n]* lucid[-_]gpu\b")


def test_no_text_asks_an_index_for_this_package() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=TREE, capture_output=True, text=True)
    files = [name for name in listed.stdout.split("\0") if name]
    if not files:
        pytest.skip("this is no clone")
    found = []
    for name in files:
        path = TREE / name
        if path.suffix in (".py", ".md", ".ipynb", ".toml", ".yml", ".yaml", ".txt", ""):
            text = path.read_text("utf-8", "replace") if path.is_file() else ""
            found += [name] * (ON_AN_INDEX.search(text) is not None)
    assert set(found) <= NAMED


def test_a_source_tree_is_its_own_source() -> None:
    assert installing.source() == str(TREE)
    assert installing.command("mpi") == f"python -m pip install '{TREE}[mpi]'"
    assert installing.reinstalling().endswith(f"--no-deps {TREE}")


def installed(monkeypatch: pytest.MonkeyPatch, folder: Path, url: str | None) -> None:
    """As if this package had been installed from there; from an index where that is None."""

    def read_text(name: str) -> str | None:
        return json.dumps({"url": url}) if url and name == "direct_url.json" else None

    needed = ["numpy>=2.0", 'mpi4py>=4.1; extra == "mpi"', 'mpich>=5; extra == "mpi"']
    found = types.SimpleNamespace(read_text=read_text, requires=needed)
    monkeypatch.setattr(installing, "_PACKAGE", folder / "site-packages" / "lucid_gpu")
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: found)
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: found.requires)


def test_an_installed_copy_names_the_wheel_it_came_from(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    wheel = tmp_path / "a folder" / "lucid_gpu-0.1.0-py3-none-any.whl"
    wheel.parent.mkdir()
    wheel.write_bytes(b"")
    installed(monkeypatch, tmp_path, wheel.as_uri())
    assert installing.command("cuda12", "mpi") == f"python -m pip install '{wheel}[cuda12,mpi]'"
    wheel.unlink()  # then what the extra asks for is named
    assert installing.command("mpi") == "python -m pip install 'mpi4py>=4.1' 'mpich>=5'"
    installed(monkeypatch, tmp_path, None)
    assert installing.command("mpi") == "python -m pip install 'mpi4py>=4.1' 'mpich>=5'"
    assert "folder" in installing.reinstalling()
    assert installing.command("none") == "install lucid_gpu from its folder or wheel with [none]"


def test_a_missing_library_of_cuda_is_named_with_what_brings_it() -> None:
    with pytest.raises(ImportError, match=r"libcufft.so.11.* the extra cuda1[23] brings: .*\[cuda"):
        with installing.cuda_libraries():
            raise ImportError("libcufft.so.11: cannot open shared object file")
    with pytest.raises(ImportError, match="^no such module$"), installing.cuda_libraries():
        raise ImportError("no such module")


def test_cublas_is_named_where_it_is_missing() -> None:
    pytest.importorskip("cupy")
    try:
        installing.binding("cublas")
    except ImportError as error:
        assert "the extra cuda1" in str(error)


def test_the_slow_way_of_convolutions_is_said_once(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if device == "cpu" or lucid_gpu.backends.cudnn.is_available():
        pytest.skip("no cuDNN is missed")
    monkeypatch.setattr(user_warnings, "_warned_once", set())
    x = lucid_gpu.ones(1, 1, 3, 3, device=device)
    with pytest.warns(UserWarning, match=r"cudnn.is_available\(\) is False.*\[cudnn1") as said:
        lucid_gpu.nn.functional.conv2d(x, x)
    assert said[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lucid_gpu.nn.functional.conv2d(x, x)
        monkeypatch.setattr(user_warnings, "_warned_once", set())
        lucid_gpu.nn.functional.conv2d(x.double(), x.double())  # cuDNN would not take these
        with lucid_gpu.backends.cudnn.flags(enabled=False):
            lucid_gpu.nn.functional.conv2d(x, x)
    assert cudnn.is_missed("float32") and not cudnn.is_missed("float64")
