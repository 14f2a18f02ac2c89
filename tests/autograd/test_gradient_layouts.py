"""How gradients lie in memory, beside PyTorch: what hooks see, and what `autograd.grad` gives."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.fusion import Eager
from lucid_gpu.ops.memory_formats import strides_of

from ..oracle import torch_module

SHAPES = {1: (2, 4, 8), 2: (2, 4, 6, 8), 3: (2, 4, 4, 6, 4)}


def laid(m: Any, array: Any, layout: str) -> Any:
    x, rank = m.tensor(array), array.ndim
    if layout == "channels last" and rank in (4, 5):
        return x.contiguous(memory_format=m.channels_last if rank == 4 else m.channels_last_3d)
    if layout == "reversed":
        turned = tuple(range(rank))[::-1]
        return x.permute(turned).contiguous().permute(turned)
    return x.repeat_interleave(2, -1)[..., ::2] if layout == "gaps" else x


def of_rank(m: Any, name: str, x: Any) -> Any:
    return getattr(m.nn.functional, f"{name}{x.ndim - 2}d")


# Functions of a module, a tensor, and what makes parameters of a shape.
STEPS: dict[str, Any] = {
    "conv": lambda m, x, p: of_rank(m, "conv", x)(
        x, p(4, x.shape[1], *(3,) * (x.ndim - 2)), padding=1
    ),
    "conv with bias": lambda m, x, p: of_rank(m, "conv", x)(
        x, p(4, x.shape[1], *(1,) * (x.ndim - 2)), p(4)
    ),
    "conv with stride": lambda m, x, p: of_rank(m, "conv", x)(
        x, p(4, x.shape[1], *(3,) * (x.ndim - 2)), stride=2, padding=1
    ),
    "batch_norm": lambda m, x, p: m.nn.functional.batch_norm(
        x, None, None, p(x.shape[1]), p(x.shape[1]), training=True
    ),
    "group_norm": lambda m, x, p: m.nn.functional.group_norm(x, 2, p(x.shape[1]), p(x.shape[1])),
    "instance_norm": lambda m, x, p: m.nn.functional.instance_norm(x, None, None, p(x.shape[1])),
    "layer_norm": lambda m, x, p: m.nn.functional.layer_norm(x, x.shape[-1:], p(x.shape[-1])),
    "rms_norm": lambda m, x, p: m.nn.functional.rms_norm(x, x.shape[-1:], p(x.shape[-1])),
    "max_pool": lambda m, x, p: of_rank(m, "max_pool", x)(x, 2),
    "avg_pool": lambda m, x, p: of_rank(m, "avg_pool", x)(x, 2),
    "adaptive_avg_pool": lambda m, x, p: of_rank(m, "adaptive_avg_pool", x)(x, 3),
    "adaptive_max_pool": lambda m, x, p: of_rank(m, "adaptive_max_pool", x)(x, 3),
    "pad": lambda m, x, p: m.nn.functional.pad(x, (1, 0)),
    "reflect": lambda m, x, p: m.nn.functional.pad(x, (1, 0) * (x.ndim - 2), mode="reflect"),
    "replicate": lambda m, x, p: m.nn.functional.pad(x, (1, 0) * (x.ndim - 2), mode="replicate"),
    "circular": lambda m, x, p: m.nn.functional.pad(x, (1, 0) * (x.ndim - 2), mode="circular"),
    "interpolate": lambda m, x, p: m.nn.functional.interpolate(x, scale_factor=2),
    "area": lambda m, x, p: m.nn.functional.interpolate(x, scale_factor=0.5, mode="area"),
    "relu": lambda m, x, p: x.relu(),
    "silu": lambda m, x, p: m.nn.functional.silu(x),
    "gelu": lambda m, x, p: m.nn.functional.gelu(x),
    "hardswish": lambda m, x, p: m.nn.functional.hardswish(x),
    "relu6": lambda m, x, p: m.nn.functional.relu6(x),
    "tanh": lambda m, x, p: m.tanh(x),
    "square": lambda m, x, p: x * x,
    "residual": lambda m, x, p: x + m.tanh(x),
    "bias": lambda m, x, p: x + p(x.shape[1], *(1,) * (x.ndim - 2)),
    "scale": lambda m, x, p: x * p(x.shape[-1]),
    "softmax": lambda m, x, p: x.softmax(1),
    "less the mean": lambda m, x, p: x - x.mean(1, keepdim=True),
    "less the largest": lambda m, x, p: x - x.amax(1, keepdim=True),
    "cat": lambda m, x, p: m.cat([x, x * 2], 1),
    "narrow": lambda m, x, p: x.narrow(2, 0, x.shape[2] - 1),
    "index_select": lambda m, x, p: x.index_select(1, m.tensor([0, 2, 0, 1])),
    "flip": lambda m, x, p: x.flip(2),
    "clone": lambda m, x, p: x.clone(),
    "contiguous": lambda m, x, p: x.contiguous(),
    "flatten and back": lambda m, x, p: x.flatten(2).tanh().unflatten(2, tuple(x.shape[2:])),
}
LOSSES: dict[str, Any] = {
    "sum": lambda m, x: x.sum(),
    "mean": lambda m, x: (x * x).mean(),
    "mse": lambda m, x: m.nn.functional.mse_loss(x, m.zeros(x.shape)),
    "cross_entropy": lambda m, x: m.nn.functional.cross_entropy(
        x, m.zeros((x.shape[0], *x.shape[2:]), dtype=m.int64)
    ),
}


if Eager.on:  # what a sum spreads out is computed, and lies row by row
    del LOSSES["sum"]


def long_strides(shape: Any, strides: Any) -> list[int]:
    return [s for n, s in zip(shape, strides, strict=True) if n > 1]


def gradients(m: Any, steps: list[str], rank: int, layouts: tuple[str, str], loss: str) -> Any:
    """Strides and values: of gradients that hooks see, that are returned, and that leaves have."""
    rng, seen, leaves = np.random.default_rng(0), {}, []

    def leaf(shape: Any, layout: str) -> Any:
        array = rng.standard_normal(shape).astype(np.float32)
        leaves.append(laid(m, array, layout).detach().requires_grad_())
        return leaves[-1]

    x = leaf(SHAPES[rank], layouts[0])
    chain = [x]
    for name in steps:
        x = STEPS[name](m, x, lambda *shape: leaf(shape, layouts[1]))
        chain.append(x)
    # `stride()` computes, and what a sum spreads out has an order once it is computed
    told = strides_of if m is lucid_gpu else type(x).stride
    for i, t in enumerate(chain):
        t.register_hook(lambda g, i=i: seen.update({i: long_strides(g.shape, told(g))}))
    total = LOSSES[loss](m, x)
    given = m.autograd.grad(total, leaves, retain_graph=True)
    hooked = dict(seen)
    total.backward()
    strides = [[hooked.get(i) for i in range(len(chain))]]
    strides += [[long_strides(t.shape, t.stride()) for t in given]]
    strides += [[long_strides(t.shape, t.grad.stride()) for t in leaves]]
    return strides, [g.detach().numpy() for g in given]


def compare(steps: list[str], rank: int, layouts: tuple[str, str], loss: str) -> None:
    ours, values = gradients(lucid_gpu, steps, rank, layouts, loss)
    theirs, expected = gradients(torch_module(), steps, rank, layouts, loss)
    for mine, other in zip(ours, theirs, strict=True):
        # what PyTorch spreads out as a view without a memory of its own has one here
        pairs = [(a, b) for a, b in zip(mine, other, strict=True) if 0 not in b]
        assert [a for a, _ in pairs] == [b for _, b in pairs], (steps, layouts, loss)
    for a, b in zip(values, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("name", STEPS)
def test_one_op(name: str) -> None:
    for rank, layout, loss in (
        *((2, "channels last", loss) for loss in LOSSES),
        *((rank, "channels last", next(iter(LOSSES))) for rank in (1, 3)),
        *((2, layout, "mean") for layout in ("reversed", "gaps", "row-major")),
    ):
        compare([name], rank, (layout, "row-major"), loss)


@pytest.mark.parametrize("seed", range(12))
def test_networks(seed: int) -> None:
    draw = random.Random(seed)
    shrink = {"max_pool", "avg_pool", "adaptive_avg_pool", "adaptive_max_pool", "area"}
    shrink |= {"conv with stride", "reflect"}
    steps = [draw.choice(list(STEPS)) for _ in range(5)]
    steps = [s for i, s in enumerate(steps) if s not in shrink or not shrink & {*steps[:i]}]
    known = ["channels last", "row-major"]
    layouts = (draw.choice(known), draw.choice(known))
    compare(steps, draw.choice([1, 2, 2, 3]), layouts, draw.choice(list(LOSSES)))


def columns_of(m: Any, x: Any) -> Any:
    """A matrix, or several, column by column."""
    return x.mT.contiguous().mT


# Functions of matrices and vectors: which gradients lie column by column.
MATRICES: dict[str, tuple[Any, tuple[tuple[int, ...], ...]]] = {
    "mm": (lambda m, a, b: a @ b, ((4, 3), (3, 5))),
    "mv": (lambda m, a, b: a @ b, ((4, 3), (3,))),
    "batch by matrix": (lambda m, a, b: a @ b, ((2, 4, 3), (3, 5))),
    "bmm": (lambda m, a, b: a @ b, ((2, 4, 3), (2, 3, 5))),
    "linear": (lambda m, a, b: m.nn.functional.linear(a, b), ((4, 3), (5, 3))),
    "linear of a batch": (
        lambda m, a, b, c: m.nn.functional.linear(a, b, c), ((2, 4, 3), (5, 3), (5,))
    ),
    "linear of what is pending": (
        lambda m, a, b: m.nn.functional.linear(a.tanh(), b * 2), ((4, 3), (5, 3))
    ),
    "mm of what is pending": (lambda m, a, b: a.tanh() @ (b * 2), ((4, 3), (3, 5))),
    "einsum": (lambda m, a, b: m.einsum("ij,jk->ik", a, b), ((4, 3), (3, 5))),
    "cholesky": (lambda m, a: m.linalg.cholesky(a @ a.mT + m.eye(4)), ((4, 4),)),
    "cholesky of a leaf": (lambda m, a: m.linalg.cholesky(a), ((4, 4),)),
    "qr": (lambda m, a: m.linalg.qr(a)[1], ((5, 3),)),
    "qr, wide": (lambda m, a: m.linalg.qr(a)[1], ((3, 5),)),
    "solve": (lambda m, a, b: m.linalg.solve(a, b), ((4, 4), (4, 3))),
    "solve, batch": (lambda m, a, b: m.linalg.solve(a, b), ((2, 4, 4), (2, 4, 3))),
    "by a triangle": (
        lambda m, a, b: m.linalg.solve_triangular(a, b, upper=False), ((4, 4), (4, 3))
    ),
    "cholesky_solve": (lambda m, a, b: m.cholesky_solve(b, a), ((4, 4), (4, 3))),
    "inv": (lambda m, a: m.linalg.inv(a), ((4, 4),)),
    "det": (lambda m, a: m.linalg.det(a), ((4, 4),)),
    "det, batch": (lambda m, a: m.linalg.det(a), ((2, 4, 4),)),
    "slogdet": (lambda m, a: m.linalg.slogdet(a)[1], ((4, 4),)),
    "pinv": (lambda m, a: m.linalg.pinv(a), ((4, 3),)),
    "lstsq": (lambda m, a, b: m.linalg.lstsq(a, b)[0], ((4, 3), (4, 2))),
    "vector by batch": (lambda m, a, b: a @ b, ((3,), (2, 3, 5))),
    "matrix by batch": (lambda m, a, b: a @ b, ((4, 3), (2, 3, 5))),
    "matrix by batch alone": (lambda m, a: m.ones(4, 3) @ a, ((2, 3, 5),)),
    "addbmm": (lambda m, a, b, c: m.addbmm(a, b, c), ((4, 5), (2, 4, 3), (2, 3, 5))),
    "ormqr": (lambda m, a, b, c: m.ormqr(a, b, c), ((4, 4), (4,), (4, 4))),
    "a diagonal beside": (lambda m, a: a.diagonal(1), ((3, 4, 2),)),
}  # fmt: skip


# Functions of volumes, whose gradients lie row by row.
VOLUMES: dict[str, tuple[Any, tuple[int, ...]]] = {
    "grid_sample": (
        lambda m, x: m.nn.functional.grid_sample(
            x, m.linspace(-1, 1, 48).reshape(2, 2, 2, 2, 3), align_corners=False
        ),
        (2, 20, 3, 4, 3),
    ),
    "conv_transpose3d": (
        lambda m, x: m.nn.functional.conv_transpose3d(x, m.ones((4, 3, 2, 2, 2))),
        (2, 4, 3, 4, 3),
    ),
}


@pytest.mark.parametrize("name", VOLUMES)
def test_gradients_of_volumes(name: str) -> None:
    function, shape = VOLUMES[name]
    array = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    strides, values = [], []
    for m in (lucid_gpu, torch_module()):
        x = m.tensor(array, requires_grad=True)
        (g,) = m.autograd.grad((function(m, x) ** 2).sum(), x)
        strides.append(g.stride())
        values.append(np.asarray(g))
    assert strides[0] == strides[1]
    np.testing.assert_allclose(*values, rtol=1e-4, atol=1e-4)


def test_lu_solve_from_the_right_lies_row_by_row() -> None:
    strides = []
    for m in (lucid_gpu, torch_module()):
        factors = m.linalg.lu_factor(m.eye(3) * 2)
        b = m.ones((4, 3))
        strides.append([
            m.linalg.lu_solve(*factors, b, left=False).stride(),
            m.linalg.lu_solve(*factors, b.mT).stride(),
        ])  # fmt: skip
    assert strides[0] == strides[1]


def of_matrices(m: Any, name: str, columns: bool) -> Any:
    function, shapes = MATRICES[name]
    rng, leaves = np.random.default_rng(1), []
    for shape in shapes:
        array = rng.standard_normal(shape)
        if shape[-1:] == shape[-2:-1]:
            array = array @ array.swapaxes(-1, -2) + 4 * np.eye(shape[-1])
        x = m.tensor(array.astype(np.float32))
        leaves.append((columns_of(m, x) if columns and x.ndim > 1 else x).detach())
        leaves[-1].requires_grad_()
    result = function(m, *leaves)
    weights = m.tensor(rng.standard_normal(tuple(result.shape)).astype(np.float32))
    first = m.autograd.grad((result * weights).sum(), leaves)
    return [long_strides(g.shape, g.stride()) for g in first], [np.asarray(g) for g in first]


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("name", MATRICES)
def test_gradients_of_matrices(name: str, columns: bool) -> None:
    ours, values = of_matrices(lucid_gpu, name, columns)
    theirs, expected = of_matrices(torch_module(), name, columns)
    assert ours == theirs
    if name != "cholesky_solve":  # the triangle that is not read
        for a, b in zip(values, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("shaped", ["view", "transpose", "permute"])
def test_a_write_to_a_cotangent_does_not_reach_a_gradient_that_views_it(
    shaped: str, known: bool
) -> None:
    """Where others are ``known`` to lie on its memory, and where they are not."""
    forms = {
        "view": lambda x: x.view(3, 4),
        "transpose": lambda x: x.transpose(0, 1),
        "permute": lambda x: x.permute(1, 0),
    }
    x = lucid_gpu.zeros(4, 3, requires_grad=True)
    y = forms[shaped](x)
    g = lucid_gpu.arange(12.0).reshape(y.shape).clone()
    row = g[0] if known else None
    y.backward(g)
    before = x.grad.tolist()
    g.fill_(-1)
    assert x.grad.tolist() == before
    x.grad.mul_(2)
    assert bool((g == -1).all()) and (row is None or bool((row == -1).all()))
