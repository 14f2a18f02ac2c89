"""Pairs of `torch.testing._comparison`, beside PyTorch's."""

from __future__ import annotations

import importlib
import re
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from tests.oracle import torch_module

ours: Any = importlib.import_module("lucid_gpu.testing._comparison")

KINDS = ["NonePair", "BooleanPair", "NumberPair", "TensorLikePair", "ObjectPair"]
CASES: dict[str, Any] = {
    "close": lambda m: ([1.0, m.ones(2)], [1.0 + 1e-9, m.ones(2)]),
    "tensors": lambda m: (m.tensor([1.0, 2.0]), m.tensor([1.0, 2.5])),
    "exact": lambda m: (m.tensor([1, 2, 3]), m.tensor([1, 5, 3])),
    "numbers of no dimension": lambda m: (m.tensor(1.0), m.tensor(1.5)),
    "equal numbers wanted": lambda m: (3, 4),
    "numbers": lambda m: ({"a": [1.0, 2.0]}, {"a": [1.0, 2.125]}),
    "zero": lambda m: (1.0, 0.0),
    "types": lambda m: (m.ones(2), m.ones(2).double()),
    "shapes": lambda m: (m.ones(2), m.ones(3)),
    "flags": lambda m: (True, False),
    "nothing": lambda m: ([None, None], [None, 1]),
    "objects": lambda m: (["a", {"k": "b"}], ["a", {"k": "c"}]),
    "several": lambda m: ([1, "a", True], [2, "b", True]),
    "lengths": lambda m: ([1], [1, 2]),
    "keys": lambda m: ({"a": 1, "b": 2}, {"a": 1, "c": 2}),
    "arrays": lambda m: (np.ones(2), np.array([1.0, 2.0])),
    "NaN": lambda m: (m.tensor([float("nan")]), m.tensor([float("nan")])),
    "lists and tuples": lambda m: ([1, 2], (1, 2)),
}


def said(m: Any, case: str, **options: Any) -> Any:
    """What is wrong with a case, or the error."""
    module = importlib.import_module(f"{m.__name__}.testing._comparison")
    kinds = [getattr(module, kind) for kind in KINDS]
    try:
        metas = module.not_close_error_metas(*CASES[case](m), pair_types=kinds, **options)
    except Exception as error:
        return type(error), str(error).replace("torch.", "")
    errors = [(meta.type, meta.id, meta.to_error()) for meta in metas]
    return [(kind, where, str(e).replace("torch.", "")) for kind, where, e in errors]


def rounded(words: str) -> str:
    """The words with four digits of each number: PyTorch subtracts in the tensors' own type."""
    return re.sub(r"\d+(\.\d+)?(e-?\d+)?", lambda found: f"{float(found[0]):.4g}", words)


@pytest.mark.parametrize("options", [{}, {"rtol": 0.1, "atol": 0.0, "equal_nan": True}], ids=str)
@pytest.mark.parametrize("case", CASES)
def test_what_differs_is_told_in_torchs_words(case: str, options: dict[str, Any]) -> None:
    mine = said(lucid_gpu, case, **options)
    theirs = said(torch_module(), case, **options)
    assert rounded(str(mine).replace("lucid_gpu.", "")) == rounded(str(theirs))


def test_settings_of_pairs(device: str) -> None:
    x = lucid_gpu.ones(2, device=device)
    with pytest.raises(ours.ErrorMeta) as caught:
        ours.TensorLikePair(x, x, rtol=1.0)
    error = caught.value.to_error()
    assert type(error) is ValueError and "but got no atol" in str(error)
    pair = ours.TensorLikePair(x, x.double(), check_dtype=False, id=(3, "a"))
    pair.compare()
    assert repr(pair).startswith("TensorLikePair(\n    id=(3, 'a'),") and "rtol=" in repr(pair)
    with pytest.raises(ours.UnsupportedInputs):
        ours.TensorLikePair(x, 3)
    with pytest.raises(ours.UnsupportedInputs):
        ours.TensorLikePair(x, lucid_gpu.nn.Parameter(x), allow_subclasses=False)
    ours.TensorLikePair(x.to("meta"), lucid_gpu.zeros(2, device="meta")).compare()
    with pytest.raises(ours.ErrorMeta, match="do not match"):
        ours.NumberPair(1, 1.0, check_dtype=True).compare()
    meta = ours.ErrorMeta(AssertionError, "words", id=(1, "k"))
    assert str(meta.to_error()) == "words\n\nThe failure occurred for item [1]['k']"
    assert str(meta.to_error("mine")) == "mine"
    assert str(meta.to_error(lambda words: words[:5] + "!")) == "words!"


def test_sentences_of_mismatches(device: str) -> None:
    a, b = lucid_gpu.tensor([1.0, 2.0], device=device), lucid_gpu.tensor([1.0, 4.0], device=device)
    words = ours.make_tensor_mismatch_msg(
        a, b, a == b, rtol=0.0, atol=0.5, identifier=lambda name: f"My {name.lower()}"
    )
    assert words.startswith("My tensor-likes are not close!") and "1 / 2 (50.0%)" in words
    words = ours.make_scalar_mismatch_msg(1, 2, rtol=0, atol=0, identifier="Counts")
    assert words.startswith("Counts are not equal!") and "Expected 2 but got 1." in words


def test_the_older_assert_close(device: str) -> None:
    x = lucid_gpu.ones(2, device=device)
    lucid_gpu.testing.assert_allclose(x, [1.00005, 1.0]) if device == "cpu" else None
    lucid_gpu.testing.assert_allclose(x, x.double() + 5e-6)
    with pytest.raises(AssertionError, match="^mine$"):
        lucid_gpu.testing.assert_allclose(x, x + 1, msg="mine")
