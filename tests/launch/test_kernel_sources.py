"""The CUDA sources are found in a source tree and in an installed package."""

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
