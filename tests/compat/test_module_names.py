"""Names are imported when first asked for; those absent on purpose say what to write instead."""

from __future__ import annotations

import importlib

import pytest

import lucid_gpu
from lucid_gpu.compat.module_names import _INSTEAD, imported


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


@pytest.mark.parametrize(
    "path",
    ["", ".autograd", ".cuda", ".distributed", ".distributed.checkpoint", ".distributed.optim"]
    + [".functional", ".nn", ".nn.parallel", ".utils"],
)
def test_misspelt_names_are_refused_in_torchs_words(path: str) -> None:
    with pytest.raises(AttributeError) as caught:
        importlib.import_module(f"lucid_gpu{path}").onse
    assert str(caught.value) == f"module 'lucid_gpu{path}' has no attribute 'onse'"


def test_names_are_imported_when_first_asked_for_and_kept() -> None:
    namespace = {"__name__": "lucid_gpu.autograd"}
    found = imported(namespace, "Variable", {"Variable": "lucid_gpu.autograd.variable"})
    assert found is namespace["Variable"] is lucid_gpu.autograd.Variable
    assert (
        imported(namespace, "functional", modules=("functional",)) is lucid_gpu.autograd.functional
    )
    with pytest.raises(AttributeError, match="no attribute 'forward_ad'"):
        imported(namespace, "forward_ad", modules=("functional",))
