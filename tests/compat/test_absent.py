"""Names that are absent on purpose say what to write instead."""

from __future__ import annotations

import importlib

import pytest

import lucid_gpu
from lucid_gpu.compat.absent import _INSTEAD


@pytest.mark.parametrize("path", _INSTEAD)
def test_what_is_absent_says_what_to_write(path: str) -> None:
    above, _, name = path.rpartition(".")
    module = importlib.import_module(f"lucid_gpu.{above}".rstrip("."))
    assert not hasattr(module, name), "it is here now: its row goes"
    with pytest.raises(AttributeError) as caught:
        getattr(module, name)
    assert str(caught.value) == (
        f"module {module.__name__!r} has no attribute {name!r}: {_INSTEAD[path]} (docs/names.md)"
    )


@pytest.mark.parametrize("module", [lucid_gpu, lucid_gpu.nn])
def test_misspelt_names_are_refused_in_torchs_words(module: object) -> None:
    with pytest.raises(
        AttributeError, match=r"^module 'lucid_gpu(\.nn)?' has no attribute 'onse'$"
    ):
        module.onse  # type: ignore[attr-defined]
