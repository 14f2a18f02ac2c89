"""Dimensions by other names, and views in place: as in torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lucid_gpu
from tests.oracle import agree, gives, same_error

RNG = np.random.default_rng(25)
CUBE = RNG.standard_normal((1, 3, 4))
CASES: dict[str, Any] = {
    "swapaxes": lambda m, t: m.swapaxes(t, 0, axis1=-1) * 1,
    "swapdims": lambda m, t: t.swapdims(dim0=1, dim1=2) * 1,
    "moveaxis": lambda m, t: m.moveaxis(t, (0, 1), (-1, 0)) * 1,
    "ravel": lambda m, t: (t.mT.ravel(), m.tensor(t.ravel()[::2].ravel().stride())),
    "adjoint": lambda m, t: m.adjoint(t) * 1,
    "mH": lambda m, t: t.mH * 1,
    "H": lambda m, t: t[0].H * 1,
    "sum_to_size": lambda m, t: t.expand(2, 3, 4).sum_to_size(3, 1),
    "sum_to_size of a tuple": lambda m, t: t.sum_to_size((1, 4)),
    "unsqueeze_": lambda m, t: (t * 2).unsqueeze_(-1),
    "squeeze_": lambda m, t: (t * 2).squeeze_(0),
    "t_": lambda m, t: (t[0] * 2).t_().mul_(3),
    "transpose_": lambda m, t: (t * 2).transpose_(0, 2).add_(1),
    "swapaxes_": lambda m, t: (t * 2).swapaxes_(1, -1),
    "unsqueeze_ of a view": lambda m, t: _view_in_place(t * 2),
}


def _view_in_place(t: Any) -> Any:
    view = t[:, 1]
    view.unsqueeze_(0)
    view *= 3
    return t, view


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_torch(name: str, device: str) -> None:
    agree(CASES[name], CUBE, device=device)


def test_memory_stays(device: str) -> None:
    def scenario(m: Any, where: str) -> Any:
        t = m.arange(6.0, device=where).reshape(2, 3).clone()
        other = t.detach()
        same = t.t_() is t
        t[0] = 9.0
        again = m.zeros(2, device=where).unsqueeze_(0).squeeze_()
        return t, other, same, t._version, again, m.ones(2).is_same_size(m.ones(2))

    rows = [[9.0, 9.0], [1.0, 4.0], [2.0, 5.0]], [[9.0, 1.0, 2.0], [9.0, 4.0, 5.0]]
    gives([*rows, True, 2, [0.0, 0.0], True], scenario, device)


def test_the_tangent_takes_the_shape_too(device: str) -> None:
    x = lucid_gpu.arange(6.0, device=device).view(2, 3)
    y, moved = lucid_gpu.func.jvp(lambda v: v.t_().unsqueeze_(0) * 2, (x,), (x * 10,))
    assert y.tolist() == (x.t() * 2)[None].tolist() and moved.tolist() == (y * 10).tolist()


MISUSE: dict[str, tuple[Any, str]] = {
    "dims": (lambda m: m.ones(2, 2).swapaxes(0, 2), "Dimension out of range"),
    "a leaf": (
        lambda m: m.ones(2, requires_grad=True).unsqueeze_(0),
        "a leaf Variable that requires grad is being used in an in-place operation.",
    ),
    "summed to more": (lambda m: m.ones(2, 3).sum_to_size(2, 2), "is not expandable to size"),
    "H of a cube": (lambda m: m.ones(2, 2, 2).H, "only supported on matrices (2-D tensors)"),
    "t_ of a cube": (lambda m: m.ones(2, 2, 2).t_(), "tensor with <= 2 dimensions"),
}


@pytest.mark.parametrize("name", MISUSE)
def test_misuse_raises_as_in_torch(name: str) -> None:
    same_error(*MISUSE[name])
