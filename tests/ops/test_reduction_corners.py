"""Reductions at their corners: integers, bools, nothing to reduce, NumPy's names, ``out=``."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from tests.oracle import agree, gives, same_error, torch_module

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
    "a long product": (lambda m, t: t.prod(), np.linspace(0.9, 1.1, 2000)),
    "running sum of an integer": (lambda m, t: t[0, 0].cumsum(0), BYTES),
    "sum to the size of bytes": (lambda m, t: (t.sum_to_size(2, 1), t.sum_to_size(2, 2)), BYTES),
    "norms out of range": (
        lambda m, t: (t.detach().norm(), t.detach().norm(4), t.detach().std()),
        np.array([300, -300, 200], np.float16),
    ),
    "angles out of range": (
        lambda m, t: m.cosine_similarity(t.detach(), -t.detach(), 0),
        np.array([300, -300, 200], np.float16),
    ),
    "positions of nothing": (
        lambda m, t: (t[0].nonzero(), m.argwhere(t[0] - 1), *t[0].nonzero(as_tuple=True)), PAIR
    ),
    "softmax of nothing": (lambda m, t: (t.softmax(1), t.log_softmax(1), t.softmax(0)), NONE),
    "differences of order 0": (lambda m, t: t.diff(0, prepend=t, append=t), PAIR),
    "covariance of a row": (lambda m, t: (t[:1].cov(), t[:1].detach().corrcoef()), SQUARE),
    "slopes of no spacing": (lambda m, t: m.gradient(t, spacing=None), SQUARE),
    "flip of no dimension": (lambda m, t: (t.flip(()), m.flip(t, dims=[])), SQUARE),
    "triangle of bools": (lambda m, t: ((t > 0.7).triu(), (t > 0.7).tril_(-1)), SQUARE),
    "products of bytes": (
        lambda m, t: (m.inner(t[0] * 200, t[1]), m.tensordot(t * 99, t)),
        BYTES,
    ),
    "inverse of both sides": (
        lambda m, t: (t * 1j).istft(2, 1, window=m.ones(2, dtype=m.float64).to(t.device)),
        SQUARE,
    ),
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
    "triangle of a vector": (lambda m: m.ones(3).tril(), "at least 2 dimensions"),
    "covariance of bools": (lambda m: m.tensor([True, False]).cov(), "bool dtype is not supported"),
    "slopes twice": (lambda m: m.gradient(m.ones(3, 3), dim=(1, 1)), "multiple times in the list"),
    "negative weights": (
        lambda m: m.ones(2).cov(aweights=m.tensor([-1.0, 1])),
        "aweights cannot be negative",
    ),
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


def test_a_large_sum_beyond_its_range_is_silent(device: str) -> None:
    """In blocks, whose sums are joined: as in PyTorch infinity, and NaN of two infinities."""

    def scenario(module: Any, where: str) -> Any:
        ones = module.ones(1 << 17, dtype=module.float16, device=where)
        far = module.zeros(1 << 17, device=where)
        far[0], far[-1] = math.inf, -math.inf
        return [ones.sum().item() == math.inf, ones.mean().item(), math.isnan(far.sum().item())]

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gives([True, 1.0, True], scenario, device)


@pytest.mark.parametrize("dtype", ["int64", "bool", "complex64"])
@pytest.mark.parametrize("shape", [(0, 3), (2, 3, 0)])
def test_no_elements_of_types_that_are_no_floats(dtype, shape):
    for m in (lucid_gpu, torch_module()):
        x, f = m.zeros(shape, dtype=getattr(m, dtype)), m.nn.functional
        for y in (
            f.softmax(x, 1),
            f.log_softmax(x, 0),
            f.batch_norm(x, None, None, training=True),
            f.batch_norm(x, m.zeros(3), m.ones(3)),
        ):
            assert (y.dtype, tuple(y.shape)) == (x.dtype, shape)


@pytest.mark.parametrize("dim", [(), []], ids=["tuple", "list"])
def test_truth_over_no_dimension_is_that_of_each_element(dim: Any, device: str) -> None:
    def truth(m: Any, x: Any) -> Any:
        each = m.func.vmap(lambda row: row.any(dim=dim)) if m is lucid_gpu else lambda x: x != 0
        return x.all(dim), m.any(x, dim=dim, keepdim=True), each(x)

    agree(truth, np.array([[0.0, 1.0, 2.0], [3.0, 0.0, 0.0]]), device=device, order=0)


def test_amax_over_no_dimension_of_nothing_is_refused_like_over_all() -> None:
    same_error(lambda m: m.zeros(0, 2).amax([]))
