"""Joined by position: values, gradients and errors as in torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.autograd import gradcheck, gradgradcheck
from lucid_gpu.func import entries
from tests.oracle import agree, same_error

RNG = np.random.default_rng(31)
X = RNG.standard_normal((3, 4))
SRC = RNG.standard_normal((4, 4))
ZEROS = np.where(RNG.random((4, 4)) < 0.4, 0.0, SRC)  # ties and zeros
INDEX = RNG.integers(0, 2, (4, 4))
REDUCTIONS = ["sum", "mean", "prod", "amax", "amin"]
pytestmark = pytest.mark.filterwarnings("ignore:index_reduce", "ignore:The reduce argument")


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_agrees_with_torch(reduce: str, include_self: bool, device: str) -> None:
    def down(m: Any, x: Any, src: Any) -> Any:
        index = m.tensor(INDEX).to(x.device)
        return x.scatter_reduce(0, index, src, reduce, include_self=include_self)

    def across(m: Any, x: Any, src: Any) -> Any:
        index = m.tensor(INDEX[:3, :2] * 3).to(x.device)
        return m.scatter_reduce(x, -1, index, src[:3, :2], reduce, include_self=include_self)

    for source in (SRC, ZEROS):
        agree(down, X, source, device=device, order=1)
        if include_self:
            agree(across, np.where(X < 0, 0.0, X), source, device=device, order=1)
    agree(down, *[np.rint(a * 3).astype(np.int64) for a in (X, SRC)], device=device)


@pytest.mark.parametrize("reduce", REDUCTIONS[1:])
def test_slices_agree_with_torch(reduce: str, device: str) -> None:
    def slices(m: Any, x: Any, src: Any) -> Any:
        index = m.tensor([2, 0, 2]).to(x.device)
        whole = m.index_reduce(x, 0, index, src[:3], reduce, include_self=False)
        return whole, (x * 1).index_reduce_(1, index, src[:3, :3], reduce)

    agree(slices, X, SRC, device=device, order=1)


CASES: dict[str, Any] = {
    "a number": lambda m, x, s: x[0, 0].scatter_reduce(
        0, m.tensor(0).to(x.device), s[0, 0], "amax"
    ),
    "at one position": lambda m, x, s: tuple(
        x[0].scatter_reduce(0, m.tensor(2).to(x.device), s[0, 0], reduce) for reduce in REDUCTIONS
    ),
    "nothing": lambda m, x, s: x.detach().scatter_reduce(
        0, m.tensor(INDEX[:0]).to(x.device), s.detach(), "prod"
    ),
    "whole slices": lambda m, x, s: m.scatter_reduce(
        x, 1, m.tensor([[3, 1, 3]]).to(x.device).expand(3, 3), s[:3, :3], "amax"
    ),
    "sums of whole slices": lambda m, x, s: x.scatter_add(
        0, m.tensor([[2], [0], [2], [2]]).to(x.device).expand(4, 4), s
    ),
    "parts of slices": lambda m, x, s: x.scatter_reduce(
        1, m.tensor([[3, 1, 3]]).to(x.device).expand(2, 3), s[:2, :3], "prod"
    ),
    "in place": lambda m, x, s: (x * 1).scatter_reduce_(
        0, m.tensor(INDEX).to(x.device), s, reduce="amin"
    ),
    "scatter a value": lambda m, x, s: x.scatter(0, m.tensor(INDEX).to(x.device), value=2.5),
    "scatter, add": lambda m, x, s: x.detach().scatter(
        1, m.tensor(INDEX[:3]).to(x.device), s.detach(), reduce="add"
    ),
    "scatter, multiply": lambda m, x, s: x.detach().scatter(
        1, m.tensor(INDEX[:3]).to(x.device), 3.0, reduce="multiply"
    ),
    "scatter from more": lambda m, x, s: m.scatter(
        x.detach(), 0, m.tensor([[2, 0, 1]]).to(x.device), src=s.detach()
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_forms_agree_with_torch(name: str, device: str) -> None:
    agree(CASES[name], X, SRC, device=device, order=1)


def test_16_bit_products_round_once(device: str) -> None:
    x = lucid_gpu.full((1,), 1.01, dtype=lucid_gpu.bfloat16, device=device)
    index = lucid_gpu.zeros(64, dtype=lucid_gpu.int64, device=device)
    found = x.scatter_reduce(0, index, x.expand(64), "prod")
    assert found.item() == lucid_gpu.tensor(x.item() ** 65, dtype=lucid_gpu.bfloat16).item()


def test_vmap_and_second_derivatives(device: str) -> None:
    x, src = (lucid_gpu.tensor(a, device=device) for a in (X[:, :2], SRC[:3, :2]))
    index = lucid_gpu.tensor(INDEX[:3, :2], device=device)

    def joined(x: Any, src: Any) -> Any:
        return x.scatter_reduce(0, index[:, 0], src, "amax")

    entries._warned.clear()  # told once a process
    with pytest.warns(UserWarning, match="performance drop"):
        found = lucid_gpu.vmap(joined, in_dims=1, out_dims=1)(x, src)
    both = index[:, :1].expand(3, 2).contiguous()
    assert found.tolist() == x.scatter_reduce(0, both, src, "amax").tolist()
    leaves = [t.requires_grad_() for t in (x, src)]
    assert lucid_gpu.autograd.gradgradcheck(
        lambda a, b: a.scatter_reduce(0, index, b, "prod"), leaves
    )


MISUSE: dict[str, tuple[Any, str]] = {
    "reduction": (
        lambda m: m.ones(3).scatter_reduce(0, m.tensor([0]), m.ones(1), "add"),
        "reduce argument must be either sum, prod, mean, amax or amin, got add",
    ),
    "larger": (
        lambda m: m.ones(3).scatter_reduce(0, m.tensor([0, 1]), m.ones(1), "amax"),
        "to be no larger size than src [1]",
    ),
    "type": (
        lambda m: m.ones(3).scatter_reduce(0, m.tensor([0]), m.ones(1).double(), "amax"),
        "Expected self.dtype to be equal to src.dtype",
    ),
    "float positions": (
        lambda m: m.ones(3).scatter_reduce(0, m.ones(1), m.ones(1), "amax"),
        "scatter(): Expected dtype int32/int64 for index",
    ),
    "index_reduce": (
        lambda m: m.ones(3).index_reduce(0, m.tensor([0]), m.ones(1), "sum"),
        "Expected reduce to be one of prod, mean, amax or amin but got sum.",
    ),
    "a matrix": (
        lambda m: m.ones(3).index_reduce(0, m.tensor([[0]]), m.ones(1), "prod"),
        "Index is supposed to be a vector",
    ),
    "slices": (
        lambda m: m.ones(3).index_reduce(0, m.tensor([0]), m.ones(2), "prod"),
        "Number of indices (1) should be equal to source.size(dim): (2), for dim: 0",
    ),
    "scatter reduction": (
        lambda m: m.ones(3).scatter(0, m.tensor([0]), m.ones(1), reduce="mean"),
        "reduce argument must be either add or multiply.",
    ),
    "scatter rank": (lambda m: m.ones(3).scatter(0, m.tensor([[0]]), 1.0), "same number of dim"),
    "scatter sizes": (
        lambda m: m.ones(3).scatter(0, m.tensor([0, 1]), m.ones(1)),
        "Expected index [2] to be no larger than self [3] apart from dimension 0",
    ),
    "scatter by floats": (
        lambda m: m.ones(3).scatter_(0, m.ones(1), 1.0),
        "scatter(): Expected dtype int32/int64 for index",
    ),
}


@pytest.mark.parametrize("name", MISUSE)
def test_misuse_raises_as_in_torch(name: str) -> None:
    same_error(*MISUSE[name])


def test_means_of_complex_numbers(device):
    def means(m: Any, x: Any, source: Any, index: Any) -> Any:
        return [
            x.detach().scatter_reduce(0, index, source.detach(), "mean", include_self=own)
            for own in (True, False)
        ]

    x, source = np.array([1j, 2, 3]), np.array([1 + 1j, 2, 4j, 6])
    agree(means, x, source, np.array([0, 0, 1, 1]), device=device, order=0)


@pytest.mark.parametrize("include_self", [True, False])
def test_a_product_with_several_zeros_has_second_derivatives(include_self: bool) -> None:
    x = lucid_gpu.tensor([[0.0, 2, 3], [3, 4, 0]], dtype=lucid_gpu.float64, requires_grad=True)
    source = [[0.0, 1.5, 2], [0, 0, 2], [2, 0, 0], [0, 2, 3]]
    src = lucid_gpu.tensor(source, dtype=lucid_gpu.float64, requires_grad=True)
    index = lucid_gpu.tensor([0, 1, 1, 0])

    def joined(x: Any, src: Any) -> Any:
        return lucid_gpu.index_reduce(x, 0, index, src, "prod", include_self=include_self)

    assert gradcheck(joined, (x, src))
    assert gradgradcheck(joined, (x, src))


@pytest.mark.parametrize("name", ["scatter_reduce", "index_reduce"])
def test_products_of_several_zeros_have_a_second_gradient(name: str, device: str) -> None:
    """PyTorch refuses it."""
    x = lucid_gpu.tensor([3.0, 2.0], dtype=lucid_gpu.float64, device=device).requires_grad_()
    zeros = [0.0, 0.0, 2.0, 5.0]
    src = lucid_gpu.tensor(zeros, dtype=lucid_gpu.float64, device=device).requires_grad_()
    index = lucid_gpu.tensor([0, 0, 0, 1], device=device)
    assert lucid_gpu.autograd.gradgradcheck(
        lambda a, b: getattr(a, name)(0, index, b, "prod"), (x, src)
    )
