"""Factors ``L D L^T``: pivots, blocks and solutions are LAPACK's."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from tests.oracle import torch_module

KINDS = ["dense", "zero diagonal", "whole numbers", "mostly zeros"]


def matrices(kind: str, n: int, batch: tuple[int, ...], dtype: str) -> Any:
    rng = np.random.default_rng(n)
    a = rng.standard_normal((*batch, n, n))
    if dtype.startswith("complex"):
        a = a + 1j * rng.standard_normal(a.shape)
    if kind == "zero diagonal":
        a = a - np.eye(n) * a
    if kind == "whole numbers":
        a = np.round(a)
    if kind == "mostly zeros":
        a = a * (rng.random(a.shape) < 0.3) + np.eye(n) * 1e-3
    return a.astype(dtype)


def whole(a: Any, hermitian: bool) -> Any:
    """The matrix whose lower triangle is read."""
    lower = np.tril(a, -1).swapaxes(-1, -2)
    diagonal = np.eye(a.shape[-1]) * a
    return np.tril(a, -1) + (lower.conj() + diagonal.real if hermitian else lower + diagonal)


CASES = list(itertools.product(KINDS, (0, 1, 2, 3, 9), ((), (2, 3), (0,))))


@pytest.mark.each_value
@pytest.mark.parametrize("hermitian", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize(("kind", "n", "batch"), CASES)
def test_solutions(
    kind: str, n: int, batch: tuple[int, ...], dtype: str, hermitian: bool, device: str
) -> None:
    a = matrices(kind, n, batch, dtype)
    x = np.random.default_rng(1).standard_normal((*batch, n, 2)).astype(dtype)
    tensor = lucid_gpu.tensor(a, device=device)
    LD, pivots, info = lucid_gpu.linalg.ldl_factor_ex(tensor, hermitian=hermitian)
    assert not LD.triu(1).any() and pivots.dtype is info.dtype is lucid_gpu.int32
    count = int(np.prod(batch))
    singular = info.reshape(-1).cpu().numpy() > 0
    b = (whole(a, hermitian) @ x).astype(dtype)
    solved = lucid_gpu.linalg.ldl_solve(
        LD, pivots, lucid_gpu.tensor(b, device=device), hermitian=hermitian
    )
    size = 1e-2 if dtype in ("float32", "complex64") else 1e-8
    kept = solved.cpu().numpy().reshape(count, n, 2)[~singular]
    wanted = x.reshape(count, n, 2)[~singular]
    if kind == "dense" and n < 9:
        np.testing.assert_allclose(kept, wanted, rtol=size, atol=size)
    residue = whole(a, hermitian).reshape(count, n, n)[~singular] @ (kept - wanted)
    assert np.abs(residue).max(initial=0) < size * 10


@pytest.mark.each_value
@pytest.mark.parametrize("hermitian", [False, True])
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize(  # equal sizes of rounded numbers choose other pivots
    ("kind", "n", "batch"), [c for c in CASES if c[:2] != ("whole numbers", 9)]
)
def test_factors_are_torchs(
    kind: str, n: int, batch: tuple[int, ...], dtype: str, hermitian: bool, device: str
) -> None:
    torch = torch_module()
    a = matrices(kind, n, batch, dtype)
    theirs = torch.linalg.ldl_factor_ex(torch.tensor(a), hermitian=hermitian)
    tensor = lucid_gpu.tensor(a, device=device)
    ours = lucid_gpu.linalg.ldl_factor_ex(tensor, hermitian=hermitian)
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine.cpu().numpy(), other.numpy(), rtol=1e-9, atol=1e-9)
    if ours.LD.numel():
        assert ours.LD.stride() == theirs.LD.stride()


REFUSED: list[tuple[Any, str]] = [
    (lambda m: m.linalg.ldl_factor(m.ones(2)), "must have at least 2 dimensions"),
    (lambda m: m.linalg.ldl_factor(m.ones(2, 3)), "they are 2 by 3 matrices"),
    (lambda m: m.linalg.ldl_factor(m.eye(2).long()), "Expected a floating point or complex tensor"),
    (lambda m: m.linalg.ldl_factor(m.eye(2).half()), "ldl_factor_kernel_cpu"),
    (lambda m: m.linalg.ldl_solve(m.eye(2), m.ones(2).int(), m.ones(2)), "Dimension out of range"),
    (lambda m: m.linalg.ldl_solve(m.eye(2), m.ones(2).int(), m.ones(3, 1)), "b matrix is 3 by 1"),
    (lambda m: m.linalg.ldl_solve(m.eye(2), m.ones(2).int(), m.eye(2).double()), "same dtype"),
    (lambda m: m.linalg.ldl_solve(m.eye(2), m.ones(2), m.eye(2)), "pivots to be integers"),
    (lambda m: m.linalg.ldl_solve(m.eye(2), m.ones(1).int(), m.eye(2)), "pivots with shape [1]"),
    (lambda m: m.linalg.ldl_factor(m.eye(2, requires_grad=True)).LD.sum().backward(),
     "derivative for aten::linalg_ldl_factor_ex is not implemented"),
    (lambda m: m.linalg.ldl_solve(m.eye(2), m.tensor([1, 2]), m.ones(2, 1, requires_grad=True))
     .sum().backward(), "derivative for aten::linalg_ldl_solve is not implemented"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "words"), REFUSED)
def test_what_is_refused(call: Any, words: str) -> None:
    with pytest.raises(Exception) as ours:
        call(lucid_gpu)
    assert words in str(ours.value)
    with pytest.raises(type(ours.value)) as theirs:
        call(torch_module())
    assert words in str(theirs.value)


def test_a_block_that_is_zero(device: str) -> None:
    singular = lucid_gpu.zeros(2, 2, 2, device=device)
    assert lucid_gpu.linalg.ldl_factor_ex(singular).info.tolist() == [1, 1]
    with pytest.raises(RuntimeError, match="is zero and using it on ldl_solve"):
        lucid_gpu.linalg.ldl_factor(singular)
    with pytest.raises(RuntimeError, match="is zero and using it on ldl_solve"):
        lucid_gpu.linalg.ldl_factor_ex(singular, check_errors=True)
