"""Reductions at their corners: integers, bools, nothing to reduce, NumPy's names, ``out=``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lucid_gpu
from tests.oracle import agree, same_error, torch_module

BYTES = np.array([[1, 0], [2, 3]], np.uint8)
WHOLE = np.array([[3, 1, 2], [0, 5, 5]])
PAIR = np.array([1.0, 2.0])
SQUARE = np.array([[1.0, 2.0], [0.5, 2.0]])
COMPLEX = np.array([[1 + 2j, 3 - 1j], [0, 1j]])
NONE = np.ones((2, 0, 3))

VALUES: dict[str, tuple[Any, Any]] = {
    "any of bytes": (lambda m, t: (t.any(), t.any(1), t.any(dim=())), BYTES),
    "all of bytes": (lambda m, t: (t.all(), t.all(1, True)), BYTES),
    "any over no dimension": (lambda m, t: ((t > 1).any(()), (t > 1).all(())), PAIR),
    "variance of nothing left": (
        lambda m, t: (t.var(correction=2), t.std(correction=3), (t * 0).var(correction=2)),
        PAIR.astype(np.float32),
    ),
    "complex variance": (lambda m, t: (t.var(), t.std(0), m.var(t, 1, correction=0)), COMPLEX),
    "logsumexp of integers": (lambda m, t: (t.logsumexp(0), t[0, 0].logsumexp(0)), WHOLE),
    "places beside nothing": (lambda m, t: (t.argmax(0), t.argmin(2, True)), NONE),
    "extrema beside nothing": (lambda m, t: (*t.max(0), *t.min(-1, keepdim=True)), NONE),
    "largest bool": (lambda m, t: tuple((t > 1).max(0)), SQUARE),
    "norm of a type": (lambda m, t: t.norm(dtype=m.float64), PAIR.astype(np.float32)),
    "median of nothing": (lambda m, t: t[:, 1:1].median(), WHOLE),
    "NumPy's names": (
        lambda m, t: (t.sum(axis=0), m.mean(t, axis=1, keepdims=True), *t.max(axis=1)), SQUARE
    ),
    "out": (lambda m, t: m.sum(t.detach(), 1, out=t.detach().new_zeros(2)), SQUARE),
    "two outs": (
        lambda m, t: tuple(
            m.max(t.detach(), 1, out=(t.new_zeros(2), t.new_zeros(2, dtype=m.int64)))
        ),
        SQUARE,
    ),
    "counts of complex numbers": (lambda m, t: t.count_nonzero(), COMPLEX),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@pytest.mark.parametrize("name", VALUES)
def test_corners_are_torchs(name: str, device: str) -> None:
    function, array = VALUES[name]
    agree(function, array, device=device)


REFUSED: dict[str, tuple[Any, str]] = {
    "integer variance": (lambda m: m.tensor([1, 2]).var(), "only support floating point"),
    "position of a bool": (lambda m: m.tensor([True]).argmax(), "does not support bool"),
    "position of a complex number": (lambda m: m.tensor([1j]).argmin(), "does not support complex"),
    "position in nothing": (lambda m: m.ones(0, 3).argmax(), "dim to be specified"),
    "position along nothing": (lambda m: m.ones(0, 3).argmax(0), "dim 0 to have non-zero size"),
    "largest along nothing": (lambda m: m.ones(0, 3).max(0), "dim 0 to have non-zero size"),
    "largest of nothing": (lambda m: m.ones(0, 3).amax(), "dim to be specified"),
    "largest complex number": (lambda m: m.tensor([1j]).max(), "not implemented"),
    "median of bools": (lambda m: m.tensor([True]).median(), "not implemented"),
    "norm of integers": (lambda m: m.tensor([1, 2]).norm(), "Expected a floating point"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_are_torchs(name: str) -> None:
    function, words = REFUSED[name]
    same_error(function, words)


def test_the_norm_that_counts_is_flat(device: str) -> None:
    x = lucid_gpu.tensor([1.0, 0.0, -2.0], device=device, requires_grad=True)
    x.norm(p=0).backward()
    assert x.grad.tolist() == [0.0, 0.0, 0.0]


def test_ties_with_the_transpose_share_after_a_silent_write(device: str) -> None:
    torch_module()

    def gradient(m: Any, where: str) -> Any:
        x = m.tensor([[1.0, 2.0], [3.0, 4.0]], device=where, requires_grad=True)
        y = m.maximum(x, x.T)
        x.data[0, 1] = 9.0
        y.backward(m.tensor([[1.0, 10.0], [100.0, 1000.0]], device=where))
        return y.tolist(), x.grad.tolist()

    assert gradient(lucid_gpu, device)[0] == [[1.0, 3.0], [3.0, 4.0]]
    assert gradient(lucid_gpu, device)[1] == [[1.0, 0.0], [110.0, 1000.0]]  # of the old values
