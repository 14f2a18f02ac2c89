"""A scenario on both modules, whose trees of tensors must agree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import lucid_gpu
from lucid_gpu.func.trees import flatten
from tests.oracle import array_of, torch_module


def agree(call: Callable[[Any], Any], rtol: float = 1e-6, atol: float = 1e-9) -> None:
    """``call(module)`` gives trees of one structure, of equal tensors, with both modules."""
    expected, of_expected = flatten(call(torch_module()))
    got, of_got = flatten(call(lucid_gpu))
    assert repr(of_got) == repr(of_expected)
    for mine, theirs in zip(got, expected, strict=True):
        if not isinstance(mine, lucid_gpu.Tensor):
            assert mine == theirs
            continue
        assert tuple(mine.shape) == tuple(theirs.shape)
        assert str(mine.dtype).rpartition(".")[2] == str(theirs.dtype).rpartition(".")[2]
        np.testing.assert_allclose(array_of(mine), array_of(theirs), rtol=rtol, atol=atol)


def tensor(module: Any, *shape: int, seed: int = 0, kind: Any = None) -> Any:
    """The same random numbers, whichever module."""
    rng = np.random.default_rng([seed, *shape])
    array = rng.standard_normal(shape) if kind is None else rng.integers(0, kind, shape)
    return module.from_numpy(np.asarray(array))
