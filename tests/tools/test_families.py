"""Every name of lucid_gpu itself is in a family, by the file that defines it."""

from __future__ import annotations

import pytest

import lucid_gpu
from lucid_gpu.compat.module_names import lacking
from tools import families, reference


def test_every_name_is_in_one_family() -> None:
    members = families.members()
    names = [name for names in members.values() for name in names]
    assert sorted([*names, "Tensor"]) == sorted(reference.public(lucid_gpu))


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("exp", "Elementwise"),  # made by a table
        ("roll", "Shapes and views"),  # late
        ("relu_", "Networks"),  # of another namespace
        ("qr", "Linear algebra"),  # in a folder of ops/
        ("Generator", "Random numbers"),  # a class
        ("FloatTensor", "Tensors and element types"),  # a class that a table made
        ("float32", "Tensors and element types"),
        ("save", "Files and other libraries"),
    ],
)
def test_a_name_is_where_a_reader_looks(name: str, family: str) -> None:
    assert families.family_of(getattr(lucid_gpu, name)) == family


def test_no_file_is_named_for_nothing() -> None:
    homes = {families.home(value) for value in reference.public(lucid_gpu).values()}
    named = [file for files in families.FAMILIES.values() for file in files.split()]
    assert len(set(named)) == len(named)
    assert not [f for f in named if not any(h == f or h.startswith(f + ".") for h in homes)]


def test_a_file_without_a_family_says_what_to_do() -> None:
    with pytest.raises(KeyError, match="compat.module_names belongs to no family: name it in"):
        families.family_of(lacking)
