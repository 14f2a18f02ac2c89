"""Distances: values, gradients (at zero, too) and errors as in torch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from tests.oracle import agree, same_error

RNG = np.random.default_rng(30)
A = RNG.standard_normal((3, 2))
B = np.concatenate([RNG.standard_normal((2, 2)), A[:1], A[1:2] * [1, 0]])  # one distance is 0
BATCH = RNG.standard_normal((2, 1, 3, 2))
ORDERS = [0, 0.5, 1, 1.5, 2, 3, math.inf]


@pytest.mark.parametrize("p", ORDERS)
def test_distances_of_every_order(p: float, device: str) -> None:
    agree(lambda m, a, b: m.cdist(a, b, p), A, B, device=device, order=1)
    pairs = np.array([[1.0, 2.0], [1.0, 2.0], [0.0, 3.0], [0.5, 0.0]])
    agree(lambda m, t: m.pdist(t, p), pairs, device=device, order=1)
    if p not in (0, math.inf):
        agree(lambda m, a, b: m.dist(a, b[:3], p), A, B, device=device)


CASES: dict[str, Any] = {
    "batches": lambda m, a, b, c: m.cdist(c, a),
    "one row": lambda m, a, b, c: m.cdist(a[:1], b, p=1.0),
    "no rows": lambda m, a, b, c: m.cdist(a[:0], b),
    "no columns": lambda m, a, b, c: m.cdist(a[:, :0], b[:, :0]),
    "by a product": lambda m, a, b, c: m.cdist(a, b[:2], compute_mode="use_mm_for_euclid_dist"),
    "dist to itself": lambda m, a, b, c: a.dist(a * 1),
    "dist broadcasts": lambda m, a, b, c: m.dist(a, c[0, 0, 0], 3),
    "pdist of one row": lambda m, a, b, c: m.pdist(a[:1]),
    "bilinear": lambda m, a, b, c: m.bilinear(a, b[:3], b.reshape(2, 2, 2), c[0, 0, 0]),
    "bilinear of batches": lambda m, a, b, c: m.nn.functional.bilinear(c, c * 2, a[None, :2]),
    "bilinear of vectors": lambda m, a, b, c: m.bilinear(a[0], b[0], b.reshape(2, 2, 2)),
    "vander": lambda m, a, b, c: m.vander(a[:, 0], 4),
    "vander, increasing": lambda m, a, b, c: m.vander(a[:, 0], increasing=True),
    "vander of one column": lambda m, a, b, c: m.vander(a[:, 0], N=1),
    "cosine": lambda m, a, b, c: m.cosine_similarity(a, b[:3]),
    "pairwise": lambda m, a, b, c: m.pairwise_distance(a, b[:3], 1.0),
}


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_torch(name: str, device: str) -> None:
    order = 0 if "vander" in name else 1  # PyTorch's has no gradient
    agree(CASES[name], A, B, BATCH, device=device, order=order)


def test_many_rows_are_one_product(device: str) -> None:
    agree(lambda m, t: m.cdist(t, t[:5] + 3), RNG.standard_normal((30, 3)), device=device, order=1)


def test_second_derivatives(device: str) -> None:
    a, b = (lucid_gpu.tensor(x, device=device, requires_grad=True) for x in (A, B[:2]))
    assert lucid_gpu.autograd.gradgradcheck(lambda x, y: lucid_gpu.cdist(x, y, 3), (a, b))


MISUSE: dict[str, tuple[Any, str]] = {
    "a vector": (
        lambda m: m.cdist(m.ones(2, 3), m.ones(3)),
        "cdist only supports at least 2D tensors, X2 got: 1D",
    ),
    "columns": (lambda m: m.cdist(m.ones(2, 3), m.ones(2, 2)), "number of columns. X1: 3 X2: 2"),
    "order": (lambda m: m.cdist(m.ones(1, 1), m.ones(1, 1), -1), "only supports non-negative p"),
    "ints": (
        lambda m: m.cdist(m.ones(1, 1).long(), m.ones(1, 1)),
        "cdist only supports floating-point dtypes, X1 got:",
    ),
    "types": (lambda m: m.cdist(m.ones(1, 1), m.ones(1, 1).double()), "expected scalar type"),
    "mode": (
        lambda m: m.cdist(m.ones(1, 1), m.ones(1, 1), compute_mode="x"),
        "x is not a valid value for compute_mode",
    ),
    "batches": (
        lambda m: m.cdist(m.ones(2, 1, 1), m.ones(3, 1, 1)),
        "The size of tensor a (2) must match the size of tensor b (3)",
    ),
    "pdist of a vector": (lambda m: m.pdist(m.ones(2)), "only supports 2D tensors, got: 1D"),
    "pdist order": (lambda m: m.pdist(m.ones(2, 2), -1), "only supports non-negative p"),
    "bilinear sizes": (
        lambda m: m.bilinear(m.ones(1, 2), m.ones(1, 4), m.ones(4, 2, 3)),
        "bilinear(): input2 size does not match weight size: got 4 but expected 3",
    ),
    "bilinear batches": (
        lambda m: m.bilinear(m.ones(1, 2), m.ones(2, 3), m.ones(4, 2, 3)),
        "input batch dimensions do not match at dim 0: got 1 and 2",
    ),
    "bilinear bias": (
        lambda m: m.bilinear(m.ones(1, 2), m.ones(1, 3), m.ones(4, 2, 3), m.ones(3)),
        "bias size does not match weight size: got 3 but expected 4",
    ),
    "vander of a matrix": (lambda m: m.vander(m.ones(2, 2)), "x must be a one-dimensional tensor."),
    "vander": (lambda m: m.vander(m.ones(2), -1), "N must be non-negative."),
}


@pytest.mark.parametrize("name", MISUSE)
def test_misuse_raises_as_in_torch(name: str) -> None:
    same_error(*MISUSE[name])
