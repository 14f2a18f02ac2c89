"""Diagonals: values, gradients, views and errors as in torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lucid_gpu
from tests.oracle import agree, gives, modules, same_error

RNG = np.random.default_rng(22)
CUBE = RNG.standard_normal((3, 4, 3))
CASES: dict[str, Any] = {
    "diagonal": lambda m, t: m.diagonal(t) * 1,
    "above": lambda m, t: t.diagonal(1, 1, 2) * 1,
    "below": lambda m, t: t.diagonal(offset=-2, dim1=-1, dim2=0) * 1,
    "beyond": lambda m, t: t.diagonal(7) * 1,
    "of a transpose": lambda m, t: t.mT.diagonal(1, -2, -1) * 1,
    "of nothing": lambda m, t: t[:0].diagonal() * 1,
    "diag of a matrix": lambda m, t: m.diag(t[1], 1),
    "diag of a vector": lambda m, t: t[1, 1].diag(-1),
    "diag_embed": lambda m, t: m.diag_embed(t[0], 1),
    "diag_embed in front": lambda m, t: t.diag_embed(dim1=0, dim2=2),
    "diagflat": lambda m, t: m.diagflat(t[0, :2], -1),
    "trace": lambda m, t: t[2].trace(),
    "diagonal_scatter": lambda m, t: m.diagonal_scatter(t, t[0] * 2, 0, 0, 2),
    "diagonal_scatter above": lambda m, t: t[0].diagonal_scatter(t[1, 0, :2], 1),
    "written through": lambda m, t: _write_diagonal(t * 1, 5 * t[0, 0]),
    "added to": lambda m, t: _add_diagonal(t * 1),
    "fill_diagonal_": lambda m, t: (t[0] * 1).fill_diagonal_(2.5),
    "fill_diagonal_ wraps": lambda m, t: m.cat([t[0], t[1]]).fill_diagonal_(2.5, wrap=True),
    "fill_diagonal_ of a cube": lambda m, t: t[:3, :3].clone().fill_diagonal_(0),
    "tril": lambda m, t: t.tril(),
    "triu": lambda m, t: t.triu(1),
    "tril below": lambda m, t: t.tril(-1),
}


def _write_diagonal(t: Any, value: Any) -> Any:
    t.diagonal(dim1=1, dim2=2)[:] = value
    return t


def _add_diagonal(t: Any) -> Any:
    view = t.diagonal(1, 0, 1)
    view += 1
    view *= 3
    return t, view


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_torch(name: str, device: str) -> None:
    agree(CASES[name], CUBE, device=device)


def test_a_diagonal_is_a_view(device: str) -> None:
    def scenario(m: Any, where: str) -> Any:
        t = m.zeros(3, 4, device=where)
        t.diagonal(1).copy_(m.arange(3.0))
        t.diagonal().add_(7)
        whole = m.ones(2, 2, dtype=m.int64, device=where).fill_diagonal_(3)
        return t, t.diagonal()._base is t, m.diag(t)._base is None, whole, t._version

    rows = [[7, 0, 0, 0], [0, 7, 1, 0], [0, 0, 7, 2]]
    gives([rows, True, True, [[3, 1], [1, 3]], 2], scenario, device)


def test_vmap_and_tangents(device: str) -> None:
    x = lucid_gpu.tensor(CUBE, device=device)
    assert lucid_gpu.vmap(lambda m: m.diagonal(1))(x).tolist() == x.diagonal(1, 1, 2).tolist()
    assert lucid_gpu.vmap(lambda v: v.diag())(x[0]).tolist() == x[0].diag_embed().tolist()
    _, tangent = lucid_gpu.func.jvp(lambda t: t.diagonal() * t.diagonal(), (x,), (x,))
    assert tangent.allclose(2 * x.diagonal() ** 2)


MISUSE: dict[str, tuple[Any, str]] = {
    "one dim": (lambda m: m.ones(2, 2).diagonal(0, 1, -1), "dimensions cannot be identical 1, -1"),
    "a vector": (lambda m: m.ones(2).diagonal(), "Dimension out of range"),
    "a number": (lambda m: m.tensor(1.0).diagonal(), "Dimension"),
    "diag of a cube": (lambda m: m.ones(2, 2, 2).diag(), "Supports 1D or 2D tensors"),
    "embedding a number": (lambda m: m.tensor(1.0).diag_embed(), ""),
    "embedding twice": (lambda m: m.ones(2).diag_embed(0, 1, 1), "dimensions cannot be identical"),
    "trace": (lambda m: m.ones(2).trace(), "trace: expected a matrix"),
    "source": (
        lambda m: m.ones(2, 2).diagonal_scatter(m.ones(3)),
        "expected src to have a size equal to the slice of self. src size = [3], slice size = [2]",
    ),
    "filling a vector": (lambda m: m.ones(2).fill_diagonal_(1), "dimensions must larger than 1"),
    "filling a box": (
        lambda m: m.ones(2, 2, 3).fill_diagonal_(1),
        "all dimensions of input must be of equal length",
    ),
}


@pytest.mark.parametrize("name", MISUSE)
def test_misuse_raises_as_in_torch(name: str) -> None:
    same_error(*MISUSE[name])


def test_triangles_are_differentiated_twice_without_retaining() -> None:
    for module, _ in modules():
        x = module.ones(2, 2, requires_grad=True)
        for triangle in (x.tril(), x.triu()):
            triangle.sum().backward()
            triangle.sum().backward()
            assert triangle.grad_fn.name().startswith("Tri")
        assert x.grad.tolist() == [[4, 2], [2, 4]]
